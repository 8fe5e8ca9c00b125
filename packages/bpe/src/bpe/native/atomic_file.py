"""Files that appear whole or not at all: written under temporary names beside their places, flushed and renamed."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import BinaryIO

StrPath = str | os.PathLike[str]

TEMPORARY = re.compile(r"\.(.+)\.[0-9a-f]{16}\.tmp")  # a temporary name; the group is the final one


def temporary_name(name: str) -> str:
    """Return another name for a file while it is written, matched by TEMPORARY."""
    return f".{name}.{os.urandom(8).hex()}.tmp"


class Staged:
    """Files that appear together, whole or not at all; those opened last, as an index and a description, first."""

    def __init__(self) -> None:
        self._files: list[tuple[str, str, BinaryIO]] = []  # target, temporary path, file

    def open(self, path: StrPath) -> BinaryIO:
        """Return a file to write and seek in, which commit() renames to `path`. A link stays one, to the new file."""
        target = os.path.realpath(path)
        folder, name = os.path.split(target)
        temporary = os.path.join(folder, temporary_name(name))
        file = open(temporary, "x+b")  # noqa: SIM115 (closed by commit() or abandon())
        self._files.append((target, temporary, file))
        return file

    def commit(self, flush: bool = True) -> list[str]:
        """Put every file in its place; returns the targets, in that order.

        flush: wait until they are on the disk. Without this a machine that loses power may later hold part of a file.
        """
        for _, _, file in self._files:
            if flush:
                file.flush()
                os.fsync(file.fileno())
            file.close()
        targets = [target for target, _, _ in reversed(self._files)]
        for target, temporary, _ in reversed(self._files):
            os.replace(temporary, target)
        self._files = []
        if flush and os.name == "posix":
            for folder in {os.path.dirname(target) for target in targets}:
                entry = os.open(folder, os.O_RDONLY)
                try:
                    os.fsync(entry)
                finally:
                    os.close(entry)
        return targets

    def abandon(self) -> None:
        """Remove what was written; after commit() nothing."""
        for _, temporary, file in self._files:
            with suppress(OSError):
                file.close()
            with suppress(OSError):
                os.unlink(temporary)
        self._files = []


def write_atomically(path: StrPath, data: bytes) -> None:
    """Write a file whole or not at all; see atomic_file."""
    with atomic_file(path) as file:
        file.write(data)


@contextmanager
def atomic_file(path: StrPath, flush: bool = True) -> Iterator[BinaryIO]:
    """A file to write, which takes its place when the block ends without an error; flush as for Staged.commit().

    A device or a pipe, which no file may replace, is written to directly. Raises OSError with the path that was passed.
    """
    name, staged = os.fspath(path), Staged()
    try:
        if os.path.exists(name) and not os.path.isfile(name) and not os.path.isdir(name):
            with open(name, "wb") as file:
                yield file
            return
        try:
            yield staged.open(name)
            staged.commit(flush)
        finally:
            staged.abandon()
    except OSError as error:
        if error.filename is not None and not is_temporary(error.filename):
            raise  # of another file, that was read in the block
        raise OSError(error.errno, error.strerror, name) from None


def is_temporary(path: StrPath) -> bool:
    """True for the path of a file that is being written."""
    return TEMPORARY.fullmatch(os.path.basename(os.fspath(path))) is not None
