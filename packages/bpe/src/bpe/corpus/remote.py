"""Files by URL, through fsspec: read as streams that a broken connection does not end, written whole or not at all.

s3://bucket/name, gs://…, az://…, https://…, and whatever else fsspec has a filesystem for. Needs fsspec, and the
package of the filesystem (s3fs, gcsfs, adlfs, aiohttp).
"""

from __future__ import annotations

import errno
import io
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from bpe.native.atomic_file import StrPath, atomic_file, temporary_name
from bpe.native.lazy_imports import import_lock, pathlib, tempfile

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

Result = TypeVar("Result")

ATTEMPTS = 5  # at what may fail for a moment
FIRST_WAIT = 0.5  # seconds before the second; each later one waits twice as long
BLOCK = 1 << 22  # bytes that are asked for at a time
# Protocols of stores that show a file only when all of it has come.
OBJECT_STORES = frozenset(("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oss", "oci", "r2"))
URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


def is_url(name: object) -> bool:
    """True if a name is a URL, not a path."""
    return isinstance(name, str) and URL.match(name) is not None


def name_of(url: str) -> str:
    """The last part of a URL. ValueError where it names no file."""
    name = url.rstrip("/").rpartition("/")[2]
    if not name or url.endswith("/"):
        raise ValueError(f"{url} names no file: end it with one")
    return name


def inside(folder: str, name: str) -> str:
    """The path, or the URL, of a file in a folder."""
    return f"{folder.rstrip('/')}/{name}" if is_url(folder) else os.path.join(folder, name)


def beside(url: str, name: str) -> str:
    """The URL, or path, of another file in the same folder."""
    return url.rpartition("/")[0] + "/" + name


def remove(target: str) -> None:
    """Remove a file, by URL or path."""
    if is_url(target):
        files, path = _fresh(target)
        again(lambda: files.rm_file(path), target)
    else:
        os.unlink(target)


def filesystem(url: str) -> tuple[Any, str]:
    """fsspec's filesystem of a URL, and the path in it. ImportError that says what to install."""
    try:
        with import_lock:
            import fsspec
    except ImportError:
        raise ImportError(f"{url}: files by URL need fsspec: pip install groundup-bpe[remote]") from None
    files_and_path: tuple[Any, str] = fsspec.core.url_to_fs(url)
    return files_and_path


def _fresh(url: str) -> tuple[Any, str]:
    files, path = filesystem(url)
    files.invalidate_cache(path)  # what was listed before may have changed
    return files, path


def about(url: str) -> dict[str, Any]:
    """Return the filesystem's entry of a file. FileNotFoundError if there is none."""
    files, path = _fresh(url)
    info: dict[str, Any] = again(lambda: files.info(path), url)
    if info.get("type") == "directory":
        raise IsADirectoryError(errno.EISDIR, "a folder, where a file is expected", url)
    return info


def is_there(url: str) -> bool:
    """True if there is such a file or folder, by URL or path."""
    if not is_url(url):
        return os.path.exists(url)
    files, path = _fresh(url)
    return bool(again(lambda: files.exists(path), url))


def version_of(url: str) -> list[Any]:
    """By what a file is known again: its size, and its ETag or the time of its last change, where there are such."""
    return _version(about(url))


def versions_of(urls: Iterable[str]) -> dict[str, list[Any]]:
    """Return version_of() of files of object stores, by URL, from one listing of each folder.

    Paths are absent, and URLs whose store does not list files, or whose listing lacks them.
    """
    folders: dict[str, list[str]] = {}
    for url in filter(is_url, urls):
        folders.setdefault(url.rpartition("/")[0], []).append(url)
    versions: dict[str, list[Any]] = {}
    for folder, names in folders.items():
        files, path = _fresh(folder)
        if len(names) > 1 and _protocols(files) & OBJECT_STORES:
            entries = again(lambda files=files, path=path: files.ls(path, detail=True), folder)  # type: ignore[misc]
            infos = {entry["name"].rpartition("/")[2]: entry for entry in entries if entry.get("type") == "file"}
            versions |= {url: _version(infos[name_of(url)]) for url in names if name_of(url) in infos}
    return versions


def _protocols(files: Any) -> set[str]:
    return {files.protocol} if isinstance(files.protocol, str) else set(files.protocol)


def _version(info: dict[str, Any]) -> list[Any]:
    marks = (info.get(name) for name in ("ETag", "etag", "md5Hash", "LastModified", "mtime"))
    return [info.get("size"), next((str(mark) for mark in marks if mark is not None), None)]


def matching(pattern: str) -> list[str]:
    """The files that a URL names: with * or ? in it, those that match; a folder, those in it; else itself. Sorted."""
    files, path = filesystem(pattern)
    if re.search(r"[*?\[]", path):
        names = again(lambda: files.glob(path), pattern)
    elif again(lambda: files.isdir(path), pattern):
        names = again(lambda: files.find(path), pattern)
    else:
        return [pattern]
    urls = [str(files.unstrip_protocol(name)) for name in sorted(names)]
    if not urls:
        raise FileNotFoundError(errno.ENOENT, "no file has such a name", pattern)
    return urls


class Reader(io.RawIOBase):
    """A file by URL, read in order or anywhere. After a broken connection it goes on where it was.

    Raises ConnectionError where it breaks ATTEMPTS times in a row, or where the file ends before its size; ValueError
    where another was put in its place meanwhile.
    """

    _file: Any = None

    def __init__(self, url: str) -> None:
        self.name, self._at = url, 0
        self._files, self._path = filesystem(url)
        info = about(url)
        self._size: int | None = info.get("size")
        self._version = _version(info)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return self._size is not None

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size or 0}[whence]
        return self._at

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        with memoryview(buffer).cast("B") as room:
            count = len(room) if self._size is None else max(0, min(len(room), self._size - self._at))
            data = again(lambda: self._read(count), self.name) if count else b""
            if count and not data and self._size is not None:
                reason = f"{self._at:,} of {self._size:,} bytes came; it is cut short, or was changed"
                raise ConnectionError(f"{self.name}: {reason}")
            room[: len(data)] = data
        self._at += len(data)
        return len(data)

    def _read(self, count: int) -> bytes:
        try:
            if self._file is None:
                if self._at:
                    self._files.invalidate_cache(self._path)
                    if _version(self._files.info(self._path)) != self._version:
                        raise ValueError(f"{self.name} was changed while it was read: read it again from its beginning")
                self._file = self._files.open(self._path, "rb", cache_type="readahead", block_size=BLOCK)
            if self._file.tell() != self._at:
                if not self._file.seekable():
                    raise ConnectionError("it broke, and the server sends files from their beginning only")
                self._file.seek(self._at)
            return bytes(self._file.read(count))
        except BaseException:
            self._close_file()
            raise

    def _close_file(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with suppress(Exception):  # of a connection that is broken already
                file.close()

    def close(self) -> None:
        self._close_file()
        super().close()


def opened(source: StrPath) -> BinaryIO:
    """A file, or what a URL names, to be read anywhere."""
    return io.BufferedReader(Reader(os.fspath(source)), 1 << 20) if is_url(source) else open(source, "rb")


def read_bytes(url: str) -> bytes:
    """All of a small file, by URL or path."""
    if not is_url(url):
        with open(url, "rb") as file:
            return file.read()
    files, path = _fresh(url)
    return bytes(again(lambda: files.cat_file(path), url))


@contextmanager
def output(target: StrPath) -> Iterator[BinaryIO]:
    """A file to write, which appears at a path or a URL whole or not at all."""
    if not is_url(target):
        with atomic_file(target) as file:
            yield file
        return
    url = os.fspath(target)
    with tempfile.TemporaryDirectory(prefix="bpe-") as folder:
        here = pathlib.Path(folder, name_of(url))
        with open(here, "wb") as file:
            yield file
        upload(here, url)


@contextmanager
def copied(url: str, *others: str) -> Iterator[pathlib.Path]:
    """A copy of a small file on this machine while the block lasts; `others` of its folder beside it."""
    with tempfile.TemporaryDirectory(prefix="bpe-") as folder:
        here = pathlib.Path(folder, name_of(url))
        here.write_bytes(read_bytes(url))
        for name in others:
            pathlib.Path(folder, name).write_bytes(read_bytes(beside(url, name)))
        yield here


def upload(file: pathlib.Path, url: str) -> None:
    """Put a file there, whole or not at all; what was there is replaced.

    An object store shows a file when all of it has come. Elsewhere it comes under a temporary name, and is renamed.
    """
    files, path = filesystem(url)
    if _protocols(files) & OBJECT_STORES:
        again(lambda: files.put_file(os.fspath(file), path), url)
    else:
        folder, _, name = path.rpartition("/")
        temporary = f"{folder}/{temporary_name(name)}"
        again(lambda: files.makedirs(folder, exist_ok=True), url)
        try:
            again(lambda: files.put_file(os.fspath(file), temporary), url)
            _check_size(files, temporary, file, url)
            again(lambda: files.mv(temporary, path), url)
        except BaseException:
            with suppress(Exception):  # the first error is the one to be told of
                if files.exists(temporary):
                    files.rm_file(temporary)
            raise
    _check_size(files, path, file, url)


def _check_size(files: Any, path: str, file: pathlib.Path, url: str) -> None:
    files.invalidate_cache(path)
    came = again(lambda: files.size(path), url)
    if came != file.stat().st_size:
        raise ConnectionError(f"{url}: {came:,} of {file.stat().st_size:,} bytes came")


def again(work: Callable[[], Result], url: str) -> Result:
    """work(), tried again where the connection breaks. ConnectionError, which names the URL, where it does not help."""
    problem: Exception | None = None
    for attempt in range(ATTEMPTS):
        if attempt:
            time.sleep(FIRST_WAIT * 2 ** (attempt - 1))
        try:
            return work()
        except FileNotFoundError as error:
            raise FileNotFoundError(errno.ENOENT, "there is no such file, or no such bucket", url) from error
        except PermissionError as error:
            raise PermissionError(errno.EACCES, f"access is denied ({error})", url) from error
        except (IsADirectoryError, ImportError):
            raise
        except (ValueError, TypeError, KeyError, RuntimeError):  # a wrong request, or what the filesystem lacks
            raise
        except Exception as error:  # each filesystem has errors of its own for what a network does
            problem = error
    raise ConnectionError(f"{url}: {type(problem).__name__}: {problem}") from problem
