"""The items of a set that a model was evaluated on, kept one by one in a file, so that an evaluation goes on where it
stopped.

FOLDER/SET-KEY.jsonl    what was evaluated, in the first line, then a line an item; KEY is a hash of the first line
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lm.evaluation.results import Scored
from lm.files import Locked, lock, reason

VERSION = 1


class Kept:
    """An open file of items: those that were there, and room for more."""

    def __init__(self, handle: int, path: Path, known: dict[int, Scored]) -> None:
        self.handle, self.path, self.known = handle, path, known

    def add(self, items: Iterable[Scored]) -> None:
        """Appends items, handed to the system before this returns."""
        with says(self.path):
            write(self.handle, "".join(line_of(dataclasses.asdict(item)) for item in items))


@contextlib.contextmanager
def keeping(folder: str | Path, task: str, about: Mapping[str, str | int]) -> Iterator[Kept]:
    """The items that were kept of what `about` says: fingerprints of model, tokenizer and set, and settings.

    A line that was cut off in the writing is dropped. ValueError: another process is at it. OSError: in a sentence.
    """
    head = line_of({"format": "groundup-evaluation", "version": VERSION, "task": task, **about})
    path = Path(folder) / f"{task}-{hashlib.sha256(head.encode()).hexdigest()[:16]}.jsonl"
    with says(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, handle)
        try:
            stack.enter_context(lock(path.with_name(f".{path.name}.lock")))
        except Locked:
            raise ValueError(
                f"another process is evaluating into {path}: let it end, or choose another --out"
            ) from None
        with says(path):
            known, size = read(path, head)
            os.ftruncate(handle, size)
            os.lseek(handle, size, os.SEEK_SET)
            if not size:
                write(handle, head)
        yield Kept(handle, path, known)


def read(path: Path, head: str) -> tuple[dict[int, Scored], int]:
    """The items of a file, and the size of what is whole of it: none, and 0, where its first line is another."""
    lines = path.read_bytes().splitlines(keepends=True)
    if not lines or lines[0] != head.encode():
        return {}, 0
    known, size = dict[int, Scored](), len(lines[0])
    for line in lines[1:]:
        try:
            fields = {
                key: tuple(value) if isinstance(value, list) else value for key, value in json.loads(line).items()
            }
            item = made_of(fields)
        except (ValueError, TypeError, AttributeError):
            break
        if not line.endswith(b"\n"):
            break
        known[item.item] = item
        size += len(line)
    return known, size


def made_of(fields: dict[str, Any]) -> Scored:
    return Scored(**fields)


def line_of(value: Mapping[str, object]) -> str:
    return json.dumps(value, separators=(",", ":")) + "\n"


def write(handle: int, text: str) -> None:
    data = memoryview(text.encode())
    while data:
        data = data[os.write(handle, data) :]


@contextlib.contextmanager
def says(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise OSError(f"the results in {path} cannot be written: {reason(error, path.parent)}") from error
