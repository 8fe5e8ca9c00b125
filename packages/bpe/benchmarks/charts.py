"""Line charts on logarithmic axes, drawn by matplotlib as an SVG that is readable on a light page and on a dark one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

GREY = "#777777"
SETTINGS = {
    "svg.fonttype": "none",  # text stays text, in the fonts of the page
    "svg.hashsalt": "groundup",  # the same figure makes the same file
    "font.family": "sans-serif",
    "font.size": 9,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), GREY),
}
COLOURS = ("#0b84a5", "#e07b39", "#6f4e7c", "#2c9f5f", "#ca472f", "#8d6b2f", "#7a8b99", "#c255a8", "#3f5fbf")

Series = Mapping[str, Sequence[tuple[float, float]]]


class Panel(NamedTuple):
    """One chart.

    Attributes:
        title: What it shows.
        x: The name of the horizontal axis.
        y: The name of the vertical axis.
        series: The points of each line, by its name.
    """

    title: str
    x: str
    y: str
    series: Series


def write_svg(path: Path, panels: Sequence[Panel]) -> None:
    """Draw the panels side by side, with one legend. A name has the same colour in all of them."""
    import matplotlib as mpl  # here, because processes whose memory is measured import this file
    from matplotlib.figure import Figure

    names = list(dict.fromkeys(name for panel in panels for name in panel.series))
    with mpl.rc_context({**SETTINGS, "axes.prop_cycle": mpl.cycler(color=COLOURS)}):
        figure = Figure(figsize=(4.8 * len(panels), 4.2), layout="constrained")
        for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
            for name, points in panel.series.items():
                xs, ys = zip(*points, strict=True)
                axes.loglog(xs, ys, marker="o", markersize=4, color=f"C{names.index(name)}", label=name)
            values = sorted({x for points in panel.series.values() for x, _ in points})
            axes.set_xticks(values, [f"{x / 1000:g}k" if x >= 1000 else f"{x:.3g}" for x in values], rotation=45)
            axes.minorticks_off()
            axes.set_title(panel.title)
            axes.set_xlabel(panel.x)
            axes.set_ylabel(panel.y)
            axes.grid(alpha=0.3)
        lines = {line.get_label(): line for axes in figure.axes for line in axes.get_lines()}
        handles = [lines[name] for name in names]
        figure.legend(handles, names, loc="outside lower center", ncols=min(5, len(names)), frameon=False)
        figure.savefig(path, format="svg", transparent=True, metadata={"Date": None})
