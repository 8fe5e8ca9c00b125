"""count(): a source of text to Counts, which can be saved, added to others, and trained from."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from bpe import patterns
from bpe.corpus import sources
from bpe.counting.count import count_source
from bpe.counting.pretoken_counts import PretokenCounts
from bpe.counting.records import add_sorted, items, number_of_records, pack_table, sorted_blocks, total_size
from bpe.native.atomic_file import StrPath
from bpe.native.checks import integer
from bpe.native.lazy_imports import import_lock
from bpe.native.parallel import available_cpus
from bpe.native.progress import Progress, reporter
from bpe.scanning.special_tokens import SpecialTokens

if TYPE_CHECKING:
    from bpe.counting.records import Records


class Counts:
    """Count of each pretoken of a corpus, with the pattern and special tokens that split it.

    `len(counts)` is the number of distinct pretokens; counts with the same pretokens, pattern and special tokens are
    equal.

    Attributes:
        pattern: The split pattern.
        special_tokens: The special tokens, in order. They split the text and are not counted.
    """

    __hash__ = None  # type: ignore[assignment]  # as a dict's

    def __init__(self, records: Records, pattern: patterns.Pattern, special_tokens: tuple[str, ...]) -> None:
        """Not for users: see count(), load() and from_mapping()."""
        self._records = records
        self.pattern = pattern
        self.special_tokens = special_tokens

    @classmethod
    def from_mapping(
        cls,
        counts: Mapping[str, int] | Mapping[bytes, int],
        *,
        pattern: str | tuple[str, ...] | None = "gpt2",
        special_tokens: Iterable[str] = ("<|endoftext|>",),
    ) -> Counts:
        """Counts of pretokens that were made elsewhere.

        Args:
            counts: The count of each pretoken, 1 or more. A str stands for its UTF-8.
            pattern: The pattern that the text was split by, which the tokenizer will split by.
            special_tokens: The special tokens of the tokenizer.

        Raises:
            ValueError: A pretoken is empty, or a count is not from 1 to 2**63 - 1.

        Example:
            >>> import bpe
            >>> counts = bpe.Counts.from_mapping({"low": 5, "lower": 2, "newest": 6, "widest": 3})
            >>> bpe.train_from_counts(counts, 260).merges
            ((b's', b't'), (b'e', b'st'), (b'o', b'w'))
        """
        records = _added_up(counts.items())
        return cls(records, patterns.resolve(pattern), checked_names(special_tokens))

    @classmethod
    def from_arrow(
        cls,
        table: Any,
        *,
        word: str = "word",
        count: str = "count",
        pattern: str | tuple[str, ...] | None = "gpt2",
        special_tokens: Iterable[str] = ("<|endoftext|>",),
    ) -> Counts:
        """Counts of pretokens in a table, as Spark, BigQuery or DuckDB make one. Needs pyarrow.

        Args:
            table: A pyarrow Table, RecordBatch or RecordBatchReader, or whatever exports a table by Arrow's C interface
                (a Polars or pandas DataFrame, a DuckDB relation).
            word: The column of pretokens, text or binary. One that stands in several rows has the sum of their counts.
            count: The column of their counts, integers of 1 or more.
            pattern, special_tokens: As from_mapping() takes them.

        Raises:
            ValueError: There is no such column, or a column holds something else; a row is null; a pretoken is empty,
                or a count is not from 1 to 2**63 - 1.
            ImportError: pyarrow is not installed.

        Example:
            >>> import bpe, pyarrow
            >>> table = pyarrow.table({"word": ["low", "lower", "newest", "widest"], "count": [5, 2, 6, 3]})
            >>> bpe.train_from_counts(bpe.Counts.from_arrow(table), 260).merges
            ((b's', b't'), (b'e', b'st'), (b'o', b'w'))
        """
        with import_lock:
            from bpe.counting.counts_table import rows

        return cls(_added_up(rows(table, word, count)), patterns.resolve(pattern), checked_names(special_tokens))

    def to_arrow(self) -> Any:
        """A pyarrow Table of the columns word (binary) and count (uint64), sorted by word. Needs pyarrow.

        Processes of a cluster that each count a part of a corpus hand their counts on so, to be added up by its engine.

        Example:
            >>> bpe.count(["the cat and the hat"]).to_arrow().to_pylist()[0]
            {'word': b' and', 'count': 1}
        """
        with import_lock:
            from bpe.counting.counts_table import table_of

        return table_of(items(memoryview(b"".join(sorted_blocks(self._records)))))

    @classmethod
    def load(cls, path: StrPath) -> Counts:
        """Return the counts that save() wrote; they stay in the file, which is mapped.

        Raises:
            ValueError: The file holds no counts, or is damaged.
        """
        with import_lock:
            from bpe.counting import counts_file

        about, records = counts_file.read(path)
        try:
            return cls(records, patterns.from_plain(about["pattern"]), checked_names(about["special_tokens"]))
        except (KeyError, TypeError):
            raise ValueError(f"{path}: names no pattern and special tokens") from None

    def save(self, path: StrPath) -> None:
        """Write the counts to a file, whole or not at all. Equal counts make equal files."""
        with import_lock:
            from bpe.counting import counts_file

        about = {"pattern": patterns.to_plain(self.pattern), "special_tokens": list(self.special_tokens)}
        counts_file.write(path, about, sorted_blocks(self._records))

    def merge(self, *others: Counts) -> Counts:
        """The sum of these counts and others, as if the corpora had been counted together.

        Raises:
            ValueError: Others were split by another pattern, or by other special tokens.
        """
        for other in others:
            if (other.pattern, other.special_tokens) != (self.pattern, self.special_tokens):
                raise ValueError(
                    "counts of different patterns or special tokens cannot be added up: count one corpus again"
                )
        files = [io.BytesIO(b"".join(sorted_blocks(counts._records))) for counts in (self, *others)]
        return Counts(b"".join(add_sorted(files)), self.pattern, self.special_tokens)

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Counts can be pickled: Ray, Dask and multiprocessing pass them on, from protocol 5 on without a copy."""
        with import_lock:
            from pickle import PickleBuffer

        records = bytes(self._records) if protocol < 5 else PickleBuffer(self._records)
        return _unpickled, (records, patterns.to_plain(self.pattern), self.special_tokens)

    def items(self) -> Iterator[tuple[bytes, int]]:
        """(pretoken, count), in no particular order."""
        return items(self._records)

    @property
    def total_bytes(self) -> int:
        """The bytes of the text that was counted, special tokens aside."""
        return total_size(self._records)

    def __len__(self) -> int:
        return number_of_records(self._records)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Counts):
            return NotImplemented
        same = (self.pattern, self.special_tokens) == (other.pattern, other.special_tokens)
        return same and dict(self.items()) == dict(other.items())

    def __repr__(self) -> str:
        return f"Counts({len(self):,} pretokens of {self.total_bytes:,} bytes)"


def _unpickled(records: Records, pattern: Any, special_tokens: tuple[str, ...]) -> Counts:
    return Counts(records, patterns.from_plain(pattern), special_tokens)


def _added_up(rows: Iterable[tuple[str | bytes, int]]) -> Records:
    """The records of (pretoken, count) pairs. ValueError for an empty pretoken, or a count that is none."""
    table = PretokenCounts()
    total = 0
    for pretoken, number in rows:
        data = pretoken.encode() if isinstance(pretoken, str) else bytes(pretoken)
        if not data or not 1 <= number < 1 << 63:
            raise ValueError(f"{pretoken!r} counts {number}; a pretoken has a byte at least, and counts 1 to 2**63 - 1")
        total += number * len(data)
        if total >= 1 << 63:
            raise ValueError("the pretokens come to 2**63 bytes of text or more; training counts up to 2**63 - 1")
        table.add_count(data, number)
    return pack_table(table)


def count(
    source: sources.Source,
    *,
    pattern: str | tuple[str, ...] | None = "gpt2",
    special_tokens: Iterable[str] = ("<|endoftext|>",),
    num_threads: int | None = None,
    memory_limit: int | None = None,
    progress: Progress | bool | None = None,
) -> Counts:
    """Count the pretokens of a corpus: the first half of train(), in memory that follows the distinct pretokens.

    Args:
        source: The corpus, as train() takes it.
        pattern: The split pattern, by name, as a regular expression (slower), or None for no split.
        special_tokens: Split the text before the pattern does, and are not counted.
        num_threads: Threads; all processors by default.
        memory_limit: Bytes that counting may hold; more goes to temporary files.
        progress: True for bars, or a function of (phase, done, total).

    Returns:
        The counts, which do not depend on `num_threads`, `memory_limit` or the order of the texts.

    Raises:
        ValueError, TypeError, OSError: As train() does.

    Example:
        >>> import bpe
        >>> counts = bpe.count(["the cat and the hat"])
        >>> sorted(counts.items())
        [(b' and', 1), (b' cat', 1), (b' hat', 1), (b' the', 1), (b'the', 1)]
        >>> bpe.train_from_counts(counts, 259).merges == bpe.train(["the cat and the hat"], 259).merges
        True
    """
    resolved, names = patterns.resolve(pattern), checked_names(special_tokens)
    threads, limit = checked_resources(num_threads, memory_limit)
    with reporter(progress) as report:
        return Counts(count_source(source, resolved, SpecialTokens(names), threads, report, limit), resolved, names)


def checked_names(special_tokens: Iterable[str]) -> tuple[str, ...]:
    """Return the names of special tokens; a str is one name. TypeError for a name that is not a str."""
    names = [special_tokens] if isinstance(special_tokens, str) else list(special_tokens)
    for name in names:
        if not isinstance(name, (str, bytes, bytearray)):
            raise TypeError(f"the name of a special token is a str, not {name!r}")
    return tuple(name.decode() for name in SpecialTokens(names).names)


def checked_resources(num_threads: int | None, memory_limit: int | None) -> tuple[int, int | None]:
    """The threads and the memory that a call allows. ValueError for none."""
    threads = available_cpus() if num_threads is None else integer("num_threads", num_threads)
    return threads, None if memory_limit is None else integer("memory_limit", memory_limit)
