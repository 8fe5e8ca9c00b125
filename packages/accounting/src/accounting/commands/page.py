"""A report as one self-contained page: the figures that matter, two charts as SVG, the tables.

No script, nothing fetched.
"""

from __future__ import annotations

from dataclasses import replace
from html import escape

from accounting.commands.report import LIMITS, Asked
from accounting.commands.sections import Section, percentages
from accounting.counting.flops import forward_flops, pairs_in_words
from accounting.counting.parameters import parameters
from accounting.memory.inference import kv_cache
from accounting.memory.records import Group, Phase
from accounting.memory.training import training_memory
from accounting.planning.fitting import max_batch_size
from accounting.policy import Policy
from accounting.shape import TransformerShape
from accounting.units import Count, human

CONTEXTS = tuple(1 << power for power in range(10, 21))  # 1k to 1M
WIDTH, HEIGHT, LEFT, TOP, BOTTOM = 760, 260, 64, 14, 30
RIGHT = 12  # of the chart of shares; that of memory leaves room for the names of its limits
COLOURS = ("#3b6ea8", "#e08a2c", "#4f9a54", "#a06cb0", "#8a8f98")
SAMPLES = 24  # batches at which the memory is computed
GROUPS = {
    "parameters": (Group.PARAMETERS,),
    "optimizer state": (Group.OPTIMIZER_STATE,),
    "gradients": (Group.GRADIENTS,),
    "activations": (Group.SAVED, Group.THIS_BLOCK, Group.IN_FLIGHT),
    "temporary": (Group.TEMPORARY, Group.ALLOCATOR, Group.OVERHEAD),
}
STYLE = """
:root { color-scheme: light dark; --paper: #fff; --ink: #1d2330; --soft: #667085; --line: #d9dde5; --card: #f6f7f9;
  --limit: #c8373f; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e7e9ee; --soft: #9aa3b2; --line: #353b47; --card: #1d222b; --limit: #ff7a7f; --paper: #14171d; }
}
body { background: var(--paper); font: 15px/1.5 system-ui, sans-serif; color: var(--ink);
  max-width: 60rem; margin: 2.5rem auto; padding: 0 1.2rem; }
h1 { font-size: 1.7rem; margin: 0; } h2 { font-size: 1.05rem; margin: 2.4rem 0 .5rem; }
.figures { display: grid; grid-template-columns: repeat(auto-fit, minmax(10rem, 1fr)); gap: .8rem; margin: 1.4rem 0; }
.figures div { background: var(--card); border-radius: .6rem; padding: .7rem .9rem; }
.figures b { display: block; font-size: 1.15rem; white-space: nowrap; } .figures span { color: var(--soft); font-size: .8rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
td { padding: .16rem 0 .16rem 1rem; text-align: right; white-space: nowrap; border-top: 1px solid var(--line); }
tr:first-child td { border-top: 0; } td:first-child { text-align: left; padding-left: 0; width: 34%; white-space: normal; }
td:nth-child(2) { width: 20%; } td:nth-child(3) { width: 17%; } td:nth-child(4) { width: 7%; }
td.bar { width: 22%; } td.bar div { background: #3b6ea8; height: .6rem; border-radius: .15rem; }
tr.formula td { border-top: 0; padding: 0 0 .3rem 1rem; text-align: left; white-space: normal; color: var(--soft);
  font-size: .75rem; width: auto; }
tr.total td { border-top: 2px solid var(--soft); font-weight: 600; }
p { color: var(--soft); font-size: .82rem; margin: .5rem 0; max-width: 46rem; }
.scroll { overflow-x: auto; }
svg { display: block; min-width: 26rem; } svg text { font: 12px system-ui, sans-serif; fill: var(--soft); }
svg .grid { stroke: var(--line); } svg .limit { stroke: var(--limit); stroke-dasharray: 5 4; }
svg .limit-text { fill: var(--limit); }
.legend span { display: inline-block; margin-right: 1.1rem; color: var(--soft); font-size: .82rem; }
.legend i { display: inline-block; width: .7rem; height: .7rem; border-radius: .12rem; margin-right: .4rem; }
@media (max-width: 40rem) { td.bar { display: none; } td { padding-left: .6rem; } td:first-child { width: auto; } }
svg .edge { stroke: var(--ink); stroke-width: 1.5; fill: none; }
"""


def page(
    name: str,
    asked: Asked,
    sections: tuple[Section, ...],
    *,
    limits: tuple[tuple[str, int], ...] = LIMITS,
    explain: bool = False,
) -> str:
    """The page; limits are lines across the chart of memory, (name, bytes).

    Every row shows its formula under the pointer, and with explain=True below it too.
    """
    title = f"{escape(name)} at context {asked.length:,}, batch {asked.batch:,}"
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
            f"<title>{title}</title><style>{STYLE}</style></head><body>",
            f"<h1>{title}</h1>",
            figures(asked),
            "<h2>Share of the forward FLOPs as the context grows</h2>",
            shares(asked.shape, asked.pairs),
            f"<p>Matrix multiplications; scores over {pairs_in_words(asked.pairs)}.</p>",
            "<h2>Peak of a training step against the batch</h2>",
            memory(asked.shape, asked.length, limits, policy=asked.policy),
            *(table(one, explain=explain) for one in sections),
            "</body></html>",
        ]
    )


def figures(asked: Asked) -> str:
    """The few numbers that are asked for first."""
    shape, length, batch = asked.shape, asked.length, asked.batch
    step = training_memory(shape, batch, length, policy=asked.policy)
    forward = forward_flops(shape, length, batch, pairs=asked.pairs)
    cards = (
        (human(parameters(shape).total).removesuffix(" parameters"), "parameters"),
        (human(forward.total), "forward, matrix multiplications"),
        (human(3 * forward.total), "a training step"),
        (human(step.total), f"at the peak: {step.peak.title}"),
        (human(kv_cache(shape, 1, 1).total), "of cache a token, bf16"),
    )
    return (
        '<div class="figures">'
        + "".join(f"<div><b>{escape(value)}</b><span>{escape(words)}</span></div>" for value, words in cards)
        + "</div>"
    )


def table(one: Section, *, explain: bool = False) -> str:
    """A section as an HTML table; exact values, shares that add up to 100%, bars, and with explain=True the
    formulas."""
    highest = max((row.value for row in one.rows), default=0) or 1
    parts = percentages([row.value for row in one.rows]) if one.additive else [""] * len(one.rows)
    unit = one.unit.unit if one.unit.unit not in one.title else ""
    title = f"{one.title[0].upper()}{one.title[1:]}" + (f" ({unit})" if unit else "")
    lines = [f'<h2>{escape(title)}</h2><div class="scroll"><table>']
    for row, share in zip(one.rows, parts, strict=True):
        width = 100 * row.value / highest
        short = _short(one.unit(row.value))
        formula = f"{row.formula} = {row.numbers}" if row.formula else ""
        lines.append(
            f'<tr><td title="{escape(formula)}">{escape(row.name)}</td><td>{row.value:,}</td><td>{short}</td>'
            f'<td>{share}</td><td class="bar"><div style="width:{width:.1f}%"></div></td></tr>'
        )
        if explain and formula:
            lines.append(f'<tr class="formula"><td colspan="5">= {escape(formula)}</td></tr>')
    if one.additive:
        lines.append(
            f'<tr class="total"><td>total</td><td>{one.total}</td><td>{_short(one.total)}</td><td></td>'
            '<td class="bar"></td></tr>'
        )
    return "\n".join([*lines, f"</table></div><p>{escape(one.note)}</p>"])


def _short(value: Count) -> str:
    words = human(value)
    return "" if words == f"{int(value)}" else words


def shares(shape: TransformerShape, pairs: str) -> str:
    """Stacked shares of the forward FLOPs, over the pairs of the tables, from 1k to 1M positions."""
    lengths = CONTEXTS
    far = replace(shape, context_length=max(shape.context_length, lengths[-1]))
    counts = [forward_flops(far, one, pairs=pairs) for one in lengths]
    lines, bar = [_open("shares of the forward FLOPs"), *_grid()], (WIDTH - LEFT - RIGHT) / len(lengths)
    for at, (length, count) in enumerate(zip(lengths, counts, strict=True)):
        x, low = LEFT + at * bar, float(TOP + HEIGHT)
        for colour, name in enumerate(count):
            part = count.share(name) * HEIGHT
            low -= part
            lines.append(
                f'<rect x="{x + 1:.1f}" y="{low:.2f}" width="{bar - 2:.1f}" height="{part:.2f}" fill="{COLOURS[colour]}">'
                f"<title>{escape(name)} at {length:,}: {count.share(name):.1%}</title></rect>"
            )
        lines.append(_text(x + bar / 2, TOP + HEIGHT + 18, _thousands(length), "middle"))
    return "\n".join([_legend(list(counts[0])), *lines, "</svg></div>"])


def memory(shape: TransformerShape, length: int, limits: tuple[tuple[str, int], ...], policy: Policy) -> str:
    """What the peak is made of, stacked, over the batch, with the memory of devices drawn across it."""
    highest = max(size for _, size in limits)
    most = max_batch_size(shape, highest, length, policy=policy)
    last = max(2, most + max(1, most // 12))
    batches = sorted({max(1, round(1 + (last - 1) * part / SAMPLES)) for part in range(SAMPLES + 1)})
    peaks = [_grouped(training_memory(shape, batch, length, policy=policy).peak) for batch in batches]
    top = max(max(sum(parts) for parts in peaks), highest) * 1.04
    right = WIDTH - max(RIGHT, *(14 + 7 * len(words) for words, _ in limits))

    def y(value: float) -> float:
        return TOP + HEIGHT - HEIGHT * value / top

    def x(batch: float) -> float:
        return LEFT + (right - LEFT) * (batch - 1) / (last - 1)

    lines = [_open("peak of a training step")]
    for size in _ticks(top / 1e9):
        at = y(size * 1e9)
        lines.append(f'<line class="grid" x1="{LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/>')
        lines.append(_text(LEFT - 8, at + 4, f"{size:g} GB", "end"))
    for group, name in enumerate(GROUPS):
        upper = [
            f"{x(batch):.1f},{y(sum(parts[: group + 1])):.1f}" for batch, parts in zip(batches, peaks, strict=True)
        ]
        lower = [f"{x(batch):.1f},{y(sum(parts[:group])):.1f}" for batch, parts in zip(batches, peaks, strict=True)]
        points = " ".join(upper + lower[::-1])
        lines.append(f'<polygon points="{points}" fill="{COLOURS[group]}"><title>{name}</title></polygon>')
    edge = " ".join(f"{x(batch):.1f},{y(sum(parts)):.1f}" for batch, parts in zip(batches, peaks, strict=True))
    lines.append(f'<polyline class="edge" points="{edge}"/>')
    lowest = 0.0  # of the names so far, which go down from the largest and do not touch
    for words, size in sorted(limits, key=lambda limit: -limit[1]):
        at = y(size)
        lowest = max(lowest + 12, at + 4)
        lines.append(f'<line class="limit" x1="{LEFT}" x2="{right}" y1="{at:.1f}" y2="{at:.1f}"/>')
        lines.append(f'<text class="limit-text" x="{right + 8}" y="{lowest:.1f}">{escape(words)}</text>')
    ticks = [1, *(int(one) for one in _ticks(last) if one > last / 20 and one == int(one))]
    lines += [_text(x(tick), TOP + HEIGHT + 18, f"{tick:,}", "middle") for tick in ticks]
    fits = ", ".join(
        f"{max_batch_size(shape, size, length, policy=policy):,} in {escape(words)}" for words, size in limits
    )
    return "\n".join(
        [_legend(list(GROUPS)), *lines, "</svg></div>", f"<p>Sequences in a batch. The most that fit: {fits}.</p>"]
    )


def _grouped(peak: Phase) -> list[int]:
    """Bytes of a peak by GROUPS."""
    found = peak.by_group()
    return [sum(int(found[group]) for group in among) for among in GROUPS.values()]


def _open(label: str) -> str:
    size = f"0 0 {WIDTH} {TOP + HEIGHT + BOTTOM}"
    return f'<div class="scroll"><svg viewBox="{size}" width="100%" role="img" aria-label="{label}">'


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{words}</text>'


def _grid() -> list[str]:
    lines = []
    for part in (0, 0.25, 0.5, 0.75, 1):
        at = TOP + HEIGHT * (1 - part)
        lines.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        lines.append(_text(LEFT - 8, at + 4, f"{part:.0%}", "end"))
    return lines


def _legend(names: list[str]) -> str:
    """Above the chart, the lowest part first; a line of words wraps where a drawing would shrink."""
    parts = zip(names, COLOURS, strict=False)
    chips = (f'<span><i style="background:{colour}"></i>{escape(name)}</span>' for name, colour in parts)
    return f'<div class="legend">{"".join(chips)}</div>'


def _ticks(top: float) -> list[float]:
    """About five round numbers up to top."""
    step = 10.0 ** (len(str(int(top))) - 1) if top >= 1 else top / 4
    for factor in (0.1, 0.2, 0.25, 0.5, 1, 2, 5):
        if top / (step * factor) <= 6:
            step *= factor
            break
    return [step * at for at in range(int(top / step) + 1)]


def _thousands(length: int) -> str:
    return f"{length >> 20}M" if length >= 1 << 20 else f"{length >> 10}k"
