"""Problems, to which a model draws answers of its own: a prompt, the answer of the data, and the other fields of its
row, which rewards read. The fields lie beside the ids, in X.fields, a line of JSON for each row that has any."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lm.documents import IGNORE
from lm.files import atomic_write

Problem = tuple[list[int], list[int]]  # prompt, and the answer of the data
Fields = Mapping[str, Any]


def problems_of(inputs: Sequence[int], targets: Sequence[int], end_of_text: int) -> Iterator[Problem]:
    """Yield the documents of a row as prompt and answer: its last run of targets, and what stands before it."""
    ids = [*inputs, targets[-1]]
    starts = [place for place, id in enumerate(inputs) if id == end_of_text]
    for start, end in zip(starts, [*starts[1:], len(ids)], strict=True):
        learned = [place for place in range(start + 1, end) if targets[place - 1] != IGNORE]
        if learned:
            first, last = learned[-1], learned[-1] + 1
            while targets[first - 2] != IGNORE and first - 1 > start:
                first -= 1
            yield ids[start:first], ids[first:last]


def key_of(problem: Problem) -> str:
    """The name of a problem in a file of fields: a hash of its ids."""
    prompt, answer = problem
    return hashlib.blake2b(np.array([*prompt, -1, *answer], dtype="<i8").tobytes(), digest_size=12).hexdigest()


def write_fields(path: Path, fields: Mapping[str, Fields]) -> str:
    """Write the fields of problems by their keys to X.fields; return the file's SHA-256."""
    text = "".join(json.dumps({"problem": key, "fields": value}) + "\n" for key, value in fields.items())
    atomic_write(path.with_suffix(".fields"), text)
    return hashlib.sha256(text.encode()).hexdigest()


def read_fields(path: Path, sha256: str) -> dict[str, Fields]:
    """Read the fields beside a file of ids. FileNotFoundError, ValueError: the file is missing or not as written."""
    beside = path.with_suffix(".fields")
    if not beside.is_file():
        raise FileNotFoundError(f"there is no {beside}, which has the fields that rewards read: prepare it again")
    data = beside.read_bytes()
    if hashlib.sha256(data).hexdigest() != sha256:
        raise ValueError(f"{beside} is damaged: its SHA-256 is not that of the JSON beside it: prepare it again")
    return {row["problem"]: row["fields"] for row in map(json.loads, data.splitlines())}
