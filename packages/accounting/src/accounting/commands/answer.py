"""The answer of a command: words for a person, and the same figures as records for a program."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Answer:
    """Text, and flat records with one set of keys; data where plain data has another form than records."""

    text: str
    records: list[dict[str, Any]]
    data: Any = None
