"""The parts of a page: line charts drawn by matplotlib, tables, bars, large figures and cards, as functions to HTML.

Text is escaped wherever it comes in; `Html` marks a string that is HTML already. A chart of a page is the drawing that
`picture` makes for a file.
"""

from __future__ import annotations

import base64
import html
import io
import math
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

from lm.extras import need

Point = tuple[float, float]
DOTS = 40  # at most this many marks on a line
WIDE, HALF = (924, 440), (434, 238)  # width and height of a drawing in CSS pixels
SOFT, RULE, PAPER = "#6a6b70", "#e4e1d9", "#fdfcf9"
SERIES = ["#2a5b8c", "#b1521f", "#47794a", "#86529a", "#8f6a10", "#1f7880", "#b0476f", "#5d6470"]
DASHES = ("solid", (0, (7, 5)), (0, (2, 4)))  # after the last colour they repeat, with the next of these
DIRECTIONS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
STYLE: Any = {  # of matplotlib
    "svg.fonttype": "none",  # letters as text
    "svg.hashsalt": "lm",  # the same chart has the same bytes
    "path.simplify_threshold": 0.5,  # of a pixel
    "text.parse_math": False,  # a dollar sign is one
    "font.size": 12,
    **dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), SOFT),
    **dict.fromkeys(("axes.facecolor", "figure.facecolor", "savefig.facecolor"), PAPER),
    "grid.color": RULE,
}


class Html(str):
    """A string that is HTML already."""

    __slots__ = ()


@dataclass(frozen=True)
class Line:
    """One series of a chart; a line with a `label` stands in the legend, `name` is what a screen reader says."""

    name: str
    points: Sequence[Point]
    colour: int = 0
    style: Literal["line", "soft", "thin", "marks"] = "line"
    label: str = ""

    @property
    def ends_at(self) -> float | None:
        return next((y for _, y in reversed(self.points) if math.isfinite(y)), None)

    def stroke(self) -> dict[str, Any]:
        """Return matplotlib's arguments of the line."""
        width, alpha = {"thin": (1.0, 0.28), "soft": (1.25, 0.5)}.get(self.style, (1.75, 1.0))
        marks = self.style == "marks" or len(self.points) == 1
        end = number(self.ends_at) if self.label and self.ends_at is not None else None
        return {
            "color": SERIES[self.colour % len(SERIES)],
            "linestyle": DASHES[self.colour // len(SERIES) % len(DASHES)],
            **{"linewidth": width, "alpha": alpha, "marker": "o" if marks else None, "markersize": 7},
            **{"markeredgecolor": PAPER, "markevery": math.ceil(len(self.points) / DOTS) or 1},
            "label": end and f"{unturned(self.label)} {end}",
        }


def colour_of(number: int) -> str:
    """Return the CSS classes of a colour; after the last they repeat, dashed and then dotted."""
    turn = number // len(SERIES) % len(DASHES)
    return f"c{number % len(SERIES)}" + (f" d{turn}" if turn else "")


def smooth(points: Sequence[Point], share: float = 0.02) -> list[Point]:
    """A moving average over about `share` of the points, twice: without lag, and narrower where a curve begins."""
    points = [point for point in points if math.isfinite(point[1])]
    reach = max(1, round(len(points) * share / 2))
    for _ in range(2):
        sums = list(accumulate((y for _, y in points), initial=0.0))
        spans = [(i - min(reach, i // 2), min(i + min(reach, i // 2) + 1, len(points))) for i in range(len(points))]
        points = [(x, (sums[b] - sums[a]) / (b - a)) for (x, _), (a, b) in zip(points, spans, strict=True)]
    return points


def picture(
    lines: Sequence[Line],
    *,
    wide: bool = True,
    x_name: str = "step",
    references: Mapping[str, float] | None = None,
    log: bool = False,
    log_x: bool = False,
    zero: bool = False,
    ceiling: float = math.inf,
) -> str:
    """Return an SVG file of lines, WIDE or HALF.

    Values above the ceiling are not drawn; without a logarithm neither are those that have none.
    """
    matplotlib = need("matplotlib", "a chart", "groundup-lm[report]")
    from matplotlib.figure import Figure
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    width, height = WIDE if wide else HALF
    ceiling = max([ceiling, *(references or {}).values()])
    out = io.StringIO()
    with matplotlib.rc_context(STYLE), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a letter that the font to measure with lacks; an empty log scale
        figure = Figure(figsize=(width / 72, height / 72), dpi=72, layout="constrained")  # a pixel is a point
        axes = figure.add_subplot(xscale="log" if log_x else "linear", yscale="log" if log else "linear")
        for line in lines:
            ys = [y if (y > 0 or not log) and abs(y) < math.inf and y <= ceiling else math.nan for _, y in line.points]
            axes.plot([x for x, _ in line.points], ys, **line.stroke())
        for name, value in (references or {}).items():
            axes.axhline(value, color=SOFT, linewidth=1, linestyle=DASHES[2], label=f"{name} {number(value)}")
        axes.margins(x=0.01)
        if zero and not log:
            axes.set_ylim(bottom=0)
        for axis, is_log in ((axes.xaxis, log_x), (axes.yaxis, log)):
            low, high = axis.get_view_interval()
            subs = (1.0, 2.0, 5.0) if high < 1000 * low else (1.0,)
            axis.set_major_locator(LogLocator(subs=subs) if is_log else MaxNLocator(7 if wide else 4))
            axis.set_minor_locator(NullLocator())
            axis.set_major_formatter(lambda value, _: number(value, 3))
        axes.tick_params(length=0, pad=8)
        axes.grid(axis="y")
        axes.spines[:].set_visible(False)
        axes.set_xlabel({"seconds": "seconds of training", "tokens": "tokens read"}.get(x_name, x_name), loc="right")
        if axes.get_legend_handles_labels()[0]:
            axes.legend(loc="upper right", frameon=False, labelcolor=SOFT)
        figure.savefig(out, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    return re.sub(r'="[^"]*"', lambda value: re.sub(r"(\.\d)\d+", r"\1", value[0]), out.getvalue())  # 0.1 pixel


def unturned(name: str) -> str:
    """A name that turns no text beside it."""
    return DIRECTIONS.sub("\ufffd", name)


def chart(title: str, lines: Sequence[Line], *, note: str = "", wide: bool = False, **options: Any) -> str:
    """Return one figure of a page; `options` are picture()'s."""
    lines = [line for line in lines if line.ends_at is not None]
    drawing = '<p class="empty">nothing logged</p>'
    if lines:
        ends = "; ".join(f"{one.name} ends at {number(one.ends_at or 0.0)}" for one in lines if one.style != "thin")
        label = text(f"{title} by {options.get('x_name', 'step')}: {ends}")
        svg = base64.b64encode(picture(lines, wide=wide, **options).encode()).decode()
        drawing = f'<img class="plot" alt="{label}" src="data:image/svg+xml;base64,{svg}">'
    return (
        f'<figure class="chart{" wide" if wide else ""}">'
        f"<figcaption><b>{text(title)}</b> <span>{text(note)}</span></figcaption>{drawing}</figure>\n"
    )


def number(value: float, digits: int = 4) -> str:
    """A value as a person reads it: 12,345 · 1.632 · 6.1 × 10⁻⁴."""
    if not math.isfinite(value):
        return "∞" if value == math.inf else "−∞" if value == -math.inf else "not a number"
    size = abs(value)
    if size and (size < 0.001 or size >= 1e15):
        mantissa, exponent = f"{value:.{min(digits, 3) - 1}e}".split("e")
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        raised = str(int(exponent)).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
        return f"{mantissa} × 10{raised}".replace("-", "−")
    if size >= 1000 or value == int(value):
        return f"{value:,.0f}".replace("-", "−")
    places = digits - 1 - math.floor(math.log10(size)) if size >= 1 else digits
    return f"{value:.{places}f}".rstrip("0").rstrip(".").replace("-", "−")


def text(value: object) -> str:
    """Any text as HTML: escaped, and what no page can carry made visible. Marks that turn the direction of text, which
    would reach what stands beside it, are U+FFFD."""
    printable = unturned(str(value).encode("utf-8", "replace").decode())
    printable = "".join(chr(0x2400 + ord(c)) if c < " " and c not in "\t\n" else c for c in printable)
    return value if isinstance(value, Html) else html.escape(printable)


def table(headers: Sequence[object], rows: Iterable[Sequence[object]]) -> Html:
    """A table. A column of numbers is set to the right, all with the same decimals; None is a dash."""
    columns = [list(column) for column in zip(*rows, strict=True)] or [[] for _ in headers]
    cells, kinds = [], []
    for column in columns:
        numbers = [value for value in column if isinstance(value, int | float) and not isinstance(value, bool)]
        right = bool(numbers) and all(value in ("", "—", None) or value in numbers for value in column)
        places = max(
            (len(number(value).partition(".")[2]) for value in numbers if 1e-3 <= abs(value) < 1e15), default=0
        )
        kinds.append(' class="n"' if right else "")
        cells.append([_cell(value, places) for value in column])
    head = "".join(f"<th{kind}>{text(cell)}</th>" for cell, kind in zip(headers, kinds, strict=True))
    body = "".join(
        f"<tr>{''.join(f'<td{kind}>{cell}</td>' for cell, kind in zip(row, kinds, strict=True))}</tr>\n"
        for row in zip(*cells, strict=True)
    )
    return Html(f'<div class="scroll"><table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table></div>\n')


def _cell(value: object, places: int) -> str:
    if value is None:
        return "—"
    if isinstance(value, float) and math.isfinite(value) and 1e-3 <= abs(value) < 1e15:
        return f"{value:,.{places}f}".replace("-", "−")
    return number(value) if isinstance(value, int | float) and not isinstance(value, bool) else text(value)


def bars(rows: Iterable[tuple[str, float, str]], *, highlight: str | None = None) -> Html:
    """Horizontal bars of (label, value, text): lengths in proportion to the greatest value, `highlight` in colour."""
    rows = list(rows)
    most = max((value for _, value, _ in rows if math.isfinite(value)), default=0.0) or 1.0
    drawn = [
        f'<div class="bar{" own" if label == highlight else ""}"><span>{text(label)}</span>'
        f'<i style="width:{max(0.0, value) / most * 100 if math.isfinite(value) else 0:.2f}%"></i>'
        f"<b>{text(shown)}</b></div>\n"
        for label, value, shown in rows
    ]
    return Html(f'<div class="bars{" ranked" if highlight is not None else ""}">{"".join(drawn)}</div>\n')


def big(figures: Iterable[tuple[str, str, str]]) -> Html:
    """Big numbers in a row: (value, unit, label)."""
    drawn = [
        f"<div><b>{text(value)}</b> <span>{text(unit)}</span><small>{text(label)}</small></div>\n"
        for value, unit, label in figures
    ]
    return Html(f'<div class="figures">{"".join(drawn)}</div>\n') if drawn else Html()


def quantity(value: float | None, unit: str = "") -> str:
    """With its unit: "B" counts in KiB, MiB, …, "s" in minutes, others in k, M, G, …; a dash for None."""
    if value is None or not math.isfinite(value):
        return "—" if value is None else number(value)
    if unit == "s":
        whole = round(value)
        if value < 100:
            return f"{number(value, 3)} s"
        return f"{whole // 3600} h {whole % 3600 // 60} min" if whole >= 6000 else f"{whole // 60} min {whole % 60} s"
    base, names = (
        (1024.0, ("", "Ki", "Mi", "Gi", "Ti", "Pi")) if unit == "B" else (1000.0, ("", "k", "M", "G", "T", "P", "E"))
    )
    if (abs(value) < 10_000 and unit != "B") or (isinstance(value, int) and not unit):
        return f"{number(value)} {unit}".strip()
    power = 0
    while abs(value) >= base * 0.9995 and power < len(names) - 1:
        value, power = value / base, power + 1
    gap = " " if unit[1:] and unit.islower() else ""  # 20 k tokens/s, but TFLOP
    return f"{number(value, 3)} {names[power]}{gap}{unit}".strip()


def comparison(rows: Iterable[Sequence[Any]]) -> Html:
    """A table of predictions beside measurements: (label, predicted, measured) and, optionally, a unit.

    A mark right of the middle of its scale was measured above the prediction; the scale ends at a third more.
    """
    drawn = []
    for label, predicted, measured, *unit in rows:
        change, gauge = "—", ""
        if predicted and measured and predicted > 0 and measured > 0:
            ratio = measured / predicted
            change = "exact" if ratio == 1 else f"{100 * (ratio - 1):+.1f} %".replace("-", "−")
            change = change if ratio < 3 else f"× {number(ratio, 3)}"
            place = 50 + 50 * max(-1.0, min(math.log(ratio, 4 / 3), 1.0))
            gauge = f'<span class="gauge"><i style="left:{place:.1f}%"></i></span>'
        shown = [quantity(value, *unit) for value in (predicted, measured)]
        drawn.append([label, *(Html(f"<b class='q'>{text(s)}</b>") for s in shown), Html(f"{change}{gauge}")])
    return Html(
        table(["", "predicted", "measured", "difference"], drawn).replace("<table>", '<table class="comparison">')
    )


def samples(pairs: Iterable[tuple[str, str]]) -> Html:
    """Completions as cards: the prompt stands out from what the model wrote after it."""
    cards = [f'<pre class="sample"><b>{text(prompt)}</b>{text(completion)}</pre>\n' for prompt, completion in pairs]
    return Html(f'<div class="samples">{"".join(cards)}</div>\n')
