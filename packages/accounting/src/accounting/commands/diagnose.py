"""`accounting diagnose`: a measured step beside its prediction, and the likeliest fault of a run that is too slow."""

from __future__ import annotations

import argparse
import re
from typing import Any

from accounting.cluster.layout import Layout
from accounting.commands.options import joined_by, layout_of, name_of, policy_of, shape_of
from accounting.commands.tables import Answer, columns, wrapped
from accounting.counting.flops import training_flops
from accounting.hardware.devices import device
from accounting.planning import diagnosis
from accounting.units import Seconds, human

# of a log line the first that it has: the expression of a number, and its unit
LOGS = (
    (r"time per iteration \(ms\):\s*([\d.,]+)", "ms"),  # Megatron-LM
    (r"\b(?:dt|time|step[_ ]time)\b\W*([\d.,]+)\s*ms", "ms"),  # nanoGPT, nanochat
    (r"\b(?:dt|time|step[_ ]time)\b\W*([\d.,]+)\s*s\b", "s"),
    (r"\b(?:tps:|device/tokens_per_sec\W)\s*([\d.,]+)", "tokens/s of a device"),  # torchtitan, Composer
    (r"\b(?:tok/sec|tok/s|tokens/s|tokens_per_second)\b\W*([\d.,]+)", "tokens/s"),  # nanochat, lm's metrics.jsonl
    (r"([\d.,]+)\s*(?:tok|tokens)/s", "tokens/s"),  # lm
    (r"\bmfu\W*([\d.]+)\s*%", "% of the peak"),
)


def diagnose(options: argparse.Namespace) -> Answer:
    """The parts of the predicted step, the measured time, the faults that account for the gap, and where it stands."""
    shape, machine, layout = shape_of(options), device(options.device), layout_of(options) or Layout()
    policy, length = policy_of(options), shape.sequence(options.context)
    sequences = options.batch * layout.micro_batches * layout.data
    peak = float(machine.peak(policy.precision if policy.precision in ("fp32", "fp8") else "bf16")) * layout.gpus
    at_peak = int(training_flops(shape, length, sequences, pairs=options.pairs).total) / peak
    seconds = measured(options, sequences * length, layout.gpus, at_peak)
    run = diagnosis.diagnose(
        *(shape, layout, machine, joined_by(machine, layout.gpus, options), seconds, options.batch, length),
        policy=policy,
        efficiency=options.efficiency,
        virtual_stages=options.virtual_stages,
        kernel=options.kernel,
    )
    predicted, attention = float(run.step.total), float(run.step.attention)
    parts = {name: float(part) for name, part in run.step.parts.items()}
    parts = {"matmul": parts.pop("matmul") - attention, "attention": attention, **parts}
    sums = {"predicted": predicted, "measured": seconds, "unexplained": seconds - predicted}
    table = [("part", "seconds", "of predicted")]
    for name, part in {**parts, **sums}.items():
        if part or name in sums:
            table.append((name, "-" * (part < 0) + human(Seconds(abs(part))), f"{part / predicted:.1%}"))
    faults = [{"part": one.part, "fault": one.words, "seconds": float(one.seconds)} for one in run.faults]
    causes = [("fault", "part", "step with it", "unexplained then")]
    for one in run.faults:
        left = (seconds - float(one.seconds)) / predicted
        causes.append((one.words, one.part, human(one.seconds), f"{left:+.1%}"))
    note = (
        f"the step took {run.took:.2f} of the predicted time, an MFU of {at_peak / seconds:.1%} over {options.pairs} "
        f"pairs: {run.verdict}. That is more than {run.faster} of {run.published.words}"
    )
    title = f"{name_of(options)} on {layout.gpus:,} × {machine.name}, a step of {sequences * length:,} tokens"
    likely = None if run.likely is None else {"part": run.likely.part, "fault": run.likely.words}
    data: dict[str, Any] = {"parts": parts, **sums, "took": run.took, "usual": run.usual, "likely": likely}
    data |= {"faults": faults, "shortest": run.published.shortest, "longest": run.published.longest}
    data |= {"faster": run.faster, "nearest": [one.words for one in run.published.nearest]}
    records = [{"part": name, "fault": None, "seconds": part} for name, part in {**parts, **sums}.items()]
    text = "\n".join([title, columns(table), "", columns(causes, "<<"), wrapped(note)])
    return Answer(text, [*records, *faults], data)


def measured(options: argparse.Namespace, tokens: int, devices: int, at_peak: float) -> float:
    """Seconds of a step of these tokens, by the option that gives them; at_peak: at an MFU of 1."""
    measurements = {"s": options.step_time, "tokens/s": options.tokens_per_second, "of the peak": options.mfu}
    unit, value = next(((unit, value) for unit, value in measurements.items() if value is not None), ("", 0.0))
    if options.log is not None:
        line = re.sub(r"\x1b\[[\d;]*m", "", options.log)  # without its colours
        numbers = ((re.search(expression, line, re.IGNORECASE), unit) for expression, unit in LOGS)
        match, unit = next(((match, unit) for match, unit in numbers if match), (None, ""))
        if match is None:
            raise ValueError(f"expected a time, tokens/s or MFU in --log, got {options.log!r:.80}: give --step-time")
        value = float(match[1].replace(",", "").rstrip("."))
    if not 0 < value < float("inf"):
        raise ValueError(f"expected a measured number above 0, got {value:g} {unit}")
    each = {
        "s": value,
        "ms": value / 1000,
        "tokens/s": tokens / value,
        "tokens/s of a device": tokens / value / devices,
    }
    return {**each, "of the peak": at_peak / value, "% of the peak": 100 * at_peak / value}[unit]
