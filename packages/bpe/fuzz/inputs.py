"""Bytes that a fuzzer changes, read as what a tokenizer is given: numbers, texts, vocabularies; and ways to change
them.
"""

from __future__ import annotations

import random

from strategies import PIECES

import bpe.patterns
from bpe.tokenizer import Tokenizer

PATTERNS = [*bpe.patterns.PATTERNS, None]
ONE_BYTE = [bytes([byte]) for byte in range(256)]
SPECIALS = ["<|endoftext|>", "<|", "<|end", "of", "|>", "a", "ab", "aba", " ", "\n", "'s", "é", "中文", "x" * 70]
WORDS = [piece.encode() for piece in PIECES] + [
    *(b'"', b"{", b"}", b"[", b"]", b",", b":", b" ", b"\n", b"\\u0000", b"\\ud800", b"null", b"true", b"-1", b"1e999"),
    *(
        b"2147483648",
        b"18446744073709551616",
        b"0.5",
        b'"vocab"',
        b'"merges"',
        b'"id"',
        b'"ids"',
        b'"type"',
        b'"content"',
    ),
    *(b'"special"', b'"normalized"', b'"pattern"', b'"Regex"', b'"added_tokens"', b'"BPE"', b'"Sequence"', b'"NFC"'),
    *(b"#version: 0.2", b"==", b"\xff", b"\xc4\xa0", b"\r", b'"\\u0120"'),
]


class Reader:
    """Takes values from the front of the bytes; when they are used up, every value is the smallest."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1] if self.at <= len(self.data) else 0

    def number(self, below: int) -> int:
        value = 0
        for _ in range((max(below - 1, 1).bit_length() + 7) // 8):
            value = value << 8 | self.byte()
        return value % below

    def rest(self) -> bytes:
        begin, self.at = self.at, len(self.data)
        return self.data[begin:]

    def one_of(self, choices: list):
        return choices[self.number(len(choices))]

    def text(self, most: int) -> bytes:
        """At most so many units: the corner cases of the patterns, any character, any byte, or what was before,
        again."""
        out: list[bytes] = []
        unit = b"a"
        for _ in range(self.number(most + 1)):
            kind = self.byte()
            if kind < 160:
                unit = PIECES[kind % len(PIECES)].encode()
            elif kind < 200:
                unit = bytes([self.byte()])
            elif kind < 225:
                unit = chr(self.number(0x110000)).encode("utf-8", "surrogatepass")
            out.append(unit * max(1, kind - 224))
        return b"".join(out)

    def vocabulary(self) -> tuple[dict[int, bytes], list[tuple[bytes, bytes]]]:
        """Tokens made by joining any two that stand already, and the ids of all: in order, or any."""
        tokens, merges = list(ONE_BYTE), []
        likely = [*b"ab' s\n1e\xe4\xb8\xad"]
        for _ in range(self.number(40)):
            halves = [
                tokens[256 + self.number(len(tokens) - 256)]
                if len(tokens) > 256 and self.byte() & 1
                else bytes([self.one_of(likely)])
                for _ in range(2)
            ]
            pair = (halves[0], halves[1])
            if pair not in merges and len(pair[0]) + len(pair[1]) < 60:
                merges.append(pair)
                if pair[0] + pair[1] not in tokens:
                    tokens.append(pair[0] + pair[1])
        numbers = list(range(len(tokens)))
        if self.byte() & 1:
            random.Random(self.byte()).shuffle(numbers)
        if self.byte() & 1:
            numbers = [number * 3 + 1 for number in numbers]
        return dict(zip(numbers, tokens, strict=True)), merges

    def tokenizer(self) -> Tokenizer:
        """One that merges by rank, by its list of merges, or by that with whole pretokens first."""
        vocab, merges = self.vocabulary()
        pattern = self.one_of(PATTERNS)
        names = sorted({self.one_of(SPECIALS) for _ in range(self.number(4))})
        kind = self.number(3)
        cache = [0, 1 << 12, 1 << 18][self.number(3)]  # a large one would take longer to make than everything else
        if kind == 0:
            ranks = {token: number for number, token in vocab.items()}
            made = Tokenizer.from_ranks(ranks, pattern=pattern, special_tokens=names)
            return Tokenizer.from_data(made.data, cache_bytes=cache)
        made = Tokenizer(vocab, merges, pattern=pattern, special_tokens=names, cache_bytes=cache)
        return made if kind == 1 else Tokenizer.from_data(made.data._replace(ignore_merges=True), cache_bytes=cache)


def change(data: bytes, others: list[bytes], chance: random.Random) -> bytes:
    """The input changed in one to eight places; its first byte, which says what is tested, stays."""
    out = bytearray(data[1:])
    for _ in range(1 << chance.randrange(4)):
        at, size = chance.randrange(len(out) + 1), 1 << chance.randrange(7)
        kind = chance.randrange(9)
        if kind == 0 and at < len(out):
            out[at] ^= 1 << chance.randrange(8)
        elif kind == 1 and at < len(out):
            out[at] = chance.randrange(256)
        elif kind == 2:
            out[at:at] = chance.randbytes(chance.randrange(1, 9))
        elif kind == 3:
            del out[at : at + size]
        elif kind == 4:
            out[at:at] = out[at : at + size]
        elif kind == 5:
            begin = chance.randrange(len(out) + 1)
            out[at : at + size] = out[begin : begin + size]
        elif kind == 6:
            out[at:at] = chance.choice(WORDS)
        elif kind == 7:
            word = chance.choice(WORDS)
            out[at : at + len(word)] = word
        elif kind == 8:
            other = chance.choice(others)
            begin = chance.randrange(1, len(other) + 1)
            out[at : at + size] = other[begin : begin + size]
    return data[:1] + bytes(out[:20_000])
