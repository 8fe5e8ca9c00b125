"""`lm experiment`: sweeps and ablations from one line."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm.commands.configuration import configuration, data_of, presets
from lm.commands.options import DEVICES, STOPPED, Commands, Ended, add
from lm.experiments.ablations import ABLATIONS, TRAINING

if TYPE_CHECKING:
    from lm.experiments.trials import Experiment, Outcome

FAILED = 1
PRECISIONS = ("fp32", "tf32", "bf16", "fp16")


def register(commands: Commands) -> None:
    parser = commands.add_parser("experiment", help="sweeps and ablations: many runs, a table, a page, a finding")
    parts = parser.add_subparsers(required=True, metavar="lr-sweep | batch-sweep | ablations")

    parser = add(parts, "lr-sweep", lr_sweep, "learning rates up to the first that diverges", takes_settings=True)
    run_arguments(parser)
    help = "these (default: by factors of 2 around the base's)"
    parser.add_argument("--rates", type=numbers(float), metavar="R,R,…", help=help)

    parser = add(parts, "batch-sweep", batch_sweep, "batch sizes, each over as many tokens", takes_settings=True)
    run_arguments(parser)
    help = "these (default: an eighth of the base's to 8 times it)"
    parser.add_argument("--sizes", type=numbers(int), metavar="B,B,…", help=help)
    help = "one learning rate for all (default: by the square root of the size)"
    parser.add_argument("--same-rate", action="store_true", help=help)

    text = "the model and its training with each part taken out or replaced"
    parser = add(parts, "ablations", ablations, text, takes_settings=True)
    run_arguments(parser)
    help = f"these (default: all that differ from the base): {', '.join((*ABLATIONS, *TRAINING))}"
    parser.add_argument("--only", type=numbers(str), metavar="NAME,…", help=help)


def run_arguments(parser: argparse.ArgumentParser) -> None:
    help = f"a TOML file, or a preset: {', '.join(presets())}"
    parser.add_argument("--preset", required=True, metavar="CONFIG", help=help)
    parser.add_argument("--data", action="append", help="as for `lm train`")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="the runs, a folder each, and report.html")
    help = "runs at a time, sharing the processors (default: 1)"
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help=help)
    parser.add_argument("--device", choices=DEVICES, help="where the runs compute (default: that of the configuration)")
    parser.add_argument("--dtype", choices=PRECISIONS, help="their precision (default: that of the configuration)")
    parser.add_argument("--seeds", type=int, default=3, metavar="N", help="runs of each variant (default: 3)")
    parser.add_argument("--quiet", action="store_true", help="no live lines")


def numbers(kind: type) -> Any:
    def read(text: str) -> tuple[Any, ...]:
        return tuple(kind(part) for part in text.split(","))

    read.__name__ = f"list of {kind.__name__}"  # what argparse calls it where it cannot be read
    return read


def lr_sweep(options: argparse.Namespace) -> None:
    from lm.experiments.trials import LearningRates

    rates = tuple(sorted(set(options.rates or ())))
    perform(options, partial(LearningRates, rates=rates))


def batch_sweep(options: argparse.Namespace) -> None:
    from lm.experiments.trials import BatchSizes

    sizes = tuple(sorted(set(options.sizes or ())))
    if any(size < 1 for size in sizes):
        raise ValueError(f"a batch has at least 1 row, got {min(sizes)}")
    perform(options, partial(BatchSizes, sizes=sizes, scale_rate=not options.same_rate))


def ablations(options: argparse.Namespace) -> None:
    from lm.experiments.trials import Ablations

    perform(options, partial(Ablations, only=options.only or ()))


def parser_of(name: str, text: str) -> argparse.ArgumentParser:
    """A parser with the arguments that perform() takes, for an experiment outside of the command."""
    parser = argparse.ArgumentParser(name, description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    run_arguments(parser)
    return parser


def perform(options: argparse.Namespace, make: Callable[[Any, Any, float, int], Experiment]) -> None:
    from lm.data import open_data
    from lm.experiments import page
    from lm.experiments.run_trials import run, unigram_entropy
    from lm.training.train import OutOfMemory, Stopped

    for name in ("jobs", "seeds"):
        if getattr(options, name) < 1:
            raise ValueError(f"--{name} must be at least 1, got {getattr(options, name)}")
    model, config = configuration(options.preset, options.settings)
    overrides = {"device": options.device, "precision": options.dtype}
    config = dataclasses.replace(config, **{name: value for name, value in overrides.items() if value is not None})
    data, out = data_of(options.preset, options.data), Path(options.out)
    mixture = open_data(data)
    mixture.check(model.vocab_size, model.context_length)
    experiment = make(model, config, unigram_entropy(mixture), options.seeds)

    def tell(outcomes: dict[str, Outcome]) -> None:
        if outcomes:
            page.write(experiment, outcomes, out)
            if not options.quiet:
                print(page.as_table(experiment, outcomes), flush=True)
                print(flush=True)

    try:
        outcomes = run(experiment, data, out, jobs=options.jobs, progress=not options.quiet, tell=tell)
    except (Stopped, KeyboardInterrupt):
        raise Ended(f"stopped: the same command goes on with the runs in {out}", STOPPED) from None
    except OutOfMemory as failed:
        raise Ended(str(failed), FAILED) from None
    if options.quiet:
        print(page.as_table(experiment, outcomes))
    print(experiment.finding(outcomes))
    print(out / "report.html")
