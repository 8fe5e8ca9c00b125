"""`lm profile`: where the time, the arithmetic and the memory of a training step go."""

from __future__ import annotations

import argparse
import os
import statistics
from typing import TYPE_CHECKING

from lm.commands.configuration import configuration, presets
from lm.commands.options import Commands, add

if TYPE_CHECKING:
    from lm.training.profile import Profile


def register(commands: Commands) -> None:
    text = "where a training step's time, arithmetic and memory go on this machine; settings as for `lm train`"
    parser = add(commands, "profile", profile, text, takes_settings=True)
    parser.add_argument("config", metavar="CONFIG", help=f"a TOML file, or a preset: {', '.join(presets())}")
    parser.add_argument("--steps", type=int, default=5, help="timed steps (default: 5)")
    parser.add_argument("--most", type=int, default=15, help="operators to show (default: 15)")
    parser.add_argument("--trace", metavar="FILE", help="a trace of one step, as JSON, which ui.perfetto.dev opens")


def profile(options: argparse.Namespace) -> None:
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else its start and end are told of; read with torch
    from lm.device import choose_device, in_words
    from lm.training import profile as profiling
    from lm.training.run import resolve

    if options.most < 1:
        raise ValueError(f"--most must be at least 1, got {options.most}")
    model, config = configuration(options.config, options.settings)
    config = resolve(config)
    device = choose_device(config.device)
    result = profiling.profile(model, config, steps=options.steps, device=device, trace=options.trace)
    run, whole = result.micro_batches
    part = "" if run == whole else f", the first {run} of a step's {whole} micro-batches"
    print(f"{result.tokens:,} tokens a step on {in_words(device)}, {config.precision}{part}")
    print("\n".join(["", *times(result), "", *operators(result, options.most), "", *memory(result)]))
    if options.trace:
        print(f"\nthe trace of a step is in {options.trace}: open it at ui.perfetto.dev")


def times(result: Profile) -> list[str]:
    """Seconds of the phases, their mean and standard deviation over the timed steps, and the speed."""
    totals = [sum(step.values()) for step in result.seconds]
    mean = statistics.fmean(totals)
    rows = {name: [step[name] for step in result.seconds] for name in result.seconds[0]} | {"step": totals}
    lines = [f"{'':16}{'ms':>10}{'±':>8}{'share':>8}"]
    for name, seconds in rows.items():
        value = statistics.fmean(seconds)
        lines.append(f"{name:16}{value * 1e3:10.2f}{statistics.stdev(seconds) * 1e3:8.2f}{value / mean:8.1%}")
    return [*lines, f"{result.tokens / mean:,.0f} tokens/s, {result.flops / mean / 1e9:,.1f} GFLOP/s"]


def operators(result: Profile, most: int) -> list[str]:
    """The operators that took longest, and the FLOPs of all."""
    total = sum(row.seconds for row in result.operators)
    lines = [f"{'operator':34}{'calls':>7}{'ms':>10}{'share':>8}{'GFLOP':>10}{'GFLOP/s':>10}"]
    for row in result.operators[:most]:
        line = f"{row.name[:33]:34}{row.calls:7,}{row.seconds * 1e3:10.2f}{row.seconds / total:8.1%}"
        rate = f"{row.flops / 1e9:10,.2f}{row.flops / row.seconds / 1e9:10,.1f}" if row.flops else ""
        lines.append(line + rate)
    if rest := result.operators[most:]:
        seconds, calls = sum(row.seconds for row in rest), sum(row.calls for row in rest)
        lines.append(f"{f'{len(rest)} others':34}{calls:7,}{seconds * 1e3:10.2f}{seconds / total:8.1%}")
    counted = sum(row.flops for row in result.operators) / 1e9
    return [
        *lines,
        f"{counted:,.2f} GFLOP in matrix multiplications and attention, {result.flops / 1e9:,.2f} by accounting over "
        "causal pairs",
    ]


def memory(result: Profile) -> list[str]:
    """The most bytes alive in each phase, beside those that accounting predicts."""
    lines = [f"{'most memory':18}{'MB':>10}{'accounting':>12}"]
    for phase, measured in result.highest.items():
        predicted = result.predicted_highest(phase)
        beside = "not counted" if predicted is None else f"{predicted / 1e6:,.1f}"
        difference = f"{measured / predicted - 1:+.1%}" if predicted else ""
        lines.append(f"  {phase:16}{measured / 1e6:10,.1f}{beside:>12}{difference:>8}")
    return lines
