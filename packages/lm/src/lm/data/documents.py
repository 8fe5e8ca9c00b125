"""The documents of text files: between separators, in JSON lines or in rows of Parquet, compressed or not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lm.extras import MissingExtra, need

Document = bytes | memoryview

LAG = 1 << 24  # bytes of a mapped text behind the one being looked for that stay in memory


def documents(path: str | Path, *, separator: bytes, key: str = "text", partial: bool = False) -> Iterator[Document]:
    """The documents of a file, in order, empty ones left out; its name says what it is, as for bpe.train.

    A text is split at the separator, and what is mapped from a file comes as memoryviews of the map. JSON lines and
    Parquet have a document in each line or row, under `key`. partial: the file is the beginning of a longer one, and so
    its last document is left out.
    """
    sources = need("bpe.corpus.sources", "text", "groundup-lm[text]")
    texts = sources.texts(sources.file_of(path, key))
    parts = (
        separated(texts, separator, sources.release)
        if isinstance(sources.file_of(path), sources.PlainText)
        else whole(texts)
    )
    try:
        yield from all_but_last(parts, path) if partial else parts
    except ImportError as error:
        raise MissingExtra(str(error)) from None


def whole(texts: Iterator[Any]) -> Iterator[Document]:
    for text in texts:
        if len(text.data):
            yield text.data


def separated(texts: Iterator[Any], separator: bytes, release: Callable[[Any, int, int], None]) -> Iterator[Document]:
    for text in texts:
        if hasattr(text, "data"):
            view, begin, released = memoryview(text.data), 0, 0
            while (end := text.data.find(separator, begin)) >= 0:
                if end > begin:
                    yield view[begin:end]
                begin = end + len(separator)
                if begin - released > 2 * LAG:  # what may still be at work on pages given back has them read again
                    release(text.data, released, begin - LAG)
                    released = begin - LAG
            if begin < len(view):
                yield view[begin:]
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


def all_but_last(parts: Iterator[Document], path: str | Path) -> Iterator[Document]:
    """Yield the whole documents of a file's beginning, which may end within a line or compressed data."""
    before: Document | None = None
    try:
        for document in parts:
            if before is not None:
                yield before
            before = document
    except ValueError:
        if before is None:
            raise ValueError(f"{path}, the beginning of a file, has no whole document: allow more bytes") from None


def is_one_text(path: str | Path, separator: bytes) -> bool:
    """True if a file is plain text, not compressed, without a separator in it."""
    sources = need("bpe.corpus.sources", "text", "groundup-lm[text]")
    file = sources.file_of(path)
    if not isinstance(file, sources.PlainText):
        return False
    return all(hasattr(text, "data") and text.data.find(separator) < 0 for text in sources.texts(file))
