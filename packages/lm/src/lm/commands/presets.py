"""`lm presets`: the configurations that come with the package."""

from __future__ import annotations

import argparse

from lm.commands.cli import Commands, add
from lm.commands.configuration import configuration, presets


def register(commands: Commands) -> None:
    parser = add(commands, "presets", show, "the configurations that come with the package; of one, every setting")
    parser.add_argument("name", nargs="?", metavar="NAME", help=f"one of {', '.join(presets())}")


def show(options: argparse.Namespace) -> None:
    from accounting import parameters, training_flops
    from lm.commands.configuration import describe
    from lm.config import SECTIONS, to_table

    if options.name is not None:
        for name, config in zip(SECTIONS, configuration(options.name, []), strict=True):
            print(f"[{name}]\n{describe(name, SECTIONS[name], to_table(config))}\n")
        return
    for name in presets():
        model, train = configuration(name, [])
        shape = f"{model.num_layers} layers of {model.d_model}, context {model.context_length:,}"
        sequences = train.steps * train.batch_size
        flops = sequences * int(training_flops(model.shape(), pairs="causal").total)
        budget = f"{sequences * model.context_length:9.2e} tokens, {flops:8.2e} FLOPs"
        print(f"{name:26}{int(parameters(model.shape()).total):>14,} parameters {budget}  {shape}")
    print("`lm presets NAME` shows every setting of one.")
