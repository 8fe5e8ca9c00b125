"""Tokenizer: construction, saving, and the methods that tiktoken does not have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

import bpe  # whose public types are imported when an annotation is evaluated
from bpe import formats, patterns
from bpe._part_methods import PartMethods
from bpe.encoding.calls import NONE
from bpe.encoding.policy import Special
from bpe.encoding.texts import Text
from bpe.formats import TokenizerData, reading
from bpe.formats.vocabulary import SpecialNames, data_of_merges, data_of_ranks, merges_of
from bpe.native.atomic_file import StrPath
from bpe.native.lazy_imports import import_lock
from bpe.native.lazy_imports import numpy as np
from bpe.native.parallel import threads_for
from bpe.outputs import Format
from bpe.patterns import SplitPattern
from bpe.tiktoken_api import CACHE_BYTES, Encoding, Errors


class Tokenizer(Encoding, PartMethods):
    """A byte-level BPE tokenizer. It has all that tiktoken.Encoding has, and more.

    A tokenizer may be shared by threads, releases the GIL while it works, pickles, and never changes. The examples of
    its methods are those of `tokenizer = bpe.train(["low lower lowest"], 262)`.

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
        # Making the encoder refuses merges that contradict the vocabulary. Those of a file were checked on reading.
        _ = self._texts.encoder

    def __repr__(self) -> str:
        return f"<Tokenizer {self.name!r}: {self.n_vocab:,} ids, pattern {self.pattern!r}>"

    # Other ways to make one, and to keep one

    @classmethod
    def from_data(cls, data: TokenizerData, *, cache_bytes: int = CACHE_BYTES) -> Tokenizer:
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
    ) -> Tokenizer:
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
    def from_tiktoken(cls, path: StrPath, *, pattern: SplitPattern, special_tokens: SpecialNames = ()) -> Tokenizer:
        """From a .tiktoken file, which holds neither pattern nor special tokens.

        Args:
            path: the file.
            pattern, special_tokens: as Tokenizer() takes them.

        Raises:
            ValueError: what is wrong with the file, with its line; or as from_ranks().
            FileNotFoundError: there is none.
        """
        return cls._made(*reading.read_tiktoken(path, pattern, special_tokens))

    @classmethod
    def from_gpt2(
        cls,
        vocab_json: StrPath,
        merges_txt: StrPath,
        *,
        pattern: SplitPattern = "gpt2",
        special_tokens: SpecialNames = ("<|endoftext|>",),
    ) -> Tokenizer:
        """From GPT-2's pair of files.

        Args:
            vocab_json: vocab.json or encoder.json.
            merges_txt: merges.txt or vocab.bpe.
            pattern, special_tokens: as Tokenizer() takes them; the files do not say.

        Raises:
            ValueError: what is wrong with a file, with its line.
            FileNotFoundError: one is missing.
        """
        return cls._made(*reading.read_gpt2(vocab_json, merges_txt, pattern, special_tokens))

    @classmethod
    def from_huggingface(cls, tokenizer_json: StrPath) -> Tokenizer:
        """From a tokenizer.json of Hugging Face tokenizers.

        Raises:
            ValueError: what in the file is wrong, or what it asks for that is not supported.
            FileNotFoundError: there is none.
        """
        return cls._made(*reading.read_huggingface(tokenizer_json))

    @classmethod
    def from_sentencepiece(cls, model: StrPath) -> Tokenizer:
        """From a model file of `sentencepiece` that holds a BPE with byte_fallback.

        Raises:
            ValueError: what in the file is wrong, or what it asks for that is not supported.
            FileNotFoundError: there is none.
        """
        return cls._made(*reading.read(model, "sentencepiece"))

    @classmethod
    def load(cls, path: StrPath) -> Tokenizer:
        """From a file that save() wrote. bpe.load() reads the other formats too.

        Raises:
            ValueError: the file is damaged, or of another format.
            FileNotFoundError: there is none.
        """
        return cls._made(*reading.read(path, "native"))

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
        formats.tiktoken.write_tokenizer(path, self._data, self._texts.never_merged)

    def to_gpt2(self, folder: StrPath) -> None:
        """Write vocab.json and merges.txt into a folder, which is made if need be.

        Raises:
            ValueError: these two cannot say what this tokenizer does.
        """
        formats.gpt2.write_tokenizer(folder, self._data, self.merges, self._texts.never_merged)

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
    def vocab_size(self) -> int:
        """Number of tokens."""
        return len(self._data.vocab)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256, in hexadecimal, of all that decides which ids a text gets."""
        return formats.native.fingerprint(self._data)

    # Text to ids

    def count_tokens(self, text: Text, *, allowed_special: Special = NONE, disallowed_special: Special = "all") -> int:
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

    def encode_batch_to_numpy(
        self,
        text: Iterable[Text],
        *,
        num_threads: int | None = None,
        allowed_special: Special = NONE,
        disallowed_special: Special = "all",
    ) -> list[np.ndarray[Any, np.dtype[np.uint32]]]:
        """encode_to_numpy() of each text, in several threads; a long text is shared out among them.

        Args:
            text: the texts.
            num_threads: threads; as many as there are processors, if None.
            allowed_special, disallowed_special: as encode() takes them.

        Returns:
            For each text an array of uint32, of shape (ids,). Those of short texts that stand side by side share a
            piece of memory of some hundred kilobytes: copy() what is to be kept alone.

        Raises:
            ValueError: a text holds a disallowed special token; num_threads is below 1.
            UnicodeEncodeError: a str holds a lone surrogate.

        Example:
            >>> tokenizer.encode_batch_to_numpy(["low", "lower"])
            [array([258], dtype=uint32), array([259, 114], dtype=uint32)]
        """
        rules = self._texts.policy.rules(allowed_special, disallowed_special)
        return self._texts.batch(text, rules, threads_for(num_threads), lists=False)

    def encode_arrow(
        self,
        array: Any,
        *,
        num_threads: int | None = None,
        allowed_special: Special = NONE,
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
            TypeError: the array holds no text.
            ImportError: pyarrow is not installed.

        Example:
            >>> import pyarrow
            >>> tokenizer.encode_arrow(pyarrow.array(["low", None, "lower"])).to_pylist()
            [[258], None, [259, 114]]
        """
        with import_lock:
            from bpe.encoding.arrow import encode_column

        rules = self._texts.policy.rules(allowed_special, disallowed_special)
        return encode_column(self._texts, array, rules, threads_for(num_threads))

    def encode_with_offsets(
        self, text: Text, *, allowed_special: Special = NONE, disallowed_special: Special = "all"
    ) -> tuple[list[int], list[int]]:
        """The ids of a text, and where in it each begins.

        Args:
            text, allowed_special, disallowed_special: as encode() takes them.

        Returns:
            The ids, and for each a number of characters of a str, or of bytes. A token that begins inside a character
            has the place of that character. Where the tokenizer changes the text first (a normalizer, a space in
            front), the place is that of the character which it comes from, as in tokenizers.

        Raises:
            ValueError: the text holds a disallowed special token.

        Example:
            >>> tokenizer.encode_with_offsets("low lower")
            ([258, 260, 114], [0, 3, 8])
        """
        rules = self._texts.policy.rules(allowed_special, disallowed_special)
        aligned = self._texts.with_offsets(text, rules, self._decoder)
        if aligned is not None:
            return aligned
        ids = self.encode(text, allowed_special=allowed_special, disallowed_special=disallowed_special)
        return ids, self._decoder.decode_with_offsets(ids, isinstance(text, str))[1]

    def add_special_tokens(self, ids: Iterable[int], pair: Iterable[int] | None = None) -> list[int]:
        """The ids of a text between those that the template of its tokenizer.json asks for, such as <s> and </s>.

        As tokenizers' encode(add_special_tokens=True); encode() adds none. Without a template the ids as they are.

        Args:
            ids, pair: of a text, and of a second one for the template of two texts.

        Example:
            >>> tokenizer.add_special_tokens([258])
            [258]
        """
        return formats.templates.filled(self._data, ids, pair)

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

        Special tokens in the corpus are recognised, as in training; encode() refuses them. X.json beside X.npy holds
        count, dtype, bytes of text, fingerprint, the id of <|endoftext|>, SHA-256. Files appear whole or not at all.

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
            OSError: a file cannot be read or written; the disk is full; a connection broke again and again.
            ImportError: a package that the format or the URL needs is not installed.

        Example:
            >>> tokenizer.encode_file(["low lower"], "ids.npy")
            3
        """
        with import_lock:
            from bpe.outputs.encode_source import encode_source, recipe_of

        recipe = recipe_of(self._texts, self.fingerprint, format, dtype, end_of_text, allowed_special)
        return encode_source(source, out, recipe, shard_tokens, threads_for(num_threads), progress)

    # Ids to text

    def decode_bytes_with_offsets(self, tokens: Iterable[int]) -> tuple[bytes, list[int]]:
        """The bytes of the ids, and the byte at which each begins. Errors as decode_bytes().

        Example:
            >>> tokenizer.decode_bytes_with_offsets([258, 260, 114])
            (b'low lower', [0, 3, 8])
        """
        return self._decoder.decode_with_offsets(tokens, False)

    def decode_arrow(self, array: Any, errors: Errors = "replace") -> Any:
        """The texts of a column of lists of ids. Needs pyarrow.

        Args:
            array: a pyarrow Array or ChunkedArray of lists of integers, or whatever exports one by Arrow's C interface.
            errors: what becomes of bytes that are not UTF-8, as for bytes.decode().

        Returns:
            large_string: an Array of an Array, a ChunkedArray of a ChunkedArray; null where the list is.

        Raises:
            KeyError, OverflowError: as decode_bytes().
            TypeError: the array holds no lists of integers.
            ValueError: an id is null. UnicodeDecodeError: bytes are not UTF-8, where errors is "strict".
            ImportError: pyarrow is not installed.

        Example:
            >>> import pyarrow
            >>> tokenizer.decode_arrow(pyarrow.array([[258], None, [259, 114]])).to_pylist()
            ['low', None, 'lower']
        """
        with import_lock:
            from bpe.encoding.arrow import decode_column

        return decode_column(self._decoder, array, errors)

    def decode_stream(self) -> bpe.DecodeStream:
        """A decoder that takes ids as they come, and never gives part of a character.

        Example:
            >>> stream = tokenizer.decode_stream()
            >>> stream.step(258), stream.step([260, 114]), stream.finish()
            ('low', ' lower', '')
        """
        with import_lock:
            from bpe.encoding.streaming import DecodeStream

        if self._data.words is not None:
            return self._decoder.stream()  # type: ignore[attr-defined, no-any-return]
        characters = self._data.characters
        if characters is not None and characters.strip:
            return DecodeStream(lambda ids: b"".join(self.decode_tokens_bytes(ids)), begin=b" ")
        return DecodeStream(self.decode_bytes)
