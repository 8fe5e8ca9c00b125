"""`lm experiment`: a grid of settings, each of its runs with several seeds; a table and a page."""

from __future__ import annotations

import argparse
import dataclasses
import functools
import itertools
import re
import shlex
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lm.commands.cli import DEVICES, STOPPED, Commands, Ended, Parser, add
from lm.commands.configuration import configuration, data_of, pairs_of, presets

if TYPE_CHECKING:
    from lm.experiments.grid import Outcome, Trial

PRECISIONS = ("fp32", "tf32", "bf16", "fp16")
BASE = "base"  # the variant without a change


def register(commands: Commands) -> None:
    text = "many runs that differ in settings: one with several values, as --train.learning_rate 1e-3,2e-3, is tried "
    text += "with each, all combinations of them; --variant adds single changes"
    parser = add(commands, "experiment", experiment, text, takes_settings=True)
    run_arguments(parser)
    help = "settings that are tried alone, in one argument; may be given again: --variant model.ffn=silu"
    parser.add_argument("--variant", action="append", default=[], metavar="SETTINGS", help=help)


def run_arguments(parser: Parser) -> None:
    parser.add_argument("config", metavar="CONFIG", help=f"a TOML file, or a preset: {', '.join(presets())}")
    parser.add_argument("--data", action="append", help="as for `lm train`")
    parser.add_argument("--out", required=True, metavar="FOLDER", help="the runs, a folder each, and report.html")
    parser.add_argument("--jobs", type=int, least=1, default=1, metavar="N", help="runs at a time (default: 1)")
    parser.add_argument("--device", choices=DEVICES, help="where the runs compute (default: as configured)")
    parser.add_argument("--dtype", choices=PRECISIONS, help="their precision (default: as configured)")
    parser.add_argument("--seeds", type=int, least=1, default=3, metavar="N", help="runs of each variant (default: 3)")
    parser.add_argument("--quiet", action="store_true", help="no live lines")


def experiment(options: argparse.Namespace) -> None:
    from lm.experiments import grid

    named = ("device", options.device), ("precision", options.dtype)
    changed = {name: value for name, value in named if value is not None}
    trials = list[grid.Trial]()
    for name, settings in dict(variants_of(options.settings, options.variant)).items():
        model, config = configuration(options.config, settings)
        for seed in range(options.seeds):
            own = dataclasses.replace(config, seed=config.seed + seed, **changed)
            trials.append(grid.Trial(name, seed, model, own))
    write = functools.partial(grid.write, trials, out=Path(options.out), title=" ".join(options.settings) or BASE)
    outcomes = perform(options, trials, write)
    print(table_of(trials, outcomes))
    print(write(outcomes))


def variants_of(settings: list[str], alone: Sequence[str]) -> Iterator[tuple[str, list[str]]]:
    """Yield the name of each variant with its settings. ValueError: two variants have one name."""
    fixed, axes = list[str](), dict[str, list[str]]()
    for name, value in pairs_of(settings):
        if "," in value and not value.startswith("["):  # a list is one value
            axes[name] = list(dict.fromkeys(filter(None, value.split(","))))
        else:
            fixed += [name, value]
    names = set[str]()
    for change in [*itertools.product(*([(key, value) for value in axes[key]] for key in axes)), *map(words_of, alone)]:
        name = ",".join(f"{key.rpartition('.')[2]}={value}" for key, value in change) or BASE
        name = re.sub(r"[^\w.=,+-]", "_", name)
        if name in names:
            raise ValueError(f"two variants are called {name!r}: leave one out")
        names.add(name)
        yield name, [*fixed, *itertools.chain(*change)]


def words_of(text: str) -> list[tuple[str, str]]:
    """The settings of a --variant, as pairs. ValueError: one lacks its value."""
    pairs = [setting.partition("=") for setting in shlex.split(text)]
    if not pairs or not all(value for _, _, value in pairs):
        raise ValueError(f"expected --variant 'section.key=value …', got {text!r}")
    return [(f"--{name}", value) for name, _, value in pairs]


def perform(
    options: argparse.Namespace, trials: Sequence[Trial], tell: Callable[[Mapping[str, Outcome]], object]
) -> dict[str, Outcome]:
    """Run trials by the options of run_arguments(). tell: called with the outcomes after each."""
    from lm.data import open_data
    from lm.experiments.grid import run
    from lm.training.train import OutOfMemory, Stopped

    data, out = data_of(options.config, options.data), Path(options.out)
    mixture = open_data(data)
    for trial in trials:
        mixture.check(trial.model.vocab_size, trial.model.context_length)

    def tell_all(outcomes: Mapping[str, Outcome]) -> None:
        tell(outcomes)
        if not options.quiet:
            print(table_of(trials, outcomes), end="\n\n", flush=True)

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # so that processes do not outlive this one
    try:
        return run(trials, data, out, jobs=options.jobs, progress=not options.quiet, tell=tell_all)
    except (Stopped, KeyboardInterrupt):
        raise Ended(f"stopped: the same command goes on with the runs in {out}", STOPPED) from None
    except OutOfMemory as failed:
        raise Ended(str(failed)) from None
    finally:
        signal.signal(signal.SIGTERM, before)


def table_of(trials: Sequence[Trial], outcomes: Mapping[str, Outcome]) -> str:
    from accounting.commands.tables import columns
    from lm.experiments.grid import HEADERS, rows

    return columns([HEADERS, *rows(trials, outcomes)], "<" * len(HEADERS))
