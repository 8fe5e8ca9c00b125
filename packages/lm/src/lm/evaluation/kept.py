"""The items of a set that a model was evaluated on, kept one by one in a file, so that an evaluation continues.

FOLDER/SET-KEY.jsonl    what was evaluated, in the first line, then a line an item; KEY is a hash of the first line
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from lm.evaluation.results import Scored
from lm.files import Locked, lock, reason

VERSION = 1


@contextlib.contextmanager
def keeping(
    folder: str | Path, task: str, about: Mapping[str, str | int]
) -> Iterator[tuple[dict[int, Scored], Callable[[Iterable[Scored]], None]]]:
    """Yield the items already kept, by number, and a function that appends more.

    `about` names what was evaluated: fingerprints of model, tokenizer and set, and settings. A line that was cut off in
    the writing is dropped. ValueError: another process is evaluating there. OSError: in a sentence.
    """
    head = line_of({"format": "groundup-evaluation", "version": VERSION, "task": task, **about})
    path = Path(folder) / f"{task}-{hashlib.sha256(head).hexdigest()[:16]}.jsonl"
    with contextlib.ExitStack() as stack:
        with writing(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            try:
                stack.enter_context(lock(path.with_name(f".{path.name}.lock")))
            except Locked:
                raise ValueError(f"another process is evaluating into {path}: wait, or choose another --out") from None
            file = stack.enter_context(open(path, "a+b", buffering=0))
            items, size = read(path, head)
            file.truncate(size)
            if not size:
                file.write(head)

        def add(more: Iterable[Scored]) -> None:
            data = memoryview(b"".join(line_of(dataclasses.asdict(item)) for item in more))
            with writing(path):
                while data:
                    data = data[os.write(file.fileno(), data) :]

        yield items, add


def read(path: Path, head: bytes) -> tuple[dict[int, Scored], int]:
    """Return the items of a file, and the size of its whole lines: none, and 0, if its first line is another."""
    lines = path.read_bytes().splitlines(keepends=True)
    if not lines or lines[0] != head:
        return {}, 0
    items, size = dict[int, Scored](), len(head)
    for line in lines[1:]:
        try:
            fields: Any = {k: tuple(v) if isinstance(v, list) else v for k, v in json.loads(line).items()}
            item = Scored(**fields)
        except (ValueError, TypeError, AttributeError):
            break
        if not line.endswith(b"\n"):
            break
        items[item.item] = item
        size += len(line)
    return items, size


def line_of(value: Mapping[str, object]) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn an error of the disk into a sentence."""
    try:
        yield
    except OSError as error:
        raise OSError(f"the results in {path} cannot be written: {reason(error, path.parent)}") from error
