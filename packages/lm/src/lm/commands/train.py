"""`lm train`: train a model, or continue a run."""

from __future__ import annotations

import argparse
from pathlib import Path

from lm.commands.configuration import configuration, data_of, presets
from lm.commands.options import Commands, Ended, add

STOPPED = 130  # what a shell reports of a process that Ctrl-C ended
FAILED = 1


def register(commands: Commands) -> None:
    text = (
        "train a model, or continue a run; settings of the configuration are --section.key value, "
        "as --model.num_layers 8 or --train.steps 1000"
    )
    made = add(commands, "train", train, text, takes_settings=True)
    made.add_argument("config", metavar="CONFIG", help=f"a TOML file, or a preset: {', '.join(presets())}")
    made.add_argument(
        "--data", action="append", help="a folder of token files; or several sets, each as --data NAME=FOLDER@WEIGHT"
    )
    made.add_argument("--out", required=True, help="the folder of the run")
    made.add_argument("--tokenizer", help="the tokenizer that made the data, kept in the run for `lm generate`")
    made.add_argument("--quiet", action="store_true", help="no live line")
    made.add_argument("--tensorboard", action="store_true", help="metrics for TensorBoard too, in OUT/tensorboard")


def train(options: argparse.Namespace) -> None:
    from lm.tokenizer import check_tokenizer
    from lm.training import trainer as training
    from lm.training.distributed import Lost, local_rank

    model, config = configuration(options.config, options.settings)
    data, out = data_of(options.config, options.data), Path(options.out)
    if options.tokenizer is not None and local_rank() == 0:
        check_tokenizer(options.tokenizer, data, model.vocab_size)
    try:
        result = training.train(
            model,
            config,
            data,
            out,
            progress=not options.quiet,
            tensorboard=options.tensorboard,
            tokenizer=options.tokenizer,
        )
    except training.Stopped as stopped:
        raise Ended(str(stopped), STOPPED) from None
    except (training.Diverged, training.OutOfMemory, Lost) as failed:
        raise Ended(str(failed), FAILED) from None
    if local_rank():
        return
    heldout = "" if result.heldout is None else f", held-out {result.heldout}"
    print(f"trained {result.steps} steps in {result.seconds:.0f} s: loss {result.loss:.4f}{heldout}")
