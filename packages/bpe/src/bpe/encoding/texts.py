"""The texts that tokenizers take, as bytes."""

from __future__ import annotations

from collections.abc import Iterable

from bpe.native.text import buffer_of
from bpe.scanning.special_tokens import Rules

Text = str | bytes | bytearray | memoryview
TextChunks = Iterable[str] | Iterable[bytes]


def checked(text: Text, rules: Rules, repair: bool) -> bytes | memoryview:
    """The bytes of a text without refused special tokens; see TextEncoder.to_array()."""
    if not isinstance(text, str):
        data = buffer_of(text)
    else:
        try:
            data = text.encode()
        except UnicodeEncodeError:
            data = utf8(text)
            if not repair:
                rules.check_text(data)  # its error comes first, as in tiktoken
                raise
    rules.check_text(data)
    return data


def utf8(text: str) -> bytes:
    """The UTF-8 of a text, lone surrogates as U+FFFD and pairs of them as one character."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
