"""`lm plan`: what a run would cost on this machine, before it."""

from __future__ import annotations

import argparse

from lm.commands import Commands, add
from lm.settings import configuration, data_of, presets


def register(commands: Commands) -> None:
    text = "what a run would cost on this machine: parameters, FLOPs, memory, time; settings as for `lm train`"
    made = add(commands, "plan", plan, text, takes_settings=True)
    made.add_argument("config", metavar="CONFIG", help=f"a TOML file, or a preset: {', '.join(presets())}")
    made.add_argument("--data", action="append", help="as for `lm train`: how often the run would go through it")


def plan(options: argparse.Namespace) -> None:
    from accounting import forward_flops, parameters, training_flops, training_memory
    from lm.data import open_data
    from lm.measure import measure_speed

    model, config = configuration(options.config, options.settings)
    shape = model.shape()
    tokens = config.batch_size * model.context_length
    flops = int(training_flops(shape, batch_size=config.batch_size).total)
    print(f"{'parameters':24}{int(parameters(shape).total):>20,}")
    for name, value in parameters(shape).items():
        print(f"  {name:22}{int(value):>20,}")
    print(f"{'forward FLOPs a token':24}{int(forward_flops(shape).total) // model.context_length:>20,}")
    print(f"{'training FLOPs a step':24}{flops:>20,}")
    memory = training_memory(shape, config.micro_batch_size or config.batch_size)
    print(f"{'training memory':24}{int(memory.total):>20,} bytes at its highest")
    for name, value in memory.items():
        print(f"  {name:22}{int(value):>20,}")
    if options.data:
        for name, times in open_data(data_of(options.config, options.data)).epochs(config.steps * tokens).items():
            print(f"{f'epochs of {name}' if name else 'epochs':24}{times:>20,.2f}")
    seconds = measure_speed(model, config)
    print(f"{'measured here':24}{tokens / seconds:>20,.0f} tokens/s, {flops / seconds / 1e9:,.0f} GFLOP/s")
    print(f"{'the whole run':24}{config.steps * seconds / 3600:>20,.2f} hours for {config.steps * tokens:,} tokens")
