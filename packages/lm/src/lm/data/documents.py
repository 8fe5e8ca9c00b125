"""The documents of text files: between separators, in JSON lines or in rows of Parquet, compressed or not."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lm.data.rows import COMPRESSED
from lm.extras import MissingExtra, need

Document = bytes | memoryview


def documents(path: str | Path, *, separator: bytes, key: str = "text") -> Iterator[Document]:
    """Yield the documents of a file, read by its name as bpe.train reads it; key: of the text in JSON and Parquet."""
    sources = need("bpe.corpus.sources", "text", "groundup-lm[text]")
    texts = sources.texts(sources.file_of(path, key))
    is_text = isinstance(sources.file_of(path), sources.PlainText)
    try:
        yield from separated(texts, separator) if is_text else (text.data for text in texts if len(text.data))
    except ImportError as error:
        raise MissingExtra(str(error)) from None


def separated(texts: Iterator[Any], separator: bytes) -> Iterator[Document]:
    for text in texts:
        if hasattr(text, "data"):
            view, end, step = memoryview(text.data), -len(separator), len(separator)
            while end < len(view):
                begin, end = end + step, text.data.find(separator, end + step)
                end = len(view) if end < 0 else end
                if end > begin:
                    yield view[begin:end]
            continue
        buffer = bytearray()
        for block, _ in text:
            begin, searched = 0, max(0, len(buffer) - len(separator) + 1)
            buffer += block
            while (end := buffer.find(separator, searched)) >= 0:
                if end > begin:
                    yield bytes(buffer[begin:end])
                begin = searched = end + len(separator)
            del buffer[:begin]
        if buffer:
            yield bytes(buffer)


def is_one_text(path: str | Path, separator: bytes) -> bool:
    """True if a file is plain text, not compressed, that holds one document."""
    sources = need("bpe.corpus.sources", "text", "groundup-lm[text]")
    if Path(path).suffix.lower() in COMPRESSED or not isinstance(sources.file_of(path), sources.PlainText):
        return False
    return len(list(itertools.islice(documents(path, separator=separator), 2))) == 1
