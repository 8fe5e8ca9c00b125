"""What a page is drawn with: line charts first, then tables, bars, big numbers and cards, each a function to HTML.

The lines of a chart are SVG that stretches with the window, its letters are HTML that does not. Everything can be read
without a script; the numbers travel with the drawing as JSON, for assets/report.js to read out under the pointer. Text
is escaped wherever it comes in; `Html` says of a string that it is HTML already.
"""

import html
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Literal

Point = tuple[float, float]
BOX = 1000  # the view box of every plot is BOX × BOX, whatever its size on the page
COLOURS = 8  # series colours in assets/report.css
DASHES = 3  # kinds of lines there: whole, dashed, dotted
POINTS = 480  # columns that a line is thinned to
AXES = {"seconds": "seconds of training", "tokens": "tokens read"}  # by what is logged
TINY = 1e-30  # what a logarithmic scale takes for zero
CROWD = 6  # labels at the ends of lines beyond which a small screen does without: a legend stands above
DOTS = 40  # at most so many marks on a line, its last among them
LABEL_PIXELS = 19  # height of a label at the end of a line


class Html(str):
    """A string that is HTML already."""

    __slots__ = ()


@dataclass(frozen=True)
class Line:
    """One series of a chart; `label` is written at its last point, `name` is what the read-out calls it."""

    name: str
    points: Sequence[Point]
    colour: int = 0
    style: Literal["line", "soft", "thin", "marks"] = "line"
    label: str = ""


@dataclass(frozen=True)
class Scale:
    """Values from `low` to `high` as fractions from 0 to 1."""

    low: float
    high: float
    log: bool = False

    def __call__(self, value: float) -> float:
        if self.log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)

    def ticks(self, count: int) -> list[float]:
        """Round values inside the scale, about `count` of them."""
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1) if self.log else ()
        for digits in ((1,), (1, 3), (1, 2, 5)):
            found = [d * 10.0**k for k in decades for d in digits if self.low <= d * 10.0**k <= self.high]
            if len(found) >= 3:
                return found[:: math.ceil(len(found) / (2 * count))]
        rough = (self.high - self.low) / count
        power = 10.0 ** math.floor(math.log10(rough))
        step = next(s * power for s in (1, 2, 2.5, 5, 10) if s * power >= rough * 0.999)
        first, last = math.ceil(self.low / step - 1e-9), math.floor(self.high / step + 1e-9)
        return [min(max(i * step, self.low), self.high) for i in range(first, last + 1)]


def finite(points: Iterable[Point]) -> list[list[Point]]:
    """The runs of points between the ones that are NaN or infinite."""
    runs: list[list[Point]] = [[]]
    for x, y in points:
        if math.isfinite(y):
            runs[-1].append((x, y))
        elif runs[-1]:
            runs.append([])
    return [run for run in runs if run]


def smooth(points: Sequence[Point], share: float = 0.02) -> list[Point]:
    """A moving average over about `share` of the points, twice: without lag, and narrower where a curve begins."""
    points = [point for point in points if math.isfinite(point[1])]
    reach = max(1, round(len(points) * share / 2))
    for _ in range(2):
        sums = list(accumulate((y for _, y in points), initial=0.0))
        spans = [(i - min(reach, i // 2), min(i + min(reach, i // 2) + 1, len(points))) for i in range(len(points))]
        points = [(x, (sums[b] - sums[a]) / (b - a)) for (x, _), (a, b) in zip(points, spans, strict=True)]
    return points


def thin(run: Sequence[Point], columns: int = POINTS) -> list[Point]:
    """At most two points a column, its lowest and its highest, so that no spike is lost."""
    if len(run) <= 2 * columns:
        return list(run)
    kept = {0, len(run) - 1}
    for column in range(columns):
        indices = range(column * len(run) // columns, (column + 1) * len(run) // columns)
        kept |= {min(indices, key=lambda i: run[i][1]), max(indices, key=lambda i: run[i][1])}
    return [run[i] for i in sorted(kept)]


def clip(run: Sequence[Point], low: float, high: float) -> list[list[Point]]:
    """What of a line lies between `low` and `high`, cut where it crosses them."""
    pieces: list[list[Point]] = [[]]
    for i, (x, y) in enumerate(run):
        if i:
            x0, y0 = run[i - 1]
            crossed = [edge for edge in (low, high) if min(y0, y) < edge < max(y0, y)]
            for edge in sorted(crossed, reverse=y < y0):
                pieces[-1].append((min(max(x0 + (x - x0) * ((edge - y0) / (y - y0)), x0), x), edge))
                if len(pieces[-1]) > 1:
                    pieces.append([])
        if low <= y <= high:
            pieces[-1].append((x, y))
    return [piece for piece in pieces if piece]


def spread(wanted: Sequence[float], gap: float, low: float, high: float) -> list[float]:
    """Places for labels near the `wanted` ones, in their order, `gap` apart and within `low` and `high`."""
    if len(wanted) > 1:
        gap = min(gap, (high - low) / (len(wanted) - 1))
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    blocks: list[tuple[float, int]] = []  # least squares under order: neighbours out of order are averaged
    for rank, i in enumerate(order):
        value, size = wanted[i] - rank * gap, 1
        while blocks and blocks[-1][0] > value:
            other, count = blocks.pop()
            value, size = (value * size + other * count) / (size + count), size + count
        blocks.append((value, size))
    flat = [value for value, size in blocks for _ in range(size)]
    ceiling = high - gap * max(len(wanted) - 1, 0)
    places = [0.0] * len(wanted)
    for rank, i in enumerate(order):
        places[i] = max(low, min(flat[rank], ceiling)) + rank * gap
    return places


def number(value: float, digits: int = 4) -> str:
    """A value as a person reads it: 12,345 · 1.632 · 6.1 × 10⁻⁴."""
    if not math.isfinite(value):
        return "∞" if value == math.inf else "−∞" if value == -math.inf else "not a number"
    size = abs(value)
    if size and (size < 0.001 or size >= 1e15):
        mantissa, exponent = f"{value:.{min(digits, 3) - 1}e}".split("e")
        mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
        return f"{mantissa} × 10{superscript(int(exponent))}".replace("-", "−")
    if size >= 1000 or value == int(value):
        return f"{value:,.0f}".replace("-", "−")
    places = digits - 1 - math.floor(math.log10(size)) if size >= 1 else digits
    return f"{value:.{places}f}".rstrip("0").rstrip(".").replace("-", "−")


def superscript(value: int) -> str:
    return str(value).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))


def tick_labels(ticks: Sequence[float], even: bool = True) -> tuple[list[str], str]:
    """Labels, `even` in their precision: ["0", "200 k", "400 k"]; and the factor that small values are read with."""
    if not even:
        return [number(tick) for tick in ticks], ""
    top = max((abs(tick) for tick in ticks), default=0.0)
    if 0 < top < 0.01:
        power = math.floor(math.log10(top))
        return [number(round(tick / 10.0**power, 9)) for tick in ticks], f"× 10{superscript(power)}"
    size, unit = next((u for u in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e4, " k")) if top >= u[0]), (1.0, ""))
    size = 1e3 if unit == " k" else size
    places = max((len(f"{tick / size:.6f}".rstrip("0").partition(".")[2]) for tick in ticks), default=0)
    return [f"{tick / size:,.{places}f}{unit}".replace("-", "−") if tick else "0" for tick in ticks], ""


def domain(runs: Sequence[Sequence[Point]], references: Iterable[float], log: bool, zero: bool, enter: float) -> Scale:
    """The vertical scale. Lines may come in from above it: the first share `enter` of x does not set its top."""
    everything = [y for run in runs for _, y in run]
    if not everything:
        return Scale(0.1 if log else 0, 1, log)
    xs = [x for run in runs for x, _ in run]
    start = min(xs) + enter * (max(xs) - min(xs))
    shown = [y for run in runs for x, y in run if x >= start] or everything
    shown += references
    low, high = min(0.0 if zero else math.inf, *everything, *shown), max(shown)
    if max(everything) < high + 0.25 * (high - low):
        high = max(everything + shown)
    if high <= low:
        low, high = low - (abs(low) or 1) * 0.1, high + (abs(high) or 1) * 0.1
    if log:
        low = max(low, high * 1e-9)
        return Scale(low / (high / low) ** 0.06, high * (high / low) ** 0.06, log=True)
    margin = 0.06 * (high - low)
    return Scale(low if zero and low == 0 else low - margin, high + margin)


def path(points: Iterable[Point], x: Scale, y: Scale) -> str:
    """Path data in the view box. A point that stands alone is a line of no length, which round caps make a dot."""
    at = [f"{x(a) * BOX:.1f} {(1 - y(b)) * BOX:.1f}" for a, b in points]
    return f"M{at[0]}h0" if len(at) == 1 else "M" + "L".join(at)


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
    references = {name: value for name, value in (references or {}).items() if math.isfinite(value)}
    log = log and all(value > TINY for value in references.values())
    if log:  # what has no logarithm is not drawn
        lines = [replace(line, points=[p if p[1] > TINY else (p[0], math.nan) for p in line.points]) for line in lines]
    drawn = [[thin(run, POINTS if wide else POINTS // 2) for run in finite(line.points)] for line in lines]
    within = [[(a, min(b, ceiling)) for a, b in run] for runs in drawn for run in runs]
    y = domain(within, references.values(), log, zero and not log, enter)
    xs = [a for runs in drawn for run in runs for a, _ in run]
    first, last = min(xs, default=1.0 if log_x else 0.0), max(xs, default=1.0)
    if log_x:
        x = Scale(first / 1.1, last * 1.1, log=True)
    else:
        x = Scale(0.0 if 0 < first < last / 20 else first, last)
        x = x if x.high > x.low else Scale(x.low - 0.5, x.high + 0.5)
    height = 400 if wide else 190

    x_ticks, y_ticks = x.ticks(8 if wide else 4), y.ticks(7 if wide else 4)
    (x_labels, _), (y_labels, factor) = tick_labels(x_ticks, even=not log_x), tick_labels(y_ticks, even=not log)
    svg = [f'<path class="grid" d="{"".join(f"M0 {(1 - y(t)) * BOX:.1f}h{BOX}" for t in y_ticks)}"/>'] if xs else []
    svg += [f'<path class="reference" d="M0 {(1 - y(v)) * BOX:.1f}h{BOX}"/>' for v in references.values()]
    read: list[dict[str, object]] = []
    lasts: list[tuple[Line, float]] = []
    ends: list[tuple[float, str, str, str]] = []  # (fraction from the top, class, name, value)
    for line, runs in zip(lines, drawn, strict=True):
        colour = colour_of(line.colour)
        pieces = [piece for run in runs for piece in clip(run, y.low, y.high)]
        flat = [point for run in runs for point in run]
        if line.style == "marks":
            marked = flat[:: -math.ceil(len(flat) / DOTS) or -1]
            dots = "".join(path([p], x, y) for p in marked if y.low <= p[1] <= y.high)
            svg.append(f'<path class="line {colour}" d="{"".join(path(piece, x, y) for piece in pieces)}"/>')
            svg.append(f'<path class="halo" d="{dots}"/><path class="dots {colour}" d="{dots}"/>')
        else:
            svg.append(f'<path class="{line.style} {colour}" d="{"".join(path(p, x, y) for p in pieces)}"/>')
        if flat and line.style != "thin":
            lasts.append((line, flat[-1][1]))
            read.append({
                "name": line.name, "colour": colour,
                "x": [float(f"{a:.7g}") for a, _ in flat], "y": [float(f"{b:.5g}") for _, b in flat],
            })  # fmt: skip
            if line.label:
                ends.append((min(max(1 - y(flat[-1][1]), 0.0), 1.0), colour, line.label, _end(flat[-1][1])))
    ends += [(1 - y(value), "ref", name, _end(value)) for name, value in references.items()]
    places = spread([end[0] for end in ends], LABEL_PIXELS / height, 0.0, 1.0)

    labels = [
        f'<span class="y" style="top:{100 * (1 - y(t)):.2f}%">{name}</span>'
        for t, name in zip(y_ticks, y_labels, strict=True)
    ]
    labels += [
        f'<span class="x" style="left:{100 * x(t):.2f}%">{name}</span>'
        for t, name in zip(x_ticks, x_labels, strict=True)
    ]
    labels.append(f'<span class="axis">{text(AXES.get(x_name, x_name))}</span>')
    labels += [
        f'<span class="end {colour}" style="top:{100 * place:.2f}%">{text(name)} <b>{value}</b></span>'
        for (_, colour, name, value), place in zip(ends, places, strict=True)
    ]
    data = {"x": [x.low, x.high], "y": [y.low, y.high], "log": y.log, "logX": x.log, "xName": x_name, "lines": read}
    aside = " · ".join(part for part in (note, factor) if part)
    summary = "; ".join(f"{line.name} ends at {number(y)}" for line, y in lasts)
    known = {" wide": wide, " labelled": bool(ends), " crowded": len(ends) > CROWD}
    kinds = "".join(kind for kind, holds in known.items() if holds)
    body = "".join(labels) if xs else '<p class="empty">nothing logged</p>'
    return (
        f'<figure class="chart{kinds}" style="--height:{height}px">'
        f"<figcaption><b>{text(title)}</b> <span>{text(aside)}</span><output></output></figcaption>"
        f'<div class="plot"><svg viewBox="0 0 {BOX} {BOX}" preserveAspectRatio="none" role="img" '
        f'aria-label="{text(f"{title} by {x_name}: {summary}")}">{"".join(svg)}</svg>{body}</div>'
        f'<script type="application/json">{embed(data)}</script></figure>\n'
    )


def colour_of(number: int) -> str:
    """The classes of the number-th colour: after COLOURS they come again, with lines that are dashed, and then
    dotted."""
    turn = number // COLOURS % DASHES
    return f"c{number % COLOURS}" + (f" d{turn}" if turn else "")


def _end(value: float) -> str:
    return f"{value:.3f}".replace("-", "−") if 0.01 <= abs(value) < 100 else number(value)


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
