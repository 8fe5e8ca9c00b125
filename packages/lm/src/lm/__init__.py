"""The Transformer from the ground up: train, evaluate, generate. Each name is imported when it is first used."""

from __future__ import annotations

import importlib.util
import pkgutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lm.config import ModelConfig, TrainConfig
    from lm.generation.stream import generate, generate_batch, stream
    from lm.interop.exporting import to_huggingface
    from lm.interop.gguf import to_gguf
    from lm.interop.gguf_reader import from_gguf
    from lm.interop.huggingface import from_huggingface
    from lm.interop.loading import load
    from lm.model import Transformer
    from lm.ops.cpu.fused import fuse
    from lm.training import checkpoint as checkpoint
    from lm.training.train import train
    from lm.training.validation import evaluate
    from lm.vocabulary import extend_vocabulary

__version__ = "0.1.0"
__all__ = [
    "ModelConfig", "TrainConfig", "Transformer", "evaluate", "extend_vocabulary", "from_gguf", "from_huggingface",
    "fuse", "generate", "generate_batch", "load", "stream", "to_gguf", "to_huggingface", "train",
]  # fmt: skip

_HOME = {
    "ModelConfig": "lm.config",
    "TrainConfig": "lm.config",
    "Transformer": "lm.model",
    "evaluate": "lm.training.validation",
    "extend_vocabulary": "lm.vocabulary",
    "fuse": "lm.ops.cpu.fused",
    "generate": "lm.generation.stream",
    "generate_batch": "lm.generation.stream",
    "from_gguf": "lm.interop.gguf_reader",
    "from_huggingface": "lm.interop.huggingface",
    "to_gguf": "lm.interop.gguf",
    "to_huggingface": "lm.interop.exporting",
    "load": "lm.interop.loading",
    "stream": "lm.generation.stream",
    "train": "lm.training.train",
}


def __getattr__(name: str) -> object:
    """A name of __all__, or a module, so that `import lm` is enough to write lm.model.Block."""
    value: object
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
    elif name == "checkpoint":
        value = importlib.import_module("lm.training.checkpoint")
    elif not name.startswith("_") and importlib.util.find_spec(f"lm.{name}") is not None:
        value = importlib.import_module(f"lm.{name}")
    else:
        raise AttributeError(f"module 'lm' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [
        *__all__,
        "checkpoint",
        *(name for _, name, _ in pkgutil.iter_modules(__path__) if not name.startswith("_")),
    ]
