"""The Transformer from the ground up: train, evaluate, generate. Each name is imported when it is first used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lm.config import ModelConfig, TrainConfig
    from lm.generation import generate, stream
    from lm.model import Transformer
    from lm.run_folder import load
    from lm.scoring import evaluate
    from lm.training import train

__all__ = ["ModelConfig", "TrainConfig", "Transformer", "evaluate", "generate", "load", "stream", "train"]

_HOME = {
    "ModelConfig": "lm.config",
    "TrainConfig": "lm.config",
    "Transformer": "lm.model",
    "evaluate": "lm.scoring",
    "generate": "lm.generation",
    "load": "lm.run_folder",
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
