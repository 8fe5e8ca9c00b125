"""The command `lm`: each of its commands is a file beside this one.

A user's mistake is one sentence and exit status 2.
"""

from __future__ import annotations

import argparse
import errno
import importlib
import io
import itertools
import os
import signal
import sys
import warnings
from collections.abc import Sequence

from lm.commands.options import STOPPED, Ended, Parser
from lm.config import did_you_mean
from lm.extras import MissingExtra

# The files of this folder, in the order of `lm --help`: that in which a model comes to be and is used.
COMMANDS = (
    "data", "presets", "plan", "train", "report", "experiment", "profile", "verify", "eval", "generate", "chat",
    "serve", "export", "import", "compile",
)  # fmt: skip


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
    except BrokenPipeError:  # the reader of a pipe went away: what is left to say has no one to say it to
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
    """The parser of these commands: a command line needs that of its own alone."""
    parser = Parser(prog="lm", description="Transformers from the ground up: train, evaluate, generate.")
    subparsers = parser.add_subparsers(required=True, metavar="COMMAND")
    for name in commands:
        importlib.import_module(f"lm.commands.{name}").register(subparsers)
    return parser
