"""For the reference: examples of docstrings are shown as code, and records with the constructor they have."""

from __future__ import annotations

import re
from typing import Any

import griffe


class Examples(griffe.Extension):  # type: ignore[misc,unused-ignore]
    """Named in zensical.toml."""

    def on_object(self, *, obj: griffe.Object, **rest: Any) -> None:
        """Mark the examples of one docstring: whatever begins with >>> and ends with an empty line."""
        if obj.docstring is not None:
            text = re.sub(r"^( *)Example:$", r"\1Examples:", obj.docstring.value, flags=re.MULTILINE)
            text = re.sub(r"^(>>> (?:.+\n?)+)", r"```pycon\n\1\n```\n", text, flags=re.MULTILINE)
            obj.docstring.value = text


class Records(griffe.Extension):  # type: ignore[misc,unused-ignore]
    """Classes of accounting.record are dataclasses to a reader, though no decorator says so."""

    def __init__(self) -> None:
        self.records = {"Record"}

    def on_class_instance(self, *, cls: griffe.Class, **rest: Any) -> None:
        """Give a record, or what inherits from one, the decorator by which griffe knows a dataclass."""
        if any(str(base) in self.records for base in cls.bases):
            self.records.add(cls.name)
            cls.decorators.append(
                griffe.Decorator(griffe.ExprName("dataclasses.dataclass"), lineno=None, endlineno=None)
            )
