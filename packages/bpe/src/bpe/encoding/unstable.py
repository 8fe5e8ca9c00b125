"""What an unfinished text could yet become: the ids that are certain, and the ways in which the rest could go on.

As tiktoken's encode_with_unstable. The last pretoken is unstable, and so is the white space just before it where it
begins with white space. A completion is the shortest run of ids that covers the unstable bytes, in the encoding of
these bytes lengthened to the end of a token: of every token that begins with all of them, or with what any place inside
leaves of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from bpe.native.lazy_imports import regex

SPACES = b" \n\t"


def unstable_from(pieces: Sequence[bytes], last: int) -> int:
    """The index in `pieces`, the tokens of a text of which the last pretoken has `last`, from which on they are
    unstable.
    """
    begin = len(pieces) - last
    if last and _is_space(pieces[begin]):
        while begin and _is_space(pieces[begin - 1]):
            begin -= 1
    return begin


def completions(
    unstable: bytes,
    tokens: Sequence[bytes],
    number: Callable[[bytes], int],
    encode: Callable[[bytes], list[int]],
    merge: Callable[[bytes], list[int]],
    size: Callable[[int], int],
) -> list[list[int]]:
    """The completions of the unstable bytes, each once, in no order that means anything.

    tokens: those that are not special, sorted. number: the id of one. encode: text to ids. merge: bytes to ids by
    merging alone, no pattern and no look-up of the whole. size: the bytes of an id.
    """
    found: dict[tuple[int, ...], None] = {}
    for cut in range(len(unstable)):
        begin, rest = unstable[:cut], unstable[cut:]
        for place in range(bisect_left(tokens, rest), len(tokens)):
            token = tokens[place]
            if not token.startswith(rest):
                break
            if not cut:
                found[(number(token),)] = None
                continue
            longer = begin + token
            ids = encode(longer) if _is_text(longer) else merge(longer)
            covered = count = 0
            while covered < len(unstable) and count < len(ids):
                covered += size(ids[count])
                count += 1
            found[tuple(ids[:count])] = None
    last = _last_character(unstable)
    if 0 < len(last) < len(unstable) and regex.match(r"\p{White_Space}", last.decode()):
        found[(*merge(unstable[: -len(last)]), *merge(last))] = None
    return list(map(list, found))


def _is_space(token: bytes) -> bool:
    return not token.strip(SPACES)


def _is_text(data: bytes) -> bool:
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def _last_character(data: bytes) -> bytes:
    """The last character of bytes that end in whole UTF-8, or nothing."""
    for size in range(1, 5):
        if _is_text(data[-size:]) and data:
            return data[-size:]
    return b""
