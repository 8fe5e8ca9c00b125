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
