"""Corpora: what may be trained on or encoded, as a stream of texts that lie in memory one at a time.

A file is memory-mapped and handed out whole; whoever works on it cuts it where a cut changes nothing, and gives the pages
back when done. The items of an iterable are texts of their own.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

Buffer = bytes | bytearray | memoryview | mmap.mmap

Source = str | os.PathLike[str] | Iterable[str | bytes | os.PathLike[str]]


def paths_of(source: Source) -> list[Path] | None:
    """The files that a source names, or None where it is the text itself.

    A str or a path is one file. A list or tuple names files when every item is a path, or a str that names a file.
    """
    if isinstance(source, (str, os.PathLike)):
        return [Path(source)]
    if isinstance(source, (list, tuple)) and source:
        if all(isinstance(item, os.PathLike) for item in source):
            return [Path(item) for item in source]
        if all(isinstance(item, str) and len(item) < 4096 and os.path.isfile(item) for item in source):
            return [Path(item) for item in source]
    return None


def size_of(source: Source) -> int | None:
    """The bytes of the files that a source names; None where it is an iterable, whose size is known at its end only."""
    paths = paths_of(source)
    return None if paths is None else sum(os.stat(path).st_size for path in paths)


def texts(source: Source) -> Iterator[Buffer]:
    """Each text of a source in turn: the map of a file, or an item's bytes.

    Raises FileNotFoundError, IsADirectoryError or PermissionError naming the file; TypeError for an item that is no text.
    A str with lone surrogates keeps them, as the three bytes that each would be.
    """
    paths = paths_of(source)
    if paths is not None:
        for path in paths:
            yield map_file(path)
        return
    if isinstance(source, (bytes, bytearray, memoryview)):
        raise TypeError("a source is a path, several, or an iterable of texts; put a single text into a list: [text]")
    for item in source:  # type: ignore[union-attr]
        if isinstance(item, str):
            yield item.encode("utf-8", "surrogatepass")
        elif isinstance(item, (bytes, bytearray, memoryview)):
            yield item
        else:
            raise TypeError(f"the items of a source are str or bytes, not {type(item).__name__}")


def map_file(path: str | os.PathLike[str]) -> Buffer:
    """The file's bytes, mapped read-only; b"" for an empty file, which cannot be mapped."""
    with open(path, "rb") as file:
        if os.fstat(file.fileno()).st_size == 0:
            return b""
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def release(text: Buffer, begin: int, end: int) -> None:
    """Let go of the pages of a mapped file that lie wholly in [begin, end); they are read again if looked at again."""
    if isinstance(text, mmap.mmap) and hasattr(text, "madvise"):
        begin = -(-begin // mmap.PAGESIZE) * mmap.PAGESIZE
        end = end // mmap.PAGESIZE * mmap.PAGESIZE if end < len(text) else end
        if begin < end:
            text.madvise(mmap.MADV_DONTNEED, begin, end - begin)
