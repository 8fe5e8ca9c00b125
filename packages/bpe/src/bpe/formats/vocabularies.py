"""The one reader of vocabularies and merges, whatever the format of their file: tokens by id and by spelling.

Byte-level files spell a token as text with a printable stand-in for each byte: see bpe.native.printable.
"""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bpe.formats import Merges, Pair, are_ids, check_id, refuse, rows_of
from bpe.formats.pairs import WrongMerge, halves_of
from bpe.native.atomic_file import StrPath
from bpe.native.printable import PRINTABLE

_STAND_INS = "".join(PRINTABLE)
_BYTES = codecs.charmap_build(_STAND_INS)


def to_printable(token: bytes) -> str:
    """The token with each byte as its stand-in."""
    return codecs.charmap_decode(token, "strict", _STAND_INS)[0]


def from_printable(text: str) -> bytes | None:
    """The token a text of stand-ins means, or None where it holds another character."""
    try:
        return codecs.charmap_encode(text, "strict", _BYTES)[0]
    except UnicodeEncodeError:
        return None


def check_ids_of(tokens: Iterable[object], numbers: list[Any], source: StrPath) -> None:
    """Refuse an id of these tokens that is none, or that stands twice."""
    if are_ids(numbers):
        return
    token_of: dict[int, object] = {}
    for token, number in zip(tokens, numbers, strict=True):
        if check_id(number, source, token) in token_of:
            refuse(source, f"the id {number} stands twice, for {token_of[number]!r} and {token!r}")
        token_of[number] = token


def read_vocabulary(
    vocab: Mapping[str, Any],
    added: Mapping[str, int],
    path: StrPath,
    spell: Callable[[str], bytes | None],
    decode: Callable[[str], bytes],
) -> tuple[dict[int, bytes], dict[str, bytes], frozenset[str]]:
    """Return the tokens of a vocabulary {spelling: id} and of its added tokens {text: id}.

    They are all tokens by their ids; the ones that text is merged to by their spellings; and the spellings of the
    others, without the added ones. An added token that the vocabulary spells is merged to only if its spelling is its
    text, or a single byte. spell: returns the token that a spelling stands for; None or no bytes for one that text is
    never merged to. decode: returns the bytes of an added token, or of one that text is never merged to.
    """
    check_ids_of(vocab, [*vocab.values()], path)
    spelled = [*map(spell, vocab)]
    by_id: dict[int, Any] = dict(zip(vocab.values(), spelled, strict=True))
    tokens: dict[str, Any] = dict(zip(vocab, spelled, strict=True))
    apart = set() if all(spelled) else {text for text, token in tokens.items() if not token}
    unspelled = frozenset(apart - added.keys())
    for text, number in added.items():
        if vocab.get(text, number) != number:
            refuse(path, f"{text!r} has the id {vocab[text]} in the vocabulary and {number} as an added token")
        if text not in vocab and number in by_id:
            refuse(path, f"the id {number} stands twice, for {by_id[number]!r} and the added token {text!r}")
        token = tokens.get(text)
        if not token or (len(token) > 1 and token != decode(text)):
            apart.add(text)
    for text in apart:
        by_id[vocab.get(text, added.get(text))] = decode(text)
        tokens.pop(text, None)
    return by_id, tokens, unspelled


def read_merges(
    merges: list[Any], tokens: Mapping[str, bytes], source: StrPath, first_line: int | None = None
) -> Sequence[Pair]:
    """The merges of a file of any format, refused where one is wrong.

    merges: "left right" or [left, right], each half as the file spells the token. tokens: by their spelling, if they
    can be merged. first_line: the line of the first merge, where each has its own.
    """
    try:
        halves = halves_of(merges, dict(zip(tokens, range(len(tokens)), strict=True)))
        read = Merges([*tokens.values()], halves)
        rows_of(read, [*dict.fromkeys(read.tokens)])
    except WrongMerge as error:
        if first_line is None:
            refuse(source, str(error))
        refuse(source, error.reason, first_line + error.index)
    return read
