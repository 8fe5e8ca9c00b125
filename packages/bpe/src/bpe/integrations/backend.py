"""The backend of a tokenizer of transformers, a tokenizers.Tokenizer: its state, and the Encodings that it makes."""

from __future__ import annotations

import copy
import os
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from bpe.native.parallel import available_cpus


class Encodings(Sequence[Any]):
    """The Encodings of a call, made by the tokenizer's own backend when one is asked for."""

    def __init__(self, tokenizer: Any, text: Any, options: dict[str, Any]) -> None:
        self._tokenizer, self._text, self._options = tokenizer, text, options

    @cached_property
    def _all(self) -> list[Any]:
        return list(type(self._tokenizer)._encode_plus(self._tokenizer, self._text, **self._options).encodings)

    def __getitem__(self, index: Any) -> Any:
        return self._all[index]

    def __len__(self) -> int:
        return len(self._all)

    def __bool__(self) -> bool:  # without making them
        return True

    def __reduce__(self) -> tuple[Any, ...]:
        return list, (self._all,)

    def __deepcopy__(self, memo: Any) -> list[Any]:
        return copy.deepcopy(self._all, memo)


def state_of(backend: Any) -> tuple[Any, ...]:
    """The settings of a backend that users may change, compared at every call."""
    parts = backend.normalizer, backend.pre_tokenizer, backend.post_processor
    return (backend.get_vocab_size(), *(None if part is None else part.__getstate__() for part in parts))


def has_types(post_processor: Any) -> bool:
    """True if a template gives a text, or the tokens around it, a type other than 0."""
    if isinstance(post_processor, list):
        return any(map(has_types, post_processor))
    if not isinstance(post_processor, dict):
        return False
    return bool(post_processor.get("type_id")) or any(
        has_types(part) for key, part in post_processor.items() if key not in ("pair", "special_tokens")
    )


def threads() -> int:
    """Return the number of processors; one where TOKENIZERS_PARALLELISM says so, as tokenizers has it."""
    off = os.environ.get("TOKENIZERS_PARALLELISM", "").lower() in ("off", "false", "f", "no", "n", "0")
    return 1 if off else available_cpus()
