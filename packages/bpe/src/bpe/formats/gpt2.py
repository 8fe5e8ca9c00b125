"""GPT-2's two files: vocab.json (encoder.json), {token: id}, and merges.txt (vocab.bpe), one merge a line in order.

Tokens are written as text with a printable stand-in for each byte: the bytes that are printable in Latin-1 stand
for themselves, the others, in order, for the characters from U+0100 on.
"""

from __future__ import annotations

import codecs
import json
import os
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from bpe.formats import (
    UTF8_BYTES,
    Merges,
    Pair,
    TokenizerData,
    are_ids,
    check_bytes,
    check_id,
    check_merged,
    check_merges,
    check_plain,
    ordinary_ids,
    parse_json,
    parse_text,
    read_bytes,
    refuse,
    without_collector,
    write_bytes,
)
from bpe.formats.pairs import halves_of
from bpe.formats.spelled import StandIns
from bpe.native.atomic_file import StrPath
from bpe.native.printable import PRINTABLE

_TABLE = "".join(PRINTABLE)
STAND_INS = StandIns(_TABLE)
_BYTE_OF = codecs.charmap_build(_TABLE)


def to_printable(token: bytes) -> str:
    """The token with each byte as its stand-in."""
    return codecs.charmap_decode(token, "strict", _TABLE)[0]


def from_printable(text: str) -> bytes | None:
    """The token a text of stand-ins means, or None where it holds another character."""
    try:
        return codecs.charmap_encode(text, "strict", _BYTE_OF)[0]
    except UnicodeEncodeError:
        return None


def read(vocab_json: StrPath, merges_txt: StrPath) -> tuple[dict[int, bytes], Sequence[Pair]]:
    """(vocab, merges). The format does not say which tokens are special: they stand in vocab like the others.

    A token with a character that is no stand-in is taken as its UTF-8. Raises ValueError with path, line and reason
    for a wrong file, FileNotFoundError for none.
    """
    return parse(read_bytes(vocab_json), read_bytes(merges_txt), vocab_json, merges_txt)


def write(folder: StrPath, vocab: Mapping[int, bytes], merges: Sequence[Pair]) -> None:
    """Write folder/vocab.json and folder/merges.txt, each atomically; the folder is made where there is none.

    Raises ValueError where read would refuse or change what was written, as where two ids hold the same bytes.
    """
    vocab_path, merges_path = os.path.join(folder, "vocab.json"), os.path.join(folder, "merges.txt")
    items = ",".join(f"{_quote(to_printable(token))}:{number}" for number, token in sorted(vocab.items()))
    lines = "".join(f"{to_printable(left)} {to_printable(right)}\n" for left, right in merges)
    vocab_data, merges_data = f"{{{items}}}".encode(), f"#version: 0.2\n{lines}".encode()
    parse(vocab_data, merges_data, vocab_path, merges_path)
    if "://" not in os.fspath(folder):  # at a URL a file makes its folder
        os.makedirs(folder, exist_ok=True)
    write_bytes(vocab_path, vocab_data)
    write_bytes(merges_path, merges_data)


def write_tokenizer(
    folder: StrPath,
    tokenizer: TokenizerData,
    merges: Sequence[Pair],
    never_merged: Callable[[Mapping[bytes, int]], list[bytes]],
) -> None:
    """Write the vocabulary and the merges of a tokenizer. ValueError where these two cannot say what it does.

    merges: also of one that merges by rank.
    never_merged: returns the tokens, of {token: id}, that merging their own bytes does not reach.
    """
    form = "vocab.json with merges.txt"
    check_plain(tokenizer, folder, form)
    if tokenizer.ignore_merges:
        check_merged(never_merged(ordinary_ids(tokenizer)), folder, form)
    write(folder, tokenizer.vocab, merges)


@without_collector()
def parse(
    vocab_data: bytes, merges_data: bytes, vocab_source: StrPath, merges_source: StrPath
) -> tuple[dict[int, bytes], Sequence[Pair]]:
    """(vocab, merges) from the bytes of the two files; the sources are what errors call them."""
    content = parse_json(vocab_data, vocab_source)
    if not isinstance(content, dict):
        refuse(vocab_source, f"a vocabulary is an object of tokens and ids, not {type(content).__name__}")
    ids = parse_vocab(content, vocab_source)
    vocab = dict(zip(ids.values(), ids, strict=True))
    check_bytes(ids, vocab_source, UTF8_BYTES)

    lines = parse_text(merges_data, merges_source).split("\n")
    if lines[-1] == "":
        lines.pop()
    # The first merge joins two single characters, so a first line that begins so is no merge; any later one may be.
    first_line = 2 if lines and lines[0].startswith("#version") else 1
    places = dict(zip(content, range(len(content)), strict=True))
    merges = read_merges(lines[first_line - 1 :], places, ids, merges_source, first_line)
    return vocab, merges


def read_merges(
    merges: list[Any], places: dict[str, int], tokens: Collection[bytes], source: StrPath, first_line: int | None = None
) -> Sequence[Pair]:
    """The merges of a file of any format, refused where one is wrong.

    Args:
        merges: "left right" or [left, right], each half as the file spells the token.
        places: of each text that spells a token, the place of the token among tokens.
        tokens: all of them.
        source: what errors call the file.
        first_line: the line of the first merge, where each has its own.
    """
    placed = list(tokens)
    halves = halves_of(merges, places)
    if halves is not None:
        read: Sequence[Pair] = Merges(placed, halves)
    else:
        token_of = {text: placed[place] for text, place in places.items()}
        read = [_read_merge(merge, token_of, place, source, first_line) for place, merge in enumerate(merges)]
    check_merges(read, tokens, source, first_line)
    return read


def halves_of_merge(merge: Any) -> Any:
    """Return what should be the two halves of a merge, as a file spells them."""
    return merge.removesuffix("\r").split(" ") if isinstance(merge, str) else merge


def _read_merge(merge: Any, tokens: Mapping[str, bytes], place: int, source: StrPath, first_line: int | None) -> Pair:
    where, line = (f"merge {place}: ", None) if first_line is None else ("", first_line + place)
    halves = halves_of_merge(merge)
    if not (isinstance(halves, list) and len(halves) == 2 and all(isinstance(half, str) and half for half in halves)):
        refuse(source, f"{where}not two tokens with a space between: {str(merge)[:80]!r}", line)
    pair = []
    for half in halves:
        token = tokens.get(half) or from_printable(half)
        if token is None:
            refuse(source, f"{where}{half!r} is not in the vocabulary", line)
        pair.append(token)
    return pair[0], pair[1]


def read_tokens(texts: Collection[str], ids: Collection[Any]) -> list[bytes] | None:
    """The tokens that texts of stand-ins spell; None where anything is wrong, which the caller then finds one by one.

    That is a text that spells no token, or an id that is none or stands twice.
    """
    tokens = STAND_INS.tokens(texts)
    return tokens if tokens is not None and "" not in texts and are_ids(ids) else None


def parse_vocab(content: Mapping[str, object], source: StrPath) -> dict[bytes, int]:
    """{token: id} of {text of stand-ins: id}, in the same order; a text with any other character is taken as its
    UTF-8."""
    numbers: list[Any] = list(content.values())
    tokens = read_tokens(content.keys(), numbers)
    if tokens is not None:
        return dict(zip(tokens, numbers, strict=True))
    ids: dict[bytes, int] = {}
    text_of: dict[int, str] = {}
    for text, value in content.items():
        number = check_id(value, source, text)
        token = from_printable(text)
        if token is None:
            token = encode_text(text, source)
        if token in ids:
            refuse(source, f"the token {token!r} stands twice, with ids {ids[token]} and {number}")
        if number in text_of:
            refuse(source, f"the id {number} stands twice, for {text_of[number]!r} and {text!r}")
        ids[token] = number
        text_of[number] = text
    return ids


def encode_text(text: str, source: StrPath) -> bytes:
    """The UTF-8 of a token's text, refused where it has none (JSON can spell lone surrogates)."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        refuse(source, f"the token {text!r} is not text: it holds a lone surrogate")


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
