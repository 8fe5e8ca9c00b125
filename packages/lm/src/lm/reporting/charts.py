"""The parts of a page as functions to HTML: line charts by matplotlib, tables, bars, predictions beside measurements.

Text is escaped wherever it comes in; `Html` marks a string that is HTML already. A chart of a page is the SVG file that
`picture` makes.
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
COLOURS, DASHES = 10, ("-", "--", ":")  # matplotlib's colours; after the last they repeat, with the next dashes
WIDE, HALF = (12.8, 6.1), (6.4, 3.6)  # width and height of a drawing in inches
STYLE: Any = {  # of matplotlib
    "svg.fonttype": "none",  # letters as text
    "svg.hashsalt": "lm",  # the same chart has the same bytes
    "text.parse_math": False,  # a dollar sign is one
}
DIRECTIONS = re.compile("[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]")
STROKES: dict[str, dict[str, Any]] = {
    "line": {},
    "soft": {"linewidth": 1, "alpha": 0.5},
    "thin": {"linewidth": 1, "alpha": 0.25},
    "marks": {"marker": "o"},
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
    ceiling: float = math.inf,
) -> str:
    """Return an SVG file of lines, WIDE or HALF; references: horizontal lines by name; ceiling: the top of the axis."""
    need("matplotlib", "a chart", "groundup-lm[report]")
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    out = io.StringIO()
    with rc_context(STYLE), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a letter that the font to measure with lacks; an empty log scale
        figure = Figure(figsize=WIDE if wide else HALF, layout="constrained")
        axes = figure.add_subplot(xscale="log" if log_x else "linear", yscale="log" if log else "linear")
        for line in lines:
            stroke = {**STROKES[line.style], "markevery": math.ceil(len(line.points) / DOTS) or 1}
            stroke |= {"color": f"C{line.colour % COLOURS}", "ls": DASHES[line.colour // COLOURS % len(DASHES)]}
            if len(line.points) == 1:  # which would draw no line
                stroke["marker"] = "o"
            if line.label and line.ends_at is not None:
                stroke["label"] = f"{unturned(line.label)} {number(line.ends_at)}"
            axes.plot(*zip(*((x, y if math.isfinite(y) else math.nan) for x, y in line.points), strict=True), **stroke)
        for name, value in (references or {}).items():
            axes.axhline(value, color="gray", linewidth=1, linestyle=":", label=f"{unturned(name)} {number(value)}")
        ceiling = max([ceiling, *(references or {}).values()])
        if ceiling < axes.get_ylim()[1]:
            axes.set_ylim(top=ceiling)
        axes.grid(axis="y", alpha=0.3)
        axes.set_xlabel({"seconds": "seconds of training", "tokens": "tokens read"}.get(x_name, x_name))
        if axes.get_legend_handles_labels()[0]:
            axes.legend(loc="upper right")
        figure.savefig(out, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    return out.getvalue()


def chart(title: str, lines: Sequence[Line], *, note: str = "", wide: bool = False, **options: Any) -> str:
    """Return one figure of a page; `options` are picture()'s."""
    lines = [line for line in lines if line.ends_at is not None]
    drawing = "<p>nothing logged</p>"
    if lines:
        ends = "; ".join(f"{one.name} ends at {number(one.ends_at or 0.0)}" for one in lines if one.style != "thin")
        label = text(f"{title} by {options.get('x_name', 'step')}: {ends}")
        svg = base64.b64encode(picture(lines, wide=wide, **options).encode()).decode()
        drawing = f'<img alt="{label}" src="data:image/svg+xml;base64,{svg}">'
    return (
        f"<figure{' class=wide' * wide}><figcaption><b>{text(title)}</b> {text(note)}</figcaption>{drawing}</figure>\n"
    )


def number(value: float, digits: int = 4) -> str:
    """A value as a person reads it: 12,345, 1.632, 0.00061."""
    if math.isfinite(value) and (value == int(value) or 1000 <= abs(value) < 1e15):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def unturned(name: str) -> str:
    """A name without the marks that turn the direction of the text beside it: U+FFFD stands for them."""
    return DIRECTIONS.sub("\ufffd", name)


def text(value: object) -> str:
    """Any text as HTML: escaped, and what no page can carry made visible."""
    if isinstance(value, Html):
        return value
    printable = unturned(str(value).encode("utf-8", "replace").decode())
    return html.escape("".join(chr(0x2400 + ord(c)) if c < " " and c not in "\t\n" else c for c in printable))


def table(headers: Sequence[object], rows: Iterable[Sequence[object]]) -> Html:
    """A table. Numbers are set to the right; None is a dash."""

    def cell(value: object) -> str:
        if isinstance(value, int | float) and not isinstance(value, bool):
            return f'<td class="n">{number(value)}</td>'
        return f"<td>{'—' if value is None else text(value)}</td>"

    head = "".join(f"<th>{text(name)}</th>" if name else "<td></td>" for name in headers)
    body = "".join(f"<tr>{''.join(map(cell, row))}</tr>\n" for row in rows)
    rows_and_head = f"<table><thead><tr>{head}</tr></thead>\n<tbody>{body}</tbody></table>"
    return Html(f'<div class="scroll" tabindex="0">{rows_and_head}</div>\n')


def bars(rows: Iterable[tuple[str, float, str]]) -> Html:
    """Horizontal bars of (label, value, text): lengths in proportion to the greatest value."""
    rows = list(rows)
    most = max((value for _, value, _ in rows if math.isfinite(value)), default=0.0) or 1.0
    drawn = [
        (label, Html(f'<i style="width:{100 * value / most if math.isfinite(value) else 0:.2f}%"></i>'), shown)
        for label, value, shown in rows
    ]
    return Html(table(("", "", ""), drawn).replace("<table>", '<table class="bars">'))


def quantity(value: float | None, unit: str = "") -> str:
    """With its unit: "B" counts in KiB, MiB, …, "s" in minutes, others in k, M, G, …; a dash for None."""
    if value is None or not math.isfinite(value):
        return "—" if value is None else number(value)
    if unit == "s":
        return f"{number(value, 3)} s" if value < 100 else f"{value // 60:.0f} min {value % 60:.0f} s"
    base, prefixes, power = (1024, "KMGTPE", 0) if unit == "B" else (1000, "kMGTPE", 0)
    while abs(value) >= base and power < len(prefixes):
        value, power = value / base, power + 1
    prefix = prefixes[power - 1] if power else ""
    return f"{number(value, 3)} {prefix}{'i' if prefix and unit == 'B' else ''}{unit}".strip()


def comparison(rows: Iterable[Sequence[Any]]) -> Html:
    """A table of predictions beside measurements: (label, predicted, measured) and, optionally, a unit."""
    drawn = []
    for label, predicted, measured, *unit in rows:
        change = f"{100 * (measured / predicted - 1):+.1f} %" if predicted and measured else None
        drawn.append([label, quantity(predicted, *unit), quantity(measured, *unit), change])
    return table(["", "predicted", "measured", "difference"], drawn)


def samples(pairs: Iterable[tuple[str, str]]) -> Html:
    """Completions as cards: the prompt stands out from what the model wrote after it."""
    return Html("".join(f"<pre><b>{text(prompt)}</b>{text(completion)}</pre>\n" for prompt, completion in pairs))
