"""The checks of chapter 1. They need nothing but Python, so that they run in a browser too."""

from __future__ import annotations

from collections.abc import Callable

from grading import compare_speed, same, seconds

TEXTS = (
    "",
    "low lower",
    "größer, naïve",
    "日本語と中文",
    "🙂👩‍👩‍👧 emoji",
    "\x00\x7f\x80\u07ff\u0800\uffff\U00010000\U0010ffff",
    "\U00040000\U000c0000",
)


def encode_utf8(yours: Callable[[str], bytes]) -> str:
    for text in TEXTS:
        hint = "Look at the characters whose code point is just below and just above a bound."
        same(f"encode_utf8({text!r})", yours(text), text.encode(), hint)
    text = "größer, naïve, 日本語 🙂 and plain English. " * 2500
    return compare_speed(
        f"{len(text.encode()) // 1000} kB", seconds(lambda: yours(text)), seconds(text.encode), "Python's own"
    )


def decode_utf8(yours: Callable[[bytes], str]) -> None:
    for text in TEXTS:
        same(f"decode_utf8({text.encode()!r})", yours(text.encode()), text)


def is_whole(yours: Callable[[bytes], bool]) -> None:
    for text in TEXTS:
        data = text.encode()
        places = {len(text[:i].encode()) for i in range(len(text) + 1)}
        for begin in range(len(data) + 1):
            for end in range(begin, len(data) + 1):
                right = begin == end or (begin in places and end in places)
                same(f"is_whole({data[begin:end]!r})", yours(data[begin:end]), right)


CHAPTERS: dict[int, dict[str, Callable[..., str | None]]] = {
    1: {"encode_utf8": encode_utf8, "decode_utf8": decode_utf8, "is_whole": is_whole},
}
