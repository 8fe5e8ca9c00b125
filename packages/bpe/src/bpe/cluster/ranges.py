"""Files to the parts that tasks read, so that the texts of all parts are the texts of all files.

    a text           stretches of bytes, cut where that changes neither pretokens nor special tokens
    JSON lines       stretches of bytes; a line belongs to the stretch that its first byte lies in
    Parquet          row groups
    compressed files, patterns without cuts, streams      the whole file

Where a stretch begins depends on the bytes around its border alone. Two tasks with neighbouring stretches find the same
place without asking each other.
"""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from itertools import accumulate, pairwise
from typing import Any, BinaryIO, NamedTuple

from bpe.corpus import compressed, remote, sources

WINDOW = 1 << 16  # bytes that are read to find where a stretch begins
LEAST_SHARE, SHARES = 1 << 24, 4  # bytes of a share of the whole, and how many there are for each task at a time
BEFORE = 4  # bytes of the character before a cut

Cut = Callable[[Any, int], int]  # (text, at): the first place from `at` on where the text may be cut


class Part(NamedTuple):
    """The part of a file that one task reads: bytes or row groups from `begin` to `end`; all if `end` is None."""

    file: sources.File
    begin: int
    end: int | None
    size: int  # bytes of the file that this is, for progress
    version: list[Any]  # by which it is seen whether the file has changed


def share_of(total: int, tasks: int) -> int:
    """Bytes that one of several tasks at a time may take, so that all of them end at about the same time."""
    return max(LEAST_SHARE, total // (SHARES * max(1, tasks)))


def absolute(file: sources.File) -> sources.File:
    """The same file under a path that does not depend on a process's folder."""
    return file if remote.is_url(file.path) else file._replace(path=os.path.abspath(file.path))


def parts_of(file: sources.File, part_size: int, *, can_cut: bool) -> Iterator[Part]:
    """The parts of a file, of about `part_size` bytes each.

    Args:
        file: The file.
        part_size: Bytes.
        can_cut: Whether a text can be cut at all.
    """
    size, version = sources.size_of_file(file.path), sources.version_of(file.path)
    if isinstance(file, sources.Parquet):
        yield from _row_groups(file, size or 0, version, part_size)
    elif not can_cut or size is None or size <= part_size or compressed.kind_of(file.path) is not None:
        yield Part(file, 0, None, size or 0, version)
    else:
        borders = [*range(0, size - part_size // 2, part_size), size]
        for begin, end in pairwise(borders):
            yield Part(file, begin, end, end - begin, version)


def _row_groups(file: sources.Parquet, size: int, version: list[Any], part_size: int) -> Iterator[Part]:
    """Row groups together, as many as make a part. ImportError and ValueError as for any Parquet file."""
    groups = sources.row_group_sizes(file)
    places = [0, *accumulate(groups)]
    begin = 0
    for end in range(1, len(places)):
        if places[end] - places[begin] >= part_size or end == len(groups):
            first, last = (size * places[at] // max(1, places[-1]) for at in (begin, end))
            yield Part(file, begin, end, last - first, version)
            begin = end


def source_of(part: Part, cut: Cut, margin: int) -> tuple[sources.Source, bool]:
    """The texts of a part, as a source, and whether it is one text that goes on in the next part.

    Args:
        part: The part.
        cut: Where a text may be cut.
        margin: A cut is final when it is as many bytes from the end of what was read.

    Raises:
        ValueError: The file has changed since the parts were made.
        FileNotFoundError: It is gone.
    """
    if sources.version_of(part.file.path) != part.version:
        raise ValueError(
            f"{os.fspath(part.file.path)} has changed since the start: start again when nothing writes to it"
        )
    if part.end is None:
        return [part.file], False
    if isinstance(part.file, sources.Parquet):
        rows = sources.rows(part.file, range(part.begin, part.end))
        return (text.data for text in rows), False  # type: ignore[misc]
    with opened(part.file.path) as file:
        size = sources.size_of_file(part.file.path) or 0
        if isinstance(part.file, sources.JsonLines):
            begin, end = (next_line(file, at, size) for at in (part.begin, part.end))
            return texts_of_lines(read(file, begin, max(begin, end)).split(b"\n"), part.file, begin), False
        begin = next_cut(file, part.begin, size, cut, margin, part.end)
        if begin >= part.end:  # what lies here belongs to the stretch before
            return [], False
        end = next_cut(file, part.end, size, cut, margin, size)
        return [read(file, begin, end)], end < size


def opened(path: Any) -> BinaryIO:
    """A file, or what a URL names, to be read anywhere."""
    if remote.is_url(path):
        return io.BufferedReader(remote.Reader(path), 1 << 20)
    return open(path, "rb")


def next_cut(file: BinaryIO, at: int, size: int, cut: Cut, margin: int, limit: int) -> int:
    """The first place from `at` on where the text in a file may be cut: 0 for its beginning, `size` for none.

    Where there is none before `limit`, any number from there on.
    """
    if at == 0 or at >= size:
        return min(at, size)
    first = max(0, at - margin - BEFORE)
    window = WINDOW
    while True:
        text = read(file, first, min(size, at + window + margin))
        place = first + cut(text, at - first)
        if first + len(text) == size or place + margin + BEFORE <= first + len(text):
            return min(place, size)
        if first + len(text) - margin - BEFORE >= limit:
            return limit
        window *= 2


def next_line(file: BinaryIO, at: int, size: int) -> int:
    """Return the begin of the first line at or after `at`; `size` if there is none."""
    if at == 0 or at >= size:
        return min(at, size)
    file.seek(at - 1)
    while True:
        here = file.tell()
        block = file.read(WINDOW)
        if not block:
            return size
        if (place := block.find(b"\n")) >= 0:
            return here + place + 1


def texts_of_lines(lines: list[bytes], file: sources.JsonLines, begin: int) -> Iterator[bytes]:
    """The texts of the lines of a file from its byte `begin` on. ValueError as for the whole file."""
    for number, line in enumerate(lines, 1):
        if line.strip():
            try:
                text = sources.text_of_line(line, number, file)
            except ValueError:  # with the number of the line in the file
                text = sources.text_of_line(line, lines_before(file, begin) + number, file)
            yield text


def lines_before(file: sources.File, end: int) -> int:
    """The number of lines in the first `end` bytes of a file."""
    lines = 0
    with opened(file.path) as text:
        while end > 0 and (block := text.read(min(end, 1 << 20))):
            lines += block.count(b"\n")
            end -= len(block)
    return lines


def read(file: BinaryIO, begin: int, end: int) -> bytes:
    """The bytes from `begin` to `end` of a file. EOFError: it has fewer."""
    file.seek(begin)
    data = file.read(end - begin)
    if len(data) != end - begin:
        raise EOFError(f"{getattr(file, 'name', 'a file')} became shorter while it was read")
    return data
