"""The published encodings as tokenizers, by their names and by those of the models that take them."""

from __future__ import annotations

from functools import cache

from bpe import published
from bpe.tokenizer import Tokenizer


@cache
def get_encoding(encoding_name: str) -> Tokenizer:
    """A published encoding: "gpt2", "r50k_base", "p50k_base", "cl100k_base", "o200k_base" …; see list_encoding_names().

    Read from tiktoken's own cache folder, or downloaded into it, checked by hash, and made once. ValueError for another
    name, ConnectionError where it is not there and cannot be downloaded.
    """
    found = published.load(encoding_name)
    special = found.special_tokens
    return Tokenizer.from_ranks(found.ranks, pattern=found.pattern, special_tokens=special, name=encoding_name)


def encoding_for_model(model_name: str) -> Tokenizer:
    """The published encoding that a model of OpenAI's takes; KeyError where none is known. As get_encoding()."""
    return get_encoding(published.encoding_name_for_model(model_name))
