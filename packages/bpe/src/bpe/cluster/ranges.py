"""Files to the parts that tasks read, so that the texts of all parts are the texts of all files.

A part is a stretch of bytes of a text or of JSON lines, row groups of Parquet, or the whole of a file that cannot be
cut. The start of a stretch depends on the bytes around its border alone, so that two tasks find the same border.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from bpe.corpus import compressed, remote, sources

WINDOW = 1 << 16  # bytes that are read to find where a stretch begins
BEFORE = 4  # bytes of the character before a cut


class Input(NamedTuple):
    """A file, its path or URL, its bytes (0 for a pipe), and its version, which changes with the file."""

    file: sources.File
    name: str
    size: int
    version: list[Any]


class Part(NamedTuple):
    """The part of a file that one task reads: bytes or row groups from `begin` to `end`; all if `end` is None."""

    input: Input
    begin: int
    end: int | None
    size: int  # bytes of the file that this is, for progress


def listed(source: Any) -> list[Input]:
    """Return the files of a source, with absolute paths. TypeError if it is no list of files."""
    files = sources.files_of(source)
    if files is None:
        raise TypeError(
            "expected files: a Ray Dataset is counted and encoded by bpe.integrations.engines, texts in memory by "
            "bpe.count() and Tokenizer.encode_file()"
        )
    names = [os.fspath(file.path if remote.is_url(file.path) else os.path.abspath(file.path)) for file in files]
    urls = remote.versions_of(names)
    versions = [urls.get(name) or sources.version_of(name) for name in names]
    each = zip(files, names, versions, strict=True)
    return [Input(file._replace(path=name), name, version[0] or 0, version) for file, name, version in each]


def parts_of(entry: Input, part_size: int, *, can_cut: bool) -> Iterator[Part]:
    """Yield the parts of a file, of about `part_size` bytes each. can_cut: a text can be cut at all."""
    file, size = entry.file, entry.size
    if isinstance(file, sources.Parquet):
        offsets = list(accumulate(sources.row_group_sizes(file), initial=0))  # bytes before each row group
        begin = 0
        for end in range(1, len(offsets)):
            if offsets[end] - offsets[begin] >= part_size or end == len(offsets) - 1:
                first, last = (size * offsets[at] // max(1, offsets[-1]) for at in (begin, end))
                yield Part(entry, begin, end, last - first)
                begin = end
    elif not can_cut or size <= part_size or compressed.kind_of(file.path) is not None:
        yield Part(entry, 0, None, size)
    else:
        for begin, end in pairwise([*range(0, size - part_size // 2, part_size), size]):
            yield Part(entry, begin, end, end - begin)


def source_of(part: Part, cut: Callable[[Any, int], int], margin: int) -> tuple[sources.Source, bool]:
    """Return the texts of a part, as a source, and True if it is one text that goes on in the next part.

    cut(text, at) is the first position from `at` on where a text may be cut, final if it is `margin` bytes from the end
    of what was read.
    """
    file, _, size, _ = part.input
    check_unchanged(part.input)
    if part.end is None:
        return [file], False
    if isinstance(file, sources.Parquet):
        rows = sources.rows(file, range(part.begin, part.end))
        return (text.data for text in rows), False  # type: ignore[misc]
    if isinstance(file, sources.JsonLines):
        cut, margin = (lambda text, at: text.find(b"\n", at - 1) + 1 or len(text)), 0
    with remote.opened(file.path) as opened:
        large = sources.LargeFile(opened, size)
        begin = next_cut(large, part.begin, cut, margin, part.end)
        if begin >= part.end:  # what lies here belongs to the stretch before
            return [], False
        end = next_cut(large, part.end, cut, margin, size)
        text = large.read(begin, end - begin)
    return (_texts_of_lines(text, file), False) if isinstance(file, sources.JsonLines) else ([text], end < size)


def check_unchanged(entry: Input) -> None:
    """ValueError where a file has changed since it was listed; FileNotFoundError where it is gone."""
    if sources.version_of(entry.name) != entry.version:
        raise ValueError(f"{entry.name} has changed since the start: start again when nothing writes to it")


def next_cut(file: sources.LargeFile, at: int, cut: Callable[[Any, int], int], margin: int, limit: int) -> int:
    """Return the first position from `at` on where a text may be cut, or its size; any from `limit` on if none less."""
    if at == 0 or at >= file.size:
        return min(at, file.size)
    first = max(0, at - margin - BEFORE)
    window = WINDOW
    while True:
        text = file.read(first, at + window + margin - first)
        position, end = first + cut(text, at - first), first + len(text)
        if end == file.size or position + margin + BEFORE <= end:
            return min(position, file.size)
        if end - margin - BEFORE >= limit:
            return limit
        window *= 2


def _texts_of_lines(text: bytes, file: sources.JsonLines) -> Iterator[bytes]:
    """Yield the texts of some lines of a file. ValueError as for the whole file, for its first wrong line."""
    try:
        for line in filter(bytes.strip, text.split(b"\n")):
            yield sources.text_of_line(line, 0, file)
    except ValueError:
        deque(sources.texts(file), 0)  # raises the same error with the number of the line
        raise
