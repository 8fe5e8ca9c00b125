"""The command `bpe`: train, encode, decode, convert, report, view."""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from pathlib import Path
from typing import BinaryIO

from bpe import cli_report, cli_train, page
from bpe.formats import write_atomically
from bpe.progress import watched
from bpe.published import SOURCES
from bpe.tokenizer import Tokenizer, get_encoding


def main(arguments: list[str] | None = None) -> int:
    """Run one command; returns the exit status. A user's mistake is one sentence on standard error and status 2."""
    options = _parser().parse_args(arguments)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = _say
            warnings.simplefilter("default", UserWarning)
            options.run(options)
    except KeyboardInterrupt as error:
        print(f"stopped; {' '.join(getattr(error, '__notes__', [])) or 'nothing was written'}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has gone: not an error of ours
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (ValueError, TypeError, KeyError, OSError, MemoryError, ImportError) as error:
        print(f"bpe {options.command}: {_sentence(error)}", file=sys.stderr)
        return 2
    return 0


def _say(message: Warning | str, *_: object, **__: object) -> None:
    print(f"bpe: {message}", file=sys.stderr)


def _sentence(error: BaseException) -> str:
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror or error}"
    return str(error.args[0]) if error.args else type(error).__name__


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="bpe", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)

    cli_train.add(commands, open_tokenizer)

    add = commands.add_parser("encode", help="text to ids: as a filter, or of files into a .npy")
    add.add_argument("tokenizer", help=_TOKENIZER)
    add.add_argument("text", nargs="*", type=Path, help="text files (default: standard input)")
    add.add_argument("--out", type=Path, help="write one .npy of all ids instead of printing them")
    add.add_argument("--workers", type=int)
    add.set_defaults(run=_encode)

    add = commands.add_parser("decode", help="ids, separated by white space or in a .npy, to text")
    add.add_argument("tokenizer", help=_TOKENIZER)
    add.add_argument("ids", nargs="?", type=Path, help="a .npy (default: numbers on standard input)")
    add.set_defaults(run=_decode)

    add = commands.add_parser("convert", help="write a tokenizer in another format")
    add.add_argument("tokenizer", help=_TOKENIZER)
    add.add_argument("--to", required=True, choices=("native", "tiktoken", "gpt2", "huggingface"))
    add.add_argument("--out", type=Path, required=True, help="a file; a folder for gpt2")
    add.set_defaults(run=_convert)

    cli_report.add(commands, open_tokenizer, _TOKENIZER)

    add = commands.add_parser("view", help="a page that draws the tokens of what is typed into it")
    add.add_argument("tokenizer", nargs="+", help=_TOKENIZER + "; two stand side by side")
    add.add_argument("--text", type=Path, help="the text that it opens with (default: a sample)")
    add.add_argument("--out", type=Path, required=True)
    add.set_defaults(run=_view)
    return parser


_TOKENIZER = "a saved tokenizer, a tokenizer.json, or the name of a published encoding"


def open_tokenizer(name: str) -> Tokenizer:
    """A tokenizer by what a person would call it: a published name, our own file, or a tokenizer.json."""
    if name in SOURCES and not os.path.exists(name):
        return get_encoding(name)
    with open(name, "rb") as file:
        start = file.read(64)
    return Tokenizer.load(name) if b"groundup-bpe" in start else Tokenizer.from_huggingface(name)


def _encode(options: argparse.Namespace) -> None:
    tokenizer = open_tokenizer(options.tokenizer)
    if options.out is not None:
        source = options.text or [sys.stdin.buffer.read()]
        count = tokenizer.encode_file(source, options.out, workers=options.workers, progress=watched())
        print(f"{options.out}: {count:,} ids")
        return
    if not options.text:
        _print_ids(tokenizer, sys.stdin.buffer)
    for path in options.text:
        with open(path, "rb") as file:
            _print_ids(tokenizer, file)


def _print_ids(tokenizer: Tokenizer, file: BinaryIO) -> None:
    """The ids of a file on one line, printed as they come."""
    line: list[int] = []
    for number in tokenizer.encode_iterable(iter(lambda: file.read(1 << 16), b"")):
        line.append(number)
        if len(line) == 1024:
            print(*line, end=" ")
            line = []
    print(*line)


def _decode(options: argparse.Namespace) -> None:
    tokenizer = open_tokenizer(options.tokenizer)
    if options.ids is not None:
        import numpy as np

        ids = np.load(options.ids, mmap_mode="r", allow_pickle=False)
        for begin in range(0, len(ids), 1 << 20):
            sys.stdout.buffer.write(tokenizer.decode_bytes(ids[begin : begin + (1 << 20)]))
        return
    for line in sys.stdin:
        sys.stdout.buffer.write(tokenizer.decode_bytes([int(word) for word in line.split()]))


def _convert(options: argparse.Namespace) -> None:
    tokenizer = open_tokenizer(options.tokenizer)
    write = {
        "native": tokenizer.save,
        "tiktoken": tokenizer.to_tiktoken,
        "gpt2": tokenizer.to_gpt2,
        "huggingface": tokenizer.to_huggingface,
    }
    write[options.to](options.out)


def _view(options: argparse.Namespace) -> None:
    tokenizers = {Path(name).name: open_tokenizer(name) for name in options.tokenizer}
    if options.text is None:
        made = page.page(tokenizers)
    else:
        made = page.page(tokenizers, options.text.read_bytes().decode("utf-8", "replace"), title=options.text.name)
    write_atomically(options.out, made.encode())
    print(options.out)


if __name__ == "__main__":
    sys.exit(main())
