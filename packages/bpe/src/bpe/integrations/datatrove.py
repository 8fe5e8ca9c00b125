"""A step of datatrove's pipelines that encodes: `Encode(tokenizer)` after a reader, before a writer or a filter."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from datatrove.pipeline.base import PipelineStep

from bpe.tokenizer import Tokenizer


class Encode(PipelineStep):  # type: ignore[misc]  # datatrove has no types
    """Adds the ids of each document, and their number, to its metadata.

    Args:
        tokenizer: The tokenizer.
        ids: The key of the ids; None for none. They are NumPy arrays, which datatrove's ParquetWriter writes many times
            as fast as lists.
        lists: The ids are lists of int, which JsonlWriter needs.
        count: The key of their number.
        batch: Documents that are encoded together.
        options: num_threads (1 by default), allowed_special and disallowed_special, as Tokenizer.encode_batch() takes
            them.
    """

    name = "bpe"
    type = "🔢 - TOKENIZER"

    def __init__(
        self,
        tokenizer: Tokenizer,
        *,
        ids: str | None = "ids",
        count: str = "token_count",
        lists: bool = False,
        batch: int = 1000,
        **options: Any,
    ) -> None:
        super().__init__()
        self.tokenizer, self.ids, self.count, self.lists, self.batch = tokenizer, ids, count, lists, batch
        self.options = {"num_threads": 1, **options}

    def run(self, data: Iterable[Any], rank: int = 0, world_size: int = 1) -> Iterator[Any]:
        """Yield the documents of a task."""
        documents = iter(data)
        encode: Any = self.tokenizer.encode_batch if self.lists else self.tokenizer.encode_batch_to_numpy
        while batch := list(islice(documents, self.batch)):
            with self.track_time(unit="batch"):
                rows = encode([document.text for document in batch], **self.options)
            for document, row in zip(batch, rows, strict=True):
                document.metadata[self.count] = len(row)
                if self.ids is not None:
                    document.metadata[self.ids] = row
                self.stat_update("tokens", value=len(row))
                yield document
