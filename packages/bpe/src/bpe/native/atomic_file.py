"""Files that appear whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

StrPath = str | os.PathLike[str]


def write_atomically(path: StrPath, data: bytes) -> None:
    """Write a file whole or not at all; see atomic_file."""
    with atomic_file(path) as file:
        file.write(data)


@contextmanager
def atomic_file(path: StrPath, flush: bool = True) -> Iterator[BinaryIO]:
    """A file to write, which appears under its path whole or not at all.

    flush: wait until it is on the disk. Without this a machine that loses power may later hold part of a file.

    It is a temporary file beside the path, flushed to the disk and renamed when the block ends without an error.
    A link stays one, to the new file; a device or a pipe, which nothing may take the place of, is written to as it is.
    Raises OSError with the path that was asked for.
    """
    asked, path = os.fspath(path), os.path.realpath(path)
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{os.urandom(8).hex()}.tmp")
    try:
        if os.path.exists(asked) and not os.path.isfile(asked) and not os.path.isdir(asked):
            with open(asked, "wb") as file:
                yield file
            return
        try:
            with open(temporary, "xb") as file:
                yield file
                if flush:
                    file.flush()
                    os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
        if flush and os.name == "posix":
            entry = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(entry)
            finally:
                os.close(entry)
    except OSError as error:
        if error.filename not in (None, temporary):
            raise  # of another file, that was read in the block
        raise OSError(error.errno, error.strerror, asked) from None
