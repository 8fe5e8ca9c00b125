"""A solution of the exercises of chapter 2, plain and slow."""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import regex

PATTERN = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""


def count_pairs(words: dict[tuple[bytes, ...], int]) -> dict[tuple[bytes, bytes], int]:
    counts: Counter[tuple[bytes, bytes]] = Counter()
    for word, count in words.items():
        for pair in pairwise(word):
            counts[pair] += count
    return counts


def apply_merge(word: tuple[bytes, ...], pair: tuple[bytes, bytes]) -> tuple[bytes, ...]:
    out: list[bytes] = []
    i = 0
    while i < len(word):
        if word[i : i + 2] == pair:
            out.append(pair[0] + pair[1])
            i += 2
        else:
            out.append(word[i])
            i += 1
    return tuple(out)


def pieces(text: str, special_tokens: list[str]) -> list[str]:
    """Text between special tokens and the tokens themselves, in turn."""
    if not special_tokens:
        return [text]
    longest_first = sorted(special_tokens, key=len, reverse=True)
    return regex.split("(" + "|".join(map(regex.escape, longest_first)) + ")", text)


def train_bpe(
    input_path: str, vocab_size: int, special_tokens: list[str]
) -> tuple[dict[int, bytes], list[tuple[bytes, bytes]]]:
    text = Path(input_path).read_bytes().decode()
    words: Counter[tuple[bytes, ...]] = Counter()
    for piece in pieces(text, special_tokens)[::2]:
        for found in regex.findall(PATTERN, piece):
            words[tuple(bytes([byte]) for byte in found.encode())] += 1
    tokens = [bytes([byte]) for byte in range(256)] + [name.encode() for name in special_tokens]
    merges: list[tuple[bytes, bytes]] = []
    while len(tokens) < vocab_size:
        counts = count_pairs(words)
        if not counts:
            break
        best = max(counts, key=lambda pair: (counts[pair], pair))
        merges.append(best)
        tokens.append(best[0] + best[1])
        changed: Counter[tuple[bytes, ...]] = Counter()
        for word, count in words.items():
            changed[apply_merge(word, best)] += count
        words = changed
    return dict(enumerate(tokens)), merges


class Tokenizer:
    def __init__(
        self, vocab: dict[int, bytes], merges: list[tuple[bytes, bytes]], special_tokens: list[str] | None = None
    ) -> None:
        self.vocab = vocab
        self.ids = {token: number for number, token in vocab.items()}
        self.ranks = {pair: rank for rank, pair in enumerate(merges)}
        self.special_tokens = special_tokens or []

    def encode(self, text: str) -> list[int]:
        ids = []
        for i, piece in enumerate(pieces(text, self.special_tokens)):
            if i % 2:
                ids.append(self.ids[piece.encode()])
                continue
            for found in regex.findall(PATTERN, piece):
                word = tuple(bytes([byte]) for byte in found.encode())
                while True:
                    pairs = [pair for pair in pairwise(word) if pair in self.ranks]
                    if not pairs:
                        break
                    word = apply_merge(word, min(pairs, key=self.ranks.__getitem__))
                ids += [self.ids[symbol] for symbol in word]
        return ids

    def decode(self, ids: list[int]) -> str:
        return b"".join(self.vocab[number] for number in ids).decode("utf-8", errors="replace")
