"""Names on command lines: corpora by files, folders and patterns, and sizes with units."""

from __future__ import annotations

import argparse
import errno
import glob
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from bpe.corpus import remote, sources
from bpe.native.warn import warn_caller

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "KI": 2**10, "MI": 2**20, "GI": 2**30, "TI": 2**40}


Target = Path | str  # where something is written: a path, or a URL


def target(text: str) -> Target:
    """Return an output named on a command line: a URL unchanged, anything else as a path."""
    return text if remote.is_url(text) else Path(text)


def check_target(out: Target, what: str) -> None:
    """The error of a file that cannot be written for want of a folder, or for one that has its name, before the work.

    A URL is only looked at: it has to name a file.
    """
    if isinstance(out, str):
        remote.name_of(out)
        remote.filesystem(out)
    elif not out.absolute().parent.is_dir():
        raise FileNotFoundError(errno.ENOENT, f"there is no such folder to write {what} to", str(out.parent))
    elif out.is_dir():
        raise IsADirectoryError(errno.EISDIR, f"a folder; name the file to write {what} to", str(out))


def keep_apart(out: Target | None, read: list[Any]) -> None:
    """ValueError where one of the files that are read, by path, URL or as a File, would be written over."""
    names = [getattr(file, "path", file) for file in read]
    if isinstance(out, str):
        same = out in names
    else:
        paths = [name for name in names if isinstance(name, (str, os.PathLike)) and os.path.exists(name)]
        same = out is not None and out.exists() and any(os.path.samefile(path, out) for path in paths)
    if same:
        raise ValueError(f"{out} would be written over while it is read: write to another file")


def corpus(names: list[str], key: str = "text") -> list[Any]:
    """The source that a command line names. FileNotFoundError for a name that is nowhere or a folder without files."""
    files: list[Any] = []
    for name in names:
        if name == "-":
            files.append(standard_input())
        elif remote.is_url(name):
            files += [sources.file_of(url, key) for url in remote.matching(name)]
        elif os.path.isdir(name):
            every = [(path, path.relative_to(name).parts) for path in sorted(Path(name).rglob("*"))]
            paths = [path for path, parts in every if not any(part.startswith(".") for part in parts)]
            inside = [path for path in paths if path.is_file()]
            for link in (path for path in paths if path.is_symlink() and not path.exists()):
                warn_caller(f"{link} is left out: a symbolic link to a file that does not exist")
            if not inside:
                raise FileNotFoundError(errno.ENOENT, "no file in this folder", name)
            files += [sources.file_of(path, key) for path in inside]
        elif os.path.exists(name) or not glob.has_magic(name):
            files.append(sources.file_of(name, key))
        else:
            matching = [path for path in sorted(glob.glob(name, recursive=True)) if os.path.isfile(path)]
            if not matching:
                raise FileNotFoundError(errno.ENOENT, "no file has such a name", name)
            files += [sources.file_of(path, key) for path in matching]
    return files


def documents(names: list[str], key: str) -> Iterator[bytes]:
    """Yield the texts of the source that a command line names, each in memory."""
    for text in sources.texts(corpus(names, key)):
        yield bytes(text.data) if isinstance(text, sources.Document) else b"".join(block for block, _ in text)


def standard_input() -> BinaryIO:
    """Standard input's bytes. OSError where it was closed before the start."""
    if sys.stdin is None:
        raise OSError(errno.EBADF, "closed, so that there is nothing to read", "standard input")
    return sys.stdin.buffer


def size(text: str) -> int:
    """Bytes from "500MB", "2GiB", "1.5G" or "1000000"."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)\s*(?:([KMGT]?I?)B?)", text.strip().upper())
    if match is None or match[2] not in _UNITS:
        raise argparse.ArgumentTypeError(
            f"a size is a number of bytes, or one with a unit, as 500MB or 2GiB, not {text!r}"
        )
    return int(float(match[1]) * _UNITS[match[2]])
