"""`accounting report`: everything about a shape, or the tables that --only names."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import lru_cache

import accounting
from accounting.commands.answer import Answer
from accounting.commands.options import layout_of, name_of, policy_of, shape_of
from accounting.commands.sections import Row, Section, as_json, records, section, text, whole_row
from accounting.models.files import not_counted
from accounting.policy import DEFAULT, Policy
from accounting.shape import NotCounted, TransformerShape, choose
from accounting.units import Bytes, Count, FLOPs

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from accounting.cluster.layout import Layout
    from accounting.memory.training import TrainingMemory

LIMITS = tuple((f"{size} GB", size * 10**9) for size in (24, 40, 80, 141))  # of the cards people have


@dataclass(frozen=True)
class Asked:
    """What a report is about; limits: the memories, (name, bytes), whose largest batch is wanted."""

    shape: TransformerShape
    length: int
    batch: int
    pairs: str = "full"
    policy: Policy = DEFAULT
    layout: Layout | None = None
    limits: tuple[tuple[str, int], ...] = LIMITS


def report(options: argparse.Namespace) -> Answer:
    """Everything about a shape; with --html a page is written."""
    shape, limits = shape_of(options), LIMITS
    if options.device:
        from accounting.hardware.devices import device  # here, because few reports name one

        limits = ((options.device, int(device(options.device).memory)), *limits)
    only = tuple(name for names in options.only or () for name in names.split(","))
    asked = Asked(
        shape,
        shape.sequence(options.context),
        options.batch,
        options.pairs,
        policy_of(options),
        layout_of(options),
        limits,
    )
    tables = sections(asked, only)
    if tables and (missing := not_counted(options.shape or "")):
        note = f"{tables[0].note}; not in any table: {', '.join(missing)} of the config.json"
        tables = (replace(tables[0], note=note), *tables[1:])
    if options.html:
        given = options.shape
        if given and os.path.exists(options.html) and os.path.exists(given) and os.path.samefile(options.html, given):
            raise ValueError(f"--html {options.html} is the file that the shape is read from: name another")
        from accounting.commands.page import page  # here, because nothing but a page needs it

        drawn = limits[:1] if options.device else limits
        words = page(name_of(options), asked, tables, limits=drawn, explain=options.explain)
        with open(options.html, "w", encoding="utf-8") as file:
            file.write(words)
        return Answer(f"wrote {options.html}", [])
    if options.json or options.csv:  # formulas take longer to write than the tables
        return Answer("", records(tables), as_json(tables))
    return Answer(text(tables, binary=options.gib, explain=options.explain), [])


def sections(asked: Asked, only: tuple[str, ...] = ()) -> tuple[Section, ...]:
    """The tables of a report, or only those of these names; ValueError for a name that is none.

    Of a whole report those that are not counted of the shape are left out, and the first table's note gives the reason.
    """
    for name in only:
        choose("table", name, tuple(TABLES))
    tables: list[Section] = []
    reasons: dict[str, list[str]] = {}
    for name in only or TABLES:
        try:
            tables += TABLES[name](asked)
        except NotCounted as error:
            if only:
                raise
            reasons.setdefault(str(error), []).append(name)
    notes = [f"left out: {', '.join(names)}, because {reason}" for reason, names in reasons.items()]
    if tables:
        tables[0] = replace(tables[0], note="; ".join([tables[0].note, *notes]))
    return tuple(tables)


def _parameters(asked: Asked) -> list[Section]:
    return [section(accounting.parameters(asked.shape))]


def _load(asked: Asked) -> list[Section]:
    from accounting.memory.inference import BITS  # here, as every import of a table, because another does not need it

    rows = (whole_row(dtype, accounting.weight_bytes(asked.shape, weights=dtype)) for dtype in BITS)
    words = "the weights alone; int8 and int4 are of the matrices of the blocks, with a bf16 scale for 128 of them"
    return [Section("memory to load", Bytes, tuple(rows), words, additive=False)]


def _flops(asked: Asked) -> list[Section]:
    return [section(accounting.forward_flops(asked.shape, asked.length, asked.batch, pairs=asked.pairs))]


def _matmuls(asked: Asked) -> list[Section]:
    return [section(accounting.matmul_flops(asked.shape, asked.length, asked.batch, pairs=asked.pairs))]


def _elementwise(asked: Asked) -> list[Section]:
    return [
        section(accounting.elementwise_flops(asked.shape, asked.length, asked.batch), "beside them, elementwise FLOPs")
    ]


def _training(asked: Asked) -> list[Section]:
    found = [section(accounting.training_flops(asked.shape, asked.length, asked.batch, pairs=asked.pairs))]
    again = asked.policy.activation_checkpointing
    if again != "none":
        hardware = accounting.training_flops(asked.shape, asked.length, asked.batch, pairs=asked.pairs, recompute=again)
        found.append(section(hardware, "training FLOPs with what is recomputed"))
    return found


def _estimates(asked: Asked) -> list[Section]:
    from accounting.counting.estimates import estimate_terms

    step = accounting.training_flops(asked.shape, asked.length, asked.batch, pairs=asked.pairs)
    terms = estimate_terms(asked.shape, asked.length, asked.batch)
    rows = (Row(name, int(term), (term,)) for name, term in terms.items())
    words = "the same step, forward and backward, as others count it; not parts of anything"
    return [
        Section("training FLOPs by rules of thumb", FLOPs, (*rows, whole_row("exact", step)), words, additive=False)
    ]


def _optimizer(asked: Asked) -> list[Section]:
    return [section(accounting.optimizer_flops(asked.shape, optimizer=asked.policy.optimizer))]


@lru_cache(maxsize=1)
def _memory(asked: Asked) -> TrainingMemory:
    """What two tables show."""
    return accounting.training_memory(asked.shape, asked.batch, asked.length, policy=asked.policy)


def _peak(asked: Asked) -> list[Section]:
    peak = _memory(asked).peak
    return [section(peak, "training memory at its peak", peak.moment)]


def _phases(asked: Asked) -> list[Section]:
    memory = _memory(asked)
    rows = tuple(whole_row(phase.title, phase) for phase in memory.phases)
    return [Section("training memory over a step", Bytes, rows, memory.convention, additive=False)]


def _line(asked: Asked) -> list[Section]:
    line = accounting.memory_line(asked.shape, asked.length, policy=asked.policy)
    rows = (whole_row("for each sequence", line.per_sequence), whole_row("whatever the batch", line.fixed))
    words = f"exact from batch {line.first} on, where the peak is the {line.phase}"
    return [Section("peak as a line in the batch size", Bytes, rows, words, additive=False)]


def _batch(asked: Asked) -> list[Section]:
    rows = tuple(
        Row(name, accounting.max_batch_size(asked.shape, limit, asked.length, policy=asked.policy))
        for name, limit in asked.limits
    )
    words = "sequences; one more does not fit; GB is 10^9 bytes"
    return [Section("largest batch that fits", Count, rows, words, additive=False)]


def _decode(asked: Asked) -> list[Section]:
    return [section(accounting.decode_flops(asked.shape, asked.length, asked.batch), "decoding FLOPs of a step")]


def _inference(asked: Asked) -> list[Section]:
    return [section(accounting.inference_memory(asked.shape, asked.batch, asked.length), "inference memory, decoding")]


def _cache(asked: Asked) -> list[Section]:
    one, all_of_it = accounting.kv_cache(asked.shape, 1, 1), accounting.kv_cache(asked.shape, 1, asked.length)
    rows = (whole_row("for each token", one), whole_row("at this context", all_of_it))
    return [Section("KV cache", Bytes, rows, f"{one.convention}, one sequence", additive=False)]


def _devices(asked: Asked) -> list[Section]:
    """What the devices of a layout hold and send: of data parallelism alone, any of them; else the fullest, and each
    stage."""
    layout, shape, length, policy = asked.layout, asked.shape, asked.length, asked.policy
    if layout is None:
        return []
    from accounting.cluster.layout import places

    if asked.batch % layout.micro_batches:
        raise ValueError(
            f"micro_batches {layout.micro_batches} do not divide the batch of {asked.batch}: they are equally large"
        )
    each = asked.batch // layout.micro_batches
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


TABLES: dict[str, Callable[[Asked], list[Section]]] = {
    "parameters": _parameters,
    "load": _load,
    "flops": _flops,
    "matmuls": _matmuls,
    "elementwise": _elementwise,
    "training": _training,
    "estimates": _estimates,
    "optimizer": _optimizer,
    "peak": _peak,
    "phases": _phases,
    "line": _line,
    "batch": _batch,
    "decode": _decode,
    "inference": _inference,
    "cache": _cache,
    "devices": _devices,
}
