"""The command `lm`: each of its commands is a file beside this one.

A command's file has register(commands), which adds its parser with add(), and a function that gets the parsed options.
What is heavy (torch, the model) it imports in that function, so that every other command and `--help` answer at once.
A user's mistake is one sentence and exit status 2.
"""

from __future__ import annotations

import argparse
import difflib
import errno
import importlib
import io
import itertools
import math
import os
import re
import signal
import sys
import warnings
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from lm.config import SECTIONS, did_you_mean, override, settable
from lm.extras import MissingExtra

if TYPE_CHECKING:
    from lm.model import Transformer

# The files of this folder, in the order of `lm --help`: from the data to a served model.
COMMANDS = (
    "data", "presets", "plan", "train", "report", "experiment", "profile", "verify", "eval", "generate", "chat",
    "serve", "export", "import", "compile",
)  # fmt: skip
STOPPED = 130  # what a shell reports of a process that Ctrl-C ended

Commands: TypeAlias = "argparse._SubParsersAction[Parser]"
DEVICES = ("auto", "cpu", "cuda", "mps")
DTYPES = ("fp32", "bf16", "fp16", "fp64")
SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")  # settings of generation.sampling.Sampling


def main(arguments: Sequence[str] | None = None) -> int:
    warnings.formatwarning = lambda message, *_, **__: f"lm: {message}\n"  # without the line of code that it came from
    # Torch's threads spin for work before they sleep. When they spin for long, as they do unasked, anything else that
    # runs on the machine makes a step ten times slower. It is read when torch is loaded, which no command has done yet.
    os.environ.setdefault("GOMP_SPINCOUNT", "20000")
    if isinstance(sys.stdout, io.TextIOWrapper):  # a terminal that is not UTF-8 must not end an answer
        sys.stdout.reconfigure(errors="replace")
    try:
        options = parsed(sys.argv[1:] if arguments is None else arguments)
        options.command(options)
    except KeyboardInterrupt:
        return STOPPED
    except BrokenPipeError:  # the reader of a pipe went away: nobody reads the rest
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Ended as ended:
        print(f"lm: {ended}", file=sys.stderr)
        return ended.status
    except (ValueError, TypeError, KeyError, OSError, MissingExtra) as error:
        message = error.args[0] if isinstance(error, KeyError) and error.args else error
        if isinstance(error, OSError) and error.strerror and error.filename is not None:
            message = f"{error.filename}: {error.strerror}"
        elif isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):  # a write names no file
            message = "the disk is full: free some space and run the same command again"
        print(f"lm: {message}", file=sys.stderr)
        return 2
    finally:
        if arguments is None:  # the program ends: a Ctrl-C more would print tracebacks of torch's own clearing up
            signal.signal(signal.SIGINT, signal.SIG_IGN)
    return 0


def parsed(arguments: Sequence[str]) -> argparse.Namespace:
    """The options of a command line, with each `--section.key value` or `--section.key=value` in options.settings."""
    commands = arguments[:1] if arguments and arguments[0] in COMMANDS else COMMANDS
    parser = make_parser(commands)
    if arguments and not arguments[0].startswith("-") and arguments[0] not in COMMANDS:
        parser.error(f"there is no command {arguments[0]!r}{did_you_mean(arguments[0], COMMANDS)}")
    # Settings are taken out first: argparse would take a value for the argument without a name, CONFIG.
    settings, others, rest = list[str](), list[str](), iter(arguments)
    for argument in rest:
        name, equals, _ = argument.partition("=")
        if not (name.startswith("--") and "." in name):
            others.append(argument)
        else:
            settings += [argument] if equals else [argument, *itertools.islice(rest, 1)]
    options, unknown = parser.parse_known_args(others)
    options.settings = [*settings, *unknown]
    if options.settings and not options.takes_settings:
        options.parser.error(f"unknown argument {options.settings[0]!r}")
    return options


def make_parser(commands: Sequence[str] = COMMANDS) -> argparse.ArgumentParser:
    """The parser of these commands: a command line needs its own command alone."""
    parser = Parser(prog="lm", description="Transformers from the ground up: train, evaluate, generate.")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for name in commands:
        importlib.import_module(f"lm.commands.{name}").register(subparsers)
    return parser


class Ended(Exception):
    """Ends a command that was not misused, as a stopped or diverged run, with an exit status: 1 if it failed."""

    def __init__(self, message: str, status: int = 1) -> None:
        super().__init__(message)
        self.status = status


class Parser(argparse.ArgumentParser):
    """A parser of numbers within bounds, which names a misspelled option, not only the required one that is missing."""

    def add_argument(
        self, *names: str, least: float = -math.inf, most: float = math.inf, **options: Any
    ) -> argparse.Action:
        """Add an argument; least, most: bounds of a number."""
        kind: Any = options.get("type")

        def bounded(text: str) -> Any:
            value = kind(text)
            if not least <= value <= most:
                bounds = f"at least {least}" if most == math.inf else f"from {least} to {most}"
                raise Ended(f"{names[0]} must be {bounds}, got {text}", 2)
            return value

        if kind in (int, float) and (least, most) != (-math.inf, math.inf):
            bounded.__name__ = kind.__name__  # which argparse names where a text is not a number
            options["type"] = bounded
        return super().add_argument(*names, **options)

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        names, takes_settings = self._option_string_actions, self.get_default("takes_settings")
        settings = [f"--{key}" for kind in SECTIONS.values() for key in settable(kind)] if takes_settings else []
        for word in itertools.takewhile(lambda word: self._subparsers is None and word != "--", args or ()):
            name = word.partition("=")[0]
            if re.fullmatch(r"--[a-z][a-z0-9_-]*", name) and name not in names:
                near = difflib.get_close_matches(name, [*settings, *names], 1, cutoff=0.7)
                if takes_settings and not (near and near[0] in names):
                    override({}, name, "", SECTIONS)  # raises: a setting without its section, or none
                self.error(f"there is no option {name}" + (f": did you mean {near[0]}?" if near else ""))
        return super().parse_known_args(args, namespace)


def add(
    commands: Commands, name: str, run: Callable[[argparse.Namespace], None], text: str, *, takes_settings: bool = False
) -> Parser:
    """A command's parser, to add arguments to. takes_settings: `--section.key value` are left in options.settings."""
    formatter: type[argparse.HelpFormatter] = argparse.HelpFormatter
    if takes_settings:
        from lm.commands.configuration import WithSettings

        formatter = WithSettings
    parser = commands.add_parser(name, help=text, description=text, allow_abbrev=False, formatter_class=formatter)
    parser.set_defaults(command=run, parser=parser, takes_settings=takes_settings)
    return parser


def add_model(parser: Parser) -> None:
    """The arguments that name a model and where it computes, which model_of() loads."""
    help = "the folder of a run, another program's model, or OWNER/NAME on the Hugging Face Hub"
    parser.add_argument("run", metavar="RUN", help=help)
    parser.add_argument("--tokenizer", help="a tokenizer file (default: the model's own)")
    add_step(parser)
    add_device(parser, dtype=None, more=("file",))


def add_step(parser: Parser, help: str = "") -> None:
    """The argument that chooses a checkpoint of a run; None is the newest."""
    usual = 'of a run, the checkpoint after N steps, or "best", that of the best evaluation (default: the newest)'
    usual += '; "average": the moving average of its weights, of a run with train.ema'
    parser.add_argument("--step", type=checkpoint, metavar="N", help=help or usual)


def checkpoint(text: str) -> int | str:
    """The value of --step."""
    if not text.isdecimal() and text not in ("best", "average"):
        raise Ended(f'--step must be a number of steps, "best" or "average", got {text!r}', 2)
    return int(text) if text.isdecimal() else text


def add_device(parser: Parser, *, dtype: str | None = "fp32", more: tuple[str, ...] = ()) -> None:
    """Add --device, --dtype and --int8. dtype: the default; None is bf16 on CUDA and fp32 elsewhere; more: choices."""
    help = "where the model computes (default: cuda or mps if here, else cpu)"
    parser.add_argument("--device", choices=DEVICES, default="auto", help=help)
    help = f"dtype of its weights (default: {dtype or 'bf16 on cuda, else fp32'})"
    help += '; "file", on a CPU: as the file has them' if more else ""
    parser.add_argument("--dtype", choices=(*DTYPES, *more), default=dtype, help=help)
    help = "weights as int8: faster on a CPU, and a little less exact"
    parser.add_argument("--int8", action="store_true", help=help)


def model_of(options: argparse.Namespace) -> Transformer:
    """The model of add_model()'s or add_device()'s arguments. ValueError: int8 elsewhere than on a CPU."""
    from lm.device import choose_device
    from lm.interop.loading import load

    if options.int8 and options.dtype == "file":
        raise ValueError("--int8 rounds weights anew, and --dtype file keeps the weights of the file: leave one out")
    if options.int8 and options.device not in ("auto", "cpu"):
        raise ValueError(f"--int8 is for decoding on a CPU, and --device is {options.device}: leave one out")
    device = choose_device("cpu" if options.int8 else options.device)
    dtype = options.dtype or ("bf16" if device.type == "cuda" else "fp32")
    model = load(options.run, options.step, device=device, dtype=dtype)
    if options.int8:
        from lm.ops.cpu.int8 import quantized

        model = quantized(model)
    return model


def add_sampling(parser: Parser) -> None:
    """The arguments of settings_of(), and the seed."""
    parser.add_argument("--temperature", type=float, default=0.8, help="0 takes the likeliest (default: 0.8)")
    parser.add_argument("--top-k", type=int)
    parser.add_argument("--top-p", type=float)
    parser.add_argument("--min-p", type=float)
    parser.add_argument("--repetition-penalty", type=float, default=1.0)
    parser.add_argument("--seed", type=int, least=0, most=(1 << 63) - 1, help="the same seed draws the same")


def settings_of(options: argparse.Namespace) -> dict[str, Any]:
    """The settings of add_sampling()'s arguments."""
    return {name: getattr(options, name) for name in SAMPLING}
