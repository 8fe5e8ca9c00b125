"""`accounting peak`: the peak of a training step as a line in the batch, a · batch + b, of some shapes."""

from __future__ import annotations

from accounting.commands.answer import Answer
from accounting.commands.options import name_of, policy_of, shape_of
from accounting.commands.report import LIMITS
from accounting.commands.sections import legend, section, table
from accounting.commands.tables import columns, wrapped
from accounting.memory.training import training_memory
from accounting.planning.fitting import max_batch_size, memory_line

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse


def peak(options: argparse.Namespace) -> Answer:
    """a and b of each shape, the largest batch in common cards, and where it is wanted what a and b are made of."""
    policy = policy_of(options)
    lines = [("shape", "a, bytes a sequence", "b, bytes", "from batch", *(name for name, _ in LIMITS))]
    records, parts = [], []
    names: set[str] = set()
    for given in options.shapes or [None]:
        shape, name = shape_of(options, given), name_of(options, given)
        line = memory_line(shape, options.context, policy=policy)
        batches = {card: max_batch_size(shape, limit, options.context, policy=policy) for card, limit in LIMITS}
        numbers = (int(line.slope), int(line.intercept), line.first, *batches.values())
        lines.append((name, *(f"{number:,}" for number in numbers)))
        records.append({"shape": name, "a": numbers[0], "b": numbers[1], "from batch": line.first, **batches})
        for letter, of in (("a, for each sequence", line.per_sequence), ("b, whatever the batch", line.fixed)):
            found = section(of, f"{name}: {letter}")
            parts.append(table(found, explain=True))
            names |= found.names
    first = shape_of(options, options.shapes[0] if options.shapes else None)
    words = training_memory(first, 1, options.context, policy=policy).convention
    note = wrapped(f"peak = a · batch + b; the largest batch in each; {words}")
    page = "\n".join([columns(lines), note])
    return Answer("\n\n".join([page, *parts, legend(names)]) if options.explain else page, records)
