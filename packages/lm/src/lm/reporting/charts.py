"""The parts of a page as HTML, its text escaped: line charts by matplotlib, tables, predictions and measurements."""

from __future__ import annotations

import base64
import html
import io
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

from lm.extras import need

Point = tuple[float, float]
DOTS = 40  # at most this many marks on a line
WIDE, HALF = (12.8, 6.1), (6.4, 3.6)  # width and height of a drawing in inches
STYLE: Any = {  # of matplotlib
    "svg.fonttype": "none",  # letters as text
    "svg.hashsalt": "lm",  # the same chart has the same bytes
    "text.parse_math": False,  # a dollar sign is one
}
STROKES: dict[str, dict[str, Any]] = {
    "line": {},
    "soft": {"linewidth": 1, "alpha": 0.5},
    "thin": {"linewidth": 1, "alpha": 0.25},
    "marks": {"marker": "o"},
}
# Control characters are shown by their pictures; marks that turn the direction of the text beside them go.
VISIBLE: dict[int, str] = {code: chr(0x2400 + code) for code in range(32) if chr(code) not in "\t\n"}
VISIBLE |= dict.fromkeys(map(ord, "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"), "\ufffd")


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

    out, references = io.StringIO(), references or {}
    with rc_context(STYLE), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a letter that the font to measure with lacks; an empty log scale
        figure = Figure(figsize=WIDE if wide else HALF, layout="constrained")
        axes = figure.add_subplot(xscale="log" if log_x else "linear", yscale="log" if log else "linear")
        for line in lines:
            stroke = {"color": f"C{line.colour}", "markevery": math.ceil(len(line.points) / DOTS) or 1}
            stroke |= {"marker": "o"} if len(line.points) == 1 else {}  # which would draw no line
            if line.label and line.ends_at is not None:
                stroke["label"] = f"{line.label.translate(VISIBLE)} {number(line.ends_at)}"
            values = [y if math.isfinite(y) else math.nan for _, y in line.points]
            axes.plot([x for x, _ in line.points], values, **{**stroke, **STROKES[line.style]})
        for name, value in references.items():
            label = f"{name.translate(VISIBLE)} {number(value)}"
            axes.axhline(value, color="gray", linewidth=1, linestyle=":", label=label)
        axes.set_ylim(top=min(axes.get_ylim()[1], max(ceiling, *references.values(), -math.inf)))
        axes.grid(axis="y", alpha=0.3)
        axes.set_xlabel({"seconds": "seconds of training", "tokens": "tokens read"}.get(x_name, x_name))
        if axes.get_legend_handles_labels()[0]:
            axes.legend(loc="upper right")
        figure.savefig(out, format="svg", metadata=dict.fromkeys(("Date", "Creator", "Format", "Type")))
    return out.getvalue()


def chart(title: str, lines: Sequence[Line], *, note: str = "", wide: bool = False, **options: Any) -> Html:
    """Return one figure of a page; `options` are picture()'s."""
    lines = [line for line in lines if line.ends_at is not None]
    drawing = "<p>nothing logged</p>"
    if lines:
        ends = "; ".join(f"{one.name} ends at {number(one.ends_at or 0.0)}" for one in lines if one.style != "thin")
        label = text(f"{title} by {options.get('x_name', 'step')}: {ends}")
        svg = base64.b64encode(picture(lines, wide=wide, **options).encode()).decode()
        drawing = f'<img alt="{label}" src="data:image/svg+xml;base64,{svg}">'
    caption = f"<figcaption><b>{text(title)}</b> {text(note)}</figcaption>"
    return Html(f"<figure{' class=wide' * wide}>{caption}{drawing}</figure>\n")


def number(value: float, digits: int = 4) -> str:
    """A value as a person reads it: 12,345, 1.632, 0.00061."""
    if math.isfinite(value) and (value == int(value) or 1000 <= abs(value) < 1e15):
        return f"{value:,.0f}"
    return f"{value:.{digits}g}"


def text(value: object) -> Html:
    """Any text as HTML: escaped, and what no page can carry made visible."""
    if isinstance(value, Html):
        return value
    return Html(html.escape(str(value).encode("utf-8", "replace").decode().translate(VISIBLE)))


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
