"""Pretokens that are merged from characters. The last one may have a token of its own; any may be unknown.

So does the model of a tokenizer.json that has no byte_fallback and whose pre-tokenizer has no ByteLevel, or that has an
end_of_word_suffix (CLIP, GPT-1): see Words. Such files are small and rare, so this is Python.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable, Mapping
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any

from bpe.encoding.decoder import Decoder
from bpe.encoding.streaming import DecodeStream
from bpe.native.lazy_imports import numpy as np
from bpe.native.printable import PRINTABLE

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bpe.formats import TokenizerData, Words


def spelling(data: TokenizerData) -> dict[int, str]:
    """The text that each id has in the model of a tokenizer.json."""
    spelled = {number: data.vocab[number].decode() for number in data.unspelled}
    spelled |= {number: text for text, number in (data.special_tokens | data.added_tokens).items()}
    return {n: spelled[n] if n in spelled else spelled_by(data.words, token) for n, token in data.vocab.items()}


def spelled_by(words: Words | None, token: bytes) -> str:
    """A token as its file writes it: a character a byte, or the text that it is."""
    if words is None or words.byte_level:
        return "".join(map(PRINTABLE.__getitem__, token))
    text = token.decode("utf-8", "surrogateescape")
    return text.replace(" ", "▁") if words.metaspace else text


class WordEncoder:
    """The encoder of pretokens of a tokenizer with data.words."""

    def __init__(self, data: TokenizerData) -> None:
        assert data.words is not None
        self._words = data.words
        self._ignore_merges = data.ignore_merges
        self._spelled = spelling(data)
        ids = {text: number for number, text in self._spelled.items()}
        halves = [[spelled_by(data.words, half) for half in pair] for pair in data.merges or ()]
        self._merges: dict[tuple[int, int], tuple[int, int]] = {}  # pair of ids -> its rank and the id that it makes
        for rank, (left, right) in enumerate(halves):
            self._merges.setdefault((ids[left], ids[right]), (rank, ids[left + right]))
        # A token that is split off is no character, unless it is a byte or merges have it.
        merged = {text for left, right in halves for text in (left, right, left + right)}
        split_off = data.special_tokens.keys() | data.added_tokens.keys()
        apart = {text for text in split_off - merged if not (data.words.byte_level and len(text) == 1)}
        self._ids = {text: number for text, number in ids.items() if text not in apart}
        self.word = functools.lru_cache(1 << 16)(self._word)

    def encode_pieces(self, pieces: Iterable[bytes]) -> NDArray[np.uint32]:
        """The ids of pretokens."""
        return np.array([number for piece in pieces for number in self.word(piece)[0]], dtype=np.uint32)

    def with_spans(self, text: bytes, pieces: Iterable[bytes]) -> tuple[list[int], list[int], list[int]]:
        """The ids of the pretokens of a text, and the positions in it where they begin and end.

        As in tokenizers, a character that is left out moves the tokens behind it in its pretoken to the left.
        """
        ids: list[int] = []
        begins: list[int] = []
        ends: list[int] = []
        end = 0
        for piece in pieces:
            at = text.index(piece, end)
            end = at + len(piece)
            numbers, positions = self.word(piece)
            ids += numbers
            begins += [at + position for position in positions]
            ends += [*(at + position for position in positions[1:]), end][: len(positions)]
        return ids, begins, ends

    def _word(self, piece: bytes) -> tuple[list[int], list[int]]:
        """The ids of a pretoken, and where in its bytes each begins."""
        words, text = self._words, spelled_by(self._words, piece)
        if self._ignore_merges and text in self._ids:
            return [self._ids[text]], [0]
        ids: list[int] = []
        sizes: list[int] = []  # of the characters of each
        was_unknown = False
        for count, character in enumerate(text, 1):
            number = self._ids.get(character + words.suffix if count == len(text) else character, -1)
            is_byte = words.byte_level or (words.metaspace and character == "▁")  # which stands for a space
            size = 1 if is_byte else len(character.encode("utf-8", "surrogateescape"))
            if number < 0 and words.fuse_unk and was_unknown:
                sizes[-1] += size
            elif number >= 0 or words.unk >= 0:
                ids.append(number if number >= 0 else words.unk)
                sizes.append(size)
            was_unknown = number < 0 <= words.unk
        merged = self._merge(ids)
        begins, first, begin = [], 0, 0
        for number in merged:
            begins.append(begin)
            count = 1 if number == words.unk else len(self._spelled[number].removesuffix(words.suffix))
            begin += sum(sizes[first : first + count])
            first += count
        return merged, begins

    def _merge(self, ids: list[int]) -> list[int]:
        """The ids of a word after all merges: the pair of the lowest rank first, of equal ones the leftmost."""
        ids, size = [*ids, -1], len(ids)  # -1: a symbol that was merged into the one before it, or the end
        following, before = list(range(1, size + 2)), list(range(-1, size))
        heap: list[tuple[int, int, int]] = []

        def consider(left: int) -> None:
            merge = self._merges.get((ids[left], ids[following[left]])) if left >= 0 else None
            if merge:
                heappush(heap, (merge[0], left, merge[1]))

        for left in range(size):
            consider(left)
        while heap:
            rank, left, joined = heappop(heap)
            right = following[left]
            if self._merges.get((ids[left], ids[right])) != (rank, joined):
                continue  # one of the two has been merged since
            ids[left], ids[right], following[left] = joined, -1, following[right]
            before[following[left]] = left
            consider(left)
            consider(before[left])
        return [number for number in ids if number >= 0]


class WordDecoder(Decoder):
    """The decoder of a tokenizer with data.words."""

    words: Words

    def __new__(cls, vocab: Mapping[int, bytes], words: Words) -> WordDecoder:
        """See Decoder."""
        decoder = super().__new__(cls, vocab)
        decoder.words = words
        return decoder

    def decode(self, tokens: Any) -> bytes:
        """See Decoder."""
        return b"".join(self._pieces(super().decode_each(tokens)))

    def decode_with_offsets(self, tokens: Any, characters: bool) -> tuple[bytes, list[int]]:
        """See Decoder."""
        pieces = self._pieces(super().decode_each(tokens))
        sizes = [len(piece.decode()) if characters else len(piece) for piece in pieces]
        separator = len(self.words.between)
        begins = np.cumsum([0, *sizes])[:-1] + [separator if index else 0 for index in range(len(sizes))]
        return b"".join(pieces), begins.astype(int).tolist()

    def decode_rows(self, tokens: Any, ends: NDArray[np.int64], byte_ends: NDArray[np.int64]) -> bytes:
        """See Decoder."""
        texts = [self.decode(tokens[begin:end]) for begin, end in itertools.pairwise([0, *ends])]
        byte_ends[:] = np.cumsum([len(text) for text in texts])
        return b"".join(texts)

    def stream(self, skipped: frozenset[int]) -> DecodeStream:
        """Return a decode_stream(). skipped: ids that give no text."""
        mark, between = self.words.decoded_suffix.encode(), self.words.between.encode()
        begin = b" " if self.words.metaspace == "always" else between

        def decode(ids: list[int]) -> bytes:
            tokens = super(WordDecoder, self).decode_each(ids)
            if mark:
                tokens = [token.replace(mark, b" ") for token in tokens[:-1]] + tokens[-1:]
            return b"".join(between + token for token in tokens)

        return DecodeStream(decode, begin=begin, end=mark, skipped=skipped)

    def _pieces(self, tokens: list[bytes]) -> list[bytes]:
        """The text that each token adds."""
        mark, between = self.words.decoded_suffix.encode(), self.words.between.encode()
        if mark:
            tokens = [token.replace(mark, b" ") for token in tokens[:-1]] + [
                token.replace(mark, b"") for token in tokens[-1:]
            ]
        if self.words.metaspace == "always":
            tokens = [token.removeprefix(b" ") for token in tokens[:1]] + tokens[1:]
        return [between + token if index else token for index, token in enumerate(tokens)]
