"""tiktoken's encode_with_unstable: the ids of an unfinished text that are certain, and the completions of the rest.

The last pretoken of the text is unstable. If it begins with white space, the white space before it is unstable too.

Completions are found by lengthening the unstable bytes. Cut them anywhere into a beginning and an end; take every token
that starts with the end; encode the beginning followed by that token. The first ids of the result, as many as it takes
to cover the unstable bytes, are a completion:

    unstable   " lo"        cut 0: tokens that start with " lo"       " low" -> [" low"]
                            cut 1: " " + tokens that start with "lo"  "lot"  -> encode(" lot") = [" l", "ot"]
                            cut 2: " l" + tokens that start with "o"  "old"  -> encode(" lold") = [" l", "old"]
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence

from bpe.expressions.properties import white_space

SPACES = b" \n\t"


def unstable_from(pieces: Sequence[bytes], last: int) -> int:
    """Return the index of the first unstable token. pieces: the bytes of each; last: how many the last pretoken has."""
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
    """The completions of the unstable bytes, which end in whole characters, each once; their order means nothing.

    tokens: those that are not special, sorted. merge: the ids of bytes that need not be text, by merging alone. size:
    the number of bytes of an id.
    """
    completed: dict[tuple[int, ...], None] = {}
    for cut in range(len(unstable)):
        begin, rest = unstable[:cut], unstable[cut:]
        for index in range(bisect_left(tokens, rest), len(tokens)):
            token = tokens[index]
            if not token.startswith(rest):
                break
            if not cut:
                completed[(number(token),)] = None
                continue
            longer = begin + token
            ids = (encode if longer.decode("utf-8", "ignore").encode() == longer else merge)(longer)
            covered = count = 0
            while covered < len(unstable) and count < len(ids):
                covered += size(ids[count])
                count += 1
            completed[tuple(ids[:count])] = None
    character = unstable.decode("utf-8", "surrogateescape")[-1:]
    last = character.encode("utf-8", "surrogateescape")
    if 0 < len(last) < len(unstable) and any(first <= ord(character) <= end for first, end in white_space()):
        completed[(*merge(unstable[: -len(last)]), *merge(last))] = None
    return list(map(list, completed))


def _is_space(token: bytes) -> bool:
    return not token.strip(SPACES)
