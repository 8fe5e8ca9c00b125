"""Files to the parts that tasks read, so that the texts of all parts are the texts of all files.

    a text           stretches of bytes, cut where that changes neither pretokens nor special tokens
    JSON lines       stretches of bytes; a line belongs to the stretch that its first byte lies in
    Parquet          row groups
    compressed files, patterns without cuts, streams      the whole file

Where a stretch begins depends on the bytes around its border alone, so that two tasks find the same border.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from itertools import accumulate, pairwise
from typing import Any, BinaryIO, NamedTuple

from bpe.corpus import compressed, remote, sources

WINDOW = 1 << 16  # bytes that are read to find where a stretch begins
LEAST_SHARE, SHARES = 1 << 24, 4  # bytes of a share of the whole, and how many there are for each task at a time
BEFORE = 4  # bytes of the character before a cut

Cut = Callable[[Any, int], int]  # (text, at): the first place from `at` on where the text may be cut


class Input(NamedTuple):
    """A file, its bytes (0 for a pipe), and its version, by which it is seen whether the file has changed."""

    file: sources.File
    size: int
    version: list[Any]

    @property
    def name(self) -> str:
        """Its path or URL."""
        return os.fspath(self.file.path)


class Part(NamedTuple):
    """The part of a file that one task reads: bytes or row groups from `begin` to `end`; all if `end` is None."""

    input: Input
    begin: int
    end: int | None
    size: int  # bytes of the file that this is, for progress


def share_of(total: int, tasks: int) -> int:
    """Bytes that one of several tasks at a time may take, so that all of them end at about the same time."""
    return max(LEAST_SHARE, total // (SHARES * max(1, tasks)))


def listed(files: Iterable[sources.File]) -> list[Input]:
    """Files with their sizes and versions, under paths that do not depend on a process's folder."""
    files = [file if remote.is_url(file.path) else file._replace(path=os.path.abspath(file.path)) for file in files]
    urls = remote.versions_of([os.fspath(file.path) for file in files])
    versions = [urls.get(os.fspath(file.path)) or sources.version_of(file.path) for file in files]
    return [Input(file, version[0] or 0, version) for file, version in zip(files, versions, strict=True)]


def parts_of(entry: Input, part_size: int, *, can_cut: bool) -> Iterator[Part]:
    """Yield the parts of a file, of about `part_size` bytes each. can_cut: a text can be cut at all."""
    file, size = entry.file, entry.size
    if isinstance(file, sources.Parquet):
        yield from _row_groups(entry, part_size)
    elif not can_cut or size <= part_size or compressed.kind_of(file.path) is not None:
        yield Part(entry, 0, None, size)
    else:
        borders = [*range(0, size - part_size // 2, part_size), size]
        for begin, end in pairwise(borders):
            yield Part(entry, begin, end, end - begin)


def _row_groups(entry: Input, part_size: int) -> Iterator[Part]:
    """Row groups together, as many as make a part. ImportError and ValueError as for any Parquet file."""
    groups = sources.row_group_sizes(entry.file)  # type: ignore[arg-type]
    places = [0, *accumulate(groups)]
    begin = 0
    for end in range(1, len(places)):
        if places[end] - places[begin] >= part_size or end == len(groups):
            first, last = (entry.size * places[at] // max(1, places[-1]) for at in (begin, end))
            yield Part(entry, begin, end, last - first)
            begin = end


def source_of(part: Part, cut: Cut, margin: int) -> tuple[sources.Source, bool]:
    """The texts of a part, as a source, and whether it is one text that goes on in the next part.

    A cut is final when it is `margin` bytes from the end of what was read. Errors: as check_unchanged().
    """
    file, size, _ = part.input
    check_unchanged(part.input)
    if part.end is None:
        return [file], False
    if isinstance(file, sources.Parquet):
        rows = sources.rows(file, range(part.begin, part.end))
        return (text.data for text in rows), False  # type: ignore[misc]
    is_lines = isinstance(file, sources.JsonLines)
    if is_lines:
        cut, margin = _line_end, 0
    with remote.opened(file.path) as opened:
        begin = next_cut(opened, part.begin, size, cut, margin, part.end)
        if begin >= part.end:  # what lies here belongs to the stretch before
            return [], False
        end = next_cut(opened, part.end, size, cut, margin, size)
        text = read(opened, begin, end)
    return (_texts_of_lines(text, file, begin), False) if is_lines else ([text], end < size)  # type: ignore[arg-type]


def check_unchanged(entry: Input) -> None:
    """ValueError where a file has changed since it was listed; FileNotFoundError where it is gone."""
    if sources.version_of(entry.file.path) != entry.version:
        raise ValueError(f"{entry.name} has changed since the start: start again when nothing writes to it")


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


def read(file: BinaryIO, begin: int, end: int) -> bytes:
    """The bytes from `begin` to `end` of a file. EOFError: it has fewer."""
    file.seek(begin)
    data = file.read(end - begin)
    if len(data) != end - begin:
        raise EOFError(f"{getattr(file, 'name', 'a file')} became shorter while it was read")
    return data


def _line_end(text: bytes, at: int) -> int:
    return text.find(b"\n", at - 1) + 1 or len(text)


def _texts_of_lines(text: bytes, file: sources.JsonLines, begin: int) -> Iterator[bytes]:
    """The texts of the lines of a file from its byte `begin` on. ValueError as for the whole file."""
    for number, line in enumerate(text.split(b"\n"), 1):
        if line.strip():
            try:
                yield sources.text_of_line(line, number, file)
            except ValueError:  # raised again with the number of the line in the file
                with remote.opened(file.path) as opened:
                    before = sum(
                        read(opened, at, min(at + WINDOW, begin)).count(b"\n") for at in range(0, begin, WINDOW)
                    )
                sources.text_of_line(line, before + number, file)
