"""The documents of text files: between separators, in JSON lines or in rows of Parquet, compressed or not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lm.extras import MissingExtra, need

Document = bytes | memoryview


def documents(path: str | Path, *, separator: bytes, key: str = "text", partial: bool = False) -> Iterator[Document]:
    """The documents of a file, in order, empty ones left out; its name says what it is, as for bpe.train.

    A text is split at the separator; of a large one a block is in memory at a time. JSON lines and Parquet have a
    document in each line or row, under `key`. partial: the file is the beginning of a longer one, and so its last
    document is left out.
    """
    sources = need("bpe.corpus.sources", "text", "groundup-lm[text]")
    texts = sources.texts(sources.file_of(path, key))
    is_text = isinstance(sources.file_of(path), sources.PlainText)
    parts = separated(texts, separator) if is_text else whole(texts)
    try:
        yield from all_but_last(parts, path) if partial else parts
    except ImportError as error:
        raise MissingExtra(str(error)) from None


def whole(texts: Iterator[Any]) -> Iterator[Document]:
    for text in texts:
        if len(text.data):
            yield text.data


def separated(texts: Iterator[Any], separator: bytes) -> Iterator[Document]:
    for text in texts:
        if hasattr(text, "data"):
            view, begin = memoryview(text.data), 0
            while (end := text.data.find(separator, begin)) >= 0:
                if end > begin:
                    yield view[begin:end]
                begin = end + len(separator)
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
    for text in sources.texts(file):
        if isinstance(text, sources.LargeFile):
            blocks: Iterator[Any] = (block for block, _ in text)
        elif hasattr(text, "data"):
            blocks = iter([text.data])
        else:  # compressed
            return False
        end = b""  # of the last block, where a separator may begin
        for block in blocks:
            if separator in end + bytes(block):
                return False
            end = bytes(block[1 - len(separator) or len(block) :])
    return True
