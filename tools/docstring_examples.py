"""For the reference: a docstring's section `Example:` is read as griffe's `Examples:`, so that it is shown as code."""

from __future__ import annotations

import re
from typing import Any

import griffe


class Examples(griffe.Extension):  # type: ignore[misc,unused-ignore]
    """Named in zensical.toml."""

    def on_object(self, *, obj: griffe.Object, **rest: Any) -> None:
        """Rename the section of one object."""
        if obj.docstring is not None:
            obj.docstring.value = re.sub(r"^( *)Example:$", r"\1Examples:", obj.docstring.value, flags=re.MULTILINE)
