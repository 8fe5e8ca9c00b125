"""What a page is drawn with: line charts first, then tables, bars, big numbers and cards, each a function to HTML.

The drawings are in the page's fonts and colours, light or dark (see drawing). What is wide is drawn a second time for
small screens, so that letters keep their size. Everything can be read without a script; the numbers travel with the
drawing as JSON, for assets/report.js to read out under the pointer. Text is escaped wherever it comes in; `Html` says
of a string that it is HTML already.
"""

from __future__ import annotations

import html
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lm.reporting.drawing import COLOURS, SIZES, Line, Plot, Point, colour_of, number, prepared, smooth

__all__ = [
    "Html", "Line", "Point", "bars", "big", "chart", "colour_of", "comparison", "embed", "number", "quantity",
    "samples", "smooth", "table", "text",
]  # fmt: skip


class Html(str):
    """A string that is HTML already."""

    __slots__ = ()


def chart(
    title: str,
    lines: Sequence[Line],
    *,
    note: str = "",
    x_name: str = "step",
    references: Mapping[str, float] | None = None,
    wide: bool = False,
    log: bool = False,
    zero: bool = False,
    enter: float = 0.0,
    ceiling: float = math.inf,
    log_x: bool = False,
) -> str:
    """One figure. `references` are horizontal lines by name; `log`, `zero`, `enter` and `ceiling` shape the vertical
    scale: what rises above the ceiling leaves the plot there.

    `log_x` wants every x above 0.
    """
    plot = prepared(lines, x_name, references or {}, wide, log, zero, enter, ceiling, log_x)
    name = text(f"{title} by {x_name}: {summary(plot)}")
    drawn = "".join(inline(*plot.draw(kind), kind, name) for kind in (("wide", "small") if wide else ("half",)))
    if not any(runs for _, runs in plot.lines):
        drawn = '<p class="empty">nothing logged</p>'
    data = {"x": plot.x, "y": plot.y, "log": plot.log_y, "logX": log_x, "xName": x_name, "lines": read_out(plot)}
    return (
        f'<figure class="chart{" wide" if wide else ""}">'
        f"<figcaption><b>{text(title)}</b> <span>{text(note)}</span><output></output></figcaption>{drawn}"
        f'<script type="application/json">{embed(data)}</script></figure>\n'
    )


def read_out(plot: Plot) -> list[dict[str, object]]:
    """The numbers of the lines, for the script."""
    found: list[dict[str, object]] = []
    for line, runs in plot.lines:
        if runs and line.style != "thin":
            xs, ys = zip(*(point for run in runs for point in run), strict=True)
            values = {"x": [float(f"{a:.7g}") for a in xs], "y": [float(f"{b:.5g}") for b in ys]}
            found.append({"name": line.name, "colour": colour_of(line.colour), **values})
    return found


def summary(plot: Plot) -> str:
    """Where the lines end, for those who hear the page."""
    ends = ((line, runs[-1][-1][1]) for line, runs in plot.lines if runs and line.style != "thin")
    return "; ".join(f"{line.name} ends at {number(y)}" for line, y in ends)


def inline(svg: str, place: Mapping[str, float], kind: str, name: str) -> str:
    """matplotlib's SVG as a part of a page: without what only a file needs, in the page's colours, with a pane over the
    plot for the pointer."""
    svg = svg[svg.index("<svg ") :]
    svg = re.sub(r"<metadata>.*?</metadata>|<style.*?</style>|<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r' font-family: [^;]*;| transform="rotate\(-0 [^"]*"|(?<=<g) id="[^"]*"', "", svg)
    svg = re.sub(r'="[^"]*"', lambda found: re.sub(r"(\d\.\d)\d+", r"\1", found[0]), svg)  # a tenth of a pixel
    svg = re.sub(r"\s*\n\s*", " ", svg)
    root = f'<svg viewBox="0 0 {SIZES[kind][0]} {SIZES[kind][1]}" role="img" aria-label="{name}">'
    svg = root + svg.partition(">")[2]
    for variable, colour in COLOURS.items():
        svg = svg.replace(colour, f"var({variable})")
    pane = "; ".join(f"{side}: {100 * share:.2f}%" for side, share in place.items())
    return f'<div class="plot {kind}">{svg}<div class="pane" style="{pane}"></div></div>'


def embed(data: object) -> str:
    """JSON that may stand inside a script element."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


# Everything that is not a line chart


def text(value: object) -> str:
    """Any text as HTML: escaped, and what no page can carry made visible."""
    shown = str(value).encode("utf-8", "replace").decode()
    shown = "".join(chr(0x2400 + ord(c)) if c < " " and c not in "\t\n" else c for c in shown)
    return value if isinstance(value, Html) else html.escape(shown)


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
    """What was predicted beside what was measured: (label, predicted, measured) and, where there is one, a unit.

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
