"""A report as one self-contained page: the figures that matter, two charts, the tables.

No script, nothing fetched.
"""

from __future__ import annotations

from html import escape

from accounting.commands import charts
from accounting.commands.report import LIMITS, Asked
from accounting.commands.sections import Section, percentages
from accounting.counting.flops import forward_flops, pairs_in_words
from accounting.counting.parameters import parameters
from accounting.memory.inference import kv_cache
from accounting.memory.training import training_memory
from accounting.planning.fitting import max_batch_size
from accounting.units import Count, human

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
.figures b { display: block; font-size: 1.15rem; white-space: nowrap; }
.figures span { color: var(--soft); font-size: .8rem; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
td { padding: .16rem 0 .16rem 1rem; text-align: right; white-space: nowrap; border-top: 1px solid var(--line); }
tr:first-child td { border-top: 0; }
td:first-child { text-align: left; padding-left: 0; width: 34%; white-space: normal; }
td:nth-child(2) { width: 20%; } td:nth-child(3) { width: 17%; } td:nth-child(4) { width: 7%; }
td.bar { width: 22%; } td.bar div { background: #3b6ea8; height: .6rem; border-radius: .15rem; }
tr.formula td { border-top: 0; padding: 0 0 .3rem 1rem; text-align: left; white-space: normal; color: var(--soft);
  font-size: .75rem; width: auto; }
tr.total td { border-top: 2px solid var(--soft); font-weight: 600; }
p { color: var(--soft); font-size: .82rem; margin: .5rem 0; max-width: 46rem; }
.scroll { overflow-x: auto; }
svg { display: block; min-width: 26rem; } svg text { font-family: system-ui, sans-serif !important; }
@media (max-width: 40rem) { td.bar { display: none; } td { padding-left: .6rem; } td:first-child { width: auto; } }
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
            charts.shares(asked.shape, asked.pairs),
            f"<p>Matrix multiplications; scores over {pairs_in_words(asked.pairs)}.</p>",
            "<h2>Peak of a training step against the batch</h2>",
            charts.memory(asked.shape, asked.length, limits, asked.policy),
            f"<p>The most sequences that fit: {fitting(asked, limits)}.</p>",
            *(table(one, explain=explain) for one in sections),
            "</body></html>",
        ]
    )


def fitting(asked: Asked, limits: tuple[tuple[str, int], ...]) -> str:
    """The largest batch in each memory, in words."""
    return ", ".join(
        f"{max_batch_size(asked.shape, size, asked.length, policy=asked.policy):,} in {escape(words)}"
        for words, size in limits
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
    title = f"{one.heading[0].upper()}{one.heading[1:]}" + (f" ({unit})" if unit else "")
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
