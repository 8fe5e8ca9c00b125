"""The command `bpe`: train, count, encode, decode, tokens, vocab, convert, check, validate, report, view."""

from __future__ import annotations

import argparse
import contextlib
import io
import itertools
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path

import bpe
from bpe.commands import check, count, encode, report, tokens, train, validate
from bpe.commands.corpus import check_target, target
from bpe.corpus import compressed
from bpe.loading import NAMED, load
from bpe.native.atomic_file import write_atomically
from bpe.reporting import page


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit status. A user's mistake is one sentence on standard error and status 2."""
    options = _parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # names and tokens that the terminal has no characters for
    try:
        with warnings.catch_warnings(), _cleanup_at_sigterm():
            warnings.showwarning = lambda message, *_, **__: _complain(f"bpe: {message}")
            warnings.simplefilter("default", UserWarning)
            status: int = options.run(options) or 0
            if sys.stdout is not None:  # None: it was closed before the start
                sys.stdout.flush()  # errors of the output are raised here, not when the interpreter ends
    except KeyboardInterrupt as error:
        if arguments is None:  # the program ends: a Ctrl-C more would print a traceback
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        _abandon_output()
        printed = getattr(options, "out", None) is None
        rest = "what was printed is not all" if printed else "nothing was written"
        _complain(f"stopped; {' '.join(getattr(error, '__notes__', [])) or rest}")
        return 130
    except BrokenPipeError:  # the reader of our output has gone: not an error of ours
        _abandon_output()
        return 0
    except (ValueError, TypeError, KeyError, OverflowError, OSError, MemoryError, ImportError) as error:
        if isinstance(error, OSError) and error.filename is None:
            _abandon_output()
        _complain(f"bpe {options.command}: {_sentence(error)}")
        return 2
    return status


@contextlib.contextmanager
def _cleanup_at_sigterm() -> Iterator[None]:
    """End by an exception at SIGTERM, so that temporary files are removed; by default it ends the process at once."""

    def stop(*_: object) -> None:
        raise SystemExit(128 + signal.SIGTERM)

    if threading.current_thread() is not threading.main_thread():  # only the main thread may set handlers
        yield
        return
    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


def _abandon_output() -> None:
    """Drop what standard output still holds, or the interpreter would try once more to write it when it ends."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(sentence: str) -> None:
    if sys.stderr is not None:  # print() would take None for standard output
        print(sentence, file=sys.stderr)


def _sentence(error: BaseException) -> str:
    if isinstance(error, OSError):
        return f"{error.filename or 'standard output'}: {error.strerror or error}" if error.errno else str(error)
    if isinstance(error, UnicodeError):
        return str(error)
    return str(error.args[0]) if error.args else type(error).__name__


class _Parser(argparse.ArgumentParser):
    """A parser that names a misspelled option, and not only the required one that is missing for it."""

    def parse_known_args(self, args=None, namespace=None):  # type: ignore[no-untyped-def]
        names = self._option_string_actions
        if self._subparsers is None:
            for word in itertools.takewhile(lambda word: word != "--", args or ()):
                name = word.partition("=")[0]
                if re.fullmatch(r"--[a-z][a-z0-9_-]*", name) and not any(option.startswith(name) for option in names):
                    import difflib  # only a mistake needs it

                    near = difflib.get_close_matches(name, names, 1, cutoff=0.7)
                    self.error(f"there is no option {name}" + (f": did you mean {near[0]}?" if near else ""))
        return super().parse_known_args(args, namespace)


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="bpe", description=__doc__)
    parser.add_argument("--version", action="version", version=f"bpe {bpe.__version__}")
    commands = parser.add_subparsers(dest="command", required=True)

    for command in (train, count, encode, tokens, check, validate, report):
        command.add(commands)

    add = commands.add_parser("convert", help="write a tokenizer of any format in another")
    add.add_argument("tokenizer", help=NAMED)
    add.add_argument("--to", required=True, choices=_WRITERS)
    add.add_argument("--out", type=target, required=True, help="a file, or a URL; a folder for gpt2")
    add.add_argument("--pattern", help="the split pattern of a file that holds none (.tiktoken, GPT-2's two)")
    special = "a special token of such a file; without an id, the next one"
    add.add_argument("--special", action="append", metavar="TOKEN[=ID]", help=special)
    add.set_defaults(run=_convert)

    add = commands.add_parser("view", help="a page that draws the tokens of text while one types")
    add.add_argument("tokenizer", nargs="+", help=NAMED + "; two stand side by side")
    add.add_argument("--text", type=Path, help="the text that it opens with (default: a sample)")
    add.add_argument("--out", type=Path, required=True)
    add.set_defaults(run=_view)
    return parser


_WRITERS = {"native": "save", **{form: f"to_{form}" for form in ("tiktoken", "gpt2", "huggingface", "sentencepiece")}}


def _convert(options: argparse.Namespace) -> None:
    if options.to != "gpt2":  # which is a folder of its own
        check_target(options.out, "the tokenizer")
    tokenizer = load(options.tokenizer, pattern=options.pattern, special_tokens=_special(options.special))
    getattr(tokenizer, _WRITERS[options.to])(options.out)
    print(f"{options.out}: {tokenizer.vocab_size:,} tokens")


def _special(texts: list[str] | None) -> dict[str, int] | list[str] | None:
    """TOKEN or TOKEN=ID, all of them the one or the other."""
    if texts is None:
        return None
    named = [re.fullmatch(r"(.+)=(\d+)", text, re.DOTALL) for text in texts]
    if all(named):
        ids = {match[1]: int(match[2]) for match in named if match}
        if len(ids) < len(texts):
            raise ValueError(f"a special token is given twice in {texts}; give each once")
        return ids
    if any(named):
        raise ValueError("give every --special an id, as TOKEN=ID, or none")
    return texts


def _view(options: argparse.Namespace) -> None:
    check_target(options.out, "the page")
    tokenizers = {name: load(path) for name, path in report.named(options.tokenizer).items()}
    if options.text is None:
        html = page.page(tokenizers)
    else:
        with compressed.reader(options.text) as file:
            text = file.read().decode("utf-8", "replace")
        html = page.page(tokenizers, text, title=options.text.name)
    write_atomically(options.out, html.encode("utf-8", "replace"))  # of a name that is no text
    print(options.out)
