"""The shards of an output: one file, or several of a bounded size with a record of how far they are.

OUT-00000.npy, OUT-00001.npy, …   the shards of OUT.npy, each whole
OUT.shards.json                   the settings, where in the source the last shard ends, and if the run is finished
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bpe.corpus import remote
from bpe.outputs.writer import Writer

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class Done(NamedTuple):
    """Progress of a run: the number of shards, and of ids in all; the next id is number `id` of stretch `stretch`."""

    shards: int = 0
    ids: int = 0
    stretch: int = 0
    id: int = 0


class Shards:
    """The files that ids are written to, one shard after another.

    path: the local file; shards get a number before its ending, and go to `url`, if there is one, when they are whole.
    settings: inputs that determine the output, shard_tokens among them (None: one file). A run goes on only where all
    of them are the same.

    Attributes:
        done: Progress of the shards that are whole.
        finished: True if an earlier run has written all.
        total: Number of ids written.
        holds_documents: True if the shard being written holds a whole document.
    """

    def __init__(self, path: Path, url: str | None, make: Callable[[Path], Writer], settings: Any) -> None:
        self.path, self.url, self.make = path, url, make
        self.settings = json.loads(json.dumps(settings))
        self.shard_tokens: int | None = settings["shard_tokens"]
        self.done, self.finished = Done(), False
        if self.shard_tokens is not None:
            self._read_record()
        self.total = self.done.ids
        self.holds_documents = False
        self._to_skip = self.done.id
        self._writer: Writer | None = None
        self._begin()

    def skip(self, count: int) -> int:
        """Return how many of the next `count` ids the finished shards have; called for every group in turn."""
        skipped = min(self._to_skip, count)
        self._to_skip -= skipped
        return skipped

    def room(self) -> int | None:
        """Return the number of ids for which the current shard has room."""
        return None if self.shard_tokens is None else self.shard_tokens - self._count

    def write(self, ids: NDArray[np.uint32], ends: NDArray[np.int64], size: int) -> None:
        """Write ids that there is room for, the positions where documents end, and the bytes they stand for."""
        if self._writer is None:
            self._writer = self.make(self._file())
        self._digest.update(self._writer.write(ids, ends))
        self._count += len(ids)
        self._bytes += size
        self._documents += len(ends)
        self.holds_documents = self.holds_documents or len(ends) > 0
        self.total += len(ids)

    def close(self, position: tuple[int, int]) -> None:
        """End the shard; the next begins at a stretch, and an id of it."""
        self._put_in_place()
        self.done = Done(self.done.shards + 1, self.total, *position)
        self._write_record(finished=False)
        self._begin()

    def finish(self) -> None:
        """End the last shard; there is one at least."""
        if self._writer is not None or self.done.shards == 0:
            if self._writer is None:
                self._writer = self.make(self._file())
            self._put_in_place()
            self.done = self.done._replace(shards=self.done.shards + 1, ids=self.total)
        if self.shard_tokens is not None:
            self._write_record(finished=True)

    def abandon(self) -> None:
        """Leave nothing of the shard that is being written; those that are whole stay."""
        if self._writer is not None:
            self._writer.abandon()
            self._writer = None

    def _begin(self) -> None:
        self._count = self._bytes = self._documents = 0
        self._digest = hashlib.sha256()
        self.holds_documents = False

    def _file(self) -> Path:
        if self.shard_tokens is None:
            return self.path
        return self.path.with_name(f"{self.path.stem}-{self.done.shards:05}{self.path.suffix}")

    def _put_in_place(self) -> None:
        assert self._writer is not None
        about = {
            "count": self._count,
            "dtype": self._writer.dtype.name,
            "bytes": self._bytes,
            "tokenizer": self.settings["tokenizer"],
            "end_of_text": self.settings["end_of_text"],
            "sha256": self._digest.hexdigest(),  # of the ids as they lie in the file, whatever is around them
        }
        if self.settings["format"] != "npy":
            about |= {"format": self.settings["format"], "documents": self._documents}
        paths = self._writer.finish(about)
        self._writer = None
        if self.url is not None:
            for file in paths:
                remote.upload(file, remote.beside(self.url, file.name))
                file.unlink()

    # The record

    def _record(self) -> str:
        """Return the path or URL of the record."""
        name = f"{self.path.stem}.shards.json"
        return str(self.path.with_name(name)) if self.url is None else remote.beside(self.url, name)

    def _read_record(self) -> None:
        """Take from the record how far an earlier run came."""
        record = self._record()
        try:
            data = remote.read_bytes(record)
        except FileNotFoundError:
            return
        try:
            says = json.loads(data)
            there, done, finished = says["settings"], Done(**says["done"]), bool(says["finished"])
        except (ValueError, KeyError, TypeError):
            raise ValueError(f"{record} is damaged: remove it and the shards, and begin again") from None
        for key in sorted(self.settings.keys() | there.keys()):
            if self.settings.get(key) != there.get(key):
                raise ValueError(
                    f"{record} was begun with {key} = {there.get(key)!r}, and this call asks for "
                    f"{self.settings.get(key)!r}: ask for the same to go on, or write to another name"
                )
        self.done, self.finished = done, finished

    def _write_record(self, *, finished: bool) -> None:
        """Write how far the run is."""
        says = {"finished": finished, "done": self.done._asdict(), "settings": self.settings}
        with remote.output(self._record()) as file:
            file.write(json.dumps(says, indent=1).encode() + b"\n")
