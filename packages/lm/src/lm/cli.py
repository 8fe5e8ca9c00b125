"""The command `lm`: train, plan, eval, generate, report. A user's mistake is one sentence on stderr and exit status 2."""

from __future__ import annotations

import argparse
import contextlib
import importlib.resources
import os
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lm.config import ModelConfig, TrainConfig, did_you_mean, from_table, override, read_toml

SECTIONS: dict[str, type] = {"model": ModelConfig, "train": TrainConfig}
STOPPED = 130  # what a shell reports of a process that Ctrl-C ended


def main(arguments: Sequence[str] | None = None) -> int:
    parser = make_parser()
    options, rest = parser.parse_known_args(arguments)
    if rest and not hasattr(options, "config"):
        parser.error(f"unknown argument {rest[0]!r}")
    try:
        options.command(options, rest)
    except KeyboardInterrupt:
        return STOPPED
    except BrokenPipeError:  # the reader of a pipe went away: what is left to say has no one to say it to
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Refused as refused:
        print(f"lm: {refused}", file=sys.stderr)
        return refused.status
    except (ValueError, TypeError, KeyError, OSError) as error:
        message = error.args[0] if isinstance(error, KeyError) and error.args else error
        print(f"lm: {message}", file=sys.stderr)
        return 2
    return 0


class Refused(Exception):
    """What ends a command without being a mistake in what was asked: a stopped or diverged run, a package that is not there."""

    def __init__(self, message: str, status: int = 2) -> None:
        super().__init__(message)
        self.status = status


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lm", description="Transformers from the ground up: train, evaluate, generate."
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Any, text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        made.set_defaults(command=run)
        return made

    settings = "settings of the configuration are --section.key value, as --model.num_layers 8 or --train.steps 1000"
    made = command("train", train, f"train a model, or continue a run; {settings}")
    made.add_argument("config", metavar="CONFIG", help=f"a TOML file, or a preset: {', '.join(presets())}")
    made.add_argument("--data", required=True, help="a folder with train.npy and heldout.npy")
    made.add_argument("--out", required=True, help="the folder of the run")
    made.add_argument("--tokenizer", help="the tokenizer that made the data, kept in the run for `lm generate`")
    made.add_argument("--quiet", action="store_true", help="no live line")

    made = command("plan", plan, f"what a run would cost on this machine: parameters, FLOPs, memory, time; {settings}")
    made.add_argument("config", metavar="CONFIG", help=f"a TOML file, or a preset: {', '.join(presets())}")

    made = command("eval", evaluate, "score a text with a model: nats a token and bits per byte")
    made.add_argument("run", metavar="RUN", help="the folder of a run")
    made.add_argument("--data", required=True, help="a token file, .npy")
    made.add_argument("--stride", type=int, help="tokens scored a window; fewer see more (default: the context)")
    made.add_argument("--max-tokens", type=int, help="score about so many, spread over the text (default: all)")

    made = command("generate", generate, "continue a text, as it comes")
    made.add_argument("run", metavar="RUN", help="the folder of a run")
    made.add_argument("--prompt", required=True, help="the text to continue")
    made.add_argument("--tokenizer", help="a tokenizer file (default: the run's own)")
    made.add_argument("--max-new-tokens", type=int, default=256)
    made.add_argument("--temperature", type=float, default=0.8, help="0 takes the likeliest (default: 0.8)")
    made.add_argument("--top-k", type=int)
    made.add_argument("--top-p", type=float)
    made.add_argument("--min-p", type=float)
    made.add_argument("--repetition-penalty", type=float, default=1.0)
    made.add_argument("--seed", type=int)

    made = command("report", report, "draw one run, or several over each other, as a page")
    made.add_argument("runs", metavar="RUN", nargs="+", help="folders of runs")
    made.add_argument("--out", help="the page (default: report.html in the first run)")
    return parser


def train(options: argparse.Namespace, rest: list[str]) -> None:
    from lm import training

    model, config = configuration(options.config, rest)
    out = Path(options.out)
    if options.tokenizer is not None:
        check_tokenizer(options, model.vocab_size)
        keep_tokenizer(Path(options.tokenizer), out)
    try:
        result = training.train(model, config, options.data, out, progress=not options.quiet)
    except training.Stopped as stopped:
        raise Refused(str(stopped), STOPPED) from None
    except training.Diverged as diverged:
        raise Refused(str(diverged), 1) from None
    said = f"trained {result.steps} steps in {result.seconds:.0f} s: loss {result.loss:.4f}"
    if result.heldout is not None:
        said += f", held-out {in_words(result.heldout)}"
    print(said)


def plan(options: argparse.Namespace, rest: list[str]) -> None:
    from lm.training import measure_speed

    try:
        from accounting import forward_flops, parameters, training_flops, training_memory
    except ImportError:
        raise Refused("`lm plan` needs the package `accounting`: pip install groundup-accounting") from None
    model, config = configuration(options.config, rest)
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
    seconds = measure_speed(model, config)
    print(f"{'measured here':24}{tokens / seconds:>20,.0f} tokens/s, {flops / seconds / 1e9:,.0f} GFLOP/s")
    print(f"{'the whole run':24}{config.steps * seconds / 3600:>20,.2f} hours for {config.steps * tokens:,} tokens")


def evaluate(options: argparse.Namespace, rest: list[str]) -> None:
    from lm import training
    from lm.data import check_range, open_tokens

    model = training.load(options.run)
    tokens = open_tokens(options.data)
    check_range(tokens, model.config.vocab_size)
    made_by = training.read_config(options.run)[2].get("tokenizer")
    if made_by != tokens.tokenizer:
        raise ValueError(f"{options.data} was made by another tokenizer than the run's data: encode it with the run's")
    score = training.evaluate(
        model, tokens, stride=options.stride, max_tokens=options.max_tokens, progress=sys.stderr.isatty()
    )
    print(in_words(score))


def generate(options: argparse.Namespace, rest: list[str]) -> None:
    from lm import training
    from lm.generation import stream

    model = training.load(options.run)
    path = options.tokenizer or kept_tokenizer(Path(options.run))
    if path is None:
        raise FileNotFoundError(f"the run in {options.run} keeps no tokenizer: name one with --tokenizer")
    tokenizer = load_tokenizer(path)
    stop = [i for name, i in tokenizer.special_tokens.items() if name == "<|endoftext|>"]
    ids = tokenizer.encode(options.prompt, allowed_special="all") or stop
    decoder = tokenizer.decode_stream()
    print(options.prompt, end="", flush=True)
    began, count = time.perf_counter(), 0
    with contextlib.suppress(KeyboardInterrupt):  # the reader has read enough
        for token in stream(
            model,
            ids,
            max_new_tokens=options.max_new_tokens,
            temperature=options.temperature,
            top_k=options.top_k,
            top_p=options.top_p,
            min_p=options.min_p,
            repetition_penalty=options.repetition_penalty,
            seed=options.seed,
            stop_tokens=stop,
        ):
            print(decoder.feed(token), end="", flush=True)
            count += 1
    print(decoder.finish())
    if sys.stderr.isatty():
        print(f"{count} tokens, {count / (time.perf_counter() - began):,.0f} a second", file=sys.stderr)


def report(options: argparse.Namespace, rest: list[str]) -> None:
    from lm.report import write

    print(write(options.runs, options.out))


def configuration(name: str, settings: list[str]) -> tuple[ModelConfig, TrainConfig]:
    """The configuration of a file or preset, with the command line's settings put over it."""
    if name in presets():
        tables = read_toml(str(importlib.resources.files("lm") / "presets" / f"{name}.toml"))
    elif os.path.exists(name):
        tables = read_toml(name)
    else:
        raise FileNotFoundError(f"{name!r} is neither a file nor a preset{did_you_mean(name, presets())}")
    for section in tables:
        # A run's own config.toml has [data] too, which says nothing of the model.
        if section not in SECTIONS and section != "data":
            raise KeyError(f"{name} has a section [{section}]{did_you_mean(section, SECTIONS)}")
    pairs = iter(settings)
    for setting in pairs:
        if not setting.startswith("--"):
            raise ValueError(f"{setting!r} stands where a setting should: write --section.key value")
        setting, equals, value = setting.partition("=")
        if not equals:
            following = next(pairs, None)
            if following is None:
                raise ValueError(f"{setting} lacks its value: write {setting} VALUE")
            value = following
        override(tables, setting, value, SECTIONS)
    model = from_table(ModelConfig, tables.get("model", {}), "model")
    return model, from_table(TrainConfig, tables.get("train", {}), "train")


def presets() -> list[str]:
    """The names of the configurations that come with the package."""
    folder = importlib.resources.files("lm") / "presets"
    return sorted(entry.name.removesuffix(".toml") for entry in folder.iterdir() if entry.name.endswith(".toml"))


def load_tokenizer(path: str | Path) -> Any:
    try:
        import bpe
    except ImportError:
        raise Refused("text needs the package `bpe`: pip install groundup-bpe") from None
    return bpe.Tokenizer.load(path)


def check_tokenizer(options: argparse.Namespace, vocab_size: int) -> None:
    """ValueError, before anything is written, for a tokenizer that is not the model's or did not make the data."""
    from lm.training import open_data

    tokenizer = load_tokenizer(options.tokenizer)
    if tokenizer.n_vocab != vocab_size:
        raise ValueError(
            f"{options.tokenizer} has {tokenizer.n_vocab} tokens, and vocab_size is {vocab_size}: "
            f"write --model.vocab_size {tokenizer.n_vocab}"
        )
    tokens, _ = open_data(options.data)
    if tokens.tokenizer not in (None, tokenizer.fingerprint):
        raise ValueError(
            f"{tokens.path} was made by another tokenizer than {options.tokenizer}: encode the text with this one"
        )


def keep_tokenizer(source: Path, run: Path) -> None:
    """Copies the tokenizer's file into the run, whole or not at all."""
    run.mkdir(parents=True, exist_ok=True)
    temporary = run / ".tokenizer.partial"
    try:
        shutil.copyfile(source, temporary)
        os.replace(temporary, run / f"tokenizer{source.suffix}")
    finally:
        temporary.unlink(missing_ok=True)


def kept_tokenizer(run: Path) -> Path | None:
    """The tokenizer that a run keeps."""
    return next(iter(sorted(run.glob("tokenizer.*"))), None)


def in_words(score: Any) -> str:
    said = f"loss {score.loss:.4f} nats a token"
    if score.bits_per_byte is not None:
        said += f", {score.bits_per_byte:.4f} bits per byte"
    return f"{said}, over {score.tokens:,} tokens"
