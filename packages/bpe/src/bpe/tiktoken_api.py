"""Encoding: tiktoken's interface, name for name, with its arguments, results and errors.

What serves one call or two is imported by those: a process has in memory what it uses.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from bpe import formats, patterns
from bpe.encoding.calls import NONE, EncodeMethods, compiled
from bpe.encoding.policy import Special
from bpe.encoding.text_encoder import TextEncoder
from bpe.encoding.texts import Text
from bpe.formats import TokenizerData
from bpe.formats.vocabulary import Tables, make_tables, number_special_tokens, vocabulary_of_ranks
from bpe.native.lazy_imports import import_lock
from bpe.native.lazy_imports import numpy as np
from bpe.native.once import made_once_property
from bpe.native.parallel import map_in_threads, threads_for

if TYPE_CHECKING:
    from bpe.encoding.decoder import Decoder

TokenIds = Iterable[int]  # a list of ids or an array of any integer type, mostly
Errors = Literal["strict", "replace", "ignore", "backslashreplace", "surrogateescape", "surrogatepass"]
Any_Encoding = TypeVar("Any_Encoding", bound="Encoding")

CACHE_BYTES = 64 << 20


class Encoding(EncodeMethods):
    """A byte-level BPE encoding, as tiktoken.Encoding.

    A token's rank is its id, any two neighbours that join to a token merge, the lowest rank first, and a pretoken that
    is a token is not split. An encoding may be shared by threads, releases the GIL while it works, pickles, and never
    changes.

    Args:
        name: what the encoding is called.
        pat_str: the split pattern, a regular expression of fancy-regex, the engine of tiktoken. It is compiled, unless
            it looks behind or far ahead; with such a one encoding is some thirty times slower, and says so once. What
            lies between two matches is a pretoken too, where tiktoken leaves it out.
        mergeable_ranks: {token: rank}.
        special_tokens: {name: id}. Where two names share an id, decoding gives the first.
        explicit_n_vocab: the number of ranks and special tokens together, to be checked.

    Raises:
        ValueError: two ranks are equal, a special token has the id of another token, the pattern is wrong, or
            explicit_n_vocab is not the number of tokens.

    Example:
        >>> import bpe
        >>> ranks = {bytes([byte]): byte for byte in range(256)} | {b"th": 256, b"the": 257}
        >>> (gpt2,) = bpe.patterns.PATTERNS["gpt2"]
        >>> encoding = bpe.Encoding("small", pat_str=gpt2, mergeable_ranks=ranks, special_tokens={"<|endoftext|>": 258})
        >>> encoding.encode("the path")
        [257, 32, 112, 97, 256]
    """

    def __init__(
        self,
        name: str,
        *,
        pat_str: str,
        mergeable_ranks: Mapping[bytes, int],
        special_tokens: Mapping[str, int],
        explicit_n_vocab: int | None = None,
    ) -> None:
        vocab = vocabulary_of_ranks(mergeable_ranks)
        special = number_special_tokens(dict(special_tokens), vocab)
        token_count = len(mergeable_ranks) + len(special)
        if explicit_n_vocab and not token_count == max(vocab) + 1 == explicit_n_vocab:
            raise ValueError(
                f"explicit_n_vocab is {explicit_n_vocab}, but there are {token_count} ranks and special tokens, "
                f"and the greatest id is {max(vocab)}"
            )
        pattern = patterns.resolve((pat_str,), "fancy-regex")
        self._set(TokenizerData(vocab, None, special, pattern, ignore_merges=True, name=name))

    def _set(
        self,
        data: TokenizerData,
        cache_bytes: int = CACHE_BYTES,
        tables: Callable[[bool], Tables] | None = None,
    ) -> None:
        """Become the encoding of these data: what every constructor ends with.

        tables: factory for the encoder's tables; formats/table_cache.py passes one that reads them from disk, and has
            checked the ids.
        """
        if not 0 <= cache_bytes <= sys.maxsize:
            raise ValueError(f"cache_bytes is {cache_bytes}; it takes a number from 0 to {sys.maxsize}")
        if tables is None:
            formats.check_ids(data.vocab)
        self._data, self._cache_bytes = data, cache_bytes
        special_ids = formats.split_off_ids(data)
        self._use(TextEncoder(data, special_ids, tables or partial(make_tables, data), cache_bytes))

    @classmethod
    def _made(
        cls: type[Any_Encoding],
        data: TokenizerData,
        tables: Callable[[bool], Tables] | None,
        cache_bytes: int = CACHE_BYTES,
    ) -> Any_Encoding:
        encoding = cls.__new__(cls)
        encoding._set(data, cache_bytes, tables)
        return encoding

    def __reduce__(self) -> tuple[Any, ...]:
        with import_lock:
            from bpe.formats.packed import pack

        return _remake, (type(self), pack(self._data), self._cache_bytes)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name!r}>"

    # What it is

    @property
    def name(self) -> str:
        """The name it was given; "bpe" where it has none."""
        return self._data.name or "bpe"

    @cached_property
    def special_tokens_set(self) -> set[str]:
        """The names of the special tokens."""
        return set(self._data.special_tokens)

    @cached_property
    def max_token_value(self) -> int:
        """The largest id."""
        return max(self._data.vocab)

    @property
    def n_vocab(self) -> int:
        """The largest id plus one: the rows of an embedding."""
        return self.max_token_value + 1

    @property
    def eot_token(self) -> int:
        """The id of <|endoftext|>; KeyError where there is none."""
        return self._data.special_tokens["<|endoftext|>"]

    def is_special_token(self, token: int) -> bool:
        """True if an id is that of a special token."""
        return token in self._special_ids

    @cached_property
    def _special_ids(self) -> frozenset[int]:
        return frozenset(self._data.special_tokens.values())

    def token_byte_values(self) -> list[bytes]:
        """The bytes of every token that is not special, sorted."""
        return list(self._sorted_tokens)

    @made_once_property
    def _sorted_tokens(self) -> list[bytes]:
        apart = self._texts.special_ids
        return sorted(token for number, token in self._data.vocab.items() if number not in apart)

    # Text to ids. @compiled replaces a method by the one of the same name in encoding/calls.pyx, with this signature.

    @compiled
    def encode(self, text: Text, *, allowed_special: Special = NONE, disallowed_special: Special = "all") -> list[int]:
        """The ids of a text.

        Args:
            text: str, or UTF-8 as bytes. In a str a lone surrogate becomes U+FFFD, and a pair of them one character.
            allowed_special: the special tokens to recognise: "all", or a collection of their names.
            disallowed_special: those whose presence in the text is an error: "all" that are not allowed, or a
                collection of names. Any other special token is ordinary text.

        Returns:
            A list of ints.

        Raises:
            ValueError: the text holds a disallowed special token.

        Example:
            >>> tokenizer.encode("low lower")
            [258, 260, 114]
            >>> tokenizer.encode("low<|endoftext|>", allowed_special="all")
            [258, 256]
        """
        return super().encode(text, allowed_special=allowed_special, disallowed_special=disallowed_special)

    @compiled
    def encode_ordinary(self, text: Text) -> list[int]:
        """The ids of a text in which no special token is recognised, as encode(text, disallowed_special=()).

        Example:
            >>> len(tokenizer.encode_ordinary("<|endoftext|>"))
            13
        """
        return super().encode_ordinary(text)

    @compiled
    def encode_to_numpy(
        self, text: Text, *, allowed_special: Special = NONE, disallowed_special: Special = "all"
    ) -> np.ndarray[Any, np.dtype[np.uint32]]:
        """The ids of a text as an array, which takes less time and memory than a list.

        Args:
            text, allowed_special, disallowed_special: as encode() takes them.

        Returns:
            An array of uint32, of shape (ids,).

        Raises:
            ValueError: the text holds a disallowed special token.
            UnicodeEncodeError: a str holds a lone surrogate, which is not repaired here, as in tiktoken.

        Example:
            >>> tokenizer.encode_to_numpy("lower")
            array([259, 114], dtype=uint32)
        """
        return super().encode_to_numpy(text, allowed_special=allowed_special, disallowed_special=disallowed_special)

    def encode_batch(
        self,
        text: Sequence[Text],
        *,
        num_threads: int = 8,
        allowed_special: Special = NONE,
        disallowed_special: Special = "all",
    ) -> list[list[int]]:
        """encode() of each text, in several threads.

        Args:
            text: the texts.
            num_threads: at most so many threads, and no more than there are processors.
            allowed_special, disallowed_special: as encode() takes them.

        Returns:
            A list of ids for each text, in their order.

        Raises:
            ValueError: as encode(); num_threads is below 1.

        Example:
            >>> tokenizer.encode_batch(["low", "lower"])
            [[258], [259, 114]]
        """
        rules = self._texts.policy.rules(allowed_special, disallowed_special)
        return self._texts.batch(text, rules, threads_for(num_threads), lists=True)

    def encode_ordinary_batch(self, text: Sequence[Text], *, num_threads: int = 8) -> list[list[int]]:
        """encode_ordinary() of each text, in several threads, as encode_batch().

        Example:
            >>> tokenizer.encode_ordinary_batch(["low", "lower"])
            [[258], [259, 114]]
        """
        return self.encode_batch(text, num_threads=num_threads, disallowed_special=())

    def encode_with_unstable(
        self, text: Text, *, allowed_special: Special = NONE, disallowed_special: Special = "all"
    ) -> tuple[list[int], list[list[int]]]:
        """The ids of a text that are certain whatever follows it, and the ways in which the rest could go on.

        As slow as tiktoken's: a short rest has thousands of continuations. The text is taken as it stands, not
        normalized.

        Args:
            text, allowed_special, disallowed_special: as encode() takes them.

        Returns:
            The certain ids, and lists of ids each of which, after the certain ones, gives bytes that begin with the
            text.

        Raises:
            ValueError: the text holds a disallowed special token.
            UnicodeEncodeError: a str holds a lone surrogate.

        Example:
            >>> stable, completions = tokenizer.encode_with_unstable("low l")
            >>> stable, sorted(completions)
            ([258], [[32, 108], [32, 258], [260]])
        """
        rules = self._texts.policy.rules(allowed_special, disallowed_special)
        return self._texts.unstable(text, rules, self._decoder, self._sorted_tokens, self._ids.__getitem__)

    def encode_single_token(self, text_or_bytes: Text) -> int:
        """The id of one token, special ones too.

        Args:
            text_or_bytes: the token.

        Returns:
            Its id.

        Raises:
            KeyError: it is no token.

        Example:
            >>> tokenizer.encode_single_token("low")
            258
        """
        token = text_or_bytes.encode() if isinstance(text_or_bytes, str) else bytes(memoryview(text_or_bytes))
        number = self._ids.get(token)
        if number is None:
            raise KeyError(token)
        return number

    @made_once_property
    def _ids(self) -> dict[bytes, int]:
        """The id of every token; the lowest where several have the same bytes, that of the special token before all."""
        ordinary = sorted(self._data.vocab.items(), reverse=True)
        special = self._data.special_tokens
        return {token: number for number, token in ordinary} | {name.encode(): special[name] for name in special}

    # Ids to text

    @made_once_property
    def _decoder(self) -> Decoder:
        with import_lock:
            from bpe.encoding.decoder import Decoder

        if self._data.characters is not None and self._data.characters.strip:
            return _stripping(Decoder)(self._data.vocab)
        if self._data.words is not None:
            with import_lock:
                from bpe.encoding.words import WordDecoder

            return WordDecoder(self._data.vocab, self._data.words)
        return Decoder(self._data.vocab)

    def decode(self, tokens: TokenIds, errors: Errors = "replace") -> str:
        """The text of the ids.

        Args:
            tokens: a list of ids, an array of any integer type, anything that gives integers.
            errors: what becomes of bytes that are not UTF-8, as for bytes.decode().

        Returns:
            The text.

        Raises:
            KeyError, OverflowError, TypeError: as decode_bytes().
            UnicodeDecodeError: bytes that are not UTF-8, where errors is "strict".

        Example:
            >>> tokenizer.decode([258, 260, 114])
            'low lower'
        """
        return self._decoder.decode(tokens).decode("utf-8", errors)

    def decode_bytes(self, tokens: TokenIds) -> bytes:
        """The bytes of the ids.

        Args:
            tokens: as decode() takes them.

        Returns:
            The bytes of all tokens, joined.

        Raises:
            KeyError: no token has such an id.
            OverflowError: an id is negative, or does not fit 32 bits.
            TypeError: an id is no integer.

        Example:
            >>> tokenizer.decode_bytes([258])
            b'low'
        """
        return self._decoder.decode(tokens)

    def decode_single_token_bytes(self, token: int) -> bytes:
        """The bytes of one id. Errors as decode_bytes().

        Example:
            >>> tokenizer.decode_single_token_bytes(256)
            b'<|endoftext|>'
        """
        return self._decoder.decode_one(token)

    def decode_tokens_bytes(self, tokens: TokenIds) -> list[bytes]:
        """The bytes of each id. Errors as decode_bytes().

        Example:
            >>> tokenizer.decode_tokens_bytes([258, 114])
            [b'low', b'r']
        """
        return self._decoder.decode_each(tokens)

    def decode_with_offsets(self, tokens: TokenIds) -> tuple[str, list[int]]:
        """The text of the ids, and where in it each token begins.

        Args:
            tokens: as decode() takes them.

        Returns:
            The text, and for each id a number of characters; that of the character for a token that begins inside one.

        Raises:
            KeyError, OverflowError, TypeError: as decode_bytes().
            UnicodeDecodeError: the bytes are not UTF-8.

        Example:
            >>> tokenizer.decode_with_offsets([258, 260, 114])
            ('low lower', [0, 3, 8])
        """
        data, offsets = self._decoder.decode_with_offsets(tokens, True)
        return data.decode("utf-8"), offsets

    def decode_batch(self, batch: Sequence[TokenIds], *, errors: Errors = "replace", num_threads: int = 8) -> list[str]:
        """decode() of each, in several threads, as encode_batch().

        Example:
            >>> tokenizer.decode_batch([[258], [260, 114]])
            ['low', ' lower']
        """
        return map_in_threads(lambda tokens: self.decode(tokens, errors), batch, num_threads)

    def decode_bytes_batch(self, batch: Sequence[TokenIds], *, num_threads: int = 8) -> list[bytes]:
        """decode_bytes() of each, in several threads, as encode_batch().

        Example:
            >>> tokenizer.decode_bytes_batch([[258], [260, 114]])
            [b'low', b' lower']
        """
        return map_in_threads(self.decode_bytes, batch, num_threads)

    # Private names that tiktoken's README uses to make an encoding of more special tokens

    @property
    def _pat_str(self) -> str:
        pattern = self._data.pattern
        if len(pattern.expressions) != 1:
            raise ValueError(f"expected a split pattern of one expression, got {pattern}")
        return pattern.expressions[0]

    @property
    def _mergeable_ranks(self) -> dict[bytes, int]:
        if self._data.merges is not None:
            raise ValueError("expected a tokenizer that merges by rank, got one with a list of merges")
        return formats.ordinary_ids(self._data)

    @property
    def _special_tokens(self) -> dict[str, int]:
        return dict(self._data.special_tokens)


@cache
def _stripping(decoder: type[Decoder]) -> type[Decoder]:
    """A decoder that takes the space from the beginning of a text which SentencePiece's encoders put there."""

    class Stripping(decoder):  # type: ignore[misc, valid-type]
        def decode(self, tokens: TokenIds) -> bytes:
            return bytes(super().decode(tokens).removeprefix(b" "))

        def decode_with_offsets(self, tokens: TokenIds, characters: bool) -> tuple[bytes, list[int]]:
            data, offsets = super().decode_with_offsets(tokens, characters)
            if data.startswith(b" "):
                return data[1:], [max(0, offset - 1) for offset in offsets]
            return data, offsets

    return Stripping


def _remake(kind: type[Any_Encoding], packed: bytes, cache_bytes: int) -> Any_Encoding:
    with import_lock:
        from bpe.formats.packed import unpack

    return kind._made(unpack(packed), None, cache_bytes)
