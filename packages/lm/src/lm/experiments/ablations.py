"""What ablations change: each takes a part of the model out, or replaces it by another."""

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
