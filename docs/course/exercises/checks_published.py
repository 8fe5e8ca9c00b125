"""Checks of the exercises of chapter 16."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from grading import NOT_WRITTEN, Wrong, drawing, near, same

import bpe

TEXT = (
    "The cat sat on the mat. It's 1234567 o'clock, and they'll say: don't! DON'T THEY'RE\n\n  for i in range(10):\n"
    "\treturn x\r\n größe 日本語のテキスト 日本 naïve e\u0301te\u0301  $$$ ... !!!\n"
    "\n next  line   \n ½ ² ١٢٣٤ 'tis the other\n"
)
TRANSLATIONS = {
    "English": "All human beings are born free and equal in dignity and rights.",
    "Deutsch": "Alle Menschen sind frei und gleich an Würde und Rechten geboren.",
    "ไทย": "มนุษย์ทั้งหลายเกิดมามีอิสระและเสมอภาคกันในเกียรติศักดิ์และสิทธิ",
    "日本語": "すべての人間は、生まれながらにして自由である。",
}


@functools.cache
def tokenizer() -> bpe.Tokenizer:
    return bpe.train([TEXT * 3 + TRANSLATIONS["English"] * 9], 400, pattern="cl100k", special_tokens=[])


@functools.cache
def scrambled() -> tuple[bpe.Tokenizer, dict[bytes, int]]:
    """A tokenizer with the bytes in another order, as published ones have them, and its ranks."""
    plain = tokenizer()
    tokens = [plain.decode_single_token_bytes(number) for number in range(plain.n_vocab)]
    order = drawing("ranks").sample(range(256), 256)
    ranks = {tokens[place]: number for number, place in enumerate([*order, *range(256, len(tokens))])}
    return bpe.Tokenizer.from_ranks(ranks, pattern="cl100k"), ranks


def texts(name: str) -> list[str]:
    numbers = drawing(name)
    pieces = ["a", "B", "é", "日", "'s", "'LL", "'", "12", "3", "½", "!", "?!", "_", "\u0301"]
    pieces += [" ", "  ", "\n", "\r\n", "\t", "\u00a0"]
    return [TEXT, "", "\n", " ", "12345 678", *("".join(numbers.choices(pieces, k=12)) for _ in range(120))]


def pretokens(yours: Callable[..., Any]) -> None:
    for text in texts("pretokens"):
        right = [piece.decode() for piece in bpe.patterns.split(text.encode(), bpe.patterns.resolve("cl100k"))]
        same(f"pretokens({text[:60]!r})", yours(text), right, "The order of the alternatives matters.")


def recover_merges(yours: Callable[..., Any]) -> None:
    small = {bytes([number]): number for number in range(256)} | {b"ab": 256, b"bc": 257, b"abc": 258, b"abcabc": 300}
    right = [(b"a", b"b"), (b"b", b"c"), (b"ab", b"c"), (b"abc", b"abc")]
    hint = "Merge the token's bytes by all ranks below its own, the lowest first: two parts are left."
    same("recover_merges of ab, bc, abc, abcabc", yours(small), right, hint)
    shuffled = dict(drawing("recover_merges").sample(sorted(small.items()), len(small)))
    same("recover_merges of the same in another order", yours(shuffled), right, "Ranks decide, and not the dictionary.")
    _, ranks = scrambled()
    merges = list(tokenizer().merges)
    same(f"recover_merges of {len(ranks)} tokens", yours(ranks), merges, hint)


def encode(yours: Callable[..., Any]) -> None:
    right, ranks = scrambled()
    hint = "The pair of the lowest rank first, of equal ones the left one; no merge goes over a pretoken's border."
    for text in texts("encode"):
        same(f"encode({text[:60]!r}, ranks)", yours(text, ranks), right.encode(text), hint)
    # a token that no merges lead to is found whole
    odd = {bytes([number]): number for number in range(256)} | {b"xyz": 256, b"bc": 257, b"ab": 258}
    right_ids = [256, 32, 97, 257, 97, 32, 258, 258]
    same("encode('xyz abca abab', ranks with xyz, bc, ab)", yours("xyz abca abab", odd), right_ids, hint)


def stable_ids(yours: Callable[..., Any]) -> None:
    def digits(text: str) -> list[int]:
        return [len(text) % 2, *map(int, text)]  # the first id depends on the whole

    def pairs(text: str) -> list[int]:
        return [int(text[i : i + 2]) for i in range(0, len(text), 2)]

    for encode, prompt, ending in (
        (tokenizer().encode, "The cat ", "sat"),
        (tokenizer().encode, "The cat", " sat"),
        (tokenizer().encode, "The cat sat on the m", "at"),
        (tokenizer().encode, "", "a"),
        (tokenizer().encode, "1234", "567"),
        (digits, "123", "4"),
        (pairs, "123", "4"),
        (pairs, "12123", "12"),
        (pairs, "1234", ""),
    ):
        alone, whole = encode(prompt), encode(prompt + ending)
        right = next((i for i, number in enumerate(alone) if whole[i : i + 1] != [number]), len(alone))
        same(f"stable_ids(encode, {prompt!r}, {ending!r})", yours(encode, prompt, ending), right, f"{alone}, {whole}")


def premiums(yours: Callable[..., Any]) -> None:
    for base in ("English", "ไทย"):
        answer = yours(tokenizer().encode, TRANSLATIONS, base)
        if answer is None:
            raise Wrong(f"premiums returns None: {NOT_WRITTEN}.")
        same(f"The languages of premiums(…, {base!r})", sorted(answer), sorted(TRANSLATIONS))
        for language, text in TRANSLATIONS.items():
            right = len(tokenizer().encode(text)) / len(tokenizer().encode(TRANSLATIONS[base]))
            near(f"premiums(…, {base!r})[{language!r}]", answer[language], right, "Tokens, and not characters.")


CHAPTERS: dict[int, dict[str, Callable[..., None]]] = {
    16: {
        "pretokens": pretokens,
        "recover_merges": recover_merges,
        "encode": encode,
        "stable_ids": stable_ids,
        "premiums": premiums,
    }
}
