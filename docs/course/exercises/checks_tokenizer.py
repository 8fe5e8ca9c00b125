"""The checks of chapters 2 and 3: a function for each name that a student writes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

from checks_text import TEXTS
from grading import Wrong, compare_speed, same, seconds, shown

import bpe

LOW = "low low low low low lower lower widest widest widest newest newest newest newest newest newest"


def english(count: int) -> str:
    """Some English: Python's help texts."""
    return "\n".join(topics[name] for name in sorted(topics))[:count]


def count_pairs(yours: Callable[..., Any]) -> None:
    low = {(b"l", b"o", b"w"): 5, (b"l", b"o", b"w", b"e", b"r"): 2}
    right = {(b"l", b"o"): 7, (b"o", b"w"): 7, (b"w", b"e"): 2, (b"e", b"r"): 2}
    for words, pairs in ((low, right), ({(b"a", b"a", b"a"): 3}, {(b"a", b"a"): 6}), ({(b"a",): 9}, {})):
        answer = yours(words)
        same(f"count_pairs({words})", None if answer is None else dict(answer), pairs)


def apply_merge(yours: Callable[..., Any]) -> None:
    a, b = b"a", b"b"
    hint = "Merge from the left, and never use a symbol twice."
    for word, pair, right in (
        ((a, b), (a, b), (a + b,)),
        ((a, a, a), (a, a), (a + a, a)),
        ((a, a, a, a), (a, a), (a + a, a + a)),
        ((b, a, b, b, a), (a, b), (b, a + b, b, a)),
        ((a,), (a, b), (a,)),
        ((a + b, a), (a, b), (a + b, a)),
    ):
        same(f"apply_merge({word}, {pair})", yours(word, pair), right, hint)


def train_bpe(yours: Callable[..., Any]) -> str:
    special = ["<|endoftext|>"]
    cases = (
        (LOW, 263, special),
        ("aaaa bbbb aaaa bbbb", 262, special),
        ("<|endoftext|>" * 20 + "one two one two", 261, special),
        ("no special tokens at all, none at all", 262, []),
        (english(20_000), 400, special),
        ("größer größer 日本 日本 größte", 264, special),
        ("a <= b >= a <= b >= <|endoftext|> if a <= b >= a", 261, special),
        ("one<|a|>one<|a|><|a|>one|one|one|one", 260, ["<|a|>", "<|a|><|a|>"]),
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "text.txt")
        for text, size, names in cases:
            path.write_text(text, encoding="utf-8")
            call = f"train_bpe(a file with {shown(text[:60])}, {size}, {names})"
            ours = bpe.train(path, size, special_tokens=names)
            answer = yours(str(path), size, names)
            if answer is None:
                raise Wrong("train_bpe returns None: its body is not written yet, or has no return.")
            vocab, merges = answer
            hint = "Check what is counted (pretokens, never across them), and which of equally frequent pairs is first."
            if "<=" in text or "<|a|>" in text:
                hint = "A special token may hold characters that a pattern reads as its own, such as |: escape them."
            same(f"The merges of {call}", [tuple(map(bytes, merge)) for merge in merges], list(ours.merges), hint)
            expected = (
                {bytes([byte]) for byte in range(256)} | {a + b for a, b in ours.merges} | {n.encode() for n in names}
            )
            same(f"The tokens of {call}", sorted(vocab.values()), sorted(expected))
        path.write_text("aa", encoding="utf-8")
        hint = "When there is no pair left, there is nothing to merge: stop."
        same("The merges of train_bpe(a file with 'aa', 300, [])", yours(str(path), 300, [])[1], [(b"a", b"a")], hint)
        path.write_text(english(50_000), encoding="utf-8")
        slow = seconds(lambda: yours(str(path), 500, special))
        return compare_speed("50 kB, 500 tokens", slow, seconds(lambda: bpe.train(path, 500)))


def tokenizer(yours: Callable[..., Any]) -> str:
    ours = bpe.train([english(50_000), "größer 日本語 🙂"], 800)
    vocab = dict(ours.vocab)
    for name, number in ours.special_tokens.items():
        vocab[number] = name.encode()
    student = yours(vocab, list(ours.merges), ["<|endoftext|>"])
    for text in (*TEXTS, LOW, english(3000), "one<|endoftext|>two", "<|endoftext|>", "aaaaaaaa", "   spaces \n\n"):
        right = ours.encode(text, allowed_special="all")
        hint = "Within a pretoken the pair that stands first in the list of merges is joined first."
        same(f"encode({shown(text)})", student.encode(text), right, hint)
        same(f"decode({shown(right)})", student.decode(right), text)
    text = "one<|endoftext|>two"
    hint = "Without special tokens everything is ordinary text."
    plain = yours(vocab, list(ours.merges))
    same(f"encode({text!r}) without special tokens", plain.encode(text), ours.encode_ordinary(text), hint)
    longer = {**vocab, len(vocab): b"<|endoftext|>" * 2}
    nested = yours(longer, list(ours.merges), ["<|endoftext|>", "<|endoftext|>" * 2])
    text = "a<|endoftext|><|endoftext|>b<|endoftext|>"
    end = ours.special_tokens["<|endoftext|>"]
    right = [*ours.encode("a"), len(vocab), *ours.encode("b"), end]
    hint = "Where one special token begins with another, the longer one is looked for first."
    same(f"encode({text!r}) with a special token of two of them", nested.encode(text), right, hint)
    half = "日".encode()[:2]
    same(
        f"decode of the bytes {half!r}",
        student.decode([list(vocab.values()).index(bytes([byte])) for byte in half]),
        "\ufffd",
    )
    text = english(200_000)
    return compare_speed("200 kB", seconds(lambda: student.encode(text)), seconds(lambda: ours.encode(text)))


def judged() -> tuple[tuple[bpe.Tokenizer, str], ...]:
    """Tokenizers, and texts to judge them on."""
    plain = bpe.train([english(50_000)], 700)
    texts = [english(20_000), "größer 日本語 日本語 🙂🙂🙂" * 9]
    many = bpe.train(texts, 500, special_tokens=["<|endoftext|>", "<|pad|>"])
    return (plain, english(60_000)[50_000:]), (many, "größer 日本"), (plain, "日本語")


def compression_ratio(yours: Callable[..., Any]) -> None:
    for tokenizer, text in judged():
        right = len(text.encode()) / len(tokenizer.encode(text))
        answer = yours(tokenizer, text)
        if answer is None:
            same("compression_ratio(…)", answer, right)
        if abs(answer - right) > 1e-9:
            raise Wrong(
                f"compression_ratio of {shown(text[:40])} gives {answer:.4f}, and should give {right:.4f}. "
                "Count bytes, not characters."
            )


def unused_tokens(yours: Callable[..., Any]) -> None:
    for tokenizer, text in judged():
        right = sorted(set(tokenizer.vocab) - set(tokenizer.encode(text)))
        same(f"unused_tokens(…, {shown(text[:40])})", yours(tokenizer, text), right)


def parts_of_characters(yours: Callable[..., Any]) -> None:
    def whole(token: bytes) -> bool:
        try:
            token.decode()
        except UnicodeDecodeError:
            return False
        return True

    for tokenizer, _ in judged():
        right = sorted(number for number, token in tokenizer.vocab.items() if not whole(token))
        same(
            "parts_of_characters(…)",
            yours(tokenizer),
            right,
            "A token may end in the middle of a character, or begin there.",
        )


CHAPTERS: dict[int, dict[str, Callable[..., str | None]]] = {
    2: {"count_pairs": count_pairs, "apply_merge": apply_merge, "train_bpe": train_bpe, "Tokenizer": tokenizer},
    3: {
        "compression_ratio": compression_ratio,
        "unused_tokens": unused_tokens,
        "parts_of_characters": parts_of_characters,
    },
}
