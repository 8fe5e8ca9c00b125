"""A published corpus as a folder of token files: downloaded file by file, each encoded while the next arrives."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lm.data import published
from lm.data.download import Stop, fetch
from lm.data.prepare import HELDOUT, Input, Reached, Recipe, carry_out, locked
from lm.data.published import Remote

FILES = "files.json"  # what the publisher listed when it began
SLACK = 1 << 21  # bytes that a limited download has more than the limit, as its last block and document are not whole

Arrived = Callable[[str, int, "int | None"], None]  # name of a file, bytes that are here, bytes of it


def get(
    name: str,
    recipe: Recipe,
    out: Path,
    asked: dict[str, Any],
    *,
    arrived: Arrived = lambda name, have, size: None,
    encoded: Callable[[int], None] = lambda size: None,
    workers: int | None = None,
) -> Reached:
    """Downloads and encodes a published corpus, or goes on where an earlier call of the same was stopped.

    Of a text or JSON lines no more is downloaded than recipe.limit asks for; a file is removed when its tokens are in their
    place. arrived: told of the bytes of a file as they come; encoded: of the bytes of text.
    See prepare for the rest, and download.fetch for what a network can do wrong.
    """
    with locked(out):
        remotes = listed(name, recipe, out)
        with Downloads(remotes, recipe, out / "download", arrived) as downloads:
            inputs = [
                Input(one.name, one.split, published.corpus(name).key, downloads.most(one) is not None)
                for one in remotes
            ]
            reached = carry_out(
                inputs,
                recipe,
                out,
                asked,
                obtain=downloads.obtain,
                discard=downloads.discard,
                workers=workers,
                report=encoded,
            )
        downloads.remove()
        return reached


def listed(name: str, recipe: Recipe, out: Path) -> list[Remote]:
    """The corpus's files as the publisher listed them when this folder was begun."""
    path = out / FILES
    if path.exists():
        return [Remote(**table) for table in json.loads(path.read_text())]
    remotes = published.files(name, limit=recipe.limit)
    temporary = path.with_name(path.name + ".partial")
    temporary.write_text(json.dumps([asdict(one) for one in remotes], indent=0))
    os.replace(temporary, path)
    return remotes


class Downloads:
    """The files of a corpus on their way here: the one that is asked for, and behind it the next."""

    def __init__(self, remotes: list[Remote], recipe: Recipe, folder: Path, arrived: Arrived) -> None:
        self.remotes, self.recipe, self.folder, self.arrived = remotes, recipe, folder, arrived
        self.stop = Stop()
        self.coming: dict[int, Future[Path]] = {}

    def __enter__(self) -> Downloads:
        self.folder.mkdir(exist_ok=True)
        self.pool = ThreadPoolExecutor(1)
        return self

    def __exit__(self, *error: object) -> None:
        self.stop.set()
        self.pool.shutdown(cancel_futures=True)

    def obtain(self, index: int) -> Path:
        """The index-th file, whole and checked."""
        wanted = self.start(index)
        if index + 1 < len(self.remotes) and self.recipe.limit is None:
            self.start(index + 1)
        return wanted.result()

    def start(self, index: int) -> Future[Path]:
        if index not in self.coming:
            self.coming[index] = self.pool.submit(self.download, index)
        return self.coming[index]

    def download(self, index: int) -> Path:
        one, path = self.remotes[index], self.path(index)
        if not path.exists():
            most = self.most(one)
            fetch(
                one.url,
                path,
                size=one.size,
                sha256=one.sha256,
                most=most,
                token=published.hub_token() if one.url.startswith(published.endpoint()) else None,
                stop=self.stop,
                report=lambda have: self.arrived(one.name, have, one.size if most is None else most),
            )
        return path

    def most(self, one: Remote) -> int | None:
        """How much of a file is wanted, where that is not all: the limit, as what is compressed holds more than its size."""
        limit = self.recipe.limit_heldout if one.split == HELDOUT else self.recipe.limit
        if limit is None or one.name.endswith(".parquet") or (one.size is not None and one.size <= limit + SLACK):
            return None
        return limit + SLACK

    def discard(self, index: int) -> None:
        self.path(index).unlink(missing_ok=True)

    def remove(self) -> None:
        """What is left of the downloads, once everything is in its place."""
        for path in [*self.folder.glob("*")]:
            path.unlink()
        self.folder.rmdir()

    def path(self, index: int) -> Path:
        return self.folder / f"{index:05}-{self.remotes[index].name.rsplit('/', 1)[-1]}"
