"""Line charts on logarithmic axes as one SVG, readable on a light page and on a dark one."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape

COLOURS = ("#0b84a5", "#e07b39", "#6f4e7c", "#2c9f5f", "#ca472f", "#8d6b2f", "#7a8b99", "#c255a8", "#3f5fbf")
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 460, 330, 62, 40, 16, 52

Series = Mapping[str, Sequence[tuple[float, float]]]


def svg(panels: Sequence[tuple[str, str, str, Series]]) -> str:
    """Panels side by side: (title, name of the x axis, name of the y axis, the points of each line by its name)."""
    names = list(dict.fromkeys(name for *_, series in panels for name in series))
    colour = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}
    legend = "".join(
        f'<rect x="{LEFT + i % 5 * 170}" y="{HEIGHT + 8 + i // 5 * 20}" width="12" height="12" fill="{colour[name]}"/>'
        f'<text x="{LEFT + 18 + i % 5 * 170}" y="{HEIGHT + 18 + i // 5 * 20}">{escape(name)}</text>'
        for i, name in enumerate(names)
    )
    width, height = max(WIDTH * len(panels), 940), HEIGHT + 16 + 20 * -(-len(names) // 5)
    drawn = "".join(
        f'<g transform="translate({WIDTH * i} 0)">{_panel(*panel, colour=colour)}</g>' for i, panel in enumerate(panels)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}">'
        "<style>text { font: 12px system-ui, sans-serif; fill: #777 } .title { font-size: 14px } "
        ".axis { stroke: #999; stroke-opacity: .35 } .line { fill: none; stroke-width: 2 }</style>"
        f"{drawn}{legend}</svg>\n"
    )


def _panel(title: str, x_name: str, y_name: str, series: Series, *, colour: Mapping[str, str]) -> str:
    points = [point for line in series.values() for point in line]
    x = _Axis([x for x, _ in points], LEFT, WIDTH - RIGHT, 2)
    y = _Axis([y for _, y in points], HEIGHT - BOTTOM, TOP, 10)
    parts = [f'<text class="title" x="{LEFT}" y="20">{escape(title)}</text>']
    for value in x.ticks:
        parts.append(f'<line class="axis" x1="{x(value):.1f}" x2="{x(value):.1f}" y1="{TOP}" y2="{HEIGHT - BOTTOM}"/>')
        parts.append(f'<text x="{x(value):.1f}" y="{HEIGHT - BOTTOM + 16}" text-anchor="middle">{_short(value)}</text>')
    for value in y.ticks:
        parts.append(f'<line class="axis" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{_short(value)}</text>')
    middle = (LEFT + WIDTH - RIGHT) / 2
    parts.append(f'<text x="{middle}" y="{HEIGHT - BOTTOM + 36}" text-anchor="middle">{escape(x_name)}</text>')
    parts.append(
        f'<text transform="translate(16 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">{escape(y_name)}</text>'
    )
    for name, line in series.items():
        places = [(x(a), y(b)) for a, b in line]
        joined = " ".join(f"{a:.1f},{b:.1f}" for a, b in places)
        parts.append(f'<polyline class="line" stroke="{colour[name]}" points="{joined}"/>')
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour[name]}"/>' for a, b in places]
    return "".join(parts)


class _Axis:
    """Values to places, logarithmically; ticks at powers of a base."""

    def __init__(self, values: Sequence[float], begin: float, end: float, base: int) -> None:
        self.begin, self.end = begin, end
        self.low, self.high = math.log(min(values)), math.log(max(values) * 1.0001)
        if base == 10:  # whole decades, and their halves where there are few
            first, last = math.floor(self.low / math.log(10)), math.ceil(self.high / math.log(10))
            self.low, self.high = first * math.log(10), last * math.log(10)
            self.ticks = [10.0**i for i in range(first, last + 1)]
        else:
            self.ticks = sorted(set(values))

    def __call__(self, value: float) -> float:
        share = (math.log(value) - self.low) / ((self.high - self.low) or 1)
        return self.begin + share * (self.end - self.begin)


def _short(value: float) -> str:
    if value >= 1000:
        return f"{value / 1000:g}k"
    return f"{value:.3g}"
