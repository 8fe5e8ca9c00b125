"""A tokenizer mode of vLLM: `vllm serve MODEL --tokenizer-mode bpe`.

vLLM calls register() at its start, as a plugin of the group vllm.general_plugins. The mode is its mode "hf" but for
encoding and decoding, which bpe does where it reads the tokenizer's files.
"""

from __future__ import annotations

from typing import Any

from bpe.integrations.transformers import accelerate_if_supported, patch_transformers

MODE = "bpe"


def register() -> None:
    """Add the mode to vLLM's registry of tokenizers."""
    from vllm.tokenizers import TokenizerRegistry

    TokenizerRegistry.register(MODE, __name__, BpeTokenizer.__name__)


class BpeTokenizer:
    """Class by which vLLM's registry loads a tokenizer."""

    @staticmethod
    def from_pretrained(*arguments: Any, **options: Any) -> Any:
        """Return the tokenizer of vLLM's mode "hf", accelerated."""
        from vllm.tokenizers.hf import CachedHfTokenizer

        patch_transformers()  # vLLM makes copies from the tokenizer below its cached one
        return accelerate_if_supported(CachedHfTokenizer.from_pretrained(*arguments, **options))
