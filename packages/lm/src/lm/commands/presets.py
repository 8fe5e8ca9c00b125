"""`lm presets`: the configurations that come with the package."""

from __future__ import annotations

import argparse

from lm.commands.configuration import configuration, presets
from lm.commands.options import Commands, add


def register(commands: Commands) -> None:
    parser = add(commands, "presets", show, "the configurations that come with the package; of one, every setting")
    parser.add_argument("name", nargs="?", metavar="NAME", help=f"one of {', '.join(presets())}")


def show(options: argparse.Namespace) -> None:
    from accounting import parameters
    from lm.commands.settings_help import SECTIONS, describe
    from lm.config import to_table

    if options.name is not None:
        for name, config in zip(SECTIONS, configuration(options.name, []), strict=True):
            print(f"[{name}]\n{describe(name, SECTIONS[name], to_table(config))}\n")
        return
    for name in presets():
        model, train = configuration(name, [])
        sizes = f"vocabulary {model.vocab_size:,}, context {model.context_length:,}"
        shape = f"{model.num_layers} layers of {model.d_model}, {sizes}"
        count = int(parameters(model.shape()).total)
        print(f"{name:18}{count:>14,} parameters  {shape}; {train.steps:,} steps of {train.batch_size} sequences")
    print("`lm presets NAME` shows every setting of one.")
