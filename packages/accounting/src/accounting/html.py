"""A report as one self-contained page: the tables, and two charts as SVG. No script, nothing fetched."""

from __future__ import annotations

from html import escape

from accounting.flops import forward_flops
from accounting.memory import training_memory
from accounting.planning import max_batch_size
from accounting.report import LIMITS, Section, percentages
from accounting.shape import TransformerShape
from accounting.units import human

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

CONTEXTS = tuple(1 << power for power in range(10, 21))  # 1k to 1M
WIDTH, HEIGHT, LEFT, BOTTOM = 640, 280, 70, 40
COLOURS = ("#4c78a8", "#f58518", "#54a24b", "#b279a2", "#e45756")
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
h1 { font-size: 1.6rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .3rem; }
table { border-collapse: collapse; } td, th { padding: .1rem .8rem .1rem 0; text-align: right; }
td:first-child { text-align: left; } tr.total td { border-top: 1px solid #888; font-weight: 600; }
td.bar { width: 12rem; } td.bar div { background: #4c78a8; height: .7rem; }
p { color: #666; font-size: .85rem; margin: .2rem 0; } svg text { font: 12px system-ui, sans-serif; fill: #444; }
"""


def page(
    name: str,
    shape: TransformerShape,
    sections: tuple[Section, ...],
    seq_len: int | None = None,
    batch_size: int = 1,
    **options: Any,
) -> str:
    """The page; the options are those of training_memory, for the chart of memory against batch."""
    length = shape.sequence(seq_len)
    head = f"{escape(name)} at context {length:,}, batch {batch_size:,}"
    return "\n".join(
        [
            "<!doctype html>",
            f'<html lang="en"><head><meta charset="utf-8"><title>{head}</title><style>{STYLE}</style></head><body>',
            f"<h1>{head}</h1>",
            "<h2>Share of forward FLOPs as the context grows</h2>",
            shares(shape),
            "<h2>Peak of a training step against the batch</h2>",
            memory(shape, length, **options),
            *(table(one) for one in sections),
            "</body></html>",
        ]
    )


def table(one: Section) -> str:
    """A section as an HTML table; exact values, shares that add up to 100%, and bars."""
    highest = max((row.value for row in one.rows), default=0) or 1
    parts = percentages([row.value for row in one.rows]) if one.additive else [""] * len(one.rows)
    lines = [f"<h2>{escape(one.title)} ({escape(one.unit.unit or 'count')})</h2><table>"]
    for row, share in zip(one.rows, parts, strict=True):
        width = 100 * row.value / highest
        lines.append(
            f"<tr><td>{escape(row.name)}</td><td>{row.value:,}</td><td>{human(one.unit(row.value))}</td><td>{share}</td>"
            f'<td class="bar"><div style="width:{width:.2f}%" title="{escape(row.formula)}"></div></td></tr>'
        )
    if one.additive:
        lines.append(f'<tr class="total"><td>total</td><td>{one.total}</td><td>{human(one.total)}</td></tr>')
    return "\n".join([*lines, f"</table><p>{escape(one.note)}</p>"])


def shares(shape: TransformerShape) -> str:
    """Stacked shares of the forward FLOPs, causal, from 1k to 1M positions; learned positions end the chart where they end."""
    lengths = [one for one in CONTEXTS if shape.position != "learned" or one <= shape.context_length]
    lengths = lengths or [shape.context_length]
    counts = [forward_flops(shape, one, attention="causal") for one in lengths]
    lines, bar = [_open()], (WIDTH - LEFT) / len(lengths)
    for at, (length, count) in enumerate(zip(lengths, counts, strict=True)):
        x, low = LEFT + at * bar, float(HEIGHT)
        for colour, name in enumerate(count):
            part = count.share(name) * HEIGHT
            low -= part
            lines.append(
                f'<rect x="{x:.1f}" y="{low:.1f}" width="{bar - 2:.1f}" height="{part:.1f}" fill="{COLOURS[colour]}">'
                f"<title>{escape(name)} at {length:,}: {count.share(name):.1%}</title></rect>"
            )
        label = f"{length >> 20}M" if length >= 1 << 20 else f"{length >> 10}k" if length >= 1024 else str(length)
        lines.append(f'<text x="{x + bar / 2:.1f}" y="{HEIGHT + 16}" text-anchor="middle">{label}</text>')
    for at, name in enumerate(counts[0]):
        x = LEFT + at * 110
        lines.append(f'<rect x="{x}" y="{HEIGHT + 24}" width="10" height="10" fill="{COLOURS[at]}"/>')
        lines.append(f'<text x="{x + 14}" y="{HEIGHT + 33}">{escape(name)}</text>')
    lines += [
        f'<text x="{LEFT - 8}" y="{HEIGHT - HEIGHT * part + 4:.0f}" text-anchor="end">{part:.0%}</text>'
        for part in (0, 0.5, 1)
    ]
    return "\n".join([*lines, "</svg>"])


def memory(shape: TransformerShape, length: int, **options: Any) -> str:
    """The peak as a line over the batch, with the memory of common cards drawn across it."""
    most = max(1, max_batch_size(shape, LIMITS[-1] * 10**9, length, **options))
    batches = sorted({max(1, round(most * part / 24)) for part in range(1, 27)})
    peaks = [int(training_memory(shape, batch, length, **options).total) for batch in batches]
    top = max(max(peaks), LIMITS[-1] * 10**9) * 1.02

    def y(value: float) -> float:
        return HEIGHT - HEIGHT * value / top

    def x(batch: float) -> float:
        return LEFT + (WIDTH - LEFT) * batch / batches[-1]

    lines = [_open()]
    for limit in LIMITS:
        at = y(limit * 1e9)
        lines.append(
            f'<line x1="{LEFT}" x2="{WIDTH}" y1="{at:.1f}" y2="{at:.1f}" stroke="#e45756" stroke-dasharray="4 3"/>'
        )
        lines.append(f'<text x="{LEFT - 8}" y="{at + 4:.1f}" text-anchor="end">{limit} GB</text>')
    points = " ".join(f"{x(batch):.1f},{y(peak):.1f}" for batch, peak in zip(batches, peaks, strict=True))
    lines.append(f'<polyline points="{points}" fill="none" stroke="#4c78a8" stroke-width="2"/>')
    lines += [
        f'<text x="{x(batch):.1f}" y="{HEIGHT + 16}" text-anchor="middle">{batch:,}</text>'
        for batch in sorted({batches[0], most})
    ]
    lines.append(
        f'<text x="{LEFT}" y="{HEIGHT + 33}">sequences in a batch; {most:,} are the most that 141 GB hold</text>'
    )
    return "\n".join([*lines, "</svg>"])


def _open() -> str:
    return f'<svg viewBox="0 0 {WIDTH + 20} {HEIGHT + BOTTOM}" width="100%" role="img">'
