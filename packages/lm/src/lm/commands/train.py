"""`lm train`: train a model, or continue a run."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from lm.commands.cli import STOPPED, Commands, Ended, add, add_step
from lm.commands.configuration import (
    configuration_of_depth,
    configuration_to_train,
    data_of,
    is_of_a_run,
    names_model,
    presets,
)
from lm.config import ModelConfig, TrainConfig, read_toml


def register(commands: Commands) -> None:
    text = "train a model, continue a run, or fine-tune another one; settings of the configuration are "
    text += "--section.key value, as --model.num_layers 8 or --train.steps 1000"
    parser = add(commands, "train", train, text, takes_settings=True)
    help = f"a TOML file; a preset: {', '.join(presets())}; or a model to begin with: the folder of another run, whose "
    help += "settings hold too, or another program's model, or hf://OWNER/NAME"
    parser.add_argument("config", metavar="CONFIG", nargs="?", help=help)
    help = "in place of CONFIG, this many blocks: width, heads, learning rate, batch and tokens follow (see lm.depth)"
    parser.add_argument("--depth", metavar="N", type=int, help=help)
    parser.add_argument("--data", action="append", help="a folder of token files; or sets, each as NAME=FOLDER@WEIGHT")
    parser.add_argument("--out", required=True, help="the folder of the run")
    parser.add_argument("--tokenizer", help="the tokenizer that made the data, kept in the run for `lm generate`")
    help = "go on from a checkpoint of another run, weights and optimizer, with settings that may differ"
    parser.add_argument("--branch", metavar="RUN", help=help)
    help = 'of that run, the checkpoint after N steps to go on from, or "best" (default: its newest)'
    add_step(parser, help)
    parser.add_argument("--restart", action="store_true", help="remove the run that is in OUT, and begin again")
    parser.add_argument("--quiet", action="store_true", help="no live line")
    help = "a program that gets the metrics too; TensorBoard's are in OUT/tensorboard"
    trackers = ("tensorboard", "wandb", "mlflow")
    parser.add_argument("--track", action="append", default=[], choices=trackers, help=help)


def train(options: argparse.Namespace) -> None:
    model, config, data = configuration_and_data(options)
    out = Path(options.out)

    from lm.device import keep_freed_memory, local_rank
    from lm.training import train as training
    from lm.training.distributed import Lost
    from lm.training.rewards import RewardFailed
    from lm.training.train import train as train_model

    if config.device in ("auto", "cpu"):
        keep_freed_memory()
    names = ("tokenizer", "restart", "branch")
    how = {"progress": not options.quiet, "trackers": options.track, "step": options.step}
    how |= {name: getattr(options, name) for name in names}
    try:
        result = train_model(model, config, data, out, **how)
    except training.Stopped as stopped:
        raise Ended(str(stopped), STOPPED) from None
    except (training.Diverged, training.OutOfMemory, RewardFailed, Lost) as failed:
        raise Ended(str(failed)) from None
    if local_rank():
        return
    heldout = "" if result.heldout is None else f", held-out {result.heldout}"
    skipped = f"; {result.skipped} updates were skipped" if result.skipped else ""
    print(f"trained {result.steps} steps in {result.seconds:.0f} s: loss {result.loss:.4f}{heldout}{skipped}")


def configuration_and_data(options: argparse.Namespace) -> tuple[ModelConfig | None, TrainConfig, Any]:
    """Return the configuration of CONFIG, or of --depth and the vocabulary of --tokenizer or the data; and the data."""
    if options.depth is None and options.config is None:
        options.parser.error("the following arguments are required: CONFIG, or --depth")
    if options.depth is None:
        model, config = configuration_to_train(options.config, begin_with_weights(options))
        return model, config, data_of(options.config, options.data)
    if options.config is not None or not options.data:
        raise ValueError("--depth stands in place of CONFIG and goes with --data: write --depth N --data FOLDER")
    from lm.data import open_data
    from lm.tokenizer import load_tokenizer

    data = data_of("", options.data)
    vocab_size = load_tokenizer(options.tokenizer).n_vocab if options.tokenizer else open_data(data).highest + 1
    return *configuration_of_depth(options.depth, vocab_size, options.settings), data


def begin_with_weights(options: argparse.Namespace) -> list[str]:
    """The settings, with init_from where CONFIG is a model, or of a run with weights. ValueError: a run lacks them."""
    settings, named = list(options.settings), Path(options.config)
    if any(setting.startswith("--train.init_from") for setting in settings):
        return settings
    if names_model(options.config):
        return [*settings, "--train.init_from", options.config]
    run = named if named.is_dir() else named.parent
    config = run / "config.toml"
    if not config.is_file() or named not in (run, config) or run.resolve() == Path(options.out).resolve():
        return settings
    if options.branch is not None:  # the file's own init_from is of the run that it is the configuration of
        return [*settings, "--train.init_from", "scratch"]
    if (run / "checkpoints").is_dir():
        return [*settings, "--train.init_from", str(run)]
    if is_of_a_run(read_toml(config)):
        remedy = "put them back beside it, or begin anew with --train.init_from scratch"
        raise ValueError(f"{config} is of a run whose checkpoints are missing: {remedy}")
    return settings
