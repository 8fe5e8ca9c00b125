"""`accounting report`: everything about a shape, or the tables that --only names, also of several shapes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache

import accounting
from accounting.commands.answer import Answer
from accounting.commands.options import layout_of, name_of, policy_of, shape_of
from accounting.commands.sections import Row, Section, as_json, percentages, records, section, text, whole_row
from accounting.commands.tables import columns, titled, wrapped
from accounting.models.files import not_counted
from accounting.policy import DEFAULT, Policy
from accounting.shape import NotCounted, TransformerShape, choose
from accounting.units import Bytes, Count, FLOPs, Parameters

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from accounting.cluster.layout import Layout
    from accounting.memory.training import TrainingMemory

LIMITS = tuple((f"{size} GB", size * 10**9) for size in (24, 40, 80, 141))  # of the cards people have


@dataclass(frozen=True)
class Question:
    """What a report is about; limits: the memories, (name, bytes), whose largest batch is wanted."""

    shape: TransformerShape
    length: int
    batch: int
    pairs: str = "full"
    policy: Policy = DEFAULT
    layout: Layout | None = None
    limits: tuple[tuple[str, int], ...] = LIMITS


def report(options: argparse.Namespace) -> Answer:
    """Everything about a shape; of several shapes each table has a row for each."""
    limits = LIMITS
    if options.device:
        from accounting.hardware.devices import device  # here, because few reports name one

        limits = ((options.device, int(device(options.device).memory)), *limits)
    only = tuple(name for names in options.only or () for name in names.split(","))
    reports: dict[str, tuple[Section, ...]] = {}
    for name in options.shapes or [None]:
        shape = shape_of(options, name)
        question = Question(
            shape,
            shape.sequence(options.context),
            options.batch,
            options.pairs,
            policy_of(options),
            layout_of(options),
            limits,
        )
        tables = sections(question, only)
        if tables and (missing := not_counted(name or "")):
            note = f"{tables[0].note}; not in any table: {', '.join(missing)} of the config.json"
            tables = (replace(tables[0], note=note), *tables[1:])
        reports[name_of(options, name)] = tables
    if len(reports) > 1:
        return several(reports, explain=options.explain, binary=options.gib)
    if options.json or options.csv:  # formulas take longer to write than the tables
        return Answer("", records(tables), as_json(tables))
    return Answer(text(tables, binary=options.gib, explain=options.explain), [])


def several(reports: dict[str, tuple[Section, ...]], *, explain: bool, binary: bool) -> Answer:
    """Reports of several shapes, a row for each in every table: shares of a total, or exact values."""
    pages = []
    for heading in dict.fromkeys(one.title for tables in reports.values() for one in tables):
        by_shape = {name: one for name, tables in reports.items() for one in tables if one.title == heading}
        names = list(dict.fromkeys(row.name for one in by_shape.values() for row in one.rows))
        additive = all(one.additive for one in by_shape.values())
        lines = [("shape", *names, *(["total"] * additive))]
        for name, one in by_shape.items():
            values = {row.name: row.value for row in one.rows}
            parts = [values.get(column, 0) for column in names]
            cells = [*percentages(parts), f"{one.total:,}"] if additive else [f"{part:,}" for part in parts]
            lines.append((name, *cells))
        notes = list(dict.fromkeys(one.note for one in by_shape.values()))
        pages.append(titled(heading, *columns(lines).splitlines(), *([wrapped(notes[0])] if len(notes) == 1 else [])))
    if explain:
        pages += [titled(name, "", text(tables, binary=binary, explain=True)) for name, tables in reports.items()]
    rows = [{"shape": name, **record} for name, tables in reports.items() for record in records(tables)]
    return Answer("\n\n".join(pages), rows)


def sections(question: Question, only: tuple[str, ...] = ()) -> tuple[Section, ...]:
    """The tables of a report, or only those of these names; ValueError for a name that is none.

    Of a whole report those that are not counted of the shape are left out, and the first table's note gives the reason.
    """
    for name in only:
        choose("table", name, tuple(TABLES))
    tables: list[Section] = []
    reasons: dict[str, list[str]] = {}
    for name in only or TABLES:
        try:
            tables += TABLES[name](question)
        except NotCounted as error:
            if only:
                raise
            reasons.setdefault(str(error), []).append(name)
    notes = [f"left out: {', '.join(names)}, because {reason}" for reason, names in reasons.items()]
    if tables:
        tables[0] = replace(tables[0], note="; ".join([tables[0].note, *notes]))
    return tuple(tables)


def _parameters(question: Question) -> list[Section]:
    tables = [section(accounting.parameters(question.shape))]
    if question.shape.most_experts > 1:
        active = accounting.parameters(question.shape, active=True)
        rows = (
            whole_row("with the embedding table", active),
            Row("without it", int(active.total) - int(active["embedding"])),
        )
        words = "those that a token passes: model cards of mixtures leave the embedding table out or count it"
        tables.append(Section("active parameters", Parameters, rows, words, additive=False))
    return tables


def _load(question: Question) -> list[Section]:
    from accounting.memory.inference import BITS  # here, as every import of a table, because another does not need it

    rows = (whole_row(dtype, accounting.weight_bytes(question.shape, weights=dtype)) for dtype in BITS)
    words = "the weights alone; int8 and int4 are of the matrices of the blocks, with a bf16 scale for 128 of them"
    return [Section("memory to load", Bytes, tuple(rows), words, additive=False)]


def _training(question: Question) -> list[Section]:
    found = [section(accounting.training_flops(question.shape, question.length, question.batch, pairs=question.pairs))]
    again = question.policy.activation_checkpointing
    if again != "none":
        hardware = accounting.training_flops(
            question.shape, question.length, question.batch, pairs=question.pairs, recompute=again
        )
        found.append(section(hardware, "training FLOPs with what is recomputed"))
    return found


def _estimates(question: Question) -> list[Section]:
    from accounting.counting.estimates import estimate_terms

    step = accounting.training_flops(question.shape, question.length, question.batch, pairs=question.pairs)
    terms = estimate_terms(question.shape, question.length, question.batch)
    rows = (Row(name, int(term), (term,)) for name, term in terms.items())
    words = "the same step, forward and backward, as others count it; not parts of anything"
    return [
        Section("training FLOPs by rules of thumb", FLOPs, (*rows, whole_row("exact", step)), words, additive=False)
    ]


@lru_cache(maxsize=1)
def _memory(question: Question) -> TrainingMemory:
    """What two tables show."""
    return accounting.training_memory(question.shape, question.batch, question.length, policy=question.policy)


def _peak(question: Question) -> list[Section]:
    peak = _memory(question).peak
    return [section(peak, "training memory at its peak", peak.moment)]


def _phases(question: Question) -> list[Section]:
    memory = _memory(question)
    rows = tuple(whole_row(phase.title, phase) for phase in memory.phases)
    return [Section("training memory over a step", Bytes, rows, memory.convention, additive=False)]


def _line(question: Question) -> list[Section]:
    line = accounting.memory_line(question.shape, question.length, policy=question.policy)
    words = f"a part of peak = a · batch + b, exact from batch {line.first} on, where the peak is the {line.phase}"
    parts = (line.per_sequence, "peak for each sequence, a"), (line.fixed, "peak whatever the batch, b")
    return [replace(section(one, title), note=words) for one, title in parts]


def _batch(question: Question) -> list[Section]:
    rows = tuple(
        Row(name, accounting.max_batch_size(question.shape, limit, question.length, policy=question.policy))
        for name, limit in question.limits
    )
    words = "sequences; one more does not fit; GB is 10^9 bytes"
    return [Section("largest batch that fits", Count, rows, words, additive=False)]


def _cache(question: Question) -> list[Section]:
    one, all_of_it = accounting.kv_cache(question.shape, 1, 1), accounting.kv_cache(question.shape, 1, question.length)
    rows = (whole_row("for each token", one), whole_row("at this context", all_of_it))
    return [Section("KV cache", Bytes, rows, f"{one.convention}, one sequence", additive=False)]


def _devices(question: Question) -> list[Section]:
    """What the devices of a layout hold and send: of data parallelism alone, any of them; else the fullest, and each
    stage."""
    layout, shape, length, policy = question.layout, question.shape, question.length, question.policy
    if layout is None:
        return []
    from accounting.cluster.layout import places

    if question.batch % layout.micro_batches:
        raise ValueError(
            f"micro_batches {layout.micro_batches} do not divide the batch of {question.batch}: they are equally large"
        )
    each = question.batch // layout.micro_batches
    held = {
        place: accounting.device_memory(shape, layout, place, each, length, policy=policy) for place in places(layout)
    }
    most = max(held, key=lambda place: int(held[place].total))
    memory = section(held[most], f"memory of the fullest device, {most.words}", held[most].moment)
    if layout.tensor == layout.pipeline == 1:
        return [
            section(accounting.device_state(shape, layout, policy=policy)),
            memory,
            section(accounting.device_traffic(shape, layout, most, each, length, policy=policy)),
        ]
    stages = {stage: [held[place] for place in held if place.stage == stage] for stage in range(layout.pipeline)}
    traffic = (accounting.device_traffic(shape, layout, place, each, length, policy=policy) for place in held)
    fullest = (Row(f"stage {stage}", max(int(one.total) for one in found)) for stage, found in stages.items())
    return [
        section(
            accounting.device_parameters(shape, layout, most), f"parameters on the fullest device, stage {most.stage}"
        ),
        memory,
        Section("memory of the fullest device of each stage", Bytes, tuple(fullest), layout.words, additive=False),
        section(max(traffic, key=lambda one: int(one.total))),
    ]


TABLES: dict[str, Callable[[Question], list[Section]]] = {
    "parameters": _parameters,
    "load": _load,
    "flops": lambda of: [section(accounting.forward_flops(of.shape, of.length, of.batch, pairs=of.pairs))],
    "matmuls": lambda of: [section(accounting.matmul_flops(of.shape, of.length, of.batch, pairs=of.pairs))],
    "elementwise": lambda of: [
        section(accounting.elementwise_flops(of.shape, of.length, of.batch), "beside them, elementwise FLOPs")
    ],
    "training": _training,
    "estimates": _estimates,
    "optimizer": lambda of: [section(accounting.optimizer_flops(of.shape, optimizer=of.policy.optimizer))],
    "peak": _peak,
    "phases": _phases,
    "line": _line,
    "batch": _batch,
    "decode": lambda of: [section(accounting.decode_flops(of.shape, of.length, of.batch), "decoding FLOPs of a step")],
    "inference": lambda of: [
        section(accounting.inference_memory(of.shape, of.batch, of.length), "inference memory, decoding")
    ],
    "cache": _cache,
    "devices": _devices,
}
