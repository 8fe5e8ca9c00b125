"""A solution of the exercises of chapter 16."""

from collections.abc import Callable

import regex

PATTERN = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)


def pretokens(text: str) -> list[str]:
    return [found.group() for found in regex.finditer(PATTERN, text)]


def merge(data: bytes, ranks: dict[bytes, int], below: float) -> list[bytes]:
    parts = [data[i : i + 1] for i in range(len(data))]
    while len(parts) > 1:
        rank, i = min((ranks.get(parts[i] + parts[i + 1], below), i) for i in range(len(parts) - 1))
        if rank >= below:
            break
        parts[i : i + 2] = [parts[i] + parts[i + 1]]
    return parts


def recover_merges(ranks: dict[bytes, int]) -> list[tuple[bytes, bytes]]:
    merges = []
    for token in sorted(ranks, key=ranks.__getitem__):
        if len(token) > 1:
            left, right = merge(token, ranks, ranks[token])
            merges.append((left, right))
    return merges


def encode(text: str, ranks: dict[bytes, int]) -> list[int]:
    ids = []
    for piece in pretokens(text):
        data = piece.encode()
        parts = [data] if data in ranks else merge(data, ranks, float("inf"))
        ids.extend(ranks[part] for part in parts)
    return ids


def stable_ids(encode: Callable[[str], list[int]], prompt: str, ending: str) -> int:
    alone, whole = encode(prompt), encode(prompt + ending)
    for i, number in enumerate(alone):
        if whole[i : i + 1] != [number]:
            return i
    return len(alone)


def premiums(encode: Callable[[str], list[int]], translations: dict[str, str], base: str) -> dict[str, float]:
    least = len(encode(translations[base]))
    return {language: len(encode(text)) / least for language, text in translations.items()}
