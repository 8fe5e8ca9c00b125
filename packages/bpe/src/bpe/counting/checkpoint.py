"""A training run on disk: what it is of, its counts, and its merges as they come.

about.json  the corpus' files (path, size, time of change) and all arguments that the counts and merges depend on
counts      the counts (see bpe.counting.counts_file): written once, whole or not at all
merges      a header with the SHA-256 of the counts, and 20 bytes for each merge, chained by CRC-32: appended to; what
            is cut short at its end is ignored
lock        held by the process that trains, and let go of when it dies, however it does
"""

from __future__ import annotations

import json
import os
import struct
import sys
import time
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from bpe.corpus import sources
from bpe.counting import counts_file
from bpe.native.atomic_file import write_atomically

if TYPE_CHECKING:
    from bpe.counting.records import Records

_MAGIC = b"bpe merges 1\n\0\0\0"
_MERGE = struct.Struct("<IIqI")  # left symbol, right symbol, count, CRC-32 of these and the CRC before
_HEADER = 16 + 32
SYNC = 1.0  # seconds between two times that the merges are made to reach the disk

Merge = tuple[int, int, int]  # left symbol, right symbol, count


def identity(source: sources.Source) -> list[list[Any]]:
    """What a corpus is known by when a run is taken up again: kind, path, size and time of change of each file, sorted.

    ValueError for a corpus that is no files: it could not be known again.
    """
    files = sources.files_of(source)
    if files is None:
        raise ValueError(
            "a checkpoint needs a corpus of files, which can be known again; write this one to a file, or train without"
        )
    found = []
    for file in files:
        about = os.stat(file.path)
        field = getattr(file, "key", None) or getattr(file, "column", None)
        found.append([type(file).__name__, field, os.path.abspath(file.path), about.st_size, about.st_mtime_ns])
    return sorted(found, key=repr)


class Checkpoint:
    """The folder of a run; made where there is none. A context manager, which holds the lock.

    about: {name: JSON value}, all that the counts and the merges depend on, "corpus" among them as identity() gives it.
    Raises ValueError where the folder is that of another run, saying what differs, or where another process is at it.
    """

    def __init__(self, folder: str | os.PathLike[str], about: Mapping[str, Any]) -> None:
        self._folder = Path(folder)
        self._about = json.loads(json.dumps(dict(about)))
        self._lock: BinaryIO | None = None
        self._log: BinaryIO | None = None
        self._crc = 0
        self._synced = 0.0
        self._digest = b""

    def __enter__(self) -> Checkpoint:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = _locked(self._folder / "lock", self._folder)
        try:
            for left_over in (*self._folder.glob(".counts.*"), *self._folder.glob(".about.json.*")):
                left_over.unlink()  # of a process that was killed while it wrote
            self._compare()
        except BaseException:
            self._lock.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self._log is not None:
                self._sync()
                self._log.close()
        finally:
            if self._lock is not None:
                self._lock.close()

    def _compare(self) -> None:
        path = self._folder / "about.json"
        if not path.exists():
            strangers = [one.name for one in self._folder.iterdir() if one.name not in ("lock", "counts", "merges")]
            if any(not name.startswith(".") for name in strangers):
                raise ValueError(
                    f"{self._folder}: no checkpoint, but not empty either; name a folder of its own for it"
                )
            (self._folder / "counts").unlink(missing_ok=True)
            write_atomically(path, json.dumps(self._about, indent=1).encode() + b"\n")
            return
        try:
            kept = json.loads(path.read_bytes())
            if not isinstance(kept, dict):
                raise ValueError
        except (ValueError, RecursionError):
            raise ValueError(f"{path}: not readable as JSON; delete the folder {self._folder}") from None
        for name, value in self._about.items():
            if kept.get(name) != value:
                there, here = (json.dumps(one) for one in (kept.get(name), value))
                difference = f"its {name} is {there}, not {here}"
                if name == "corpus":
                    difference = f"its corpus is not this one: {_first_difference(kept.get(name), value)}"
                raise ValueError(
                    f"{self._folder} is the checkpoint of another run: {difference}; name another folder, or delete it"
                )

    # Counts

    def counts(self) -> Records | None:
        """The records, as the map of their file; None where they are not there yet, or damaged."""
        try:
            _, records, self._digest = counts_file.read(self._folder / "counts")
        except (FileNotFoundError, ValueError):
            return None
        return records

    def write_counts(self, records: Records, source: sources.Source) -> None:
        """Keep the records, whole or not at all. ValueError where the source is no longer what it was."""
        if identity(source) != self._about["corpus"]:
            raise ValueError("the corpus was changed while it was counted; train again, on files that rest")
        self._digest = counts_file.write(self._folder / "counts", None, [records])

    # Merges

    def merges(self) -> list[Merge]:
        """The merges that were kept, in order. From here on append() goes on after them."""
        path = self._folder / "merges"
        header = _MAGIC + self._digest
        data = path.read_bytes() if path.exists() else b""
        found: list[Merge] = []
        self._crc = zlib.crc32(header)
        if data[:_HEADER] == header:
            for at in range(_HEADER, len(data) - _MERGE.size + 1, _MERGE.size):
                left, right, count, crc = _MERGE.unpack_from(data, at)
                if zlib.crc32(data[at : at + 16], self._crc) != crc:
                    break
                self._crc = crc
                found.append((left, right, count))
        self._log = open(path, "r+b" if found else "wb")  # noqa: SIM115 (closed by __exit__)
        if not found:
            self._log.write(header)
        self._log.truncate(_HEADER + len(found) * _MERGE.size)
        self._log.seek(0, os.SEEK_END)
        self._synced = time.monotonic()
        return found

    def append(self, left: int, right: int, count: int) -> None:
        """Keep one more merge; it reaches the disk within about a second."""
        if self._log is None:
            raise ValueError("merges() comes before append()")
        record = struct.pack("<IIq", left, right, count)
        self._crc = zlib.crc32(record, self._crc)
        self._log.write(record + struct.pack("<I", self._crc))
        if time.monotonic() - self._synced > SYNC:
            self._sync()

    def _sync(self) -> None:
        if self._log is not None:
            try:
                self._log.flush()
                os.fsync(self._log.fileno())
            except OSError as error:
                raise OSError(error.errno, error.strerror, os.fspath(self._folder / "merges")) from None
            self._synced = time.monotonic()


def _first_difference(kept: Any, here: list[list[Any]]) -> str:
    """Which file makes two corpora differ."""
    if not (isinstance(kept, list) and all(isinstance(one, list) and len(one) > 3 for one in kept)):
        return "what it was is not readable"
    kept = {tuple(map(str, one[:3])): one for one in kept}
    for one in here:
        other = kept.pop(tuple(map(str, one[:3])), None)
        if other is None:
            return f"{one[2]} was not in it"
        if other != one:
            return f"{one[2]} has changed since"
    return f"{next(iter(kept))[2]} was in it" if kept else "a file is given another number of times"


def _locked(path: Path, folder: Path) -> BinaryIO:
    """The lock file, open and locked; the system lets go of it when the process ends."""
    file = open(path, "a+b")  # noqa: SIM115 (open for as long as the lock is held)
    try:
        if sys.platform == "win32":
            import msvcrt

            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file.fileno(), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        file.close()
        raise ValueError(
            f"{folder}: another process is training with this checkpoint; wait for it, or name another folder"
        ) from None
    return file
