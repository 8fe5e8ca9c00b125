"""The charts of a page, drawn by matplotlib as SVG whose letters are text: `pip install 'groundup-accounting[charts]'`.

Colours are those of the page; what stands under the pointer is a <title> in the drawing.
"""

from __future__ import annotations

import io
import re
import warnings
from dataclasses import replace
from html import escape

from accounting.counting.flops import forward_flops
from accounting.memory.records import Group, Phase
from accounting.memory.training import training_memory
from accounting.planning.fitting import max_batch_size
from accounting.policy import Policy
from accounting.shape import TransformerShape

try:
    import matplotlib
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator
except ImportError as error:
    raise ValueError(f"charts are drawn by matplotlib, and it is not there ({error}): install matplotlib") from None

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from matplotlib.axes import Axes

CONTEXTS = tuple(1 << power for power in range(10, 21))  # 1k to 1M
SIZE = (760, 300)  # CSS pixels
COLOURS = ("#3b6ea8", "#e08a2c", "#4f9a54", "#a06cb0", "#8a8f98", "#1f7880", "#b0476f")
SOFT, LINE, LIMIT, INK = "#667085", "#d9dde5", "#c8373f", "#1d2330"
PAGE = {SOFT: "var(--soft)", LINE: "var(--line)", LIMIT: "var(--limit)", INK: "var(--ink)"}  # light and dark
SAMPLES = 24  # batches at which the memory is computed
GROUPS = {
    "parameters": (Group.PARAMETERS,),
    "optimizer state": (Group.OPTIMIZER_STATE,),
    "gradients": (Group.GRADIENTS,),
    "activations": (Group.SAVED, Group.THIS_BLOCK, Group.IN_FLIGHT),
    "temporary": (Group.TEMPORARY, Group.ALLOCATOR, Group.OVERHEAD),
}
STYLE: Any = {  # of matplotlib
    "svg.fonttype": "none",  # letters as text, in the fonts of the page
    "svg.hashsalt": "accounting",  # the same drawing has the same bytes
    "font.size": 12,
    "text.color": SOFT,
    "axes.labelcolor": SOFT,
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "grid.color": LINE,
}
TIP = "tip: "  # what an id begins with that becomes a title


def shares(shape: TransformerShape, pairs: str) -> str:
    """Stacked shares of the forward FLOPs, over the pairs of the tables, from 1k to 1M positions."""
    far = replace(shape, context_length=max(shape.context_length, CONTEXTS[-1]))
    counts = [forward_flops(far, length, pairs=pairs) for length in CONTEXTS]

    def paint(axes: Axes) -> None:
        bottoms = [0.0] * len(counts)
        for colour, name in enumerate(counts[0]):
            for at, (length, count) in enumerate(zip(CONTEXTS, counts, strict=True)):
                part = count.share(name)
                (bar,) = axes.bar(at, part, 0.94, bottoms[at], color=COLOURS[colour], label=name if at == 0 else None)
                bar.set_gid(f"{TIP}{name} at {length:,}: {part:.1%}")
                bottoms[at] += part
        axes.set_xticks(range(len(CONTEXTS)), [_thousands(length) for length in CONTEXTS])
        axes.set_yticks([0, 0.25, 0.5, 0.75, 1], [f"{part}%" for part in (0, 25, 50, 75, 100)])
        axes.set(xlim=(-0.5, len(CONTEXTS) - 0.5), ylim=(0, 1))
        axes.set_xlabel("positions of a sequence", loc="right")

    return _drawn("shares of the forward FLOPs", paint)


def memory(shape: TransformerShape, length: int, limits: tuple[tuple[str, int], ...], policy: Policy) -> str:
    """What the peak is made of, stacked, over the batch, with the memory of devices drawn across it."""
    highest = max(size for _, size in limits)
    most = max_batch_size(shape, highest, length, policy=policy)
    last = max(2, most + max(1, most // 12))
    batches = sorted({max(1, round(1 + (last - 1) * part / SAMPLES)) for part in range(SAMPLES + 1)})
    peaks = [_grouped(training_memory(shape, batch, length, policy=policy).peak) for batch in batches]
    top = max(max(sum(parts) for parts in peaks), highest / 1e9) * 1.04

    def paint(axes: Axes) -> None:
        stacks = axes.stackplot(batches, *zip(*peaks, strict=True), labels=list(GROUPS), colors=COLOURS)
        for stack, name in zip(stacks, GROUPS, strict=True):
            stack.set_gid(f"{TIP}{name}")
        axes.plot(batches, [sum(parts) for parts in peaks], color=INK, linewidth=1.5)
        lowest = 2.0  # share of the height: of the names so far, which go down from the largest and do not touch
        for words, size in sorted(limits, key=lambda limit: -limit[1]):
            axes.axhline(size / 1e9, color=LIMIT, linewidth=1, linestyle=(0, (5, 4))).set_gid(f"{TIP}limit: {words}")
            lowest = min(lowest - 0.05, size / 1e9 / top)
            axes.text(1.01, lowest, words, color=LIMIT, transform=axes.transAxes, va="center")
        axes.set(xlim=(1, last), ylim=(0, top))
        axes.yaxis.set_major_formatter("{x:,g} GB")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(axis="y", linewidth=1)
        axes.set_axisbelow(True)
        axes.set_xlabel("sequences in a batch", loc="right")

    return _drawn("peak of a training step", paint)


def _grouped(peak: Phase) -> list[float]:
    """GB of a peak by GROUPS."""
    found = peak.by_group()
    return [sum(int(found[group]) for group in among) / 1e9 for among in GROUPS.values()]


def _drawn(label: str, paint: Callable[[Axes], None]) -> str:
    """What `paint` draws, as part of a page: its colours by name, its ids as titles, nothing that points elsewhere."""
    out = io.StringIO()
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a letter that the font to measure with has not
        figure = Figure(figsize=(SIZE[0] / 72, SIZE[1] / 72), dpi=72, layout="constrained")  # a pixel is a point
        axes = figure.add_subplot()
        axes.spines[:].set_visible(False)
        axes.tick_params(length=0, pad=6)
        paint(axes)
        figure.legend(loc="outside upper left", ncols=7, frameon=False, handlelength=0.9, columnspacing=1.4)
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
    drawing = out.getvalue()
    drawing = drawing[drawing.index("<svg") :]
    drawing = re.sub(r"<metadata>.*?</metadata>", "", drawing, flags=re.DOTALL)
    drawing = re.sub(r' xmlns(:\w+)?="[^"]*"', "", drawing).replace("xlink:href", "href")
    drawing = re.sub(rf'<g id="{TIP}([^"]*)">', r"<g><title>\1</title>", drawing)
    head = rf'<svg viewBox="\1" width="100%" role="img" aria-label="{escape(label)}">'
    drawing = re.sub(r'<svg [^>]*viewBox="([^"]*)"[^>]*>', head, drawing, count=1)
    for colour, name in PAGE.items():
        drawing = drawing.replace(colour, name)
    return f'<div class="scroll">{drawing}</div>'


def _thousands(length: int) -> str:
    return f"{length >> 20}M" if length >= 1 << 20 else f"{length >> 10}k"
