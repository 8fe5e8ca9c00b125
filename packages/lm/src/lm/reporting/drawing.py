"""Line charts, drawn by matplotlib as SVG whose letters are text: what of a line is drawn, on which scales, how large.

matplotlib is imported when something is drawn.
"""

from __future__ import annotations

import io
import math
import warnings
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Point = tuple[float, float]
POINTS = 480  # columns that a line is thinned to
AXES = {"seconds": "seconds of training", "tokens": "tokens read"}  # by what is logged
TINY = 1e-30  # what a logarithmic scale takes for zero
DOTS = 40  # at most so many marks on a line of a wide plot, and half as many on others; the last is among them
LABEL_PIXELS = 19  # height of a label at the end of a line
SIZES = {"wide": (924, 440), "small": (360, 290), "half": (434, 238)}  # of a drawing in CSS pixels
# The colours of assets/report.css in its light form, by their names there.
COLOURS = {
    "--c0": "#2a5b8c",
    "--c1": "#b1521f",
    "--c2": "#47794a",
    "--c3": "#86529a",
    "--c4": "#8f6a10",
    "--c5": "#1f7880",
    "--c6": "#b0476f",
    "--c7": "#5d6470",
    "--soft": "#6a6b70",
    "--rule": "#e4e1d9",
    "--paper": "#fdfcf9",
}
SERIES = [colour for name, colour in COLOURS.items() if name.startswith("--c")]
DASHES = ("solid", (0, (7, 5)), (0, (2, 4)))  # once all colours are taken, they come again with the next of these
STYLE: Any = {  # of matplotlib
    "svg.fonttype": "none",  # letters as text, in the fonts of the page
    "svg.hashsalt": "lm",  # the same drawing has the same bytes
    "text.parse_math": False,  # a dollar sign is one
    "font.size": 12,
    "text.color": COLOURS["--soft"],
    "axes.labelcolor": COLOURS["--soft"],
    "axes.facecolor": "none",
    "figure.facecolor": "none",
    "xtick.color": COLOURS["--soft"],
    "ytick.color": COLOURS["--soft"],
    "grid.color": COLOURS["--rule"],
    "lines.solid_capstyle": "round",
    "lines.solid_joinstyle": "round",
}


@dataclass(frozen=True)
class Line:
    """One series of a chart; `label` is written at its last point, `name` is what the read-out calls it."""

    name: str
    points: Sequence[Point]
    colour: int = 0
    style: Literal["line", "soft", "thin", "marks"] = "line"
    label: str = ""

    @property
    def stroke(self) -> dict[str, Any]:
        """What matplotlib draws the line with."""
        width, alpha = {"thin": (1.0, 0.28), "soft": (1.25, 0.5)}.get(self.style, (1.75, 1.0))
        dashes = "solid" if self.style == "thin" else DASHES[self.colour // len(SERIES) % len(DASHES)]
        return {"color": series_colour(self.colour), "linewidth": width, "alpha": alpha, "linestyle": dashes}


def series_colour(number: int) -> str:
    """The number-th colour, which comes again after the last."""
    return SERIES[number % len(SERIES)]


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


def tick_labels(ticks: Sequence[float], even: bool = True) -> list[str]:
    """Labels as a person reads them, `even` in their precision: 0 · 200 k · 400 k."""
    top = max((abs(tick) for tick in ticks), default=0.0)
    if not even or 0 < top < 0.01:
        return [number(tick, 3) for tick in ticks]
    size, unit = next((u for u in ((1e12, " T"), (1e9, " G"), (1e6, " M"), (1e4, " k")) if top >= u[0]), (1.0, ""))
    size = 1e3 if unit == " k" else size
    places = max((len(f"{tick / size:.6f}".rstrip("0").partition(".")[2]) for tick in ticks), default=0)
    return [f"{tick / size:,.{places}f}{unit}".replace("-", "−") if tick else "0" for tick in ticks]


def limits(
    runs: Sequence[Sequence[Point]], references: Iterable[float], log: bool, zero: bool, enter: float
) -> tuple[float, float]:
    """Of the vertical scale. Lines may come in from above it: the first share `enter` of x does not set its top."""
    everything = [y for run in runs for _, y in run]
    if not everything:
        return (0.1, 1.0) if log else (0.0, 1.0)
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
        return low / (high / low) ** 0.06, high * (high / low) ** 0.06
    margin = 0.06 * (high - low)
    return (0.0 if zero and low == 0 else low - margin), high + margin


@dataclass(frozen=True)
class Plot:
    """What there is to draw, whatever its size: the lines' runs of finite points, horizontal lines, both scales."""

    lines: Sequence[tuple[Line, Sequence[Sequence[Point]]]]
    references: Mapping[str, float]
    x: tuple[float, float]
    y: tuple[float, float]
    log_x: bool
    log_y: bool
    x_name: str

    def draw(self, kind: str) -> tuple[str, dict[str, float]]:
        """One of SIZES as SVG, and where in it the scales begin and end: shares of its width and of its height."""
        import matplotlib
        from matplotlib.figure import Figure

        width, height = SIZES[kind]
        out = io.StringIO()
        with matplotlib.rc_context(STYLE), warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # a letter that the font to measure with has not
            figure = Figure(figsize=(width / 72, height / 72), dpi=72, layout="constrained")  # a pixel is a point
            figure.get_layout_engine().set(w_pad=0, h_pad=0.04)  # type: ignore[union-attr, call-arg]
            axes = figure.add_subplot()
            self.scales(axes, kind)
            for line, runs in self.lines:
                draw_line(axes, line, runs, DOTS if kind == "wide" else DOTS // 2)
            for value in self.references.values():
                axes.axhline(value, color=COLOURS["--soft"], linewidth=1, linestyle=DASHES[2])
            self.label_ends(axes, kind)
            figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
            box = axes.get_position()
        place = {"left": box.x0, "top": 1 - box.y1, "width": box.width, "height": box.height}
        return out.getvalue(), place

    def scales(self, axes: Axes, kind: str) -> None:
        """Limits, grid, ticks and their labels."""
        axes.set_xscale("log" if self.log_x else "linear")
        axes.set_yscale("log" if self.log_y else "linear")
        axes.set(xlim=self.x, ylim=self.y)
        many = kind == "wide"
        for axis, log, count in (
            (axes.xaxis, self.log_x, 8 if many else 4),
            (axes.yaxis, self.log_y, 7 if many else 4),
        ):
            places = ticks(*axis.get_view_interval(), log, count)
            axis.set_ticks(places, tick_labels(places, even=not log))
            axis.set_ticks([], minor=True)
        axes.tick_params(length=0, pad=8)
        axes.grid(axis="y", linewidth=1)
        axes.set_axisbelow(True)
        axes.spines[:].set_visible(False)
        axes.set_xlabel(AXES.get(self.x_name, self.x_name), loc="right", labelpad=5)

    def height_of(self, value: float) -> float:
        """Where a value stands on the vertical scale: 0 at its lower end, 1 at its upper."""
        low, high = self.y
        if self.log_y:
            return math.log(value / low) / math.log(high / low)
        return (value - low) / (high - low)

    def label_ends(self, axes: Axes, kind: str) -> None:
        """The name and the value of each labelled line where it ends, right of the plot; on small screens the value
        alone."""
        ends = [
            (runs[-1][-1][1], line.label, series_colour(line.colour))
            for line, runs in self.lines
            if runs and line.label
        ]
        ends += [(value, name, COLOURS["--soft"]) for name, value in self.references.items()]
        wanted = [1 - min(max(self.height_of(value), 0.0), 1.0) for value, _, _ in ends]
        for (value, name, colour), place in zip(ends, spread(wanted, LABEL_PIXELS / SIZES[kind][1], 0, 1), strict=True):
            said = _end(value) if kind == "small" else f"{name} {_end(value)}"
            axes.text(1.015, 1 - place, said, color=colour, transform=axes.transAxes, va="center", fontsize=13)


def draw_line(axes: Axes, line: Line, runs: Sequence[Sequence[Point]], dots: int) -> None:
    """A line with gaps where it has no finite value; a point that stands alone is a dot."""
    for run in runs:
        xs, ys = zip(*run, strict=True)
        axes.plot(xs, ys, **line.stroke)
        if len(run) == 1 and line.style != "marks":
            axes.plot(xs, ys, "o", color=series_colour(line.colour), markersize=2)
    if line.style == "marks":
        flat = [point for run in runs for point in run]
        marked = flat[:: -math.ceil(len(flat) / dots) or -1]
        if marked:
            edge: dict[str, Any] = {"markeredgecolor": COLOURS["--paper"], "markeredgewidth": 1.5, "markersize": 7}
            axes.plot(*zip(*marked, strict=True), "o", color=series_colour(line.colour), **edge)


def ticks(low: float, high: float, log: bool, count: int) -> list[float]:
    """Round values from low to high, about `count` of them."""
    from matplotlib.ticker import LogLocator, MaxNLocator

    found: list[float] = []
    if log:
        for digits in ((1.0,), (1.0, 3.0), (1.0, 2.0, 5.0)):
            values = LogLocator(subs=digits, numticks=1000).tick_values(low, high)
            found = [float(value) for value in values if low <= value <= high]
            if len(found) >= 3:
                return found[:: math.ceil(len(found) / (2 * count))]
    values = MaxNLocator(count, steps=[1, 2, 2.5, 5, 10]).tick_values(low, high)
    return found or [float(value) for value in values if low <= value <= high]


def prepared(
    lines: Sequence[Line],
    x_name: str = "step",
    references: Mapping[str, float] | None = None,
    wide: bool = True,
    log: bool = False,
    zero: bool = False,
    enter: float = 0.0,
    ceiling: float = math.inf,
    log_x: bool = False,
) -> Plot:
    """The lines thinned, and the scales that show them: see chart()."""
    references = {name: value for name, value in (references or {}).items() if math.isfinite(value)}
    log = log and all(value > TINY for value in references.values())
    if log:  # what has no logarithm is not drawn
        lines = [replace(line, points=[p if p[1] > TINY else (p[0], math.nan) for p in line.points]) for line in lines]
    drawn = [(line, [thin(run, POINTS if wide else POINTS // 2) for run in finite(line.points)]) for line in lines]
    within = [[(a, min(b, ceiling)) for a, b in run] for _, runs in drawn for run in runs]
    y = limits(within, references.values(), log, zero and not log, enter)
    xs = [a for run in within for a, _ in run]
    first, last = min(xs, default=1.0 if log_x else 0.0), max(xs, default=1.0)
    x = (first / 1.1, last * 1.1) if log_x else (0.0 if 0 < first < last / 20 else first, last)
    x = x if x[1] > x[0] else (x[0] - 0.5, x[1] + 0.5)
    return Plot(drawn, references, x, y, log_x, log, x_name)


def colour_of(number: int) -> str:
    """The classes of the number-th colour: after the last they come again, with lines that are dashed, and then
    dotted."""
    turn = number // len(SERIES) % len(DASHES)
    return f"c{number % len(SERIES)}" + (f" d{turn}" if turn else "")


def _end(value: float) -> str:
    return f"{value:.3f}".replace("-", "−") if 0.01 <= abs(value) < 100 else number(value)
