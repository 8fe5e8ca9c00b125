"""Streams: ids of a text that arrives in chunks or grows at its end, and text of ids that arrive one by one.

Streams hold back what a later chunk or id could still change: the text after the last safe cut, which a session encodes
again with each text that is appended, and the bytes of a character that is not complete.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Callable, Iterable, Iterator
from encodings import utf_8, utf_16_le
from typing import TYPE_CHECKING, Any, NamedTuple

from bpe.encoding.texts import Text, utf8
from bpe.native.lazy_imports import numpy as np
from bpe.native.text import buffer_of

if TYPE_CHECKING:
    from numpy.typing import NDArray


class TailEncoder(NamedTuple):
    """Encoder of a text part by part.

    encode: the ids of a part that begins at a safe cut, and True if the next part goes on from it; the second argument
    is that flag of the part before. cut: the last safe cut in a text that begins at one (see last_cut), or 0.
    """

    encode: Callable[[bytes, bool], tuple[NDArray[np.uint32], bool]]
    cut: Callable[[bytes], int]


SLICE = 1 << 15  # characters or bytes


def encode_chunks(
    chunks: Iterable[str] | Iterable[bytes], encoder: TailEncoder, room: int
) -> Iterator[NDArray[np.uint32]]:
    """The ids of the chunks joined, in arrays, as they become certain. room: bytes that are encoded at a time."""
    parts: list[bytes] = []
    continued = False
    size, size_needed = 0, room
    for data in map(_joiner(), itertools.chain(_slices(chunks), [None])):
        parts.append(data)
        size += len(data)
        if size >= size_needed:
            text = b"".join(parts)
            at = encoder.cut(text)
            if at:
                ids, continued = encoder.encode(text[:at], continued)
                yield ids
            parts, size = [text[at:]], len(text) - at
            size_needed = max(room, 2 * size)  # without a cut, try again when the text has doubled: linear in all
    yield encoder.encode(b"".join(parts), continued)[0]


def last_cut(size: int, cut: Callable[[int], int], longest: int) -> int:
    """The last safe cut in a text of `size` bytes, whatever follows it; 0 where there is none.

    It is looked for in the last 256 bytes, then in four times more, and so on; not in the last `longest` bytes, where a
    special token may have begun. cut: the first safe cut from a position on, or the size.
    """
    limit = size - longest
    step = 256
    while limit > 0:
        begin = max(1, limit - step)
        last, position = 0, begin - 1
        while True:
            position = cut(position + 1)
            if position > limit or position == size:
                break
            last = position
        if last or begin == 1:
            return last
        step *= 4
    return 0


def last_bounded_end(text: bytes, ends: NDArray[np.uint64], limit: int) -> int:
    """The last of the ends of pretokens, up to `limit`, that is certain although no word ends there; 0 for none.

    A pretoken ends between two digits only where the pattern allows no more in one, and between a small and a capital
    letter only where it separates these, or after a contraction: no match depended on anything further to the right.
    """
    for index in range(int(np.searchsorted(ends, limit, side="right")) - 1, -1, -1):
        end = int(ends[index])
        before, after = text[end - 1 : end], text[end : end + 1]
        if (before.isdigit() and after.isdigit()) or (before.islower() and after.isupper()):
            return end
    return 0


def _slices(chunks: Iterable[str] | Iterable[bytes]) -> Iterator[str | bytes | memoryview]:
    """The chunks, large ones in slices, so that a whole chunk is never copied."""
    for chunk in chunks:
        data = chunk if isinstance(chunk, str) else buffer_of(chunk)
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


class EncodeSession:
    """The ids of a text that grows at its end; see Tokenizer.encode_session(). It pickles, with its tokenizer."""

    def __init__(self, make_encoder: Callable[[], TailEncoder]) -> None:
        self._make_encoder, self._encoder = make_encoder, make_encoder()
        self._ids, self._certain = array("I"), 0  # all ids; how many of them no later text can change
        self._tail, self._continued = b"", False  # the text of the other ids; True if it goes on from earlier text
        self._half = ""  # a high surrogate at the end, which the next text may complete

    def __len__(self) -> int:
        return len(self._ids)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_encoder"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._encoder = self._make_encoder()

    def append(self, text: Text) -> tuple[int, list[int]]:
        """Add a text at the end.

        Args:
            text: str, or UTF-8 as bytes, which may end inside a character.

        Returns:
            (count, ids): the first `count` ids of the text before are still right, and these ids follow them.

        Raises:
            ValueError: the text holds a disallowed special token. The session is as it was.

        Example:
            >>> session = tokenizer.encode_session()
            >>> session.append("low low")
            (0, [258, 32, 258])
            >>> session.append("er")
            (1, [260, 114])
        """
        lost = "" if isinstance(text, str) else self._half  # which nothing completes
        text = self._half + text if isinstance(text, str) else text
        half = text[-1:] if isinstance(text, str) and "\ud800" <= text[-1:] <= "\udbff" else ""
        data = utf8(text.removesuffix(half)) if isinstance(text, str) else bytes(buffer_of(text))
        tail = self._tail + utf8(lost) + data
        cut = self._encoder.cut(tail)
        certain, continued = np.empty(0, dtype=np.uint32), self._continued
        if cut:
            certain, continued = self._encoder.encode(tail[:cut], continued)
        ids = np.concatenate([certain, self._encoder.encode(tail[cut:] + utf8(half), continued)[0]])
        before = np.array(self._ids[self._certain :], dtype=np.uint32)
        shared = min(len(ids), len(before))
        same = int(np.append(before[:shared] != ids[:shared], True).argmax())
        count = self._certain + same
        del self._ids[count:]
        self._ids.frombytes(ids[same:].tobytes())
        self._certain += len(certain)
        self._tail, self._continued, self._half = tail[cut:], continued, half
        return count, ids[same:].tolist()

    @property
    def ids(self) -> NDArray[np.uint32]:
        """The ids of the whole text, a copy: an array of uint32."""
        return np.array(self._ids, dtype=np.uint32)


class DecodeStream:
    """Ids to text as they come; see Tokenizer.decode_stream().

    begin, end: bytes that are left out where a text begins or ends with them; `end` in front of more is a space.
    skipped: ids that give no text.
    """

    def __init__(
        self,
        decode_bytes: Callable[[list[int]], bytes],
        begin: bytes = b"",
        end: bytes = b"",
        skipped: frozenset[int] = frozenset(),
    ) -> None:
        self._decode_bytes, self._skipped = decode_bytes, skipped
        self._begin, self._begun, self._end, self._ended = begin, False, end, False
        self._decoder = utf_8.IncrementalDecoder("replace")

    def step(self, tokens: int | Iterable[int]) -> str:
        """The text that is certain after these ids: whole characters only.

        Args:
            tokens: the next id, or several.

        Raises:
            KeyError: no token has such an id.

        Example:
            >>> first, *rest = tokenizer.encode("é")
            >>> stream = tokenizer.decode_stream()
            >>> stream.step(first), stream.step(rest)
            ('', 'é')
        """
        ids = [tokens] if isinstance(tokens, (int, np.integer)) else list(tokens)
        data = self._decode_bytes([number for number in ids if number not in self._skipped] if self._skipped else ids)
        if data and not self._begun:
            data, self._begun = data.removeprefix(self._begin), True
        if data and self._end:
            space, self._ended = b" " if self._ended else b"", data.endswith(self._end)
            data = space + data.removesuffix(self._end)
        return self._decoder.decode(data)

    def finish(self) -> str:
        """Return the rest: U+FFFD for a character that never ended, or "". The stream can be used anew.

        Example:
            >>> stream = tokenizer.decode_stream()
            >>> stream.step(tokenizer.encode("é")[0]), stream.finish()
            ('', '\ufffd')
        """
        self._begun = self._ended = False
        return self._decoder.decode(b"", final=True)
