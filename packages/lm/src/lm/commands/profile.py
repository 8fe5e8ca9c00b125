"""`lm profile`: where the time, the arithmetic and the memory of a training step go."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from lm.commands.configuration import configuration, presets
from lm.commands.options import Commands, add

if TYPE_CHECKING:
    from typing import Any

    from lm.training.profile import Profile

SLICES = 24  # rows of the timeline
BAR = 30  # characters of its longest bar


def register(commands: Commands) -> None:
    text = "where a training step's time, arithmetic and memory go on this machine; settings as for `lm train`"
    made = add(commands, "profile", profile, text, takes_settings=True)
    made.add_argument("config", metavar="CONFIG", help=f"a TOML file, or a preset: {', '.join(presets())}")
    made.add_argument("--steps", type=int, default=5, help="that are timed (default: 5)")
    made.add_argument("--most", type=int, default=15, help="operators to show (default: 15)")
    made.add_argument("--trace", metavar="FILE", help="a trace of one step, as JSON, which ui.perfetto.dev opens")
    made.add_argument("--json", metavar="FILE", help="every figure, with the whole timeline")


def profile(options: argparse.Namespace) -> None:
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else its start and end are told of; read with torch
    import dataclasses

    from lm.device import choose_device, in_words
    from lm.training import profile as profiling
    from lm.training.run import resolve

    if options.most < 1:
        raise ValueError(f"--most must be at least 1, and {options.most} is not")
    model, config = configuration(options.config, options.settings)
    if config.compile == "auto":  # whether it pays is not tried: what is compiled cannot be seen
        config = dataclasses.replace(config, compile="off")
    config = resolve(config)
    device = choose_device(config.device)
    found = profiling.profile(model, config, steps=options.steps, device=device, trace=options.trace)
    run, passes = found.micro_batches
    of = "" if run == passes else f", the first {run} of a step's {passes} micro-batches"
    print(f"{found.tokens:,} tokens a step on {in_words(device)}, {config.precision}{of}")
    print("\n".join(["", *times(found), "", *operators(found, options.most), "", *memory(found)]))
    if options.trace:
        print(f"\nthe trace of a step is in {options.trace}: open it at ui.perfetto.dev")
    if options.json:
        import json

        from lm.files import atomic_write

        atomic_write(options.json, json.dumps(record(found), indent=1).encode())


def times(found: Profile) -> list[str]:
    """Seconds of the passes, and what they come to."""
    whole = found.passes["step"].mean
    lines = [f"{'':16}{'ms':>10}{'±':>8}{'share':>8}"]
    for name, timing in found.passes.items():
        lines.append(f"{name:16}{timing.mean * 1e3:10.2f}{timing.deviation * 1e3:8.2f}{timing.mean / whole:8.1%}")
    peak = float(found.device.peak(found.dtype))
    rate = found.flops / whole
    lines.append(
        f"{found.tokens / whole:,.0f} tokens/s, {rate / 1e9:,.1f} GFLOP/s: {rate / peak:.1%} of {peak / 1e9:,.0f} "
        f"GFLOP/s, {'measured here' if found.device.measured else found.device.source}"
    )
    return lines


def operators(found: Profile, most: int) -> list[str]:
    """The operators that took longest, with what the device would need at least."""
    whole = sum(one.seconds for one in found.operators)
    lines = [f"{'operator':34}{'calls':>7}{'ms':>10}{'share':>8}{'GFLOP':>10}{'MB':>10}{'roofline':>10}"]
    for one in found.operators[:most]:
        part = one.roofline(found.device, found.dtype)
        lines.append(
            f"{one.name[:33]:34}{one.calls:7,}{one.seconds * 1e3:10.2f}{one.seconds / whole:8.1%}"
            f"{one.flops / 1e9 if one.flops else '':{'10,.2f' if one.flops else '>10'}}"
            f"{'' if one.bytes is None else f'{one.bytes / 1e6:,.1f}':>10}{'' if part is None else f'{part:.0%}':>10}"
        )
    rest = found.operators[most:]
    if rest:
        seconds = sum(one.seconds for one in rest)
        lines.append(
            f"{f'{len(rest)} others':34}{sum(one.calls for one in rest):7,}{seconds * 1e3:10.2f}{seconds / whole:8.1%}"
        )
    counted = sum(one.flops for one in found.operators)
    lines.append(
        f"{counted / 1e9:,.2f} GFLOP in matrix multiplications and attention, {found.flops / 1e9:,.2f} by accounting "
        "over causal pairs;\nroofline: the least time for these FLOPs and bytes over the time it took, which caches "
        "can exceed; what a function in C moves is not seen"
    )
    return lines


def memory(found: Profile) -> list[str]:
    """Bytes alive over the step, beside the phases that accounting predicts."""
    from lm.training.profile import PHASES

    end = found.timeline[-1].seconds or 1.0
    top = max(one.bytes for one in found.timeline)
    lines = ["memory over a step (MB alive at most in each part of it)"]
    for part in range(SLICES):
        inside = [one for one in found.timeline if part <= one.seconds / end * SLICES < part + 1]
        if inside:
            highest = max(inside, key=lambda one: one.bytes)
            bar = "█" * round(BAR * highest.bytes / top)
            lines.append(f"  {highest.phase:16}{highest.bytes / 1e6:10,.1f}  {bar}")
    lines.append(f"{'highest':18}{'MB':>10}{'accounting':>12}")
    for phase in PHASES:
        measured, predicted = found.most(phase), found.predicted_most(phase)
        beside = "not counted" if predicted is None else f"{predicted / 1e6:,.1f}"
        off = f"{measured / predicted - 1:+.1%}" if predicted else ""
        lines.append(f"  {phase:16}{measured / 1e6:10,.1f}{beside:>12}{off:>8}")
    return lines


def record(found: Profile) -> dict[str, Any]:
    """Everything as plain data."""
    import dataclasses

    from lm.training.profile import PHASES

    return {
        "passes": {name: dataclasses.asdict(timing) for name, timing in found.passes.items()},
        "operators": [
            {**dataclasses.asdict(one), "roofline": one.roofline(found.device, found.dtype)} for one in found.operators
        ],
        "timeline": [dataclasses.asdict(one) for one in found.timeline],
        "predicted bytes": {phase: found.predicted_most(phase) for phase in PHASES},
        "flops": found.flops,
        "tokens": found.tokens,
        "peak FLOP/s": float(found.device.peak(found.dtype)),
        "bandwidth": float(found.device.bandwidth),
        "device": found.device.name,
    }
