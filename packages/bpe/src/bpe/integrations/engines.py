"""Encoding and counting by engines that pass batches of rows to a function: Ray Data, Spark, Dask, datasets.

    Ray Data    dataset.map_batches(ArrowEncoder, fn_constructor_args=(tokenizer,), batch_format="pyarrow",
                                    concurrency=4)
    Spark       frame.mapInArrow(ArrowEncoder(tokenizer).batches, "text string, ids array<int>")
    Dask        frame.map_partitions(ArrowEncoder(tokenizer).frame)
    datasets    dataset.with_format("arrow").map(ArrowEncoder(tokenizer), batched=True)

ArrowCounter is used in the same ways. The engine reads, distributes, tries again and writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from bpe.native.arrow import pyarrow

if TYPE_CHECKING:
    from bpe.tokenizer import Tokenizer


class _OfTables:
    """A function of tables of Arrow, for engines that pass other things too."""

    text: str

    def __call__(self, table: Any) -> Any:
        raise TypeError("expected ArrowEncoder or ArrowCounter, got their base")

    def batches(self, batches: Iterable[Any]) -> Iterator[Any]:
        """Yield the results of record batches, for Spark's mapInArrow; ids are int32, as Spark has no unsigned type."""
        arrow = pyarrow()
        for batch in batches:
            table = self(arrow.Table.from_batches([batch]))
            for index, field in enumerate(table.schema):
                if field.type == arrow.list_(arrow.uint32()):
                    chunks = [chunk.view(arrow.list_(arrow.int32())) for chunk in table.column(index).chunks]
                    table = table.set_column(index, field.name, arrow.chunked_array(chunks))
            yield from table.to_batches()

    def frame(self, frame: Any) -> Any:
        """The result of a pandas DataFrame, as Dask passes it; ids are a column of Arrow, which is not copied."""
        table = self(pyarrow().Table.from_pandas(frame.get([self.text], frame), preserve_index=False))
        if self.text not in table.column_names:
            return table.to_pandas()
        from pandas.arrays import ArrowExtensionArray

        names = (name for name in table.column_names if name != self.text)
        return frame.assign(**{name: ArrowExtensionArray(table[name]) for name in names})

    def _column(self, table: Any) -> Any:
        if self.text not in table.column_names:
            raise ValueError(f"expected a column {self.text!r}, got {', '.join(table.column_names)}: name it by text=")
        return table[self.text]


class ArrowEncoder(_OfTables):
    """Adds the ids of a column of text to tables of Arrow.

    Args:
        tokenizer: The tokenizer, or several by the columns of their ids: one pass over the text for all of them.
        text: The column of text, without null for Spark and Dask.
        ids: The column of ids that is added, of list<uint32>; without a meaning for several tokenizers.
        num_threads: Threads of a call; the engine runs several at a time.
        options: allowed_special and disallowed_special, as Tokenizer.encode_arrow() takes them.

    Example:
        >>> import pyarrow
        >>> encoder = bpe.integrations.engines.ArrowEncoder(tokenizer)
        >>> encoder(pyarrow.table({"text": ["low", "lower"]}))["ids"].to_pylist()
        [[258], [259, 114]]
    """

    def __init__(
        self,
        tokenizer: Tokenizer | Mapping[str, Tokenizer],
        *,
        text: str = "text",
        ids: str = "ids",
        num_threads: int = 1,
        **options: Any,
    ) -> None:
        self.text, self._options = text, {"num_threads": num_threads, **options}
        self._tokenizers = dict(tokenizer) if isinstance(tokenizer, Mapping) else {ids: tokenizer}

    def __call__(self, table: Any) -> Any:
        """The table with its ids."""
        column = self._column(table)
        for ids, tokenizer in self._tokenizers.items():
            table = table.append_column(ids, tokenizer.encode_arrow(column, **self._options))
        return table


class ArrowCounter(_OfTables):
    """Counts the pretokens of a column of text: tables of `word` and `count`, for bpe.Counts.from_arrow().

    Args:
        text: The column of text; null counts nothing.
        options: pattern, special_tokens and memory_limit, as bpe.count() takes them.

    Example:
        >>> import pyarrow
        >>> bpe.integrations.engines.ArrowCounter()(pyarrow.table({"text": ["low low"]})).to_pylist()
        [{'word': b' low', 'count': 1}, {'word': b'low', 'count': 1}]
    """

    def __init__(self, *, text: str = "text", num_threads: int = 1, **options: Any) -> None:
        self.text, self._options = text, {"num_threads": num_threads, **options}

    def __call__(self, table: Any) -> Any:
        """The counts of a table; of int64, which Spark and Dask have."""
        from bpe.counts import count

        texts = (text for chunk in self._column(table).chunks for text in chunk.to_pylist() if text is not None)
        counts = count(texts, **self._options).to_arrow()
        return counts.set_column(1, "count", counts["count"].cast("int64"))
