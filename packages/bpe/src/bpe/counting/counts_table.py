"""Counts as a table of Arrow: what the engines of clusters and databases exchange. Needs pyarrow."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from bpe.native.arrow import is_one_of, pyarrow

ROWS = 1 << 16  # that are Python objects at a time


def rows(table: Any, word: str, count: str) -> Iterator[tuple[bytes, int]]:
    """(pretoken, count) of each row. ValueError where a column is missing, holds something else or a null."""
    arrow = pyarrow()
    if not isinstance(table, (arrow.Table, arrow.RecordBatch)):
        if not hasattr(table, "__arrow_c_stream__"):
            raise TypeError(f"counts are read from a table of Arrow, not from {type(table).__name__}")
        table = arrow.table(table)
    columns = []
    texts = "string large_string string_view binary large_binary binary_view"
    for name, types, kind in ((word, texts, "text"), (count, "integer", "integers")):
        if table.schema.names.count(name) != 1:
            raise ValueError(f"the table has not one column {name!r}; there are {', '.join(table.schema.names)}")
        column = table.column(name)
        column = column if isinstance(column, arrow.ChunkedArray) else arrow.chunked_array([column])
        if arrow.types.is_dictionary(column.type):
            column = column.cast(column.type.value_type)
        if not is_one_of(column.type, types):
            raise ValueError(f"the column {name!r} holds {column.type}, not {kind}")
        if column.null_count:
            raise ValueError(f"{column.null_count} of the {len(column)} rows of the column {name!r} are null")
        columns.append(column)
    words = columns[0].cast(arrow.large_binary())
    for begin in range(0, len(words), ROWS):
        part = slice(begin, begin + ROWS)
        yield from zip(words[part].to_pylist(), columns[1][part].to_pylist(), strict=True)


def table_of(items: Iterable[tuple[bytes, int]]) -> Any:
    """The table with the columns word and count."""
    arrow = pyarrow()
    words, counts = tuple(zip(*items, strict=True)) or ((), ())
    return arrow.table({"word": arrow.array(words, arrow.large_binary()), "count": arrow.array(counts, arrow.uint64())})
