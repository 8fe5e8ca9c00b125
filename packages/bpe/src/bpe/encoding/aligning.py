"""Normalizers that keep account of where each character comes from, as tokenizers does for its offsets."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from bpe.encoding.normal_forms import normalized_with_origins
from bpe.encoding.normalizing import FORMS, bert_stages, function_of, matches_of, steps_of
from bpe.native.lazy_imports import numpy as np
from bpe.native.printable import PRINTABLE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bpe.encoding.decoder import Decoder
    from bpe.encoding.encoder import Encoder
    from bpe.scanning.special_tokens import SpecialTokens

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


def pieces_in_place(data: bytes, special: SpecialTokens) -> Iterator[tuple[str, int, NDArray[Any]]]:
    """Yield the pieces and the special tokens of a text that is not changed, as Preparation.aligned_pieces() does."""
    character_of = [*characters_of_bytes(data).tolist(), 0]
    character_of[-1] = character_of[-2] + 1 if data else 0
    end = 0
    for piece, index in special.split(data):
        begin, end = end, end + len(piece)
        number = -1 if index < 0 else special.ids[index]
        first, after = character_of[begin], character_of[end]
        yield (
            bytes(piece).decode("utf-8", "surrogateescape"),
            number,
            np.arange(first, first + 1 if index >= 0 else after + 1),
        )


def begins_by_pretoken(
    data: bytes, pretokens: Iterable[bytes], encoder: Encoder, decoder: Decoder, lost: bytes | None
) -> tuple[list[int], NDArray[Any]]:
    """Return the ids of a piece with bytes that are left out, and the byte where each begins.

    Args:
        data, pretokens: the piece, and the pretokens of it.
        encoder, decoder: of the tokenizer.
        lost: the bytes that are left out, between which tokens stand in their places. None for the places that
            tokenizers gives: there such bytes move the tokens behind them in their pretoken to the left. Sizes are
            those of the characters that stand for bytes, one or two bytes of UTF-8 each.
    """
    ids: list[int] = []
    begins: list[int] = []
    end = 0
    size_of = [1 if lost is not None else len(character.encode()) for character in PRINTABLE]
    for pretoken in pretokens:
        begin = max(end, data.find(pretoken, end))  # what a pattern drops lies between pretokens
        end = begin + len(pretoken)
        numbers = encoder.encode_pieces([pretoken]).tolist()
        counted = [(place, byte) for place, byte in enumerate(pretoken) if lost is None or byte not in lost]
        places = [place for place, byte in counted for _ in range(size_of[byte])]
        at = 0
        for token in decoder.decode_each(numbers):
            begins.append(begin + places[at])
            at += sum(map(size_of.__getitem__, token))
        ids += numbers
    return ids, np.array(begins, dtype=np.int64)


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
