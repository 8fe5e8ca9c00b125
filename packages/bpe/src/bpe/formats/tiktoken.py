"""`.tiktoken` files: one token a line, its bytes in base64, a space, its rank.

The format holds neither the split pattern nor the special tokens.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from typing import AnyStr

from bpe.formats import (
    MAX_ID,
    TokenizerData,
    check_bytes,
    check_merged,
    check_plain,
    ordinary_ids,
    read_bytes,
    refuse,
    split_off_ids,
    write_bytes,
)
from bpe.formats.rank_lines import ranks_of_lines
from bpe.formats.vocabularies import check_ids_of
from bpe.native.atomic_file import StrPath


def read(path: StrPath) -> dict[bytes, int]:
    """{token: rank}. Raises ValueError with path, line and reason for a wrong file, FileNotFoundError for none."""
    return parse(read_bytes(path), path)


def write(path: StrPath, tokenizer: TokenizerData, never_merged: Callable[[Mapping[bytes, int]], list[bytes]]) -> None:
    """Write the ranks of a tokenizer, atomically. ValueError where encoding by them would give other ids.

    never_merged: returns the tokens, of {token: id}, that merging their own bytes does not reach.
    """
    check_plain(tokenizer, path, ".tiktoken file")
    ranks = ordinary_ids(tokenizer)
    if len(ranks) + len(split_off_ids(tokenizer)) < len(tokenizer.vocab):
        refuse(path, "two ids hold the same bytes, which a .tiktoken file cannot say")
    if tokenizer.merges is not None:
        numbers = [ranks[left + right] for left, right in tokenizer.merges]
        if numbers != sorted(set(numbers)):
            refuse(path, "the ids do not follow the merges, so a .tiktoken file would encode otherwise")
        # Where every token is what its bytes are merged to, no pair joins to a token but the one that is listed for it.
        check_merged(never_merged(ranks), path, ".tiktoken file")
    lines = (b"%s %d\n" % (base64.b64encode(token), ranks[token]) for token in sorted(ranks, key=ranks.__getitem__))
    data = b"".join(lines)
    parse(data, path)
    write_bytes(path, data)


def parse(data: bytes, source: StrPath) -> dict[bytes, int]:
    """{token: rank} from the bytes of a file, whose lines may be empty; source is what errors call it."""
    ranks = ranks_of_lines(data, MAX_ID)
    if ranks is None:
        ranks = parse_lines(data, source)
    check_bytes(ranks, source)
    return ranks


def parse_lines(data: bytes, source: StrPath) -> dict[bytes, int]:
    """Return {token: rank}, of lines that may be empty, in any order; refuse one that is wrong."""
    ranks: dict[bytes, int] = {}
    for number, line in enumerate(data.splitlines(), start=1):
        spelled, _, digits = line.partition(b" ")
        try:
            token = binascii.a2b_base64(spelled, strict_mode=True)
        except binascii.Error:
            if spelled == b"=":  # as at the end of Whisper's file: no text is ever encoded to no bytes
                continue
            refuse(source, f"not base64: {spelled[:80]!r}", number)
        if not digits.isdigit() or len(digits) > 10 or not token:
            if not line:
                continue
            refuse(source, f"not a token in base64, a space and a rank: {line[:80]!r}", number)
        if token in ranks:
            refuse(source, f"the token {token!r} stands twice, with ranks {ranks[token]} and {int(digits)}", number)
        ranks[token] = int(digits)
    check_ids_of(ranks, [*ranks.values()], source)
    return ranks


def merges_from_ranks(ranks: Mapping[AnyStr, int]) -> list[tuple[AnyStr, AnyStr]]:
    """A merge list that, used whole pretoken first, encodes as the ranks do: every way to cut a token into two tokens.

    tiktoken and sentencepiece merge any two neighbours which joined are a token, so one pair for each token would not
    do. Where one token can be made at two overlapping positions from different halves, they take the leftmost and a
    merge list the pair that stands first.
    """
    return [
        (token[:cut], token[cut:])
        for token in sorted(ranks, key=ranks.__getitem__)
        for cut in range(1, len(token))
        if token[:cut] in ranks and token[cut:] in ranks
    ]
