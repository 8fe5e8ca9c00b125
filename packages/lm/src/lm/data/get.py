"""A published corpus as a folder of token files: downloaded file by file, each encoded while the next arrives."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lm.data import corpora
from lm.data.corpora import CorpusFile
from lm.data.hub import HubFile, download
from lm.data.prepare import HELDOUT, Input, Progress, Recipe, locked, prepare_inputs
from lm.files import atomic_write

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
    num_threads: int | None = None,
) -> Progress:
    """Downloads and encodes a published corpus, or goes on where an earlier call of the same was stopped.

    Of a text or JSON lines no more is downloaded than recipe.limit asks for; a file is removed when its tokens are in
    their place. arrived: told of the bytes of a file as they come; encoded: of the bytes of text.
    See prepare for the rest, and hub.download for what a network can do wrong.
    """
    with locked(out):
        files = listed(name, recipe, out)
        with Downloads(files, recipe, out / "download", arrived) as downloads:
            inputs = [
                Input(one.file.path, one.split, corpora.corpus(name).key, downloads.most(one) is not None)
                for one in files
            ]
            progress = prepare_inputs(
                inputs,
                recipe,
                out,
                asked,
                obtain=downloads.obtain,
                discard=downloads.discard,
                num_threads=num_threads,
                report=encoded,
            )
        downloads.remove()
        return progress


def listed(name: str, recipe: Recipe, out: Path) -> list[CorpusFile]:
    """The corpus's files as the publisher listed them when this folder was begun."""
    path = out / FILES
    if path.exists():
        return [CorpusFile(HubFile(**one["file"]), one["split"]) for one in json.loads(path.read_text())]
    files = corpora.corpus_files(name, limit=recipe.limit)
    atomic_write(path, json.dumps([asdict(one) for one in files], indent=0))
    return files


class Downloads:
    """The files of a corpus on their way here: the one that is asked for, and behind it the next."""

    def __init__(self, files: list[CorpusFile], recipe: Recipe, folder: Path, arrived: Arrived) -> None:
        self.files, self.recipe, self.folder, self.arrived = files, recipe, folder, arrived
        self.stop = threading.Event()
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
        if index + 1 < len(self.files) and self.recipe.limit is None:
            self.start(index + 1)
        return wanted.result()

    def start(self, index: int) -> Future[Path]:
        if index not in self.coming:
            self.coming[index] = self.pool.submit(self.download, self.files[index])
        return self.coming[index]

    def download(self, one: CorpusFile) -> Path:
        most = self.most(one)
        size = one.file.size if most is None else most
        return download(
            one.file,
            self.folder,
            most=most,
            stop=self.stop,
            arrived=lambda have: self.arrived(one.file.path, have, size),
        )

    def most(self, one: CorpusFile) -> int | None:
        """How much of a file is wanted, where that is not all: the limit, as what is compressed holds more than its
        size."""
        limit, size = self.recipe.limit_heldout if one.split == HELDOUT else self.recipe.limit, one.file.size
        if limit is None or one.file.path.endswith(".parquet") or (size is not None and size <= limit + SLACK):
            return None
        return limit + SLACK

    def discard(self, index: int) -> None:
        """Removes a file whose tokens are in their place."""
        if index in self.coming:
            self.coming.pop(index).result().unlink(missing_ok=True)

    def remove(self) -> None:
        """Removes what is left of the downloads, once everything is in its place."""
        shutil.rmtree(self.folder, ignore_errors=True)
