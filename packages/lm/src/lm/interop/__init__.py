"""Models to other programs and from them. Each name is imported when it is first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lm.interop.exporting import to_huggingface
    from lm.interop.gguf import to_gguf
    from lm.interop.gguf_reader import from_gguf
    from lm.interop.huggingface import from_huggingface
    from lm.interop.importing import import_run

_HOME = {
    "from_gguf": "gguf_reader",
    "from_huggingface": "huggingface",
    "import_run": "importing",
    "to_gguf": "gguf",
    "to_huggingface": "exporting",
}

__all__ = ["from_gguf", "from_huggingface", "import_run", "to_gguf", "to_huggingface"]


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'lm.interop' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(f"lm.interop.{_HOME[name]}"), name)
    return value
