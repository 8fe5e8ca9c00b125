"""`accounting report`: everything about a shape, or the tables that --only names, also of several shapes."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

import accounting
from accounting.breakdown import Breakdown
from accounting.checks import named
from accounting.commands.options import layout_of, name_of, policy_of, shape_of
from accounting.commands.sections import Row, Section, as_json, percentages, records, section, text, whole_row
from accounting.commands.tables import Answer, columns, titled, wrapped
from accounting.models.files import not_counted
from accounting.policy import DEFAULT, Policy
from accounting.shape import NotCounted, TransformerShape
from accounting.units import Bytes, Count, FLOPs, Parameters

if TYPE_CHECKING:
    from accounting.cluster.layout import Layout
    from accounting.memory.training import TrainingMemory

LIMITS = tuple((f"{size} GB", size * 10**9) for size in (24, 40, 80, 141))  # of the cards people have


@dataclass(frozen=True)
class Question:
    """The subject of a report; limits: the memories, (name, bytes), whose largest batch is printed."""

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
        from accounting.hardware.devices import device  # few reports name one

        limits = ((options.device, int(device(options.device).memory)), *limits)
    only = tuple(name for names in options.only or () for name in names.split(","))
    reports: dict[str, tuple[Section, ...]] = {}
    for name in options.shapes or [None]:
        shape = shape_of(options, name)
        length, policy, layout = shape.sequence(options.context), policy_of(options), layout_of(options)
        tables = sections(Question(shape, length, options.batch, options.pairs, policy, layout, limits), only)
        if missing := not_counted(name or ""):
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
    """The tables of a report, or those of these names; what is not counted of the shape is left out with a note."""
    for name in only:
        named("table", name, TABLES)
    tables: list[Section] = []
    reasons: dict[str, list[str]] = {}
    for name in only or TABLES:
        try:
            tables += TABLES[name](question)
        except NotCounted as error:
            if only:
                raise
            reasons.setdefault(str(error), []).append(name)
    if not tables:
        raise ValueError("expected a layout for the table 'devices': give --data-parallel or the like")
    notes = [f"left out: {', '.join(names)}, because {reason}" for reason, names in reasons.items()]
    return (replace(tables[0], note="; ".join([tables[0].note, *notes])), *tables[1:])


def _parameters(of: Question) -> list[Section]:
    tables = [section(accounting.parameters(of.shape))]
    if of.shape.most_experts > 1:
        active = accounting.parameters(of.shape, active=True)
        without = Row("without it", int(active.total) - int(active["embedding"]))
        words = "those that a token passes: model cards of mixtures leave the embedding table out or count it"
        tables.append(
            _figures("active parameters", Parameters, words, whole_row("with the embedding table", active), without)
        )
    return tables


def _figures(title: str, unit: type[Count], note: str, *rows: Row) -> Section:
    """A section of figures that are no parts of a sum."""
    return Section(title, unit, rows, note, additive=False)


def _load(of: Question) -> list[Section]:
    from accounting.memory.inference import FORMATS

    formats = [name for name, one in FORMATS.items() if one.stores != "experts" or of.shape.most_experts > 1]
    rows = (whole_row(name, accounting.weight_bytes(of.shape, weights=name)) for name in formats)
    words = (
        "the weights alone; fp8, int8 and int4 are of the matrices of the blocks, mxfp4 of those of the experts, with "
        "their scales"
    )
    return [_figures("memory to load", Bytes, words, *rows)]


def _training_flops(of: Question, recompute: str = "none") -> Breakdown:
    return accounting.training_flops(of.shape, of.length, of.batch, pairs=of.pairs, recompute=recompute)


def _training(of: Question) -> list[Section]:
    tables, recompute = [section(_training_flops(of))], of.policy.activation_checkpointing
    if recompute != "none":
        tables.append(section(_training_flops(of, recompute), "training FLOPs with what is recomputed"))
    return tables


def _estimates(of: Question) -> list[Section]:
    from accounting.counting.flops import estimate_terms

    terms = estimate_terms(of.shape, of.length, of.batch)
    rows = (Row(name, int(term), (term,)) for name, term in terms.items())
    words = "the same step, forward and backward, as others count it; not parts of anything"
    exact = whole_row("exact", _training_flops(of))
    return [_figures("training FLOPs by rules of thumb", FLOPs, words, *rows, exact)]


@lru_cache(maxsize=1)  # two tables show it
def _memory(of: Question) -> TrainingMemory:
    return accounting.training_memory(of.shape, of.batch, of.length, policy=of.policy)


def _phases(of: Question) -> list[Section]:
    rows = (whole_row(phase.title, phase) for phase in _memory(of).phases)
    return [_figures("training memory over a step", Bytes, _memory(of).convention, *rows)]


def _line(of: Question) -> list[Section]:
    line = accounting.memory_line(of.shape, of.length, policy=of.policy)
    words = f"a part of peak = a · batch + b, exact from batch {line.first} on, where the peak is the {line.phase}"
    parts = (line.per_sequence, "peak for each sequence, a"), (line.fixed, "peak whatever the batch, b")
    return [replace(section(one, title), note=words) for one, title in parts]


def _batch(of: Question) -> list[Section]:
    rows = (
        Row(name, accounting.max_batch_size(of.shape, limit, of.length, policy=of.policy)) for name, limit in of.limits
    )
    words = "sequences; one more does not fit; GB is 10^9 bytes"
    return [_figures("largest batch that fits", Count, words, *rows)]


def _cache(of: Question) -> list[Section]:
    one, whole = accounting.kv_cache(of.shape, 1, 1), accounting.kv_cache(of.shape, 1, of.length)
    # of linear attention a sequence has a state, whatever its length
    state = Row(
        "state of a sequence", int(one.get("states", 0)), tuple(term for name, term in one.terms if name == "states")
    )
    token = tuple(term for name, term in one.terms if term and name != "states")
    rows = [Row("for each token", sum(map(int, token)), token), *([state] if state.value else [])]
    return [_figures("KV cache", Bytes, f"{one.convention}, one sequence", *rows, whole_row("at this context", whole))]


def _devices(of: Question) -> list[Section]:
    """Memory and traffic of any device of data parallelism alone; of other layouts the fullest, and each stage."""
    layout, shape = of.layout, of.shape
    if layout is None:
        return []
    from accounting.cluster.layout import places

    each, rest = divmod(of.batch, layout.micro_batches)
    if rest:
        raise ValueError(
            f"micro_batches {layout.micro_batches} do not divide the batch of {of.batch}: they are equally large"
        )
    memory = {
        place: accounting.device_memory(shape, layout, place, each, of.length, policy=of.policy)
        for place in places(layout)
    }
    fullest = max(memory, key=lambda place: int(memory[place].total))
    peak = section(memory[fullest], f"memory of the fullest device, {fullest.words}", memory[fullest].moment)
    places_sending = [fullest] if layout.tensor == layout.pipeline == 1 else memory
    sent = [
        accounting.device_traffic(shape, layout, place, each, of.length, policy=of.policy) for place in places_sending
    ]
    traffic = section(max(sent, key=lambda one: int(one.total)))
    if layout.tensor == layout.pipeline == 1:
        return [section(accounting.device_state(shape, layout, policy=of.policy)), peak, traffic]
    parameters = accounting.device_parameters(shape, layout, fullest)
    stages = (
        Row(f"stage {stage}", max(int(one.total) for place, one in memory.items() if place.stage == stage))
        for stage in range(layout.pipeline)
    )
    return [
        section(parameters, f"parameters on the fullest device, stage {fullest.stage}"),
        peak,
        _figures("memory of the fullest device of each stage", Bytes, layout.words, *stages),
        traffic,
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
    "peak": lambda of: [section(peak := _memory(of).peak, "training memory at its peak", peak.moment)],
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
