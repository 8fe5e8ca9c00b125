"""What ablations change: each takes a part of the model or of its training out, or replaces it by another."""

from __future__ import annotations

from typing import Any

ABLATIONS: dict[str, dict[str, Any]] = {
    "no-norm": {"norm": "none", "qk_norm": False},
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

# Of the training. Rates and weight decay stay: Muon's updates are as large as AdamW's.
TRAINING: dict[str, dict[str, Any]] = {
    "adamw": {"optimizer": "adamw"},
    "muon": {"optimizer": "muon"},
    "normuon": {"optimizer": "normuon"},
    "cosine": {"schedule": "cosine", "decay_steps": None},
    "linear": {"schedule": "linear", "decay_steps": None},
}
