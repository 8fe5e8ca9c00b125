"""Streams: ids of a text that arrives in chunks, and text of ids that arrive one by one.

Both hold back what a later chunk or id could still change. Text is encoded up to the last safe cut; of decoded bytes,
those of a character that is not complete are kept.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator
from encodings import utf_8, utf_16_le
from typing import TYPE_CHECKING

from bpe.native.lazy_imports import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

SLICE = 1 << 15  # characters or bytes


def encode_chunks(
    chunks: Iterable[str] | Iterable[bytes],
    *,
    encode: Callable[[bytes], NDArray[np.uint32]],
    cut: Callable[[bytes], int],
    room: int,
) -> Iterator[NDArray[np.uint32]]:
    """The ids of the chunks joined, in arrays, as they become certain.

    Args:
        chunks: The text, in pieces of any length.
        encode: The ids of a part of the text that ends at a safe cut.
        cut: The last safe cut in the text that is there so far (see last_cut); 0 where there is none.
        room: How many bytes are gathered before they are encoded.
    """
    held: list[bytes] = []
    size, wanted = 0, room
    for data in map(_joiner(), itertools.chain(_slices(chunks), [None])):
        held.append(data)
        size += len(data)
        if size >= wanted:
            text = b"".join(held)
            at = cut(text)
            if at:
                yield encode(text[:at])
            held, size = [text[at:]], len(text) - at
            wanted = max(room, 2 * size)  # without a cut, try again when the text has doubled: linear in all
    yield encode(b"".join(held))


def last_cut(size: int, cut: Callable[[int], int], longest: int) -> int:
    """The last safe cut in a text, whatever follows it; 0 where there is none.

    It is looked for in the last 256 bytes, then in four times as many, and so on.

    Args:
        size: The bytes of the text.
        cut: The first safe cut from a place on, or the size.
        longest: The bytes of the longest special token. One may have begun in the last bytes, so no cut is taken there.
    """
    limit = size - longest
    step = 256
    while limit > 0:
        begin = max(1, limit - step)
        last, found = 0, begin - 1
        while True:
            found = cut(found + 1)
            if found > limit or found == size:
                break
            last = found
        if last or begin == 1:
            return last
        step *= 4
    return 0


def last_bounded_end(text: bytes, ends: NDArray[np.uint64], limit: int) -> int:
    """The last end of a pretoken, up to `limit`, that is certain although no word ends there; 0 where there is none.

    A pretoken ends between two digits only where the pattern allows no more digits in one. It ends between a small and
    a capital letter only where the pattern separates these, or after a contraction. In neither case did the match
    depend on anything further to the right, so what follows later cannot change it.

    Args:
        text: A text that begins where a pretoken begins.
        ends: The ends of its pretokens, an array of uint64.
        limit: The largest end that may be returned.
    """
    for place in range(int(np.searchsorted(ends, limit, side="right")) - 1, -1, -1):
        end = int(ends[place])
        before, after = text[end - 1 : end], text[end : end + 1]
        if (before.isdigit() and after.isdigit()) or (before.islower() and after.isupper()):
            return end
    return 0


def _slices(chunks: Iterable[str] | Iterable[bytes]) -> Iterator[str | bytes | memoryview]:
    """The chunks, large ones in slices, so that a whole chunk is never copied."""
    for chunk in chunks:
        data = chunk if isinstance(chunk, str) else memoryview(chunk)
        for begin in range(0, len(data), SLICE):
            yield data[begin : begin + SLICE]


def _joiner() -> Callable[[str | bytes | memoryview | None], bytes]:
    """A function that turns one chunk after another into UTF-8; None ends the text.

    A surrogate pair that two chunks share becomes one character.
    """
    halves = utf_16_le.IncrementalDecoder("replace")

    def join(chunk: str | bytes | memoryview | None) -> bytes:
        if chunk is None:
            return halves.decode(b"", final=True).encode()
        if isinstance(chunk, str):
            return halves.decode(chunk.encode("utf-16-le", "surrogatepass")).encode()
        return bytes(chunk)

    return join


class DecodeStream:
    """Ids to text as they come; see Tokenizer.decode_stream().

    Args:
        decode_bytes: gives the bytes of ids.
        begin: what is left out where a text begins with it.
    """

    def __init__(self, decode_bytes: Callable[[list[int]], bytes], begin: bytes = b"") -> None:
        self._decode_bytes, self._begin, self._begun = decode_bytes, begin, False
        self._decoder = utf_8.IncrementalDecoder("replace")

    def step(self, tokens: int | Iterable[int]) -> str:
        """The text that is certain after these ids: whole characters only.

        Args:
            tokens: the next id, or several.

        Returns:
            The text that these ids complete; "" where a character has only begun.

        Raises:
            KeyError: no token has such an id.

        Example:
            >>> first, *rest = tokenizer.encode("é")
            >>> stream = tokenizer.decode_stream()
            >>> stream.step(first), stream.step(rest)
            ('', 'é')
        """
        ids = [tokens] if isinstance(tokens, (int, np.integer)) else list(tokens)
        data = self._decode_bytes(ids)
        if data and not self._begun:
            data, self._begun = data.removeprefix(self._begin), True
        return self._decoder.decode(data)

    def finish(self) -> str:
        """Return the rest: U+FFFD for a character that never ended, or "". The stream can be used anew.

        Example:
            >>> stream = tokenizer.decode_stream()
            >>> stream.step(tokenizer.encode("é")[0]), stream.finish()
            ('', '\ufffd')
        """
        self._begun = False
        return self._decoder.decode(b"", final=True)
