"""For the reference: examples of docstrings are shown as code, records with the constructor they have, and compiled
methods, which a stub declares, with their docstrings; settings of lm with the comments beside them.
"""

from __future__ import annotations

import pydoc
import re
from typing import Any

import griffe

from lm.config import comments_of


class Examples(griffe.Extension):  # type: ignore[misc,unused-ignore]
    """Named in zensical.toml."""

    def on_object(self, *, obj: griffe.Object, **rest: Any) -> None:
        """Mark the examples of one docstring: whatever begins with >>> and ends with an empty line."""
        if obj.docstring is None and obj.is_function and str(obj.filepath).endswith("calls.pyi"):
            compiled = pydoc.locate(obj.path)
            obj.docstring = griffe.Docstring(pydoc.getdoc(compiled), parent=obj)
        if obj.docstring is None and obj.is_attribute and str(obj.filepath).endswith("lm/config.py"):
            # the settings of lm have comments beside them
            kind = pydoc.locate(obj.parent.path) if obj.parent is not None else None
            if isinstance(kind, type) and (comment := comments_of(kind).get(obj.name)):
                obj.docstring = griffe.Docstring(comment, parent=obj)
        if obj.docstring is not None:
            text = re.sub(r"^( *)Example:$", r"\1Examples:", obj.docstring.value, flags=re.MULTILINE)
            text = re.sub(r"^(>>> (?:.+\n?)+)", r"```pycon\n\1\n```\n", text, flags=re.MULTILINE)
            obj.docstring.value = text
