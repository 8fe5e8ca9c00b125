"""Tokenizer, with every public name of tiktoken.Encoding and more; Encoding, with tiktoken's constructor.

Modules that one or two methods need are imported inside them, to keep start-up small.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Self

import bpe  # whose public types are imported when an annotation is evaluated
from bpe import encoding, formats, patterns
from bpe.encoding.encoder import NO_NAMES, EncodeMethods
from bpe.encoding.policy import Special
from bpe.encoding.text_encoder import TextEncoder
from bpe.encoding.texts import Text, TextChunks
from bpe.formats import TokenizerData
from bpe.formats.vocabulary import (
    SpecialNames,
    Tables,
    data_of_merges,
    data_of_ranks,
    make_tables,
    merges_of,
    number_special_tokens,
    vocabulary_of_ranks,
)
from bpe.native.atomic_file import StrPath
from bpe.native.checks import integer
from bpe.native.lazy_imports import import_lock
from bpe.native.lazy_imports import numpy as np
from bpe.native.once import made_once_property
from bpe.native.parallel import map_in_threads, threads_for
from bpe.native.text import buffer_of
from bpe.outputs import Format
from bpe.patterns import SplitPattern

if TYPE_CHECKING:
    from bpe.encoding.decoder import Decoder
    from bpe.encoding.streaming import TailEncoder

TokenIds = Iterable[int]  # a list of ids or an array of any integer type, mostly
Errors = Literal["strict", "replace", "ignore", "backslashreplace", "surrogateescape", "surrogatepass"]

CACHE_BYTES = 64 << 20
CONVERSATION = [  # for keeps_prefix(): a template that trims, counts or drops what came before is seen by it
    {"role": "system", "content": "Be brief."},
    *({"role": "user", "content": "Hi!"}, {"role": "assistant", "content": "<think>\na\n</think>\n\n Hello "}),
    *({"role": "user", "content": "one\n"}, {"role": "assistant", "content": "two"}),
]


def _unpickled(kind: type[Tokenizer], packed: bytes, cache_bytes: int) -> Tokenizer:
    """Return a tokenizer from its pickle. A function of a module, which cloudpickle pickles by its name."""
    return kind._made(formats.native.unpack(packed), None, cache_bytes)


def _tail_encoder(tokenizer: Tokenizer, allowed_special: Special, disallowed_special: Special) -> TailEncoder:
    encoder = tokenizer._text_encoder
    return encoder.tail_encoder(encoder.policy.rules(allowed_special, disallowed_special))


class Tokenizer(EncodeMethods):
    """A byte-level BPE tokenizer. It has all that tiktoken.Encoding has, and more.

    A tokenizer may be shared by threads, releases the GIL while it works, pickles, and never changes. The examples of
    its methods use `tokenizer = bpe.train(["low lower lowest"], 262)`.

    Args:
        vocab: {id: bytes}, the special tokens too or not.
        merges: pairs of bytes in order of rank, the two of each joined in vocab.
        pattern: the split pattern: a name, a regular expression, several applied in sequence, or None for no split. An
            expression is read as fancy-regex, like tiktoken's, and compiled; one that looks behind or far ahead runs
            in the package `regex`, some thirty times slower, with a warning.
        special_tokens: names, which are appended to the vocabulary where it lacks them, or {name: id}.
        cache_bytes: the most that the cache of encoded pretokens may take. It changes how fast it is, never an id.

    Raises:
        ValueError: ids, merges or special tokens contradict one another, or the pattern is wrong.
        TypeError: a token or a merge is not of bytes.

    Example:
        >>> import bpe
        >>> vocab = {byte: bytes([byte]) for byte in range(256)} | {256: b"ab"}
        >>> bpe.Tokenizer(vocab, [(b"a", b"b")]).encode("abc")
        [256, 99]
    """

    def __init__(
        self,
        vocab: Mapping[int, bytes],
        merges: Iterable[tuple[bytes, bytes]],
        *,
        pattern: SplitPattern = "gpt2",
        special_tokens: SpecialNames = (),
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        self._set(data_of_merges(vocab, merges, special_tokens, patterns.resolve(pattern)), cache_bytes)
        # Making the encoder refuses merges that contradict the vocabulary. A file's merges were checked on reading.
        _ = self._text_encoder.encoder

    def _set(
        self,
        data: TokenizerData,
        cache_bytes: int = CACHE_BYTES,
        tables: Callable[[bool], Tables] | None = None,
    ) -> None:
        """Become the encoding of these data. tables: reads the encoder's tables, whose ids were checked."""
        cache_bytes = integer("cache_bytes", cache_bytes, 0)
        if tables is None:
            formats.check_ids(data.vocab)
        self._data, self._cache_bytes = data, cache_bytes
        special_ids = formats.split_off_ids(data)
        self._use(TextEncoder(data, special_ids, tables or partial(make_tables, data), cache_bytes))

    @classmethod
    def _made(
        cls, data: TokenizerData, tables: Callable[[bool], Tables] | None, cache_bytes: int = CACHE_BYTES
    ) -> Self:
        tokenizer = cls.__new__(cls)
        tokenizer._set(data, cache_bytes, tables)
        return tokenizer

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (type(self), formats.native.pack(self._data), self._cache_bytes)

    def __repr__(self) -> str:
        return f"<Tokenizer {self.name!r}: {self.n_vocab:,} ids, pattern {self.pattern!r}>"

    # Other ways to make one, and to keep one

    @classmethod
    def from_data(cls, data: TokenizerData, *, cache_bytes: int = CACHE_BYTES) -> Self:
        """From plain data, as the functions of bpe.formats read it, which check it.

        Example:
            >>> bpe.Tokenizer.from_data(tokenizer.data).encode("low")
            [258]
        """
        return cls._made(data, None, cache_bytes)

    @classmethod
    def from_ranks(
        cls,
        ranks: Mapping[bytes, int],
        *,
        pattern: SplitPattern,
        special_tokens: SpecialNames = (),
        name: str | None = None,
    ) -> Self:
        """From ranks, which are merged as tiktoken merges them: see bpe.Encoding.

        Args:
            ranks: {token: rank}; a token's rank is its id.
            pattern, special_tokens: as Tokenizer() takes them.
            name: what it is called.

        Raises:
            ValueError: two ranks are equal, a special token has the id of another token, or the pattern is wrong.

        Example:
            >>> ranks = {bytes([byte]): byte for byte in range(256)} | {b"ab": 256}
            >>> bpe.Tokenizer.from_ranks(ranks, pattern="cl100k").encode("abc")
            [256, 99]
        """
        return cls.from_data(data_of_ranks(ranks, special_tokens, patterns.resolve(pattern), name))

    @classmethod
    def from_tiktoken(cls, path: StrPath, *, pattern: SplitPattern, special_tokens: SpecialNames = ()) -> Self:
        """From a .tiktoken file, which holds neither pattern nor special tokens: these are as Tokenizer() takes them.

        Raises:
            ValueError: a line is damaged (the message names it), or as from_ranks(). FileNotFoundError: there is none.
        """
        return cls._made(*formats.reading.read_tiktoken(path, pattern, special_tokens))

    @classmethod
    def from_gpt2(
        cls,
        vocab_json: StrPath,
        merges_txt: StrPath,
        *,
        pattern: SplitPattern = "gpt2",
        special_tokens: SpecialNames = ("<|endoftext|>",),
    ) -> Self:
        """From GPT-2's pair of files.

        Args:
            vocab_json: vocab.json or encoder.json.
            merges_txt: merges.txt or vocab.bpe.
            pattern, special_tokens: as Tokenizer() takes them; the files do not say.

        Raises:
            ValueError: a file is damaged; the message names its line. FileNotFoundError: one is missing.
        """
        split_pattern = patterns.resolve(pattern)
        return cls._made(*formats.reading.read_pair(vocab_json, merges_txt, split_pattern, special_tokens, alone=True))

    @classmethod
    def from_huggingface(cls, tokenizer_json: StrPath) -> Self:
        """From a tokenizer.json of Hugging Face tokenizers.

        Raises:
            ValueError: the file is wrong, or asks for what is not supported. FileNotFoundError: there is none.
        """
        return cls._made(*formats.reading.read(tokenizer_json, "huggingface"))

    @classmethod
    def from_sentencepiece(cls, model: StrPath) -> Self:
        """From a model file of `sentencepiece` that holds a BPE with byte_fallback.

        Raises:
            ValueError: the file is wrong, or asks for what is not supported. FileNotFoundError: there is none.
        """
        return cls._made(*formats.reading.read(model, "sentencepiece"))

    @classmethod
    def load(cls, path: StrPath) -> Self:
        """From a file that save() wrote. bpe.load() reads the other formats too.

        Raises:
            ValueError: the file is damaged, or of another format. FileNotFoundError: there is none.
        """
        return cls._made(*formats.reading.read(path, "native"))

    def save(self, path: StrPath) -> None:
        """Write all that this tokenizer is to one file, which appears whole or not at all.

        Example:
            >>> tokenizer.save("tokenizer.bpe")
            >>> bpe.load("tokenizer.bpe").encode("low")
            [258]
        """
        formats.native.write(path, self._data)

    def to_tiktoken(self, path: StrPath) -> None:
        """Write the ranks as a .tiktoken file.

        Raises:
            ValueError: encoding by ranks would give other ids than this tokenizer's merges.
        """
        formats.tiktoken.write(path, self._data, self._text_encoder.never_merged)

    def to_gpt2(self, folder: StrPath) -> None:
        """Write vocab.json and merges.txt into a folder, which is made if need be.

        Raises:
            ValueError: these two cannot say what this tokenizer does.
        """
        formats.gpt2.write(folder, self._data, self.merges, self._text_encoder.never_merged)

    def to_huggingface(self, path: StrPath) -> None:
        """Write a tokenizer.json by which Hugging Face tokenizers encode as this tokenizer does.

        Raises:
            ValueError: a tokenizer.json cannot say what this tokenizer does.
        """
        data = self._data
        if data.merges is None:
            characters = data.characters and data.characters._replace(late=())
            data = data._replace(merges=list(self.merges), characters=characters)
        formats.huggingface.write(path, data)

    def to_sentencepiece(self, path: StrPath) -> None:
        """Write a model by which sentencepiece encodes as this tokenizer does, but for the template around a text.

        Raises:
            ValueError: a model of sentencepiece cannot say what this tokenizer does.
        """
        formats.sentencepiece.write(path, self._data)

    def add_tokens(self, tokens: Iterable[str] | Mapping[str, int], *, special_tokens: bool = False) -> Self:
        """Return a tokenizer with more added tokens, each one token of any text; this one does not change.

        As transformers' add_tokens(): a token that is an added one, or in the vocabulary, keeps its id; others follow
        the largest id.

        Args:
            tokens: the tokens, or {token: id}.
            special_tokens: True for special tokens, which encode() refuses in a text unless they are allowed.

        Raises:
            ValueError: a token is empty, or an id belongs to another token. TypeError: a token is not a str.

        Example:
            >>> chat = tokenizer.add_tokens(["<tool>"])
            >>> chat.encode("low<tool>"), tokenizer.encode("low<tool>")
            ([258, 262], [258, 60, 116, 111, 111, 108, 62])
        """
        return self._made(
            formats.changing.with_tokens(self._data, tokens, special=special_tokens), None, self._cache_bytes
        )

    def add_special_tokens(self, tokens: Iterable[str] | Mapping[str, int]) -> Self:
        """Return a tokenizer with more special tokens: add_tokens(tokens, special_tokens=True).

        Example:
            >>> chat = tokenizer.add_special_tokens(["<|im_start|>", "<|im_end|>"])
            >>> chat.encode("low<|im_end|>", allowed_special="all")
            [258, 263]
        """
        return self.add_tokens(tokens, special_tokens=True)

    def with_vocab_size(self, vocab_size: int) -> Self:
        """Return the tokenizer of the first merges: the one that training to a smaller vocabulary would have given.

        Args:
            vocab_size: number of tokens, special and added ones included.

        Raises:
            ValueError: this vocabulary is smaller, or has more tokens than that without any merge.

        Example:
            >>> tokenizer.with_vocab_size(260).merges == tokenizer.merges[:3]
            True
        """
        return self._made(
            formats.changing.with_vocab_size(self._data, vocab_size, self.merges), None, self._cache_bytes
        )

    # What it is

    @property
    def data(self) -> TokenizerData:
        """All that decides what this tokenizer does, as plain data; not to be changed."""
        return self._data

    @cached_property
    def vocab(self) -> Mapping[int, bytes]:
        """{id: bytes} of every token, special ones too; read-only."""
        return MappingProxyType(self._data.vocab)

    @cached_property
    def merges(self) -> tuple[tuple[bytes, bytes], ...]:
        """The pairs that are merged, in order of rank."""
        return merges_of(self._data)

    @cached_property
    def special_tokens(self) -> Mapping[str, int]:
        """{name: id} of the special tokens; read-only."""
        return MappingProxyType(self._data.special_tokens)

    @cached_property
    def pattern(self) -> SplitPattern:
        """The split pattern: its name, its regular expressions, or None; a Pattern for expressions of Oniguruma and for
        steps of a tokenizer.json.
        """
        return self._data.pattern.argument

    @property
    def name(self) -> str:
        """The name it was given; "bpe" where it has none."""
        return self._data.name or "bpe"

    @property
    def vocab_size(self) -> int:
        """Number of tokens."""
        return len(self._data.vocab)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256, in hexadecimal, of all that decides which ids a text gets."""
        return formats.native.fingerprint(self._data)

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
        """True if an id belongs to a special token."""
        return token in self._special_ids

    @cached_property
    def _special_ids(self) -> frozenset[int]:
        return frozenset(self._data.special_tokens.values())

    def token_byte_values(self) -> list[bytes]:
        """The bytes of every token that is not special, sorted."""
        return list(self._sorted_tokens)

    @made_once_property
    def _sorted_tokens(self) -> list[bytes]:
        apart = self._text_encoder.special_ids
        return sorted(token for number, token in self._data.vocab.items() if number not in apart)

    # One text to ids: encode(), encode_ordinary() and encode_to_numpy() are in encoding/calls.pxi

    def count_tokens(
        self, text: Text, *, allowed_special: Special = NO_NAMES, disallowed_special: Special = "all"
    ) -> int:
        """Return the number of ids of a text: len(encode(text)), without the list.

        Args:
            text, allowed_special, disallowed_special: as encode() takes them.

        Raises:
            ValueError: the text holds a disallowed special token.

        Example:
            >>> tokenizer.count_tokens("low lower")
            3
        """
        return self._count(text, allowed_special, disallowed_special)

    def encode_with_offsets(
        self, text: Text, *, allowed_special: Special = NO_NAMES, disallowed_special: Special = "all"
    ) -> tuple[list[int], list[int]]:
        """The ids of a text, and where in it each begins.

        Args:
            text, allowed_special, disallowed_special: as encode() takes them.

        Returns:
            The ids, and for each a number of characters of a str, or of bytes. A token that begins inside a character
            has the position of that character. Where the tokenizer changes the text first (a normalizer, a space in
            front), it has the position of the character that it comes from, as in tokenizers.

        Raises:
            ValueError: the text holds a disallowed special token.

        Example:
            >>> tokenizer.encode_with_offsets("low lower")
            ([258, 260, 114], [0, 3, 8])
        """
        rules = self._text_encoder.policy.rules(allowed_special, disallowed_special)
        aligned = self._text_encoder.with_offsets(text, rules, self._decoder)
        if aligned is not None:
            return aligned[:2]
        ids = self.encode(text, allowed_special=allowed_special, disallowed_special=disallowed_special)
        return ids, self._decoder.decode_with_offsets(ids, isinstance(text, str))[1]

    def word_ids(
        self, text: Text, *, allowed_special: Special = NO_NAMES, disallowed_special: Special = "all"
    ) -> list[int]:
        """For each id of a text the number of its word, as word_ids of an Encoding of tokenizers.

        A word is a pretoken, or a special or an added token.

        Args:
            text, allowed_special, disallowed_special: as encode() takes them.

        Raises:
            ValueError: the text holds a disallowed special token.

        Example:
            >>> tokenizer.word_ids("low lower")
            [0, 1, 1]
        """
        return self._text_encoder.word_ids(text, self._text_encoder.policy.rules(allowed_special, disallowed_special))

    def char_to_token(
        self, text: str, char: int, *, allowed_special: Special = NO_NAMES, disallowed_special: Special = "all"
    ) -> int | None:
        """The index of the id that a character of a text is in, as char_to_token() of an Encoding of tokenizers.

        Args:
            text, allowed_special, disallowed_special: as encode() takes them.
            char: the number of the character.

        Returns:
            An index into the ids of the text, the first where several ids share the character; None where it is in
            none of them, as where a pattern drops it.

        Raises:
            ValueError: the text holds a disallowed special token.

        Example:
            >>> tokenizer.char_to_token("low lower", 8)
            2
        """
        rules = self._text_encoder.policy.rules(allowed_special, disallowed_special)
        aligned = self._text_encoder.with_offsets(text, rules, self._decoder)
        if not 0 <= char < len(text):
            return None
        if aligned is None:  # by bytes, as tokens may end inside a character
            ids = self.encode(text, allowed_special=allowed_special, disallowed_special=disallowed_special)
            ends = list(itertools.accumulate(map(len, self._decoder.decode_each(ids))))
            return bisect_right(ends, len(text[:char].encode("utf-8", "surrogatepass")))
        spans = enumerate(zip(*aligned[1:], strict=True))
        return next((index for index, (begin, end) in spans if begin <= char < end), None)

    def encode_single_token(self, text_or_bytes: Text) -> int:
        """The id of one token, special ones too.

        Args:
            text_or_bytes: the token.

        Raises:
            KeyError: it is no token.

        Example:
            >>> tokenizer.encode_single_token("low")
            258
        """
        token = text_or_bytes.encode() if isinstance(text_or_bytes, str) else bytes(buffer_of(text_or_bytes))
        number = self._ids.get(token)
        if number is None:
            raise KeyError(token)
        return number

    @made_once_property
    def _ids(self) -> dict[bytes, int]:
        """The id of every token; of several with the same bytes a special token's, else the lowest."""
        ordinary = sorted(self._data.vocab.items(), reverse=True)
        special = self._data.special_tokens
        return {token: number for number, token in ordinary} | {name.encode(): special[name] for name in special}

    def post_process(self, ids: Iterable[int], pair: Iterable[int] | None = None) -> list[int]:
        """The ids of a text between those that the template of its tokenizer.json puts there, such as `<s>` and `</s>`.

        As tokenizers' encode(add_special_tokens=True). Without a template the ids stay the same.

        Args:
            ids, pair: of a text, and of a second one for the template of two texts.

        Example:
            >>> tokenizer.post_process([258])
            [258]
        """
        return formats.templates.filled(self._data, ids, pair)

    def encode_with_unstable(
        self, text: Text, *, allowed_special: Special = NO_NAMES, disallowed_special: Special = "all"
    ) -> tuple[list[int], list[list[int]]]:
        """The ids of a text that are certain whatever follows it, and the ways how the rest could go on.

        As slow as tiktoken's: a short rest has thousands of continuations. The text is taken as it stands, not
        normalized.

        Args:
            text, allowed_special, disallowed_special: as encode() takes them.

        Returns:
            The certain ids, and lists of ids: each, after the certain ones, gives bytes that begin with the
            text.

        Raises:
            ValueError: the text holds a disallowed special token. UnicodeEncodeError: a str holds a lone surrogate.

        Example:
            >>> stable, completions = tokenizer.encode_with_unstable("low l")
            >>> stable, sorted(completions)
            ([258], [[32, 108], [32, 258], [260]])
        """
        rules = self._text_encoder.policy.rules(allowed_special, disallowed_special)
        return self._text_encoder.unstable(text, rules, self._decoder, self._sorted_tokens, self._ids.__getitem__)

    # Many texts

    def encode_batch(
        self,
        text: Sequence[Text],
        *,
        num_threads: int = 8,
        allowed_special: Special = NO_NAMES,
        disallowed_special: Special = "all",
    ) -> list[list[int]]:
        """encode() of each text, in several threads.

        Args:
            text: the texts.
            num_threads: the most threads; there are never more than processors.
            allowed_special, disallowed_special: as encode() takes them.

        Raises:
            ValueError: as encode(); num_threads is below 1.

        Example:
            >>> tokenizer.encode_batch(["low", "lower"])
            [[258], [259, 114]]
        """
        rules = self._text_encoder.policy.rules(allowed_special, disallowed_special)
        return self._text_encoder.batch(text, rules, threads_for(num_threads), lists=True)

    def encode_ordinary_batch(self, text: Sequence[Text], *, num_threads: int = 8) -> list[list[int]]:
        """encode_ordinary() of each text, in several threads, as encode_batch().

        Example:
            >>> tokenizer.encode_ordinary_batch(["low", "lower"])
            [[258], [259, 114]]
        """
        return self.encode_batch(text, num_threads=num_threads, disallowed_special=())

    def encode_batch_to_numpy(
        self,
        text: Iterable[Text],
        *,
        num_threads: int | None = None,
        allowed_special: Special = NO_NAMES,
        disallowed_special: Special = "all",
    ) -> list[np.ndarray[Any, np.dtype[np.uint32]]]:
        """encode_to_numpy() of each text, in several threads; a long text is shared out among them.

        Args:
            text: the texts.
            num_threads: threads; as many as there are processors, if None.
            allowed_special, disallowed_special: as encode() takes them.

        Returns:
            For each text an array of uint32, of shape (ids,). Arrays of short neighbouring texts share a
            piece of memory of some hundred kilobytes: copy() an array that is to be kept alone.

        Raises:
            ValueError: as encode(); num_threads is below 1. UnicodeEncodeError: a str holds a lone surrogate.

        Example:
            >>> tokenizer.encode_batch_to_numpy(["low", "lower"])
            [array([258], dtype=uint32), array([259, 114], dtype=uint32)]
        """
        rules = self._text_encoder.policy.rules(allowed_special, disallowed_special)
        return self._text_encoder.batch(text, rules, threads_for(num_threads), lists=False)

    def encode_arrow(
        self,
        array: Any,
        *,
        num_threads: int | None = None,
        allowed_special: Special = NO_NAMES,
        disallowed_special: Special = "all",
    ) -> Any:
        """The ids of a column of Arrow, with no Python object for a text or an id. Needs pyarrow.

        Args:
            array: a pyarrow Array or ChunkedArray of string, large_string, string_view or binary, or whatever exports
                one by Arrow's C interface, as a Polars Series does. Binary holds UTF-8.
            num_threads: threads; as many as there are processors, if None.
            allowed_special, disallowed_special: as encode() takes them.

        Returns:
            list<uint32>: an Array of an Array, a ChunkedArray of a ChunkedArray; null where the text is.

        Raises:
            ValueError: a text holds a disallowed special token; an Array (not a ChunkedArray) has 2**31 ids or more.
            TypeError: the array holds no text. ImportError: pyarrow is not installed.

        Example:
            >>> import pyarrow
            >>> tokenizer.encode_arrow(pyarrow.array(["low", None, "lower"])).to_pylist()
            [[258], None, [259, 114]]
        """
        rules = self._text_encoder.policy.rules(allowed_special, disallowed_special)
        return encoding.arrow.encode_column(self._text_encoder, array, rules, threads_for(num_threads))

    def encode_file(
        self,
        source: bpe.Source,
        out: StrPath,
        dtype: Literal["uint16", "uint32"] | type[np.uint16] | type[np.uint32] | None = None,
        *,
        format: Format = "npy",
        end_of_text: str | None = None,
        shard_tokens: int | None = None,
        allowed_special: Special = "all",
        num_threads: int | None = None,
        progress: bpe.Progress | bool | None = None,
    ) -> int:
        """Encode a corpus into token files, in several threads and in bounded memory.

        Special tokens in the corpus are recognised, as in training. X.json beside X.npy holds count, dtype, bytes of
        text, fingerprint, the id of `<|endoftext|>`, SHA-256. Files appear whole or not at all.

        Args:
            source: as bpe.train() takes it.
            out: the file, such as X.npy; a path, or a URL that fsspec knows.
            dtype: "uint16" or "uint32"; uint16 where every id fits, if None.
            format: what trainers read: see bpe.outputs.writers. A document is a text of the source, and one ends after
                each end of text in it.
            end_of_text: a special token that is put after each text that does not end in it; none, if None.
            shard_tokens: the most ids of a file: X-00000.npy, X-00001.npy …; a stopped call goes on after the last.
            allowed_special: the special tokens to recognise: "all", or a collection of names. Others are ordinary text.
            num_threads: threads; as many as there are processors, if None.
            progress: True for bars, or a function of (phase, done, total).

        Returns:
            How many ids were written.

        Raises:
            ValueError: the dtype does not hold every id, a file of the source is not what its name says, or the shards
                that are there were asked for otherwise.
            OSError: a file cannot be read or written. ImportError: a package for the format or the URL is missing.

        Example:
            >>> tokenizer.encode_file(["low lower"], "ids.npy")
            3
        """
        with import_lock:
            from bpe.outputs.encode_source import encode_source, recipe_of

        recipe = recipe_of(self._text_encoder, self.fingerprint, format, dtype, end_of_text, allowed_special)
        return encode_source(source, out, recipe, shard_tokens, threads_for(num_threads), progress)

    # Texts in parts: in chunks, growing, of segments, and cut into pieces

    def encode_iterable(
        self, chunks: TextChunks, *, allowed_special: Special = NO_NAMES, disallowed_special: Special = "all"
    ) -> Iterator[int]:
        """The ids of the chunks joined, as they become certain: the same wherever the text is cut.

        The text after the last position that surely ends a pretoken, which a later chunk could still change, is held
        back: where the pattern sets a pretoken no bound, as for letters without end, until it ends.

        Args:
            chunks: the text, in str or bytes of any length.
            allowed_special, disallowed_special: as encode() takes them.

        Raises:
            ValueError: the text holds a disallowed special token; raised when the ids before it have been given.

        Example:
            >>> list(tokenizer.encode_iterable(["lo", "w low", "er"]))
            [258, 260, 114]
        """
        return self._text_encoder.ids_of_chunks(
            chunks, self._text_encoder.policy.rules(allowed_special, disallowed_special)
        )

    def encode_session(
        self, *, allowed_special: Special = NO_NAMES, disallowed_special: Special = "all"
    ) -> bpe.EncodeSession:
        """An encoder of a text that grows at its end, as a chat does: only the tail of the text is encoded again.

        After each append() the ids equal encode() of the whole text. The tail is what encode_iterable() holds back,
        mostly a word or two. All is encoded again without a split pattern, in a pretoken without end, and where the
        tokenizer's normalizer or its added tokens (lstrip, rstrip, single_word) may look at any position.

        Args:
            allowed_special, disallowed_special: as encode() takes them.

        Example:
            >>> session = tokenizer.encode_session()
            >>> session.append("low low"), session.append("er")
            ((0, [258, 32, 258]), (1, [260, 114]))
            >>> session.ids.tolist() == tokenizer.encode("low lower")
            True
        """
        return encoding.streaming.EncodeSession(partial(_tail_encoder, self, allowed_special, disallowed_special))

    def encode_segments(self, segments: Iterable[tuple[Text, bool]]) -> list[int]:
        """The ids of one text whose trusted segments alone may hold special tokens, as in a chat of users' messages.

        In other segments special and added tokens are ordinary text, but for added tokens of white space alone. The
        text is encoded as a whole: words may lie across the borders of segments, and special tokens across that of two
        trusted ones.

        Args:
            segments: (text, trusted) of each; str, or UTF-8 as bytes, in whole characters.

        Example:
            >>> tokenizer.encode_segments([("low", False), ("<|endoftext|>", True), ("<|", False)])
            [258, 256, 60, 124]
        """
        ids: list[int] = self._text_encoder.segments_to_ids(segments).tolist()
        return ids

    def encode_after(
        self, ids: TokenIds, text: Text, *, allowed_special: Special = NO_NAMES, disallowed_special: Special = "all"
    ) -> list[int]:
        """The ids of a text after ids that stay the same, as a model sampled them; these are not encoded again.

        Args:
            ids: what the text follows, canonical or not.
            text, allowed_special, disallowed_special: as encode() takes them.

        Returns:
            The ids of the text alone; after the given ids, if encode() of the whole begins with these, its other ids.

        Raises:
            ValueError: the text holds a disallowed special token; the tokenizer puts or takes text, or
                has tokens with lstrip, rstrip or single_word.

        Example:
            >>> tokenizer.encode_after([108, 111, 119], "er low")
            [101, 114, 32, 258]
        """
        rules = self._text_encoder.policy.rules(allowed_special, disallowed_special)
        return encoding.canonical.encode_after(self._text_encoder, self._decoder, ids, text, rules)

    def first_difference(self, ids: TokenIds) -> int | None:
        """The index of the first id that encoding the text of the ids does not give; None where it gives them all.

        Example:
            >>> tokenizer.first_difference([258, 108, 111, 119]), tokenizer.first_difference([258, 260])
            (1, None)
        """
        return encoding.canonical.first_difference(self._text_encoder, self._decoder, ids)

    def is_canonical(self, ids: TokenIds) -> bool:
        """True if encoding the text of the ids, special tokens recognised, gives them: first_difference() is None.

        Example:
            >>> tokenizer.is_canonical([258, 260])
            True
        """
        return self.first_difference(ids) is None

    def keeps_prefix(
        self, template: Callable[[list[dict[str, str]]], str], conversation: Sequence[dict[str, str]] = CONVERSATION
    ) -> bool:
        """True if the ids of a conversation begin with the ids of each of its beginnings, as a cache of keys needs it.

        Args:
            template: makes the text of a list of messages, special tokens included.
            conversation: the messages to try.

        Example:
            >>> tokenizer.keeps_prefix(lambda messages: "".join(f"{m['role']}: {m['content']}\\n" for m in messages))
            True
            >>> tokenizer.keeps_prefix(lambda messages: f"{len(messages)} messages")
            False
        """
        beginnings = [list(conversation[:size]) for size in range(1, len(conversation) + 1)]
        ids = [self.encode(template(messages), allowed_special="all") for messages in beginnings]
        return all(after[: len(before)] == before for before, after in itertools.pairwise(ids))

    def truncate(
        self, text: Text, tokens: int, *, allowed_special: Special = NO_NAMES, disallowed_special: Special = "all"
    ) -> bpe.Piece:
        """The beginning of a text that has at most `tokens` ids; no more of the text is encoded.

        Args:
            text, allowed_special, disallowed_special: as encode() takes them.
            tokens: the most ids.

        Returns:
            (text, ids): the text up to the last token that may still be taken, and the first ids of the whole text.
            Where that token would end inside a character, the character is left out, so that there may be up to three
            ids fewer.

        Raises:
            ValueError: the text holds a disallowed special token; tokens is negative.

        Example:
            >>> tokenizer.truncate("low lower lowest", 2)
            Piece(text='low lowe', ids=[258, 260])
        """
        rules = self._text_encoder.policy.rules(allowed_special, disallowed_special)
        return encoding.budgets.truncate(self._text_encoder, self._decoder, text, rules, tokens)

    def split(
        self,
        text: Text,
        tokens: int,
        overlap: int = 0,
        *,
        allowed_special: Special = NO_NAMES,
        disallowed_special: Special = "all",
    ) -> list[bpe.Piece]:
        """A text in pieces of at most `tokens` ids. It is encoded once.

        Args:
            text, allowed_special, disallowed_special: as encode() takes them.
            tokens: the most ids of a piece.
            overlap: the most ids at the end of a piece with which the next one begins again.

        Returns:
            (text, ids) of each piece. No character is divided. Without overlap the texts joined are the text, and the
            ids equal encode(). A piece's ids are its part of these: encoded alone, one that begins or ends
            inside a word may get others.

        Raises:
            ValueError: the text holds a disallowed special token; a character has more tokens than a piece may have (up
                to four, five with the space before a SentencePiece text); overlap is not below tokens.

        Example:
            >>> [piece.text for piece in tokenizer.split("low lower lowest", 2, overlap=1)]
            ['low lowe', ' lower', 'r lowe', ' lowest']
        """
        rules = self._text_encoder.policy.rules(allowed_special, disallowed_special)
        return encoding.budgets.cut(self._text_encoder, self._decoder, text, rules, tokens, overlap)

    # Ids to text

    @made_once_property
    def _decoder(self) -> Decoder:
        return encoding.decoding.decoder_of(self._data)

    def decode(self, tokens: TokenIds, errors: Errors = "replace", *, skip_special_tokens: bool = False) -> str:
        """The text of the ids.

        Args:
            tokens: a list of ids, an array of any integer type, anything that gives integers.
            errors: what becomes of bytes that are not UTF-8, as for bytes.decode().
            skip_special_tokens: leave the special tokens out, as sentencepiece does always and tokenizers by default.

        Raises:
            KeyError, OverflowError, TypeError: as decode_bytes(). UnicodeDecodeError: as bytes.decode().

        Example:
            >>> tokenizer.decode([258, 260, 114])
            'low lower'
        """
        if skip_special_tokens:
            special = self._special_ids
            tokens = [token for token in tokens if token not in special]
        return self._decoder.decode(tokens).decode("utf-8", errors)

    def decode_bytes(self, tokens: TokenIds) -> bytes:
        """The bytes of the ids, which decode() takes in the same forms.

        Raises:
            KeyError: no token has such an id. TypeError: an id is no integer.
            OverflowError: an id is negative, or does not fit 32 bits.

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

        Returns:
            The text, and for each id the number of the character that its token begins at, or inside.

        Raises:
            KeyError, OverflowError, TypeError: as decode_bytes(). UnicodeDecodeError: the bytes are not UTF-8.

        Example:
            >>> tokenizer.decode_with_offsets([258, 260, 114])
            ('low lower', [0, 3, 8])
        """
        data, offsets = self._decoder.decode_with_offsets(tokens, True)
        return data.decode("utf-8"), offsets

    def decode_bytes_with_offsets(self, tokens: Iterable[int]) -> tuple[bytes, list[int]]:
        """The bytes of the ids, and the byte at which each begins. Errors as decode_bytes().

        Example:
            >>> tokenizer.decode_bytes_with_offsets([258, 260, 114])
            (b'low lower', [0, 3, 8])
        """
        return self._decoder.decode_with_offsets(tokens, False)

    def decode_batch(
        self,
        batch: Sequence[TokenIds],
        *,
        errors: Errors = "replace",
        num_threads: int = 8,
        skip_special_tokens: bool = False,
    ) -> list[str]:
        """decode() of each, in several threads, as encode_batch().

        Example:
            >>> tokenizer.decode_batch([[258], [260, 114]])
            ['low', ' lower']
        """
        decode = partial(self.decode, errors=errors, skip_special_tokens=skip_special_tokens)
        return map_in_threads(decode, batch, num_threads)

    def decode_bytes_batch(self, batch: Sequence[TokenIds], *, num_threads: int = 8) -> list[bytes]:
        """decode_bytes() of each, in several threads, as encode_batch().

        Example:
            >>> tokenizer.decode_bytes_batch([[258], [260, 114]])
            [b'low', b' lower']
        """
        return map_in_threads(self.decode_bytes, batch, num_threads)

    def decode_arrow(self, array: Any, errors: Errors = "replace") -> Any:
        """The texts of a column of lists of ids. Needs pyarrow.

        Args:
            array: a pyarrow Array or ChunkedArray of lists of integers, or whatever exports one by Arrow's C interface.
            errors: as decode() takes it.

        Returns:
            large_string: an Array of an Array, a ChunkedArray of a ChunkedArray; null where the list is.

        Raises:
            KeyError, OverflowError, UnicodeDecodeError: as decode(). ImportError: pyarrow is not installed.
            TypeError: the array holds no lists of integers. ValueError: an id is null.

        Example:
            >>> import pyarrow
            >>> tokenizer.decode_arrow(pyarrow.array([[258], None, [259, 114]])).to_pylist()
            ['low', None, 'lower']
        """
        return encoding.arrow.decode_column(self._decoder, array, errors)

    def decode_stream(self, *, skip_special_tokens: bool = False) -> bpe.DecodeStream:
        """A decoder that takes ids as they come, and never gives part of a character; skip_special_tokens as decode().

        Example:
            >>> stream = tokenizer.decode_stream()
            >>> stream.step(258), stream.step([260, 114]), stream.finish()
            ('low', ' lower', '')
        """
        return encoding.decoding.stream_of(
            self._data, self._decoder, self._special_ids if skip_special_tokens else frozenset()
        )

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


class Encoding(Tokenizer):
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

    def __repr__(self) -> str:
        return f"<Encoding {self.name!r}>"
