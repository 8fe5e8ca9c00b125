"""The Transformer from the ground up: train, evaluate, generate. Each name is imported when it is first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lm.config import ModelConfig, TrainConfig
    from lm.generation import generate, generate_batch, stream
    from lm.interop import load
    from lm.model import Transformer
    from lm.scoring import evaluate
    from lm.training import train

__version__ = "0.1.0"
__all__ = [
    "ModelConfig",
    "TrainConfig",
    "Transformer",
    "evaluate",
    "generate",
    "generate_batch",
    "load",
    "stream",
    "train",
]

_HOME = {
    "ModelConfig": "lm.config",
    "TrainConfig": "lm.config",
    "Transformer": "lm.model",
    "evaluate": "lm.scoring",
    "generate": "lm.generation",
    "generate_batch": "lm.generation",
    "load": "lm.interop",
    "stream": "lm.generation",
    "train": "lm.training",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'lm' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOME[name]), name)
    return value


def __dir__() -> list[str]:
    return __all__
