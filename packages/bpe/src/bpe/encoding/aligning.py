"""Normalizers that keep account of where each character comes from, as tokenizers does for its offsets."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bpe.encoding.normal_forms import normalized_with_origins
from bpe.encoding.normalizing import FORMS, bert_stages, function_of, matches_of, steps_of
from bpe.native.lazy_imports import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

Aligned = tuple[str, "NDArray[Any]"]  # a text, and for each of its characters a place


def normalize_aligned(normalizer: str | None, text: str, places: NDArray[Any]) -> Aligned:
    """Return a text normalized, and the places of what its characters come from.

    Args:
        normalizer: as TokenizerData has it.
        text: the text.
        places: for each character of it.
    """
    for step in steps_of(normalizer):
        kind = step["type"]
        if kind in FORMS:
            text, places = _to_form(text, places, kind)
        elif kind == "Prepend":
            text, places = with_text_before(step["prepend"], text, places)
        elif kind == "Replace":
            text, places = _replace(step, text, places)
        elif kind == "Strip":
            begin = len(text) - len(function_of({**step, "strip_right": False})(text))
            text = function_of(step)(text)
            places = places[begin : begin + len(text)]
        elif kind == "BertNormalizer":
            for form, change in bert_stages(step):
                text, places = _to_form(text, places, form) if form else _each(change, text, places)
        else:
            text, places = _each(function_of(step), text, places)
    return text, places


def with_text_before(before: str, text: str, places: NDArray[Any]) -> Aligned:
    """Return a text with another in front, whose place is that of the first character; an empty text as it is."""
    return (before + text, np.concatenate([np.repeat(places[:1], len(before)), places])) if text else (text, places)


def characters_of_bytes(data: bytes) -> NDArray[Any]:
    """Return, for each byte of UTF-8, the number of the character that it belongs to."""
    return np.cumsum(np.frombuffer(data, dtype=np.uint8) & 0xC0 != 0x80) - 1


def _each(change: Callable[[str], str], text: str, places: NDArray[Any]) -> Aligned:
    """A text of which each character is changed by itself."""
    parts = list(map(change, text))
    return "".join(parts), np.repeat(places, np.fromiter(map(len, parts), dtype=np.int64, count=len(parts)))


def _to_form(text: str, places: NDArray[Any], form: str) -> Aligned:
    data = text.encode("utf-8", "surrogatepass")
    result = normalized_with_origins(data, form)
    if result is None:
        return text, places
    changed, parts = result
    begins = np.flatnonzero(np.frombuffer(changed, dtype=np.uint8) & 0xC0 != 0x80)
    part = parts[np.searchsorted(parts[:, 0] >> 1, begins, "right") - 1]
    origins = part[:, 1] + np.where(part[:, 0] & 1, begins - (part[:, 0] >> 1), 0)
    return changed.decode("utf-8", "surrogatepass"), places[characters_of_bytes(data)[origins]]


def _replace(step: dict[str, Any], text: str, places: NDArray[Any]) -> Aligned:
    """A replacement has the place of the last character of its match."""
    content, parts, place_parts, end = step["content"], [], [], 0
    for begin, after in matches_of(step, text):
        parts += [text[end:begin], content]
        place_parts += [places[end:begin], np.repeat(places[after - 1 : after], len(content))]
        end = after
    return "".join([*parts, text[end:]]), np.concatenate([*place_parts, places[end:]])
