"""Compressed files as streams of blocks: gzip, xz and Zstandard, in memory that does not follow the file.

A file that ends before its compressed data does is refused: the libraries' own file objects do not all notice.
"""

from __future__ import annotations

import importlib
import io
import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, BinaryIO

from bpe.corpus import remote
from bpe.native.lazy_imports import import_lock, lzma, zlib

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

BLOCK = 1 << 20  # bytes of text that a block has, about
_READ = {"gzip": 1 << 16, "xz": 1 << 16, "Zstandard": 1 << 12}  # Zstandard gives all that it can for what it is given
MAGIC = {".gz": "gzip", ".xz": "xz", ".zst": "Zstandard"}

TextBlock = tuple[bytes, int]  # a piece of text, and how many bytes of the file it took


def blocks(file: Any, kind: str, path: str) -> Iterator[TextBlock]:
    """The text of an open compressed file, block by block. kind: a value of MAGIC.

    Several members or frames after one another are one text. Raises ValueError naming `path` where the data are cut
    short, damaged or of another kind; ImportError where Zstandard has no library.
    """
    make, errors = _decompressor(kind)
    decompress, began, parts, size, bytes_read = make(), False, [], 0, 0
    while data := file.read(_READ[kind]):
        bytes_read += len(data)
        full = False
        while data or full:
            if decompress.eof:  # another member, or the zeros that pad a tape
                data = data.lstrip(b"\0") if kind != "Zstandard" else data
                if not data:
                    break
                decompress, began = make(), False
            began = True
            try:
                text, data = _feed(decompress, data, kind)
            except errors as error:
                raise ValueError(f"{path}: not whole {kind} data: {error}") from None
            full = len(text) >= BLOCK
            parts.append(text)
            size += len(text)
            if size >= BLOCK:
                yield b"".join(parts), bytes_read
                parts, size, bytes_read = [], 0, 0
    if not (began and decompress.eof):
        raise ValueError(f"{path}: the {kind} data are cut short; get the whole file")
    if parts or bytes_read:
        yield b"".join(parts), bytes_read


def kind_of(path: str | os.PathLike[str]) -> str | None:
    """Return the compression of a file by its name: a value of MAGIC, or None."""
    return MAGIC.get(os.path.splitext(os.fspath(path))[1].lower())


def reader(path: str | os.PathLike[str]) -> BinaryIO:
    """A file or a URL, open for reading, decompressed as its name says. ValueError while reading, as blocks()."""
    kind, name = kind_of(path), os.fspath(path)
    file: Any = remote.Reader(name) if remote.is_url(path) else open(path, "rb")  # noqa: SIM115
    if kind is None:
        return io.BufferedReader(file, BLOCK) if isinstance(file, remote.Reader) else file
    return io.BufferedReader(_Blocks(file, blocks(file, kind, name), name))


class _Blocks(io.RawIOBase):
    """Blocks of text as a file; closing it closes the file that they are of."""

    def __init__(self, file: Any, blocks: Iterator[TextBlock], path: str) -> None:
        self.name = path
        self._file = file
        self._blocks = blocks
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        while not self._rest:
            block = next(self._blocks, None)
            if block is None:
                return 0
            self._rest = memoryview(block[0])
        with memoryview(buffer).cast("B") as room:
            size = min(len(room), len(self._rest))
            room[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size

    def close(self) -> None:
        self._file.close()
        super().close()


def _feed(decompress: Any, data: bytes, kind: str) -> tuple[bytes, bytes]:
    """A block of text at most, where the library knows bounds, and the bytes that are still to be decompressed."""
    if kind == "gzip":
        text = decompress.decompress(data, BLOCK)
        return text, decompress.unused_data if decompress.eof else decompress.unconsumed_tail
    if hasattr(decompress, "needs_input"):  # lzma, compression.zstd: they keep what they have not used
        text = decompress.decompress(data, BLOCK)
    else:
        text = decompress.decompress(data)
    return text, decompress.unused_data if decompress.eof else b""


def _decompressor(kind: str) -> tuple[Callable[[], Any], tuple[type[Exception], ...]]:
    """(what makes a decompressor, the errors that it raises for wrong data)."""
    if kind == "gzip":
        return (lambda: zlib.decompressobj(wbits=31)), (zlib.error,)
    if kind == "xz":
        return (lambda: lzma.LZMADecompressor(format=lzma.FORMAT_XZ)), (lzma.LZMAError,)
    for name in ("compression.zstd", "zstandard"):  # Python 3.14's own, and the package that earlier ones need
        try:
            with import_lock:
                module = importlib.import_module(name)
        except ImportError:
            continue
        if name == "zstandard":
            return (lambda library=module: library.ZstdDecompressor().decompressobj()), (module.ZstdError,)
        return module.ZstdDecompressor, (module.ZstdError,)
    raise ImportError(
        "reading .zst needs Python 3.14 or the package zstandard: pip install zstandard (or groundup-bpe[zst])"
    )
