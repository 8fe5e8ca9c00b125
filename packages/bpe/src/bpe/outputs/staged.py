"""Several files that appear together, whole or not at all."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO


class Staged:
    """Files that are written under temporary names beside their places, and put there by commit().

    Those that were opened last take their places first: open the file that readers look for before its index and its
    description, and nobody finds it without them.
    """

    def __init__(self) -> None:
        self._files: list[tuple[Path, Path, BinaryIO]] = []

    def open(self, path: Path) -> BinaryIO:
        """A file to write and to seek in, which commit() flushes to the disk and renames to `path`."""
        place = Path(os.path.realpath(path))  # a link stays one, to the new file
        temporary = place.with_name(f".{place.name}.{os.urandom(8).hex()}.tmp")
        file = open(temporary, "x+b")  # noqa: SIM115 (closed by commit() or abandon())
        self._files.append((place, temporary, file))
        return file

    def commit(self) -> list[Path]:
        """Put every file in its place; returns these, in the order in which they were put there."""
        for _, _, file in self._files:
            file.flush()
            os.fsync(file.fileno())
            file.close()
        places = []
        for place, temporary, _ in reversed(self._files):
            os.replace(temporary, place)
            places.append(place)
        if os.name == "posix":
            for folder in {place.parent for place in places}:
                entry = os.open(folder, os.O_RDONLY)
                try:
                    os.fsync(entry)
                finally:
                    os.close(entry)
        self._files = []
        return places

    def abandon(self) -> None:
        """Remove what was written; after commit() nothing."""
        for _, temporary, file in self._files:
            with suppress(OSError):
                file.close()
            with suppress(OSError):
                temporary.unlink()
        self._files = []
