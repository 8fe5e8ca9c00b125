"""Token files in the formats of other trainers, written by the package bpe (see bpe.outputs.writers)."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lm.extras import need


def ending_of(format: str) -> str:
    """How the name of a file of a format ends; nothing for those that are folders."""
    if format == "npy":
        return ".npy"
    ending: str = need("bpe.outputs.writers", format, "groundup-lm[text]").writer_of(format).ending
    return ending


class FormatWriter:
    """What TokenWriter does, in another format: ids as they come, whole or not at all, with a JSON beside them.

    Args:
        path: The file or the folder; one that is there is of this preparation too, and is replaced.
        format: One of bpe.outputs.writers.FORMATS, but not npy.
        dtype: "uint16" or "uint32".
        end_of_text: The id that ends each document.
    """

    def __init__(self, path: Path, format: str, *, dtype: str, end_of_text: int) -> None:
        writers = need("bpe.outputs.writers", format, "groundup-lm[text]")
        if path.is_dir():
            shutil.rmtree(path)
        kind = np.dtype("uint32" if format in ("parquet", "arrow") else dtype)
        self.format, self.end_of_text = format, end_of_text
        self.writer = writers.writer_of(format)(path, kind)
        self.count = self.documents = 0
        self.digest = hashlib.sha256()

    def __enter__(self) -> FormatWriter:
        return self

    def __exit__(self, *error: object) -> None:
        self.writer.abandon()  # nothing, once it is finished

    def write(self, ids: NDArray[Any]) -> None:
        """Adds a flat array of ids."""
        ends = np.flatnonzero(ids == self.end_of_text) + 1
        self.digest.update(self.writer.write(ids.astype(np.uint32, copy=False), ends))
        self.count += len(ids)
        self.documents += len(ends)

    def finish(self, *, tokenizer: str | None, text_bytes: int | None, end_of_text: int | None) -> None:
        """Puts the files in their place."""
        self.writer.finish(
            {
                "count": self.count,
                "dtype": self.writer.dtype.name,
                "bytes": text_bytes,
                "tokenizer": tokenizer,
                "end_of_text": end_of_text,
                "sha256": self.digest.hexdigest(),
                "format": self.format,
                "documents": self.documents,
            }
        )
