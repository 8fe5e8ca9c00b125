"""A published corpus as a folder of token files: downloaded file by file, each encoded while the next arrives."""

from __future__ import annotations

import json
import math
import shutil
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lm.data import corpora
from lm.data.hub import HubFile, download
from lm.data.prepare import HELDOUT, Input, Progress, Recipe, prepare_inputs
from lm.files import atomic_write, lock

FILES = "files.json"  # what the publisher listed when it began
SLACK = 1 << 21  # bytes that the beginning of a file has more than a limit, whose last document may end behind it


def get(
    name: str,
    recipe: Recipe,
    out: Path,
    about: dict[str, Any],
    *,
    encoded: Callable[[int], None] = lambda size: None,
    num_threads: int | None = None,
) -> Progress:
    """Download and encode a published corpus, or continue where an earlier call of the same was stopped.

    Of text and JSON lines no more is downloaded than recipe.limit needs; a file is removed when its tokens are in their
    place. encoded: called with the bytes of text. See prepare for the rest, and hub.download for errors of the network.
    """
    with lock(out):
        files, folder = listed(name, recipe, out), out / "download"
        folder.mkdir(exist_ok=True)
        inputs = [Input(one.path, one.split, corpora.corpus(name).key) for one in files]
        stop, coming = threading.Event(), dict[int, Future[Path]]()
        with ThreadPoolExecutor(1) as pool:

            def start(index: int) -> Future[Path]:
                if index not in coming:
                    file = files[index]
                    end = recipe.end_of_text.encode() if file.path.endswith(".txt") else b"\n"
                    coming[index] = pool.submit(download, file, folder, most=most_of(file, recipe), end=end, stop=stop)
                return coming[index]

            def obtain(index: int) -> Path:
                """The index-th file, whole and checked; the next one is downloaded meanwhile."""
                path = start(index)
                if index + 1 < len(files) and recipe.limit is None:
                    start(index + 1)
                return path.result()

            def discard(index: int) -> None:
                if index in coming:
                    coming.pop(index).result().unlink(missing_ok=True)

            try:
                how: dict[str, Any] = {"obtain": obtain, "discard": discard, "num_threads": num_threads}
                progress = prepare_inputs(inputs, recipe, out, about, **how, report=encoded)
            finally:
                stop.set()
                pool.shutdown(cancel_futures=True)
        shutil.rmtree(folder, ignore_errors=True)
        return progress


def fetch(name: str, out: Path, limit: int | None = None) -> None:
    """Download the rows of a published set, or continue; `lm data chat`, `preferences` or `prompts` reads the folder.

    limit: bytes of the files after which no other begins. Errors are those of hub.download.
    """
    with lock(out):
        for one in corpora.corpus_files(name, limit=limit):
            download(one, out, stop=threading.Event())


def most_of(file: HubFile, recipe: Recipe) -> int | None:
    """Bytes of a file that a limited corpus needs; None for all, as of what is compressed."""
    limit = recipe.limit_heldout if file.split == HELDOUT else recipe.limit
    if limit is None or not file.path.endswith((".txt", ".jsonl")) or (file.size or math.inf) <= limit + SLACK:
        return None
    return limit + SLACK


def listed(name: str, recipe: Recipe, out: Path) -> list[HubFile]:
    """The corpus's files as the publisher listed them when this folder was begun."""
    path = out / FILES
    if path.exists():
        return [HubFile(**one) for one in json.loads(path.read_text())]
    files = corpora.corpus_files(name, limit=recipe.limit)
    atomic_write(path, json.dumps([asdict(one) for one in files], indent=0))
    return files
