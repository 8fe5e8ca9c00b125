"""The settings that ablations change: each takes out or replaces a part of the model or of its training."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lm.config import TrainConfig

ABLATIONS: dict[str, dict[str, Any]] = {
    "no-norm": {"norm": "none", "norm_placement": "pre", "qk_norm": False},
    "layernorm": {"norm": "layernorm"},
    "rmsnorm": {"norm": "rmsnorm"},
    "post-norm": {"norm_placement": "post"},
    "pre-norm": {"norm_placement": "pre"},
    "no-positions": {"position": "none"},
    "learned-positions": {"position": "learned"},
    "rope": {"position": "rope"},
    "silu": {"ffn": "silu"},
    "relu2": {"ffn": "relu2"},
    "gelu": {"ffn": "gelu"},
    "swiglu": {"ffn": "swiglu"},
    "tied": {"tied_embeddings": True},
    "untied": {"tied_embeddings": False},
    "qk-norm": {"qk_norm": True},
    "no-qk-norm": {"qk_norm": False},
    "value-embeddings": {"value_embeddings": True},
    "no-value-embeddings": {"value_embeddings": False},
    "softcap": {"logit_softcap": 15.0},
    "no-softcap": {"logit_softcap": None},
}

# Of the training. Rates and weight decay stay for Muon, whose updates are as large as AdamW's.
TRAINING: dict[str, Callable[[TrainConfig], dict[str, Any]]] = {
    "adamw": lambda base: {"optimizer": "adamw"},
    "muon": lambda base: {"optimizer": "muon"},
    "normuon": lambda base: {"optimizer": "normuon"},
    "cosine": lambda base: {"schedule": "cosine", "decay_steps": None},
    "linear": lambda base: {"schedule": "linear", "decay_steps": None},
    # warm-up, stable, decay over the last half
    "wsd": lambda base: {"schedule": "linear", "decay_steps": max(1, base.steps // 2)},
    "embedding-rate-x2": lambda base: {"embedding_learning_rate": 2 * base.learning_rate},
    "embedding-rate-x4": lambda base: {"embedding_learning_rate": 4 * base.learning_rate},
    "head-rate-half": lambda base: {"head_learning_rate": base.learning_rate / 2},
    "head-rate-quarter": lambda base: {"head_learning_rate": base.learning_rate / 4},
}


def changes(name: str, train: TrainConfig) -> dict[str, Any]:
    """The settings that an ablation changes, of the model or of this training."""
    return ABLATIONS[name] if name in ABLATIONS else TRAINING[name](train)
