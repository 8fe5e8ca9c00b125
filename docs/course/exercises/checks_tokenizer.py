"""The checks of chapters 2 and 3: a function for each name that a student writes."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from pydoc_data.topics import topics
from types import SimpleNamespace
from typing import Any

from checks_text import TEXTS, drawn_text
from grading import NOT_WRITTEN, State, Wrong, compare_speed, drawing, near, same, seconds, shown

import bpe

LOW = "low low low low low lower lower widest widest widest newest newest newest newest newest newest"
END = "<|endoftext|>"
TIE = "Of equally frequent pairs the greatest is first: max of pairs of bytes, compared one after the other."
ESCAPE = "A special token may hold characters that a pattern reads as its own, such as |: escape them."
BORDER = "Documents end at a special token: no pair reaches from one to the next. Split there, do not remove it."
COUNTED = "Check what is counted (pretokens, never across them), and which of equally frequent pairs is first."


def english(count: int, seed: int | None = None) -> str:
    """Some English: Python's help texts, from a place that depends on a seed."""
    names = sorted(topics)
    start = 0 if seed is None else seed % (len(names) // 2)
    return "\n".join(topics[name] for name in names[start:] + names[:start])[:count]


def count_pairs(yours: Callable[..., Any]) -> None:
    low = {(b"l", b"o", b"w"): 5, (b"l", b"o", b"w", b"e", b"r"): 2}
    numbers = drawing("count_pairs")
    symbols = [b"a", b"b", b"ab", "é".encode()]
    words = {tuple(numbers.choices(symbols, k=numbers.randint(1, 7))): numbers.randint(1, 50) for _ in range(9)}
    for case in (low, {(b"a", b"a", b"a"): 3}, {(b"a",): 9}, {}, words):
        right: Counter[tuple[bytes, bytes]] = Counter()
        for word, count in case.items():
            for pair in pairwise(word):
                right[pair] += count
        answer = yours(case)
        hint = "Each pair counts as often as its word occurs, and each of its places in the word."
        same(f"count_pairs({case})", None if answer is None else dict(answer), dict(right), hint)


def apply_merge(yours: Callable[..., Any]) -> None:
    a, b = b"a", b"b"
    hint = "Merge from the left, and never use a symbol twice."
    numbers = drawing("apply_merge")
    drawn = tuple((tuple(numbers.choices([a, b, a + b], k=12)), pair) for pair in ((a, b), (a, a), (b, a + b)))
    for word, pair in (
        ((a, b), (a, b)),
        ((a, a, a), (a, a)),
        ((a, a, a, a), (a, a)),
        ((b, a, b, b, a), (a, b)),
        ((a,), (a, b)),
        ((a + b, a), (a, b)),
        ((a, b + a, b), (a, b)),
        ((a + a, b), (a, a + b)),
        *drawn,
    ):
        right: list[bytes] = []
        at = 0
        while at < len(word):
            is_pair = word[at : at + 2] == pair
            right.append(b"".join(pair) if is_pair else word[at])
            at += 1 + is_pair
        same(f"apply_merge({word}, {pair})", yours(word, pair), tuple(right), hint)


def training_cases() -> tuple[tuple[str, int, list[str], str], ...]:
    """Texts to train on, each with a size, special tokens, and a hint for whoever is wrong there."""
    numbers = drawing("train_bpe")
    words = ["".join(numbers.choices("abcde", k=numbers.randint(1, 6))) for _ in range(30)]
    drawn = " ".join(numbers.choices(words, k=600))
    return (
        (LOW, 263, [END], TIE),
        ("ab xy ab xy", 258, [], TIE),
        ("a cab a cab", 260, [END], TIE),
        ("aaaa bbbb aaaa bbbb", 262, [END], COUNTED),
        (END * 20 + "one two one two", 261, [END], "A special token is not counted: its letters are no text."),
        (f"ab{END}cd" * 9 + " cd cd", 260, [END], BORDER),
        (f" ab{END} ab{END} ab", 259, [END], "White space at the edge of a document counts too."),
        ("no special tokens at all, none at all", 262, [], COUNTED),
        ("Aa AA aA aa AA AA aA", 260, [END], "A and a are two characters."),
        ("größer größer 日本 日本 größte e\u0301 e\u0301 e\u0301", 266, [END], COUNTED),
        ("a <= b >= a <= b >= <|endoftext|> if a <= b >= a", 261, [END], ESCAPE),
        ("one<|a|>one<|a|><|a|>one|one|one|one", 260, ["<|a|>", "<|a|><|a|>"], ESCAPE),
        ("don't  don't\n\n  12ab34 12ab34 they'll", 270, [END], COUNTED),
        ("a\r\nb\r\n\r\na\r\nb", 259, [END], "Bytes are read as they are, \\r too: Python's text mode drops it."),
        (drawn, 300, [END], COUNTED),
        (english(20_000, State.seed), 400, [END], "All of the file counts, and every pretoken of it."),
    )


def train_bpe(yours: Callable[..., Any]) -> Callable[[], str]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "text.txt")
        for text, size, names, hint in training_cases():
            path.write_bytes(text.encode())
            call = f"train_bpe(a file with {shown(text[:60])}, {size}, {names})"
            ours = bpe.train(path, size, special_tokens=names)
            answer = yours(str(path), size, names)
            if answer is None:
                raise Wrong("train_bpe returns None: its body is not written yet, or has no return.")
            vocab, merges = answer
            same(f"The merges of {call}", [tuple(map(bytes, merge)) for merge in merges], list(ours.merges), hint)
            expected = (
                {bytes([byte]) for byte in range(256)} | {a + b for a, b in ours.merges} | {n.encode() for n in names}
            )
            same(f"The tokens of {call}", sorted(vocab.values()), sorted(expected))
            same(f"The ids of {call}", sorted(vocab), list(range(len(expected))), "Ids are 0, 1, 2, …, each once.")
        path.write_text("aa", encoding="utf-8")
        hint = "When there is no pair left, there is nothing to merge: stop."
        same("The merges of train_bpe(a file with 'aa', 300, [])", yours(str(path), 300, [])[1], [(b"a", b"a")], hint)
        hint = "The vocabulary is full already: 256 bytes."
        same("The merges of train_bpe(a file with 'aa', 256, [])", yours(str(path), 256, [])[1], [], hint)
    return lambda: training_speed(yours)


def training_speed(yours: Callable[..., Any]) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "text.txt")
        path.write_text(english(50_000), encoding="utf-8")
        slow = seconds(lambda: yours(str(path), 500, [END]))
        return compare_speed("50 kB, 500 tokens", slow, seconds(lambda: bpe.train(path, 500)))


def tokenizer(yours: Callable[..., Any]) -> Callable[[], str]:
    numbers = drawing("Tokenizer")
    ours = bpe.train([english(50_000, State.seed), "größer 日本語 🙂 e\u0301"], 800)
    vocab = dict(ours.vocab)
    for name, number in ours.special_tokens.items():
        vocab[number] = name.encode()
    ids = list(vocab)
    numbers.shuffle(ids)
    renamed = dict(zip(vocab, ids, strict=True))  # ids in another order: they say nothing of a token
    merges, names = list(ours.merges), [END]
    student = yours(vocab, merges, names)
    other = yours({renamed[number]: token for number, token in vocab.items()}, list(ours.merges), [END])
    drawn = drawn_text(numbers, 40)
    texts = (
        *TEXTS,
        drawn,
        LOW,
        english(3000),
        f"one{END}two",
        END,
        f"{END}{END}\n{END}",
        "aaaaaaaa",
        " spaces \n\n ",
        "a\r\nb\r",
    )
    for text in texts:
        right = ours.encode(text, allowed_special="all")
        hint = "Within a pretoken the pair that stands first in the list of merges is joined first."
        same(f"encode({shown(text)})", student.encode(text), right, hint)
        ids = list(right)
        same(f"decode({shown(right)})", student.decode(ids), text, "A text comes back character by character.")
        same("The list of ids after decode(ids)", ids, right, "It belongs to whoever calls decode: leave it alone.")
        hint = "A token's id is what the vocabulary says; it is neither its byte nor its place in the list of merges."
        same(f"encode({shown(text)}) with other ids", other.encode(text), [renamed[n] for n in right], hint)
        same(f"decode of {shown(text)} with other ids", other.decode([renamed[n] for n in right]), text, hint)
    same("The list of merges after encode", merges, list(ours.merges), "It belongs to whoever made the tokenizer.")
    same("The list of special tokens after encode", names, [END], "It belongs to whoever made the tokenizer.")
    text = f"one{END}two"
    hint = "Without special tokens everything is ordinary text."
    plain = yours(vocab, list(ours.merges))
    same(f"encode({text!r}) without special tokens", plain.encode(text), ours.encode_ordinary(text), hint)
    longer = {**vocab, len(vocab): END.encode() * 2}
    for order in ([END, END * 2], [END * 2, END]):
        given_order = list(order)
        nested = yours(longer, list(ours.merges), order)
        text = f"a{END}{END}b{END}"
        end = ours.special_tokens[END]
        right = [*ours.encode("a"), len(vocab), *ours.encode("b"), end]
        hint = "Where one special token begins with another, the longer one is looked for first."
        same(f"encode({text!r}) with a special token of two of them", nested.encode(text), right, hint)
        same("The list of special tokens after encode", order, given_order, "It belongs to whoever made the tokenizer.")
    number = {token: number for number, token in vocab.items()}
    for data in ("日".encode()[:2], b"a\xffb", "🙂".encode()[:3] + b"z\x80"):
        pieces = [number[bytes([byte])] for byte in data]
        hint = "Join the bytes of all tokens first; then decode them, with errors='replace'."
        same(f"decode of the bytes {data!r}", student.decode(pieces), data.decode(errors="replace"), hint)
    text = english(200_000)
    return lambda: compare_speed("200 kB", seconds(lambda: student.encode(text)), seconds(lambda: ours.encode(text)))


def judged() -> tuple[tuple[bpe.Tokenizer, str], ...]:
    """Tokenizers, and texts to judge them on."""
    place = drawing("judged").randrange(50_000, 90_000)
    plain = bpe.train([english(50_000)], 700)
    texts = [english(20_000, State.seed), "größer 日本語 日本語 🙂🙂🙂" * 9 + "\ufffd\ufffd" * 500]
    many = bpe.train(texts, 500, special_tokens=[END, "<|pad|>"])
    # ids with gaps, and tokens that hold a whole character beside a part of one
    vocab = {2 * byte: bytes([byte]) for byte in range(256)} | {901: b"a\xe6", 700: b"\x97b", 555: "é".encode()}
    merges = [(b"a", b"\xe6"), (b"\x97", b"b"), (b"\xc3", b"\xa9")]
    gaps = bpe.Tokenizer(vocab, merges, special_tokens=[])
    texts = english(place + 9000)[place:], "größer 日本 \ufffd 🙂", "日本語", "a日b é"
    return tuple(zip((plain, many, plain, gaps), texts, strict=True))


def compression_ratio(yours: Callable[..., Any]) -> None:
    for tokenizer, text in judged():
        right = len(text.encode()) / len(tokenizer.encode(text))
        hint = "Count bytes, not characters."
        near(f"compression_ratio of {shown(text[:40])}", yours(tokenizer, text), right, hint, 1e-9)


def unused_tokens(yours: Callable[..., Any]) -> None:
    for tokenizer, text in judged():
        right = sorted(set(tokenizer.vocab) - set(tokenizer.encode(text)))
        # a vocabulary need not be in the order of its ids
        backwards = SimpleNamespace(vocab=dict(reversed(tokenizer.vocab.items())), encode=tokenizer.encode)
        same(f"unused_tokens(…, {shown(text[:40])})", yours(backwards, text), right)


def parts_of_characters(yours: Callable[..., Any]) -> None:
    def is_text(token: bytes) -> bool:
        try:
            token.decode()
        except UnicodeDecodeError:
            return False
        return True

    for tokenizer, _ in judged():
        right = sorted(number for number, token in tokenizer.vocab.items() if not is_text(token))
        hint = "A token may end in the middle of a character, or begin there; and U+FFFD is a character itself."
        answer = yours(tokenizer)
        if answer is None:
            raise Wrong(f"parts_of_characters returns None: {NOT_WRITTEN}.")
        same("parts_of_characters(…)", answer, right, hint)


CHAPTERS: dict[int, dict[str, Callable[..., Callable[[], str] | None]]] = {
    2: {"count_pairs": count_pairs, "apply_merge": apply_merge, "train_bpe": train_bpe, "Tokenizer": tokenizer},
    3: {
        "compression_ratio": compression_ratio,
        "unused_tokens": unused_tokens,
        "parts_of_characters": parts_of_characters,
    },
}
