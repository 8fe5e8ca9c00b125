"""The checks of chapter 1. They need nothing but Python, so that they run in a browser too."""

from __future__ import annotations

import random
from collections.abc import Callable

from grading import compare_speed, drawing, same, seconds

TEXTS = (
    "",
    "low lower",
    "größer, naïve",
    "日本語と中文",
    "🙂👩‍👩‍👧 emoji",
    "e\u0301, and \u00e9",
    "\x00\x7f\x80\u07ff\u0800\uffff\U00010000\U0010ffff",
    "\ud7ff\ue000\ufeff\ufffd",
    "\U00040000\U000c0000",
    "\ufeffa byte order mark",
)
RANGES = ((0x20, 0x7E), (0x80, 0x7FF), (0x800, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x10FFFF))


def drawn_text(numbers: random.Random, length: int) -> str:
    """A text whose characters have one to four bytes."""
    return "".join(chr(numbers.randint(*numbers.choice(RANGES))) for _ in range(length))


def texts(exercise: str, length: int = 20) -> tuple[str, ...]:
    """TEXTS, and two that are drawn for an exercise."""
    numbers = drawing(exercise)
    return (*TEXTS, drawn_text(numbers, length), drawn_text(numbers, length))


def encode_utf8(yours: Callable[[str], bytes]) -> Callable[[], str]:
    for text in texts("encode_utf8"):
        hint = "Look at the characters whose code point is just below and just above a bound."
        same(f"encode_utf8({text!r})", yours(text), text.encode(), hint)
    text = "größer, naïve, 日本語 🙂 and plain English. " * 2500
    return lambda: compare_speed(
        f"{len(text.encode()) // 1000} kB", seconds(lambda: yours(text)), seconds(text.encode), "Python's own"
    )


def decode_utf8(yours: Callable[[bytes], str]) -> None:
    for text in texts("decode_utf8"):
        same(f"decode_utf8({text.encode()!r})", yours(text.encode()), text)


def is_whole(yours: Callable[[bytes], bool]) -> None:
    for text in texts("is_whole", 6):
        data = text.encode()
        places = {len(text[:i].encode()) for i in range(len(text) + 1)}
        for begin in range(len(data) + 1):
            for end in range(begin, len(data) + 1):
                right = begin == end or (begin in places and end in places)
                same(f"is_whole({data[begin:end]!r})", yours(data[begin:end]), right)


CHAPTERS: dict[int, dict[str, Callable[..., Callable[[], str] | None]]] = {
    1: {"encode_utf8": encode_utf8, "decode_utf8": decode_utf8, "is_whole": is_whole},
}
