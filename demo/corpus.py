"""The text that the demo learns from: the standard library of the running Python, or files that the caller names.

A document is a file. A fixed tenth of the documents is held out, by a hash of each one's relative path, so that the
split is the same on every machine with the same library and a document never moves when others come or go.
"""

from __future__ import annotations

import gzip
import hashlib
import lzma
import os
import sysconfig
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from lm.progress import progress_bar

SEPARATOR = "<|endoftext|>"
PIECE = 1 << 16  # bytes: a single large file is cut into documents of about this size, at ends of lines
FEWEST_BYTES = 200_000  # less teaches a model nothing that a person would call writing


@dataclass(frozen=True)
class Document:
    """One text and the name it is known by."""

    name: str
    text: bytes


@dataclass(frozen=True)
class Split:
    """The documents to learn from, and those held out."""

    train: list[Document]
    heldout: list[Document]


def standard_library() -> list[Document]:
    """Every .py file of the running Python's standard library, without what was installed into it."""
    root = Path(sysconfig.get_path("stdlib"))
    paths = []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if name not in ("site-packages", "dist-packages", "__pycache__"))
        paths += [path for name in sorted(names) if (path := Path(folder, name)).suffix == ".py" and path.is_file()]
    documents = (Document(path.relative_to(root).as_posix(), path.read_bytes()) for path in paths)
    return [document for document in documents if document.text]


def files(paths: Iterable[Path]) -> list[Document]:
    """The documents of the files named: split at SEPARATOR where it stands in them, else a file each.

    One document alone is cut into many, at ends of lines, so that some can be held out. Raises ValueError, naming the
    file, for one that is empty or no text; the file's own OSError for one that cannot be read.
    """
    documents = []
    for path in paths:
        text = path.read_bytes()
        if not text.strip():
            raise ValueError(f"{path} is empty; give a file with text in it")
        if b"\0" in text:
            raise ValueError(f"{path} is a binary file (it has NUL bytes in it); give a file of text")
        try:
            text.decode()
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path} is not UTF-8 (byte {error.start:,}); convert it first, or give another file"
            ) from None
        parts = [part for part in text.split(SEPARATOR.encode()) if part.strip()]
        documents += [
            Document(f"{path.name}#{i}" if len(parts) > 1 else path.name, part) for i, part in enumerate(parts)
        ]
    if len(documents) == 1:
        documents = [Document(f"{documents[0].name}#{i}", part) for i, part in enumerate(_pieces(documents[0].text))]
    return documents


def _pieces(text: bytes) -> list[bytes]:
    parts, begin = [], 0
    size = min(PIECE, max(1, len(text) // 40))
    while begin < len(text):
        end = text.find(b"\n", begin + size) + 1
        parts.append(text[begin : end or len(text)])
        begin = end or len(text)
    return parts


TOGETHER = "xz -9e, all at once"  # the name of its figure, beside those of compressors that see a document alone


def split(documents: Iterable[Document]) -> Split:
    """A tenth held out: names whose SHA-256 begins with a byte below 26.

    ValueError where too little is on either side.
    """
    parts: tuple[list[Document], list[Document]] = ([], [])
    for document in documents:
        parts[hashlib.sha256(document.name.encode()).digest()[0] < 26].append(document)
    train, heldout = parts
    size = sum(len(document.text) for document in train)
    if size < FEWEST_BYTES:
        raise ValueError(
            f"the corpus is too small: {size:,} bytes to learn from, and it takes at least {FEWEST_BYTES:,}"
        )
    if not heldout:
        raise ValueError(f"none of the {len(train)} documents falls into the tenth to be held out; give more of them")
    return Split(train, heldout)


def joined(documents: Iterable[Document]) -> bytes:
    """The documents with SEPARATOR after each."""
    return b"".join(document.text + SEPARATOR.encode() for document in documents)


def compressed_bits_per_byte(documents: list[Document]) -> dict[str, float]:
    """Bits per byte of `gzip -9` and `xz -9e` on the documents one by one, and of `xz -9e` on all of them together."""

    def sizes(document: Document) -> tuple[int, int, int]:
        text = document.text
        xz = lzma.compress(text, preset=9 | lzma.PRESET_EXTREME)
        return len(text), len(gzip.compress(text, 9, mtime=0)), len(xz)

    total = sum(len(document.text) for document in documents)
    packed = [0, 0]
    with (
        ThreadPoolExecutor(os.cpu_count()) as pool,
        progress_bar("compress", total, "B", unit_scale=True) as bar,
    ):
        for size, *both in pool.map(sizes, documents):
            packed = [sum(pair) for pair in zip(packed, both, strict=True)]
            bar.update(size)
    together = len(lzma.compress(b"".join(document.text for document in documents), preset=9 | lzma.PRESET_EXTREME))
    sizes_by_name = zip(("gzip -9", "xz -9e", TOGETHER), (*packed, together), strict=True)
    return {name: 8 * size / total for name, size in sizes_by_name}
