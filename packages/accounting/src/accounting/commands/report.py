"""Reports: sections of named figures, and their faces: text, plain data, records and (html.py) a page; two side by side.

Numbers in the human column share one prefix and are rounded so that the column adds up to its total, to the last digit.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

from accounting.breakdown import SYMBOLS, Breakdown
from accounting.cluster.device import device_parameters
from accounting.cluster.layout import Layout, places
from accounting.cluster.memory import device_memory, device_state
from accounting.cluster.traffic import device_traffic
from accounting.counting.elementwise import elementwise_flops
from accounting.counting.estimates import estimate_terms
from accounting.counting.flops import decode_flops, forward_flops, training_flops
from accounting.counting.optimizer import optimizer_flops
from accounting.counting.parameters import parameters
from accounting.memory.inference import inference_memory, kv_cache
from accounting.memory.training import training_memory
from accounting.planning.fitting import max_batch_size, memory_line
from accounting.policy import DEFAULT, Policy
from accounting.shape import TransformerShape
from accounting.units import Bytes, Count, Parameters, human

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

BAR = 24  # characters of a full bar
LIMITS = tuple((f"{size} GB", size * 10**9) for size in (24, 40, 80, 141))  # of the cards people have
_NUMBERS = {"k": "thousands", "M": "millions", "G": "billions", "T": "trillions"}
_PREFIXES = {False: (1000, ("", "k", "M", "G", "T", "P", "E", "Z")), True: (1024, ("", "Ki", "Mi", "Gi", "Ti", "Pi"))}


@dataclass(frozen=True)
class Row:
    """One figure: its name, exact value, and where it came from a formula, the formula in letters and in numbers."""

    name: str
    value: int
    formula: str = ""
    numbers: str = ""


@dataclass(frozen=True)
class Section:
    """Rows of one unit; `additive` if they are parts of their sum. The note says under which convention they were counted."""

    title: str
    unit: type[Count]
    rows: tuple[Row, ...]
    note: str
    additive: bool = True

    @property
    def total(self) -> Count:
        return self.unit(sum(row.value for row in self.rows))


def section(one: Breakdown, title: str = "") -> Section:
    """A breakdown as a section; components that are nothing are left out."""
    formulas, numbers = one.formula, one.explain()
    rows = tuple(Row(name, int(value), formulas[name], numbers[name]) for name, value in one.items() if value)
    return Section(title or one.title, one.unit, rows, one.convention)


def whole_row(name: str, one: Breakdown) -> Row:
    """The sum of a breakdown as one figure, with the formulas of its parts added up."""
    parts = [part for part, value in one.items() if value]
    formulas, numbers = one.formula, one.explain()
    return Row(
        name,
        int(one.total),
        " + ".join(formulas[part] for part in parts),
        " + ".join(numbers[part] for part in parts),
    )


def report(
    shape: TransformerShape,
    seq_len: int | None = None,
    batch_size: int = 1,
    *,
    pairs: str = "full",
    policy: Policy = DEFAULT,
    layout: Layout | None = None,
    limits: tuple[tuple[str, int], ...] = LIMITS,
) -> tuple[Section, ...]:
    """Everything about one shape.

    With a layout of several devices or micro-batches, also what each holds and sends; a replica's micro-batches then share
    batch_size. limits: the memories, (name, bytes), whose largest batch is wanted.
    """
    length = shape.sequence(seq_len)
    step = training_flops(shape, length, batch_size, pairs=pairs)
    memory = training_memory(shape, batch_size, length, policy=policy)
    line = memory_line(shape, length, policy=policy)
    estimates = estimate_terms(shape, length, batch_size)
    cache = kv_cache(shape, 1, 1)
    again: tuple[Section, ...] = ()
    if policy.activation_checkpointing != "none":
        hardware = training_flops(shape, length, batch_size, pairs=pairs, recompute=policy.activation_checkpointing)
        again = (section(hardware, "training FLOPs with what is recomputed"),)
    several = layout is not None and (layout.gpus > 1 or layout.micro_batches > 1)
    group = devices(shape, layout, length, batch_size, policy=policy) if layout is not None and several else ()
    return (
        section(parameters(shape)),
        section(forward_flops(shape, length, batch_size, pairs=pairs)),
        section(elementwise_flops(shape, length, batch_size), "beside them, elementwise FLOPs"),
        section(step),
        *again,
        Section(
            "training FLOPs by rules of thumb",
            type(step.total),
            (
                *(Row(name, int(term), term.text(), term.text(values=True)) for name, term in estimates.items()),
                whole_row("exact", step),
            ),
            "the same step, forward and backward, as others count it; not parts of anything",
            additive=False,
        ),
        section(optimizer_flops(shape, optimizer=policy.optimizer)),
        section(memory.peak, f"training memory at its peak: {memory.peak.title}"),
        Section(
            "training memory over a step",
            Bytes,
            tuple(whole_row(phase.title, phase) for phase in memory.phases),
            memory.convention,
            additive=False,
        ),
        Section(
            "peak as a line in the batch size",
            Bytes,
            (Row("for each sequence", int(line.slope)), Row("whatever the batch", int(line.intercept))),
            f"exact from batch {line.first} on, where the peak is the {line.phase}",
            additive=False,
        ),
        Section(
            "largest batch that fits",
            Count,
            tuple(Row(name, max_batch_size(shape, limit, length, policy=policy)) for name, limit in limits),
            "sequences; one more does not fit; GB is 10^9 bytes",
            additive=False,
        ),
        section(decode_flops(shape, length, batch_size), "decoding FLOPs of a step"),
        section(inference_memory(shape, batch_size, length), "inference memory, decoding"),
        Section(
            "KV cache",
            Bytes,
            (whole_row("for each token", cache), whole_row("at this context", kv_cache(shape, 1, length))),
            f"{cache.convention}, one sequence",
            additive=False,
        ),
        *group,
    )


def devices(
    shape: TransformerShape, layout: Layout, length: int, batch_size: int, policy: Policy
) -> tuple[Section, ...]:
    """What the devices of a layout hold and send: of data parallelism alone, any of them; else the fullest, and each stage."""
    if batch_size % layout.micro_batches:
        raise ValueError(
            f"micro_batches {layout.micro_batches} do not divide the batch of {batch_size}: they are equally large"
        )
    each = batch_size // layout.micro_batches
    held = {place: device_memory(shape, layout, place, each, length, policy=policy) for place in places(layout)}
    most = max(held, key=lambda place: int(held[place].total))
    memory = section(held[most], f"memory of the fullest device, {held[most].title.removeprefix('memory of ')}")
    if layout.tensor == layout.pipeline == 1:
        return (
            section(device_state(shape, layout, policy=policy)),
            memory,
            section(device_traffic(shape, layout, most, each, length, policy=policy)),
        )
    stages = {stage: [held[place] for place in held if place.stage == stage] for stage in range(layout.pipeline)}
    traffic = {place: device_traffic(shape, layout, place, each, length, policy=policy) for place in held}
    return (
        section(device_parameters(shape, layout, most), f"parameters on the fullest device, stage {most.stage}"),
        memory,
        Section(
            "memory of the fullest device of each stage",
            Bytes,
            tuple(Row(f"stage {stage}", max(int(one.total) for one in found)) for stage, found in stages.items()),
            layout.words,
            additive=False,
        ),
        section(max(traffic.values(), key=lambda one: int(one.total))),
    )


def text(sections: tuple[Section, ...], *, binary: bool = False, explain: bool = False) -> str:
    """The sections as tables of plain text; binary=True prints bytes in GiB (2^30) instead of GB (10^9)."""
    pages = [_table(one, binary and issubclass(one.unit, Bytes), explain) for one in sections]
    if explain:
        used = {name for one in sections for row in one.rows for name in _names(row.formula)}
        legend = [f"  {name}  {meaning}" for name, meaning in SYMBOLS.items() if name in used]
        pages.append("\n".join(["names", *legend]))
    return "\n\n".join(pages)


def wrapped(note: str) -> str:
    """A note in brackets below its table, at most as wide as a page."""
    return textwrap.fill(f"({note})", 100, initial_indent="  ", subsequent_indent="   ")


def _table(one: Section, binary: bool, explain: bool) -> str:
    total, highest = int(one.total), max((row.value for row in one.rows), default=0)
    names = [row.name for row in one.rows] + (["total"] if one.additive else [])
    values = [row.value for row in one.rows] + ([total] if one.additive else [])
    width = max((len(name) for name in names), default=0)
    exact = [f"{value:,}" for value in values]
    digits = max((len(value) for value in exact), default=0)
    if one.additive:
        scaled, prefix = rounded([row.value for row in one.rows], total, binary)
    else:
        scaled, prefix = [human(one.unit(value), binary=binary) for value in values], ""
    short = max((len(value) for value in scaled), default=0)
    head = (
        f"{one.title} ({_NUMBERS.get(prefix, prefix) if one.unit is Parameters else prefix + one.unit.unit})"
        if prefix
        else one.title
    )
    lines = [head, "─" * len(head)]
    shares = percentages([row.value for row in one.rows]) if one.additive else []
    for at, name in enumerate(names):
        line = f"  {name:<{width}}  {exact[at]:>{digits}}"
        if scaled[at] != exact[at]:
            line += f"  {scaled[at]:>{short}}"
        if one.additive and at < len(shares):
            line += f"  {shares[at]:>6}  {bar(values[at], highest)}"
        elif not one.additive and highest:
            line += f"  {bar(values[at], highest)}"
        lines.append(line.rstrip())
        if explain and at < len(one.rows) and one.rows[at].formula:
            row = one.rows[at]
            lines.append(f"  {'':<{width}}  = {row.formula} = {row.numbers}")
    if one.note:
        lines.append(wrapped(one.note))
    return "\n".join(lines)


def rounded(parts: list[int], total: int, binary: bool) -> tuple[list[str], str]:
    """Parts and total with the prefix that suits the total, three decimals, the parts adding up to the total exactly."""
    base, prefixes = _PREFIXES[binary]
    power = 0
    while total >= base ** (power + 1) and power < len(prefixes) - 1:
        power += 1
    if power == 0:
        return [f"{value:,}" for value in [*parts, total]], prefixes[0]
    thousandths = apportion(parts, (total * 1000 + base**power // 2) // base**power)
    whole = [*thousandths, sum(thousandths)]
    return [f"{value // 1000:,}.{value % 1000:03d}" for value in whole], prefixes[power]


def percentages(parts: list[int]) -> list[str]:
    """Shares to a tenth of a percent that add up to 100.0%."""
    return [f"{tenths // 10}.{tenths % 10}%" for tenths in apportion(parts, 1000 if sum(parts) else 0)]


def apportion(parts: list[int], whole: int) -> list[int]:
    """Whole numbers in proportion to parts that sum to `whole`: what is left goes to the largest remainders."""
    total = sum(parts) or 1
    shares = [part * whole // total for part in parts]
    order = sorted(range(len(parts)), key=lambda at: -(parts[at] * whole % total))
    for at in order[: whole - sum(shares)]:
        shares[at] += 1
    return shares


def bar(value: int, highest: int) -> str:
    """A bar in proportion, at least a sliver for anything that is not nothing."""
    if value <= 0 or highest <= 0:
        return ""
    eighths = max(1, round(value * BAR * 8 / highest))
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def _names(formula: str) -> set[str]:
    for mark in "·+-()/,":
        formula = formula.replace(mark, " ")
    return set(formula.split())


def as_json(sections: tuple[Section, ...]) -> list[dict[str, Any]]:
    """The sections as plain data: exact values, units, formulas in letters and in numbers, and conventions."""
    return [
        {
            "title": one.title,
            "unit": one.unit.unit,
            "convention": one.note,
            **({"total": int(one.total)} if one.additive else {}),
            "rows": [
                {
                    "name": row.name,
                    "value": row.value,
                    **({"formula": row.formula, "numbers": row.numbers} if row.formula else {}),
                }
                for row in one.rows
            ],
        }
        for one in sections
    ]


def records(sections: tuple[Section, ...]) -> list[dict[str, Any]]:
    """Every row of the sections by itself: section, name, exact value, unit, formula in letters and in numbers."""
    return [
        {
            "section": one.title,
            "name": row.name,
            "value": row.value,
            "unit": one.unit.unit,
            "formula": row.formula,
            "numbers": row.numbers,
        }
        for one in sections
        for row in one.rows
    ]


def compare(
    first: tuple[Section, ...],
    second: tuple[Section, ...],
    names: tuple[str, str],
    *,
    binary: bool = False,
    explain: bool = False,
) -> str:
    """Two reports side by side, every difference at the component it comes from, with explain=True by both formulas."""
    pages = []
    for mine, other in pairs(first, second):
        title = mine.title if mine.title == other.title else f"{mine.title} · {other.title}"
        table = [("", *names, "difference", "")]
        for name, a, b in differences(mine, other):
            words = human(mine.unit(abs(b - a)), binary=binary and issubclass(mine.unit, Bytes)) if b != a else ""
            table.append((name, f"{a:,}", f"{b:,}", f"{b - a:+,}" if b != a else "=", words))
        head, *lines = columns(table).splitlines()
        if explain:
            lines = [
                part
                for line, row in zip(lines, table[1:], strict=True)
                for part in (line, *formulas(mine, other, row[0], names))
            ]
        pages.append("\n".join([title, "─" * len(title), textwrap.indent("\n".join([head, *lines]), "  ")]))
    return "\n\n".join(pages)


def formulas(mine: Section, other: Section, name: str, names: tuple[str, str]) -> list[str]:
    """How a component is computed in each of two sections, where it is computed."""
    return [
        f"    {whose}: {row.formula} = {row.numbers}"
        for whose, one in zip(names, (mine, other), strict=True)
        for row in one.rows
        if row.name == name and row.formula
    ]


def compared(first: tuple[Section, ...], second: tuple[Section, ...]) -> list[dict[str, Any]]:
    """The same as records: section, name, the value of the first and of the second, their difference, unit."""
    return [
        {"section": mine.title, "name": name, "first": a, "second": b, "difference": b - a, "unit": mine.unit.unit}
        for mine, other in pairs(first, second)
        for name, a, b in differences(mine, other)
    ]


def pairs(first: tuple[Section, ...], second: tuple[Section, ...]) -> list[tuple[Section, Section]]:
    """The sections of one report with those of the other; the peak's title names its phase, which may differ."""
    theirs = {one.title.split(":")[0]: one for one in second}
    return [(mine, theirs[mine.title.split(":")[0]]) for mine in first]


def differences(mine: Section, other: Section) -> list[tuple[str, int, int]]:
    """(component, its value in the one, in the other), with the totals where there are any."""
    left, right = ({row.name: row.value for row in one.rows} for one in (mine, other))
    keys = list(left) + [name for name in right if name not in left]
    lines = [(name, left.get(name, 0), right.get(name, 0)) for name in keys]
    return [*lines, ("total", int(mine.total), int(other.total))] if mine.additive else lines


def columns(table: Sequence[tuple[str, ...]]) -> str:
    """Rows under each other, the first column to the left, the others to the right."""
    widths = [max(len(row[at]) for row in table) for at in range(len(table[0]))]
    lines = (
        f"{row[0]:<{widths[0]}}" + "".join(f"  {row[at]:>{widths[at]}}" for at in range(1, len(row))) for row in table
    )
    return "\n".join(line.rstrip() for line in lines)
