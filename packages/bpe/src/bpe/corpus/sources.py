"""Corpora: whatever may be trained on or encoded, as texts and as stretches of them, in bounded memory.

A small file is read whole; a larger one, a compressed one, a pipe, an open file or a URL is read as a stream, which is
cut into stretches where a cut changes nothing. Nothing is memory-mapped: a file that another program cuts short while
its map is read would end the process (SIGBUS). The lines of a JSON file, the rows of a Parquet file and the items of
an iterable are texts of their own.
"""

from __future__ import annotations

import codecs
import io
import os
import stat
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, contextmanager
from typing import Any, BinaryIO, NamedTuple, NoReturn

from bpe.corpus import compressed, remote
from bpe.native.arrow import as_text, pyarrow
from bpe.native.atomic_file import StrPath
from bpe.native.json_lines import parse_line
from bpe.native.lazy_imports import import_lock, json

Buffer = bytes | bytearray | memoryview

MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
SMALL = 1 << 20  # bytes up to which a file is read whole
BLOCK = 1 << 20  # bytes of a stream that are read at a time
CUT_SEARCH = 4 << 10  # within these bytes there is nearly always a position to cut
ENDINGS = (".txt", ".jsonl", ".ndjson", ".json", ".parquet", *compressed.MAGIC)


class PlainText(NamedTuple):
    """A file that is one text, whatever its name says; decompressed where that ends in .gz, .xz or .zst."""

    path: StrPath


class JsonLines(NamedTuple):
    """A file with a JSON object on each line, the text of each under `key`; decompressed as its name says."""

    path: StrPath
    key: str = "text"


class Parquet(NamedTuple):
    """A Parquet file, the text of each row in `column`; rows without one are left out. Needs pyarrow."""

    path: StrPath
    column: str = "text"


File = PlainText | JsonLines | Parquet
Source = StrPath | File | BinaryIO | Iterable[str | bytes | os.PathLike[str] | File | BinaryIO]


class Document(NamedTuple):
    """A text that lies in memory; `read` is how many bytes of a file it took."""

    data: Buffer
    read: int


Stream = Iterator[compressed.TextBlock]  # a text with one block in memory at a time


class LargeFile:
    """A file that is one text, read a block at a time as a stream is, or anywhere by read().

    size: its bytes when it was opened; bytes that are appended later are not read.
    """

    def __init__(self, file: Any, size: int) -> None:
        self._file, self.size = file, size

    def __iter__(self) -> Iterator[compressed.TextBlock]:
        for begin in range(0, self.size, BLOCK):
            block = self.read(begin, BLOCK)
            yield block, len(block)

    def read(self, begin: int, size: int) -> bytes:
        """Bytes of the file from a position on, as many as there are. ValueError if it was cut short meanwhile."""
        size = min(size, self.size - begin)
        self._file.seek(begin)
        block: bytes = self._file.read(size)
        while len(block) < size and (more := self._file.read(size - len(block))):  # a read gives 2 GiB at most
            block += more
        if len(block) < size:
            raise ValueError(
                f"{self._file.name}: expected {self.size:,} bytes, got {begin + len(block):,}: the file was cut short "
                "while it was read; read it again when no other program writes to it"
            )
        return block


class Stretch(NamedTuple):
    """text[begin:end], cut where that changes nothing; `read` is how many bytes of the source it took.

    first, last: whether the text begins and ends with it.
    """

    text: Buffer
    begin: int
    end: int
    read: int
    first: bool
    last: bool


def file_of(path: StrPath, key: str = "text") -> File:
    """A path as what its name says: .parquet, .jsonl, .ndjson and .json (.json.gz too…), and any other a text."""
    name = _decompressed_name(path)
    if name.endswith(".parquet"):
        return Parquet(path, key)
    if name.endswith((".jsonl", ".ndjson", ".json")):
        return JsonLines(path, key)
    return PlainText(path)


def _decompressed_name(path: StrPath) -> str:
    """Return the name without .gz, .xz and .zst, in lower case: its ending tells the kind of the file."""
    name = os.fspath(path).lower()
    for suffix in compressed.MAGIC:
        name = name.removesuffix(suffix)
    return name


def files_of(source: Source) -> list[File] | None:
    """The files that a source names, or None where it holds texts, open files, or is an iterator.

    A str or a path is one file. A list or tuple names files where every item is a path or a File. A str in it is a
    text, whatever files there are.

    TypeError where every item of a list is a str that looks like the name of a file, hardly a text.
    """
    if isinstance(source, (str, os.PathLike)):
        return [file_of(source)]
    if isinstance(source, File):
        return [source]
    if isinstance(source, (list, tuple)) and source:
        if all(isinstance(item, (os.PathLike, File)) for item in source):
            return [item if isinstance(item, File) else file_of(item) for item in source]
        if all(map(_is_like_a_name, source)):
            raise TypeError(
                f"in a list a str is a text, and each of these looks like the name of a file, as {source[0]!r} does: "
                "give pathlib.Path objects for files, or an iterator for texts"
            )
    return None


def _is_like_a_name(item: object) -> bool:
    """True for one word that ends as the name of a file does."""
    return isinstance(item, str) and len(item) < 4096 and item.lower().endswith(ENDINGS) and len(item.split()) == 1


def size_of(source: Source) -> int | None:
    """The bytes of the files that a source names; None where that is known at its end only: an iterable, a pipe."""
    files = files_of(source)
    if files is None:
        return None
    sizes = [size_of_file(file.path) for file in files]
    return None if None in sizes else sum(size or 0 for size in sizes)


def size_of_file(path: StrPath) -> int | None:
    """The bytes of a file, or what a URL names; None for a pipe, or where a server does not say."""
    if remote.is_url(path):
        size: int | None = remote.version_of(os.fspath(path))[0]
        return size
    state = os.stat(path)
    return state.st_size if stat.S_ISREG(state.st_mode) else None


def version_of(path: StrPath) -> list[Any]:
    """By what a file is known again, as plain values: its size and when it was changed."""
    if remote.is_url(path):
        return remote.version_of(os.fspath(path))
    state = os.stat(path)
    return [state.st_size, state.st_mtime_ns]


def identity(source: Source) -> list[list[Any]] | None:
    """Return kind, field, absolute path or URL, and version of each file of a source, by which a later run compares it.

    None for a source that is not a list of files.
    """
    files = files_of(source)
    if files is None:
        return None
    rows = []
    for file in files:
        field = getattr(file, "key", None) or getattr(file, "column", None)
        path = file.path if remote.is_url(file.path) else os.path.abspath(file.path)
        rows.append([type(file).__name__, field, path, *version_of(file.path)])
    return rows


def texts(source: Source) -> Iterator[Document | LargeFile | Stream]:
    """Each text of a source in turn.

    Raises the error of the file for one that cannot be read; ValueError, naming file and line, for content that
    is not what its name says; TypeError for an item that is no text. A str with lone surrogates keeps them, as the
    three bytes that each would be.
    """
    files = files_of(source)
    if files is not None:
        for file in files:
            yield from _texts_of(file)
        return
    if isinstance(source, (bytes, bytearray, memoryview)):
        raise TypeError("a source is a path, several, or an iterable of texts; put a single text into a list: [text]")
    for item in [source] if hasattr(source, "read") else source:  # type: ignore[union-attr]
        if isinstance(item, (os.PathLike, PlainText, JsonLines, Parquet)):
            yield from _texts_of(file_of(item) if isinstance(item, os.PathLike) else item)
        elif hasattr(item, "read"):
            yield as_utf8(_stream_of(item), str(getattr(item, "name", "the stream")))
        else:
            data = _bytes_of(item)
            yield Document(data, len(data))


def stretches(source: Source, cut: Callable[[Any, int], int], margin: int, size: int) -> Iterator[Stretch]:
    """The texts of a source in stretches of about `size` bytes, with the pretokens and special tokens of the whole.

    cut(text, at): the first position from `at` on where `text` may be cut, or its length, whatever comes later, as long
    as it is `margin` bytes from the end.
    """
    for text in texts(source):
        if not isinstance(text, Document):
            yield from _cut_stream(text, cut, margin, size)
        elif len(text.data) > size:
            yield from _cut_stream([text], cut, margin, size)
        elif len(text.data):
            yield Stretch(text.data, 0, len(text.data), text.read, True, True)


def _cut_stream(
    stream: Iterable[tuple[Buffer, int]], cut: Callable[[Any, int], int], margin: int, size: int
) -> Iterator[Stretch]:
    """Cut a stream into stretches: gather blocks until a stretch can be cut off."""
    parts: list[Buffer] = []
    size_read = read = 0
    first = True
    needed = size + margin + CUT_SEARCH
    for block, block_read in stream:
        parts.append(block)
        size_read, read = size_read + len(block), read + block_read
        if size_read < needed:
            continue
        data, begin = b"".join(parts), 0
        while size_read - begin > size + margin:
            end = cut(data, begin + size)
            if end + max(margin, 1) > size_read:  # the last stretch is not cut off before the end is known
                break
            yield Stretch(data, begin, end, read, first, False)
            begin, read, first = end, 0, False
        parts, size_read = [data[begin:]], size_read - begin
        # a text that cannot be cut is looked at again when it has doubled
        needed = size + margin + CUT_SEARCH if begin else 2 * size_read
    if size_read:
        yield Stretch(b"".join(parts), 0, size_read, read, first, True)


# One kind of file after another


def _texts_of(file: File) -> Iterator[Document | LargeFile | Stream]:
    if isinstance(file, Parquet):
        yield from rows(file)
    elif isinstance(file, JsonLines):
        yield from _lines(file)
    elif compressed.kind_of(file.path) is not None or _is_stream(file.path):
        with closing(_blocks(file.path)) as stream:
            yield as_utf8(stream, os.fspath(file.path))
    else:
        with open(file.path, "rb", buffering=0) as opened:
            size = os.fstat(opened.fileno()).st_size
            large = LargeFile(opened, size)
            data = large.read(0, 2) if size > SMALL else opened.read()
            if bytes(data[:2]) in MARKS:
                opened.seek(0)
                yield as_utf8(_stream_of(opened), os.fspath(file.path))
            else:
                yield large if size > SMALL else Document(data, len(data))


def as_utf8(stream: Stream, name: str) -> Stream:
    """Yield the blocks of a text: UTF-16 with a byte order mark, as Windows writes it, as UTF-8.

    ValueError, which names the text, where it begins as UTF-16 does and is not.
    """
    decoder: codecs.IncrementalDecoder | None = None
    for number, (block, size) in enumerate(stream):
        if number == 0 and bytes(block[:2]) in MARKS:
            decoder = codecs.getincrementaldecoder("utf-16")()
        yield (block, size) if decoder is None else (_decoded(decoder, block, name), size)
    if decoder is not None:
        yield _decoded(decoder, b"", name), 0


def _decoded(decoder: codecs.IncrementalDecoder, block: bytes, name: str) -> bytes:
    try:
        return decoder.decode(block, final=not block).encode()
    except UnicodeDecodeError as error:
        raise ValueError(f"{name}: UTF-16 by its first two bytes, but {error.reason} follows") from None


def _is_stream(path: StrPath) -> bool:
    """True for a URL, a pipe or a device. It is looked at before it is opened: a pipe can be opened once."""
    return remote.is_url(path) or not (os.path.isfile(path) or os.path.isdir(path) or not os.path.exists(path))


def _blocks(path: StrPath) -> Generator[compressed.TextBlock, None, None]:
    """The text of a file as a stream, decompressed as its name says."""
    kind, name = compressed.kind_of(path), os.fspath(path)
    with remote.Reader(name) if remote.is_url(path) else open(path, "rb", buffering=0 if kind is None else -1) as file:
        yield from _stream_of(file) if kind is None else compressed.blocks(file, kind, name)


def _stream_of(file: Any) -> Iterator[compressed.TextBlock]:
    """Yield the rest of an open file as a stream."""
    while True:
        block = file.read(BLOCK)
        if not block:
            return
        data = bytes(_bytes_of(block))
        yield data, len(data)


def _bytes_of(item: object) -> bytes | bytearray | memoryview:
    if isinstance(item, str):
        return item.encode("utf-8", "surrogatepass")
    if isinstance(item, (bytes, bytearray, memoryview)):
        return item
    raise TypeError(f"the items of a source are str or bytes, not {type(item).__name__}")


def _lines(file: JsonLines) -> Iterator[Document]:
    """The texts of a file of JSON lines; blank lines are none."""
    number = 0
    parts: list[bytes] = []  # of a line that goes on in the next block
    with closing(_blocks(file.path)) as stream:
        for block, read in stream:
            *lines, rest = block.split(b"\n")
            if lines:
                lines[0] = b"".join([*parts, lines[0]])
                parts = []
            parts.append(rest)
            for line in lines:
                number += 1
                if line.strip():
                    yield Document(text_of_line(line, number, file), read)
                    read = 0
    last = b"".join(parts)
    if last.strip():
        yield Document(text_of_line(last, number + 1, file), 0)


def text_of_line(line: bytes, number: int, file: JsonLines) -> bytes:
    """The text under the key of the object on a line. ValueError, with file and line, where there is none."""
    name = os.fspath(file.path)
    is_json = _decompressed_name(name).endswith(".json")
    hint = "; a .json is read as JSON lines, an object on each line" if is_json else ""

    def refuse(reason: str) -> NoReturn:
        raise ValueError(f"{name}, line {number}: {reason}{hint}") from None

    try:
        value = parse_line(line, name, number)
    except ValueError as error:
        raise ValueError(f"{error}{hint}") from None

    if not isinstance(value, dict):
        refuse(f"a JSON object with the key {file.key!r} is expected, not {type(value).__name__}")
    if file.key not in value:
        refuse(f"no key {file.key!r}; there are {', '.join(map(repr, list(value)[:8])) or 'none'}")
    text = value[file.key]
    if not isinstance(text, str):
        refuse(f"the value of {file.key!r} is not a string but {json.dumps(text)[:40]}")
    return text.encode("utf-8", "surrogatepass")


def rows(file: Parquet, groups: range | None = None) -> Iterator[Document]:
    """The texts of a Parquet file, a batch of rows in memory at a time; of these row groups only, if they are named."""
    with _column_of(file) as parquet:
        size, total, done = size_of_file(file.path) or 0, max(1, parquet.metadata.num_rows), 0
        for batch in parquet.iter_batches(batch_size=256, row_groups=groups, columns=[file.column]):
            read = size * (done + len(batch)) // total - size * done // total
            done += len(batch)
            for text in as_text(batch.column(0)).cast(pyarrow().large_binary()).to_pylist():
                if text is not None:
                    yield Document(text, read)
                    read = 0


def row_group_sizes(file: Parquet) -> list[int]:
    """The bytes of each row group of a Parquet file, before compression."""
    with _column_of(file) as parquet:
        about = parquet.metadata
        return [about.row_group(group).total_byte_size for group in range(about.num_row_groups)]


@contextmanager
def _column_of(file: Parquet) -> Iterator[Any]:
    """pyarrow's ParquetFile, with a column of texts."""
    path = os.fspath(file.path)
    with open_parquet(path, [file.column]) as parquet:
        try:
            as_text(pyarrow().array([], parquet.schema_arrow.field(file.column).type))
        except TypeError as error:
            raise ValueError(f"{path}, column {file.column!r}: {error}") from None
        yield parquet


@contextmanager
def open_parquet(path: str, columns: list[str]) -> Iterator[Any]:
    """pyarrow's ParquetFile, with these columns. A file that is wrong is a ValueError that names it."""
    size_of_file(path)  # a file that is not there is a FileNotFoundError, not Arrow's own
    try:
        with import_lock:
            import pyarrow
            import pyarrow.parquet
    except ImportError:
        raise ImportError(f"{path}: reading Parquet needs pyarrow: pip install groundup-bpe[parquet]") from None
    try:
        opened = io.BufferedReader(remote.Reader(path), BLOCK) if remote.is_url(path) else path
        with pyarrow.parquet.ParquetFile(opened, buffer_size=BLOCK, pre_buffer=False) as parquet:
            names = parquet.schema_arrow.names
            missing = [name for name in columns if name not in names]
            if missing:
                raise ValueError(f"{path}: no column {missing[0]!r}; there are {', '.join(names)}")
            yield parquet
    except (pyarrow.ArrowException, OSError) as error:
        if isinstance(error, ConnectionError) or (isinstance(error, OSError) and error.filename is not None):
            raise
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise ValueError(f"{path}: not a whole Parquet file: {reason}") from None
