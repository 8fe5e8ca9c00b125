"""Other libraries that encode by this one: bpe.integrations.engines, .datatrove, .transformers, .vllm."""

from __future__ import annotations


def __getattr__(name: str) -> object:
    """A module of this package, imported when it is first asked for (PEP 562)."""
    from importlib import import_module

    if name not in ("datatrove", "engines", "transformers", "vllm"):
        raise AttributeError(f"module 'bpe.integrations' has no attribute {name!r}")
    return import_module(f"bpe.integrations.{name}")
