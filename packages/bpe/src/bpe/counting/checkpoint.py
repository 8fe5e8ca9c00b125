"""The counts of a training run on disk: a run that was stopped goes on from them, with the same result.

A checkpoint is a folder with one file, `counts` (see bpe.counting.counts_file), which bpe.Counts.load() reads too. The
counts of files are written when all are counted. The texts of an iterable are counted in blocks; after each block
the sum is written, with the number of texts in it: a later run skips as many.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bpe import patterns
from bpe.corpus import sources
from bpe.counting import counts_file
from bpe.counting.records import add_sorted, sorted_blocks
from bpe.native.atomic_file import StrPath

if TYPE_CHECKING:
    from bpe.counting.records import Records

BLOCK = 1 << 30  # characters or bytes of texts between two times that the counts are written


def counted(
    folder: StrPath,
    source: sources.Source,
    pattern: patterns.Pattern,
    special_tokens: tuple[str, ...],
    count: Callable[[sources.Source], Records],
) -> Records:
    """Return the records of a source: those in a folder, as far as an earlier run came, and of the rest by count().

    ValueError: the counts are from another run or damaged, the corpus has changed, an item of an iterable is no text.
    """
    path = Path(folder) / "counts"
    about = {"corpus": _corpus(source), "pattern": patterns.to_plain(pattern), "special_tokens": list(special_tokens)}
    path.parent.mkdir(parents=True, exist_ok=True)
    text_count, size, records = _read(path, about) if path.exists() else (0, 0, None)
    if about["corpus"] is not None:
        if records is None:
            records = count(source)
            if _corpus(source) != about["corpus"]:
                raise ValueError("the corpus was changed while it was counted; train again when its files are complete")
            counts_file.write(path, about, [records])
        return records
    rest, is_last = iter(source), False  # type: ignore[arg-type]
    if sum(map(_size, islice(rest, text_count))) != size:
        raise ValueError(
            f"{folder} is the checkpoint of another run: the first {text_count:,} texts of the iterable are not those "
            "that it counted; name another folder, or delete it"
        )

    def block(end: int) -> Iterator[Any]:
        """Yield the next texts, until `size` characters or bytes reach `end`."""
        nonlocal text_count, size, is_last
        while size < end:
            text = next(rest, None)
            if text is None:
                is_last = True
                return
            text_count, size = text_count + 1, size + _size(text)
            yield text

    while not is_last:
        more = count(block(size + max(BLOCK, size // 8)))  # larger ones later: all counts are written after each
        if records is not None:
            more = b"".join(add_sorted([io.BytesIO(b"".join(sorted_blocks(each))) for each in (records, more)]))
        records = more
        counts_file.write(path, {**about, "texts": text_count, "size": size}, [records])
    return b"" if records is None else records


def _read(path: Path, about: dict[str, Any]) -> tuple[int, int, Records]:
    """Return the number of texts that were counted, their size, and the records."""
    try:
        other, records = counts_file.read(path)
    except ValueError as error:
        raise ValueError(f"{error}; delete it to count again") from None
    other = other if isinstance(other, dict) else {}
    for name, value in about.items():
        if other.get(name, ()) != value:
            difference = f"its {name} is {other.get(name, ())!r}, not {value!r}"
            if name == "corpus":
                difference = _difference(other.get(name, ()), value)
            raise ValueError(
                f"{path.parent} is the checkpoint of another run: {difference}; name another folder, or delete it"
            )
    return other.get("texts", 0), other.get("size", 0), records


def _size(text: Any) -> int:
    if not isinstance(text, (str, bytes, bytearray, memoryview)):
        raise ValueError(f"a checkpoint needs a corpus of files, or an iterable of texts, not of {type(text).__name__}")
    return len(text)


def _corpus(source: sources.Source) -> list[list[Any]] | None:
    files = sources.identity(source)
    return None if files is None else sorted(files, key=repr)


def _difference(other: Any, files: list[list[Any]] | None) -> str:
    """Return which file makes two corpora differ."""
    if files is None or other is None:
        return "one corpus is a list of files, and the other an iterable of texts"
    before, now = ({file[2]: file for file in rows} for rows in (other, files))
    for path, file in now.items():
        if file != before.get(path):
            return f"{path} has changed since" if path in before else f"{path} was not in its corpus"
    return "".join(f"{path} was in its corpus" for path in before if path not in now) or "a file is named twice"
