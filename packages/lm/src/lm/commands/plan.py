"""`lm plan`: what a run would cost on this machine, before it."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from lm.commands.cli import Commands, add
from lm.commands.configuration import configuration, data_of, presets


def register(commands: Commands) -> None:
    text = "what a run would cost on this machine: parameters, FLOPs, memory, time; settings as for `lm train`"
    parser = add(commands, "plan", plan, text, takes_settings=True)
    parser.add_argument("config", metavar="CONFIG", help=f"a TOML file, or a preset: {', '.join(presets())}")
    parser.add_argument("--data", action="append", help="as for `lm train`: how often the run would go through it")


def plan(options: argparse.Namespace) -> None:
    from accounting import compute_optimal, forward_flops, parameters, training_flops, training_memory
    from lm.data import open_data
    from lm.device import choose_device, device_name, memory_of, peak_flops
    from lm.training import budget
    from lm.training.measure import measure
    from lm.training.run import resolve

    model, config = configuration(options.config, options.settings)
    config = resolve(config)
    device = choose_device(config.device)
    data = open_data(data_of(options.config, options.data)) if options.data else None
    shape, context = budget.trained_shape(model, config), model.context_length
    if config.epochs is not None:
        if data is None:
            raise ValueError(f"epochs {config.epochs:g} are of data: name it by --data")
        steps = data.steps(config.epochs, config.batch_size, context)
        config = dataclasses.replace(config, steps=steps, epochs=None)
    tokens = config.batch_size * context
    flops = int(training_flops(shape, batch_size=config.batch_size, pairs="causal").total)

    def row(name: str, value: str, note: str = "") -> None:
        print(f"{name:38}{value:>22}  {note}".rstrip())

    def rows(name: str, parts: Any, note: str = "") -> None:
        row(name, f"{int(parts.total):,}", note)
        for part, value in parts.items():
            if value:
                row(f"  {part}", f"{int(value):,}")

    rows("parameters", parameters(shape))
    row("forward FLOPs a token", f"{int(forward_flops(shape, pairs='causal').total) // context:,}", "causal, exact")
    row("training FLOPs a step", f"{flops:,}", f"{tokens:,} tokens")
    note = f"{config.steps:,} steps, {config.steps * tokens:,} tokens"
    row("training FLOPs in all", f"{flops * config.steps:,}", note)
    micro = config.micro_batch_size or config.batch_size
    if budget.memory_is_counted(model, config):
        counted = budget.policy(model, config, device, accumulate=micro < config.batch_size)
        memory = training_memory(shape, micro, policy=counted)
        rows("training memory", memory, f"bytes at its highest, {micro} sequences at a time")
        checkpointing = f"activation checkpointing {config.activation_checkpointing}"
        room = f"of {memory_of(device) / 1e9:.1f} GB, {config.precision}, {checkpointing}"
        row("largest micro-batch", f"{budget.largest_micro_batch(model, config, device):,}", room)
    else:
        what = "adapters" if config.lora_rank else "a model with value embeddings or of a family"
        row("training memory", "not counted", f"of {what}")
    if data is not None:
        for name, times in data.epochs(config.steps * tokens).items():
            row(f"epochs of {name}" if name else "epochs", f"{times:,.2f}")
    best = compute_optimal(flops * config.steps)
    note = f"and {int(best.tokens):,} tokens, by {best.law}{f'; {best.warning}' if best.warning else ''}"
    row("compute-optimal size", f"{int(best.parameters):,}", note)
    message = budget.beyond(model, config, device, config.batch_size)
    try:
        seconds = 0.0 if message else measure(model, config, progress=True)
    except (RuntimeError, MemoryError) as error:
        if not budget.ran_out(error):
            raise
        message = budget.what_fits(model, config, device, config.batch_size)
    if message is not None:
        row("measured here", "nothing", message)
        return
    note = f"tokens/s, {flops / seconds / 1e9:,.0f} GFLOP/s, {device_name(device)}"
    row("measured here", f"{tokens / seconds:,.0f}", note)
    if (peak := peak_flops(device, config.precision)) is not None:
        row("MFU", f"{flops / seconds / peak:.1%}", f"of {peak / 1e12:,.0f} TFLOP/s")
    row("the whole run", f"{config.steps * seconds / 3600:,.2f}", "hours")
