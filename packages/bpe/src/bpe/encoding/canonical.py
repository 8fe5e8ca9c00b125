"""Ids that a model sampled, beside those that encoding gives: where the two differ, and the ids of a text after them.

Ids are canonical if encoding the text that they decode to gives them again. Sampled ids often are not: in cl100k
" Pant" and "om" are tokens, and " Pantom" is encoded as " P" and "antom". A program that encodes a conversation's text
anew for its next turn then gives the model other ids than those it sampled.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from bpe.encoding.normalizing import steps_of
from bpe.encoding.texts import Text, checked
from bpe.native.lazy_imports import numpy as np
from bpe.scanning.special_tokens import Rules, SpecialTokens

if TYPE_CHECKING:
    from bpe.encoding.decoder import Decoder
    from bpe.encoding.text_encoder import TextEncoder

SLICE = 1 << 14  # bytes of text that are encoded and compared at a time
CONTEXT = 32  # ids from whose text on a position is looked for at which encoding can begin
FAR = 64  # bytes from the beginning of that text, before which it may be part of a longer pretoken
NO_TOKENS = SpecialTokens(())
_LOOKING_AROUND = {"Prepend", "Replace", "Strip"}  # normalizers that depend on more than a character


def first_difference(encoder: TextEncoder, decoder: Decoder, tokens: Any) -> int | None:
    """Return the index of the first id that encoding the text of the ids does not give; None where it gives all."""
    tokens = tokens if isinstance(tokens, np.ndarray) else list(tokens)
    text, ids = decoder.decode(tokens), np.array(tokens, dtype=np.uint32)  # after decode(), which refuses wrong ids
    parts: Iterator[bytes] = (text[at : at + SLICE] for at in range(0, len(text), SLICE))
    at = 0
    for canonical in encoder.chunks(parts, encoder.policy.rules("all", ())):
        shared = min(len(canonical), len(ids) - at)
        different = np.flatnonzero(canonical[:shared] != ids[at : at + shared])
        if len(different):
            return at + int(different[0])
        at += shared
        if shared < len(canonical):
            return at
    return None if at == len(ids) else at


def encode_after(encoder: TextEncoder, decoder: Decoder, tokens: Any, text: Text, rules: Rules) -> list[int]:
    """Return the ids of a text after ids that do not change.

    The pretoken that the border divides is merged in two parts. Encoding begins at the last position that it can.
    """
    data = encoder.data
    flagged = data.lstrip or data.rstrip or data.single_word
    looks_around = any(step["type"] in _LOOKING_AROUND for step in steps_of(data.normalizer))
    if data.characters or data.words or data.add_prefix_space or flagged or looks_around:
        raise ValueError(
            "encode_after() is for byte-level tokenizers: this one puts text before a text, takes some away, or looks "
            "at what stands beside a token, so that the ids of a text depend on what stands before it in other ways"
        )
    prefix = list(tokens)
    appended, recognised = checked(text, rules, repair=False), rules.recognised
    pieces = encoder.pieces(appended, recognised)
    if not pieces:
        return []
    head = pieces[0].text.encode("utf-8", "surrogateescape") if pieces[0].id < 0 else b""
    following = encoder.pieces_to_ids(pieces[1:] if head else pieces).tolist()
    context = _context(encoder, decoder, prefix)
    border = len(context)
    near = encoder.safe_cut(context + head, border + FAR, NO_TOKENS) if border + FAR < border + len(head) else None
    text_near = (context + head)[:near]
    pretokens = encoder.split(text_near)
    ids = encoder.encoder.encode_pieces(pretokens)
    ends = np.cumsum([len(token) for token in decoder.decode_each(ids)], dtype=np.int64)
    at = int(np.searchsorted(ends, border))
    if border == 0 or (at < len(ends) and ends[at] == border and not data.drops_bytes):
        result = ids[at + 1 if border else 0 :]
    else:
        result = encoder.encoder.encode_pieces(_after(pretokens, border))
    far = encoder.unprepared_to_ids((context + head)[len(text_near) :], NO_TOKENS)
    return [*result.tolist(), *far.tolist(), *following]


def _context(encoder: TextEncoder, decoder: Decoder, ids: list[int]) -> bytes:
    """Return the end of the text of ids, from the last position at which encoding can begin."""
    count = CONTEXT
    while True:
        part = ids[max(0, len(ids) - count) :]
        special_indices = [index for index, number in enumerate(part) if number in encoder.special_ids]
        text = decoder.decode(part[special_indices[-1] + 1 :] if special_indices else part)
        if special_indices or count >= len(ids):
            return text
        cut = encoder.safe_cut(text, FAR, NO_TOKENS) if len(text) > FAR else len(text)
        if cut < len(text):
            return text[cut:]
        count *= 4


def _after(pretokens: list[bytes], border: int) -> list[bytes]:
    """Return what pretokens have after a position in their text."""
    begins = itertools.accumulate(map(len, pretokens), initial=0)
    rest = [pretoken[max(border - begin, 0) :] for begin, pretoken in zip(begins, pretokens, strict=False)]
    return [part for part in rest if part]
