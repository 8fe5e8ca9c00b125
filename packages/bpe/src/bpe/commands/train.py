"""`bpe train`: files, folders and standard input to a saved tokenizer."""

from __future__ import annotations

import argparse
import errno
import glob
import os
import re
import sys
import time
from pathlib import Path
from typing import Any, BinaryIO

from bpe import sources
from bpe.conventions import CONVENTIONS
from bpe.loading import load
from bpe.progress import watched
from bpe.reporting.report import longest_tokens, shown
from bpe.tokenizer import Tokenizer
from bpe.training import GOES_ON, extend, train

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


def add(commands: Any) -> None:
    """Add the command to a parser's own."""
    parser = commands.add_parser(
        "train",
        help="train a tokenizer on text",
        epilog="A file is read as its name says: .gz, .xz and .zst are decompressed; .jsonl, .ndjson and .json have a "
        "text a line, .parquet one a row. A folder means every file in it, hidden ones aside. "
        "Special tokens get their ids here, and no text has them otherwise: give those of a chat format now, "
        "--special '<|endoftext|>' --special '<|im_start|>' --special '<|im_end|>', for a model that will learn one "
        "later.",
    )
    parser.add_argument("corpus", nargs="+", help="files, folders, patterns of names, or - for standard input")
    parser.add_argument("--vocab-size", type=int, required=True)
    parser.add_argument("--out", type=Path, required=True, help="the file to write the tokenizer to")
    parser.add_argument("--pattern", help="a split pattern by name, or a regular expression (default: gpt2)")
    parser.add_argument(
        "--special", action="append", metavar="TOKEN", help="a special token; again for more (default: <|endoftext|>)"
    )
    parser.add_argument("--tie-break", default="bytes", choices=CONVENTIONS)
    parser.add_argument("--min-count", type=int, default=1, help="no pair that occurs less often is merged")
    parser.add_argument("--max-token-bytes", type=int, help="no token is longer")
    parser.add_argument("--text-key", default="text", help="where JSON lines and Parquet have the text (%(default)s)")
    parser.add_argument("--workers", type=int, help="threads (default: all processors)")
    parser.add_argument(
        "--memory-limit", type=size, metavar="SIZE", help="what counting may hold, as 500MB or 2GiB; more goes to disk"
    )
    parser.add_argument(
        "--checkpoint",
        type=Path,
        metavar="FOLDER",
        help="keep the run here: the same command goes on after it was stopped",
    )
    parser.add_argument(
        "--extend", metavar="TOKENIZER", help="continue this tokenizer, its ids, pattern and special tokens kept"
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> None:
    if not options.out.parent.is_dir():  # better now than after an hour
        raise FileNotFoundError(
            errno.ENOENT, "there is no such folder to write the tokenizer to", str(options.out.parent)
        )
    if options.out.is_dir():
        raise IsADirectoryError(errno.EISDIR, "a folder; name the file to write the tokenizer to", str(options.out))
    source = corpus(options.corpus, options.text_key)
    keep_apart(options.out, source)
    settings = {
        name: getattr(options, name)
        for name in ("tie_break", "min_count", "max_token_bytes", "workers", "memory_limit", "checkpoint")
    }
    begun = time.perf_counter()
    try:
        tokenizer = _trained(options, source, settings)
        seconds = time.perf_counter() - begun
        tokenizer.save(options.out)
    except KeyboardInterrupt as error:
        if options.checkpoint is not None and not hasattr(error, "__notes__"):  # while the tokenizer was made or saved
            error.add_note(GOES_ON.format(options.checkpoint))
        raise
    memory = most_memory()
    held = f", {memory / 1e6:,.0f} MB at most" if memory else ""
    longest = "  ".join(shown(token.decode(errors="replace")) for _, token in longest_tokens(tokenizer, 5))
    print(f"{options.out}: {tokenizer.vocab_size:,} tokens in {seconds:.2f} s{held}\nlongest: {longest}")


def most_memory() -> int:
    """The most bytes of memory that this process has had; 0 where the system does not say."""
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        pass
    try:
        import resource
    except ImportError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _trained(options: argparse.Namespace, source: list[Any], settings: dict[str, Any]) -> Tokenizer:
    if options.extend is None:
        return train(
            source,
            options.vocab_size,
            pattern="gpt2" if options.pattern is None else options.pattern,
            special_tokens=options.special or ("<|endoftext|>",),
            progress=watched(),
            **settings,
        )
    if options.pattern is not None or options.special is not None:
        raise ValueError("--extend keeps the tokenizer's pattern and special tokens; leave out --pattern and --special")
    return extend(load(options.extend), source, options.vocab_size, progress=watched(), **settings)


def keep_apart(out: Path | None, read: list[Any]) -> None:
    """ValueError where one of the files that are read, by path or as a File, would be written over."""
    if out is None or not out.exists():
        return
    for file in read:
        path = getattr(file, "path", file)
        if isinstance(path, (str, os.PathLike)) and os.path.exists(path) and os.path.samefile(path, out):
            raise ValueError(f"{out} would be written over while it is read: write to another file")


def corpus(names: list[str], key: str = "text") -> list[Any]:
    """The source that a command line names. FileNotFoundError for a name that is nowhere or a folder without files."""
    found: list[Any] = []
    for name in names:
        if name == "-":
            found.append(standard_input())
        elif os.path.isdir(name):
            inside = [path for path in sorted(Path(name).rglob("*")) if path.is_file() and not _hidden(path, name)]
            if not inside:
                raise FileNotFoundError(errno.ENOENT, "no file in this folder", name)
            found += [sources.file_of(path, key) for path in inside]
        elif os.path.exists(name) or not glob.has_magic(name):
            found.append(sources.file_of(name, key))
        else:
            matching = [path for path in sorted(glob.glob(name, recursive=True)) if os.path.isfile(path)]
            if not matching:
                raise FileNotFoundError(errno.ENOENT, "no file has such a name", name)
            found += [sources.file_of(path, key) for path in matching]
    return found


def standard_input() -> BinaryIO:
    """Standard input's bytes. OSError where it was closed before the start."""
    if sys.stdin is None:
        raise OSError(errno.EBADF, "closed, so that there is nothing to read", "standard input")
    return sys.stdin.buffer


def _hidden(path: Path, folder: str) -> bool:
    return any(part.startswith(".") for part in path.relative_to(folder).parts)


def size(text: str) -> int:
    """Bytes from "500MB", "2GiB", "1.5G" or "1000000"."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*(?:([KMGT]?I?)B?)", text.strip().upper())
    if match is None or match[2] not in _UNITS:
        raise argparse.ArgumentTypeError(
            f"a size is a number of bytes, or one with a unit, as 500MB or 2GiB, not {text!r}"
        )
    return int(float(match[1]) * _UNITS[match[2]])
