"""The counts of a training run on disk: a run that was stopped goes on from them, with the same result.

A checkpoint is a folder with one file, `counts` (see bpe.counting.counts_file), which bpe.Counts.load() reads too. The
counts of files are written when all are counted. The texts of an iterable are counted in blocks, after each of which
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


class Checkpoint:
    """The counts of one corpus, pattern and list of special tokens in a folder."""

    def __init__(
        self, folder: StrPath, source: sources.Source, pattern: patterns.Pattern, special_tokens: tuple[str, ...]
    ) -> None:
        self._path = Path(folder) / "counts"
        self._source = source
        self._about: dict[str, Any] = {
            "corpus": _corpus(source),
            "pattern": patterns.to_plain(pattern),
            "special_tokens": list(special_tokens),
        }

    def records(self, count: Callable[[sources.Source], Records]) -> Records:
        """Return the records, those of an earlier run as far as it came. count: the records of a source.

        Raises:
            ValueError: The counts are those of another run, or the file is damaged; the corpus has changed since the
                run began; an item of an iterable is no text.
        """
        texts, size, records = self._read()
        if self._about["corpus"] is not None:
            if records is None:
                records = count(self._source)
                if _corpus(self._source) != self._about["corpus"]:
                    raise ValueError(
                        "the corpus was changed while it was counted; train again when its files are complete"
                    )
                self._write(records, 0, 0)
            return records
        rest = iter(self._source)  # type: ignore[arg-type]
        if sum(map(_size, islice(rest, texts))) != size:
            raise ValueError(
                f"{self._path.parent} is the checkpoint of another run: the first {texts:,} texts of the iterable are "
                "not those that it counted; name another folder, or delete it"
            )
        while True:
            block = _Block(rest, max(BLOCK, size // 8))  # larger ones later, for all counts are written after each
            more = count(block)
            if records is not None:
                more = b"".join(add_sorted([io.BytesIO(b"".join(sorted_blocks(each))) for each in (records, more)]))
            records, texts, size = more, texts + block.texts, size + block.size
            self._write(records, texts, size)
            if block.is_last:
                return records

    def _read(self) -> tuple[int, int, Records | None]:
        """Return the number of texts that were counted, their size, and the records; None if there is no file yet."""
        if not self._path.exists():
            return 0, 0, None
        try:
            about, records = counts_file.read(self._path)
        except ValueError as error:
            raise ValueError(f"{error}; delete it to count again") from None
        for name, value in self._about.items():
            other = about.get(name, ()) if isinstance(about, dict) else ()
            if other != value:
                difference = (
                    _difference(other, value) if name == "corpus" else f"its {name} is {other!r}, not {value!r}"
                )
                raise ValueError(
                    f"{self._path.parent} is the checkpoint of another run: {difference}; name another folder, "
                    "or delete it"
                )
        return about.get("texts", 0), about.get("size", 0), records

    def _write(self, records: Records, texts: int, size: int) -> None:
        """Write the records, whole or not at all."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        counts_file.write(self._path, {**self._about, "texts": texts, "size": size}, [records])


class _Block:
    """The next texts of an iterator, of about `room` characters or bytes; `texts` and `size` once they are read."""

    def __init__(self, texts: Iterator[Any], room: int) -> None:
        self._texts, self._room = texts, room
        self.texts = self.size = 0
        self.is_last = False

    def __iter__(self) -> Iterator[Any]:
        while self.size < self._room:
            text = next(self._texts, None)
            if text is None:
                self.is_last = True
                return
            self.texts, self.size = self.texts + 1, self.size + _size(text)
            yield text


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
    versions = {tuple(map(str, file[:3])): file for file in other or []}
    for file in files:
        previous = versions.pop(tuple(map(str, file[:3])), None)
        if previous is None:
            return f"{file[2]} was not in its corpus"
        if previous != file:
            return f"{file[2]} has changed since"
    return f"{next(iter(versions))[2]} was in its corpus" if versions else "a file occurs another number of times"
