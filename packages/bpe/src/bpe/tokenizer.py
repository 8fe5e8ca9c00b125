"""Tokenizer: a vocabulary with its merges, ready to encode and decode; the interface is that of tiktoken.Encoding.

What serves one call or two is imported by those: a process has in memory what it uses.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from bpe import formats, patterns
from bpe.encoding.calls import NONE, Calls
from bpe.encoding.encoder import Encoder
from bpe.encoding.policy import Policy, Special, check
from bpe.encoding.preparing import Preparation
from bpe.encoding.ranks import Ranks
from bpe.formats import TokenizerData
from bpe.native.lazy_imports import numpy as np
from bpe.native.parallel import available_cpus, map_in_threads, run_together, threads_for
from bpe.native.text import buffer_of
from bpe.progress import Progress, reporter
from bpe.scanning.safe_cut import safe_cut
from bpe.scanning.scanner import boundaries, scanner_of, split
from bpe.scanning.special_tokens import Rules, SpecialTokens
from bpe.vocabulary import checked_merge, checked_tokens, encoder_tables, number_special_tokens

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bpe.encoding.batch import Batch
    from bpe.encoding.decoder import Decoder
    from bpe.encoding.shared_text import SharedText
    from bpe.encoding.streaming import DecodeStream
    from bpe.sources import Source

Text = str | bytes | bytearray | memoryview
Ids = Iterable[int]  # a list or an array of them, mostly

CACHE_BYTES = 64 << 20
THREAD_TEXT = 1 << 17  # bytes or code points of a batch that are worth a thread
SHARED_TEXT = 1 << 20  # bytes or code points of a text that is worth sharing out among threads


class Tokenizer(Calls):
    """A byte-level BPE tokenizer.

    vocab: {id: bytes}, the special tokens too or not. merges: (left, right) in order of rank, each joined in vocab.
    pattern: the split pattern, by name, as a regular expression, or None for no split. special_tokens: names, which are
    appended to the vocabulary where it lacks them, or {name: id}. cache_bytes: the most that the caches of encoded
    pretokens may take; they change how fast, never what. Raises ValueError for ids, merges or special tokens that contradict
    one another.

    A tokenizer may be shared by threads, releases the GIL for the work, pickles, and never changes.
    """

    def __init__(
        self,
        vocab: Mapping[int, bytes],
        merges: Iterable[tuple[bytes, bytes]],
        *,
        pattern: str | tuple[str, ...] | patterns.Pattern | None = "gpt2",
        special_tokens: Iterable[str] | Mapping[str, int] = (),
        cache_bytes: int = CACHE_BYTES,
    ) -> None:
        tokens = checked_tokens(vocab)
        special = number_special_tokens(special_tokens, tokens)
        self._set(
            TokenizerData(
                vocab=tokens,
                merges=[checked_merge(pair) for pair in merges],
                special_tokens=special,
                pattern=patterns.resolve(pattern),
            ),
            cache_bytes,
        )
        _ = (
            self._encoder
        )  # refuses merges that the vocabulary does not bear out; what files hold was checked on reading

    # Other ways to make one, and to keep one

    @classmethod
    def from_data(cls, data: TokenizerData, *, cache_bytes: int = CACHE_BYTES) -> Tokenizer:
        """From plain data, as bpe.formats reads it."""
        tokenizer = cls.__new__(cls)
        tokenizer._set(data, cache_bytes)
        return tokenizer

    @classmethod
    def from_ranks(
        cls,
        ranks: Mapping[bytes, int],
        *,
        pattern: str | tuple[str, ...] | None,
        special_tokens: Mapping[str, int] | Iterable[str] = (),
        name: str | None = None,
    ) -> Tokenizer:
        """As tiktoken: a token's rank is its id, any two neighbours that join to a token merge, and a pretoken that is a
        token is that token."""
        vocab = dict(zip(ranks.values(), ranks, strict=True))
        if len(vocab) != len(ranks):
            raise ValueError("two tokens have the same rank; every rank is an id, so each must have its own")
        special = number_special_tokens(special_tokens, vocab)
        return cls.from_data(
            TokenizerData(vocab, None, special, patterns.resolve(pattern), whole_first=True, name=name),
        )

    @classmethod
    def from_tiktoken(
        cls,
        path: formats.StrPath,
        *,
        pattern: str | tuple[str, ...] | None,
        special_tokens: Mapping[str, int] | Iterable[str] = (),
    ) -> Tokenizer:
        """From a .tiktoken file, which holds neither pattern nor special tokens."""
        from bpe.formats import tiktoken

        name = os.path.splitext(os.path.basename(path))[0]
        return cls.from_ranks(tiktoken.read(path), pattern=pattern, special_tokens=special_tokens, name=name)

    @classmethod
    def from_gpt2(
        cls,
        vocab_json: formats.StrPath,
        merges_txt: formats.StrPath,
        *,
        pattern: str | tuple[str, ...] | None = "gpt2",
        special_tokens: Mapping[str, int] | Iterable[str] = ("<|endoftext|>",),
    ) -> Tokenizer:
        """From GPT-2's pair of files (vocab.json or encoder.json, merges.txt or vocab.bpe)."""
        from bpe.formats import gpt2

        vocab, merges = gpt2.read(vocab_json, merges_txt)
        special = number_special_tokens(special_tokens, vocab)
        return cls.from_data(TokenizerData(vocab, merges, special, patterns.resolve(pattern)))

    @classmethod
    def from_huggingface(cls, tokenizer_json: formats.StrPath) -> Tokenizer:
        """From a tokenizer.json; ValueError names what in it is not supported."""
        from bpe.formats import huggingface

        return cls.from_data(huggingface.read(tokenizer_json))

    @classmethod
    def load(cls, path: formats.StrPath) -> Tokenizer:
        """From a file that save() wrote."""
        from bpe.formats import native

        return cls.from_data(native.read(path))

    def save(self, path: formats.StrPath) -> None:
        """Write everything this tokenizer is to one file, which appears whole or not at all."""
        from bpe.formats import native

        native.write(path, self._data)

    def to_tiktoken(self, path: formats.StrPath) -> None:
        """Write the ranks as a .tiktoken file. ValueError where ranks cannot say what this tokenizer does."""
        from bpe.formats import tiktoken

        self._check_plain(path, ".tiktoken file")
        ranks = {token: number for number, token in self._data.vocab.items() if number not in self._special_numbers}
        if len(ranks) + len(self._special_numbers) < len(self._data.vocab):
            raise ValueError(f"{path}: two ids hold the same bytes, which a .tiktoken file cannot say")
        if self._data.merges is not None:
            made = [left + right for left, right in self._data.merges]
            if len(set(made)) < len(made) or [ranks[token] for token in made] != sorted(ranks[token] for token in made):
                raise ValueError(
                    f"{path}: the ids do not follow the merges, so a .tiktoken file would encode otherwise"
                )
            # Where every token is what its bytes are merged to, no pair joins to a token but the one that is listed for it.
            self._check_merged(ranks, path, ".tiktoken file")
        tiktoken.write(path, ranks)

    def to_gpt2(self, folder: formats.StrPath) -> None:
        """Write vocab.json and merges.txt into a folder, which is made if need be. ValueError where these two cannot say what
        this tokenizer does."""
        from bpe.formats import gpt2

        self._check_plain(folder, "vocab.json with merges.txt")
        if self._data.whole_first:
            ordinary = {token: i for i, token in self._data.vocab.items() if i not in self._special_numbers}
            self._check_merged(ordinary, folder, "vocab.json with merges.txt")
        gpt2.write(folder, self._data.vocab, self.merges)

    def _check_plain(self, path: formats.StrPath, form: str) -> None:
        """Refuse a tokenizer that changes the text, for a format that cannot say so."""
        changes = self._data.normalizer or ("a space before the text" if self._data.add_prefix_space else None)
        if changes is not None:
            raise ValueError(f"{path}: this tokenizer changes the text first ({changes}), which a {form} cannot say")

    def _check_merged(self, numbers: Mapping[bytes, int], path: formats.StrPath, form: str) -> None:
        """Refuse a token that its bytes are not merged to, for a format that gives it all the same, or never."""
        tokens, encoder = list(numbers), self._merging_encoder
        if encoder.encode_pieces(tokens).tolist() != list(numbers.values()):
            never = next(token for token in tokens if encoder.encode_pieces([token]).tolist() != [numbers[token]])
            raise ValueError(f"{path}: merging never makes the token {never!r}, so a {form} would encode otherwise")

    def to_huggingface(self, path: formats.StrPath) -> None:
        """Write a tokenizer.json that encodes as this tokenizer does."""
        from bpe.formats import huggingface

        data = self._data
        huggingface.write(path, data._replace(merges=self.merges) if data.merges is None else data)

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256, in hexadecimal, of all that decides which ids a text gets."""
        from bpe.formats import native

        return native.fingerprint(self._data)

    # Set-up

    def _set(self, data: TokenizerData, cache_bytes: int) -> None:
        self._data = data
        if not 0 <= cache_bytes <= sys.maxsize:
            raise ValueError(f"cache_bytes is {cache_bytes}; it takes a number from 0 to {sys.maxsize}")
        self._cache_bytes = cache_bytes
        self._special_numbers = set(data.special_tokens.values()) | set(data.added_tokens.values())
        self._scanner = scanner_of(data.pattern)
        self._preparation = Preparation(data) if Preparation.needed(data) else None
        self._direct = self._scanner >= 0 and self._preparation is None  # the encoder takes a text as it is
        if not formats.are_ids(data.vocab):
            raise ValueError(f"the ids of a vocabulary are whole numbers from 0 to {formats.MAX_ID}")
        self._policy = Policy(data.special_tokens, data.added_tokens)
        self._rules = self._policy.rules
        self._set_rules(self._rules(NONE, "all"), self._rules(NONE, ()))

    @cached_property
    def _encoder(self) -> Encoder:
        return self._make_encoder(self._data.whole_first, self._cache_bytes)

    def _make_encoder(self, whole_first: bool, cache_bytes: int) -> Encoder:
        symbols, ids, merges = encoder_tables(self._data, self._special_numbers)
        ranks = Ranks(symbols=symbols, merges=merges, whole_first=whole_first)
        return Encoder(ranks=ranks, ids=ids, scanner=self._scanner, cache_bytes=cache_bytes)

    @cached_property
    def _merging_encoder(self) -> Encoder:
        """As the encoder, without looking pretokens up whole: what encode_with_unstable needs besides."""
        return self._make_encoder(False, 0) if self._data.whole_first else self._encoder

    def __reduce__(self) -> tuple[Any, ...]:
        return _remake, (self._data, self._cache_bytes)

    def __repr__(self) -> str:
        return f"<Tokenizer {self.name!r}: {self.n_vocab:,} ids, pattern {self.pattern!r}>"

    # What it is

    @property
    def name(self) -> str:
        """The name it was given or made under; "bpe" where there is none."""
        return self._data.name or "bpe"

    @property
    def data(self) -> TokenizerData:
        """All that decides what this tokenizer does, as plain data; not to be changed."""
        return self._data

    @property
    def vocab(self) -> dict[int, bytes]:
        """The bytes of every id, special tokens too."""
        return dict(self._data.vocab)

    @property
    def merges(self) -> list[tuple[bytes, bytes]]:
        """The pairs that are merged, in order of rank."""
        if self._data.merges is None:
            from bpe.formats import tiktoken

            ranks = {token: number for number, token in self._data.vocab.items() if number not in self._special_numbers}
            return tiktoken.merges_from_ranks(ranks)
        return list(self._data.merges)

    @property
    def special_tokens(self) -> dict[str, int]:
        """The special tokens and their ids."""
        return dict(self._data.special_tokens)

    @property
    def special_tokens_set(self) -> set[str]:
        """The names of the special tokens."""
        return set(self._data.special_tokens)

    @property
    def pattern(self) -> str | tuple[str, ...] | None:
        """The split pattern: its name, or its regular expressions, or None."""
        resolved = self._data.pattern
        if resolved.name or not resolved.expressions:
            return resolved.name
        return resolved.expressions[0] if len(resolved.expressions) == 1 else resolved.expressions

    @property
    def vocab_size(self) -> int:
        """How many tokens there are."""
        return len(self._data.vocab)

    @cached_property
    def max_token_value(self) -> int:
        """The largest id."""
        return max(self._data.vocab)

    @property
    def n_vocab(self) -> int:
        """The largest id plus one: how many rows an embedding needs."""
        return self.max_token_value + 1

    @property
    def eot_token(self) -> int:
        """The id of <|endoftext|>; KeyError where there is none."""
        return self._data.special_tokens["<|endoftext|>"]

    def is_special_token(self, token: int) -> bool:
        """Whether this id is that of a special token."""
        return token in self._data.special_tokens.values()

    def token_byte_values(self) -> list[bytes]:
        """The bytes of every token that is not special, sorted."""
        return list(self._sorted_tokens)

    @cached_property
    def _sorted_tokens(self) -> list[bytes]:
        return sorted(token for number, token in self._data.vocab.items() if number not in self._special_numbers)

    # Text to ids

    # encode(), encode_ordinary() and encode_to_numpy() are in encoding/calls.pyx

    def encode_batch(
        self,
        text: Sequence[Text],
        *,
        num_threads: int = 8,
        allowed_special: Special = NONE,
        disallowed_special: Special = "all",
    ) -> list[list[int]]:
        """encode() of each text, in parallel."""
        rules = self._rules(allowed_special, disallowed_special)
        return self._encode_many(
            text, rules, num_threads, self._to_list, lambda batch: batch.lists(), lambda shared: shared.list()
        )

    def encode_batch_to_numpy(
        self,
        text: Iterable[Text],
        *,
        num_threads: int | None = None,
        allowed_special: Special = NONE,
        disallowed_special: Special = "all",
    ) -> list[NDArray[np.uint32]]:
        """encode_to_numpy() of each text, in parallel; a long one is cut where that changes no id, and shared out too.

        Arrays of short texts that stand side by side share a piece of memory, of some hundred KB: copy() what is to be kept
        alone.

        num_threads: as many as there are processors, if None. ValueError for none at all.
        """
        rules = self._rules(allowed_special, disallowed_special)
        return self._encode_many(
            text, rules, num_threads, self._to_array, lambda batch: batch.arrays(), lambda shared: shared.array()
        )

    def _encode_many(
        self,
        text: Iterable[Text],
        rules: Rules,
        num_threads: int | None,
        alone: Callable[[Text, Rules], Any],
        of_batch: Callable[[Batch], list[Any]],
        of_shared: Callable[[SharedText], Any],
    ) -> list[Any]:
        """Short texts, each by one of several threads, then each long one by all of them; what none takes, alone."""
        threads, texts = threads_for(num_threads), list(text)
        if not self._direct:
            return map_in_threads(lambda one: alone(one, rules), texts, threads)
        from bpe.encoding.batch import Batch
        from bpe.encoding.shared_text import SharedText

        batch = Batch(self._encoder, texts, rules, threads=threads, longest=SHARED_TEXT)
        run_together(batch.work, min(threads, 1 + batch.size // THREAD_TEXT))
        found = of_batch(batch)
        for i in batch.long:
            shared = SharedText(self._encoder, texts[i], rules, threads=threads)
            run_together(shared.work, threads)
            found[i] = of_shared(shared)
        for i in batch.refused() + [i for i in batch.long if found[i] is None]:
            found[i] = alone(texts[i], rules)
        return found

    def encode_ordinary_batch(self, text: Sequence[Text], *, num_threads: int = 8) -> list[list[int]]:
        """encode_ordinary() of each text, in parallel."""
        return self.encode_batch(text, num_threads=num_threads, disallowed_special=())

    def encode_with_unstable(
        self, text: Text, *, allowed_special: Special = NONE, disallowed_special: Special = "all"
    ) -> tuple[list[int], list[list[int]]]:
        """The ids of a text that are certain whatever follows it, and the ways in which the rest could go on.

        The second list holds runs of ids: each, after the certain ones, gives bytes that begin with the text. As tiktoken
        has it, and slow: a short rest has thousands. The text is taken as it stands, not normalized. UnicodeEncodeError for
        a lone surrogate.
        """
        from bpe.encoding.unstable import completions, unstable_from

        rules = self._rules(allowed_special, disallowed_special)
        data, special = self._checked(text, rules, repair=False), rules.recognised
        ids = self._encode_whole(data, special).tolist()
        *_, (last, index) = special.split(data) or [(b"", 0)]
        if index >= 0:
            return ids, []
        pretoken = (
            patterns.split(last, self._data.pattern) if self._scanner < 0 else split(last, self._data.pattern.name)
        )[-1]
        pieces = self.decode_tokens_bytes(ids)
        begin = unstable_from(pieces, len(self._encoder.encode_pieces([pretoken])))
        none = SpecialTokens()
        return ids[:begin], completions(
            b"".join(pieces[begin:]),
            tokens=self._sorted_tokens,
            number=self._numbers.__getitem__,
            encode=lambda data: self._encode_whole(data, none).tolist(),
            merge=lambda data: self._merging_encoder.encode_pieces([data]).tolist(),
            size=lambda number: len(self._data.vocab[number]),
        )

    def encode_single_token(self, text_or_bytes: Text) -> int:
        """The id of one token, special ones too. KeyError where it is none."""
        token = text_or_bytes.encode() if isinstance(text_or_bytes, str) else bytes(memoryview(text_or_bytes))
        number = self._numbers.get(token)
        if number is None:
            raise KeyError(token)
        return number

    @cached_property
    def _numbers(self) -> dict[bytes, int]:
        ordinary = sorted(self._data.vocab.items(), reverse=True)
        return {token: number for number, token in ordinary} | {
            name.encode(): number for name, number in self._data.special_tokens.items()
        }

    def encode_iterable(
        self, chunks: Iterable[str] | Iterable[bytes], *, allowed_special: Special = "all"
    ) -> Iterator[int]:
        """The ids of the chunks joined, as they become certain: the same wherever the text is cut.

        What a later chunk could still change is held back: the text after the last place that surely ends a pretoken and
        has no special token across it. So memory is bounded, but by the longest pretoken: where the pattern sets none a
        bound, as for letters without end, or is an expression of one's own, it is held whole until it ends.
        """
        for array in self._encode_chunks(chunks, allowed_special):
            for begin in range(0, len(array), 4096):  # a list takes ten times the array
                yield from array[begin : begin + 4096].tolist()

    def _encode_chunks(
        self, chunks: Iterable[str] | Iterable[bytes], allowed_special: Special, room: int = 1 << 15
    ) -> Iterator[NDArray[np.uint32]]:
        from bpe.encoding.streaming import encode_chunks

        special = self._policy.recognised(allowed_special)
        return encode_chunks(
            chunks,
            encode=lambda text: self._encode_bytes(text, special),
            cut=lambda text: self._last_cut(text, special),
            room=room,
        )

    def _last_cut(self, text: bytes, special: SpecialTokens) -> int:
        """The last place at which a text that begins with a pretoken may be cut, whatever follows it; 0 for none."""
        from bpe.encoding.streaming import last_bounded_end, last_cut

        found = last_cut(len(text), lambda at: self._safe_cut(text, at, special), special.longest)
        if found or self._scanner < 0 or self._preparation is not None:
            return found
        *_, (rest, index) = special.split(text) or [(b"", -1)]
        if index >= 0 or len(rest) < special.longest:
            return 0
        ends = boundaries(rest, self._data.pattern.name)
        return len(text) - len(rest) + last_bounded_end(rest, ends, len(rest) - special.longest)

    def add_special_tokens(self, ids: Iterable[int]) -> list[int]:
        """The ids of a text with those around them that the template of its tokenizer.json asks for, such as <s> and </s>.

        As tokenizers' encode(add_special_tokens=True); encode() alone adds none. Without a template the ids as they are.
        """
        special = self._data.special_tokens
        return [*(special[name] for name in self._data.prefix), *ids, *(special[name] for name in self._data.suffix)]

    def count(self, text: Text, *, allowed_special: Special = "all") -> int:
        """How many ids a text has."""
        rules = self._rules(allowed_special, ())
        return len(self._encode_bytes(self._checked(text, rules), rules.recognised))

    def encode_with_offsets(
        self, text: Text, *, allowed_special: Special = NONE, disallowed_special: Special = "all"
    ) -> tuple[list[int], list[int]]:
        """The ids of a text, and where each begins: in characters for a str, in bytes for bytes.

        A token that begins inside a character has the place of that character. Where a tokenizer.json changes the text
        before it is encoded (see bpe.encoding.preparing), the places are those in the text that decode() gives back.
        """
        ids = self.encode(text, allowed_special=allowed_special, disallowed_special=disallowed_special)
        return ids, self._decoder.decode_with_offsets(ids, isinstance(text, str))[1]

    def encode_file(
        self,
        source: Source,
        out: formats.StrPath,
        dtype: Any = None,
        *,
        allowed_special: Special = "all",
        workers: int | None = None,
        progress: Progress | bool | None = None,
    ) -> int:
        """Encode a source of text into one .npy file of ids, in parallel and in bounded memory; returns how many ids.

        dtype: uint16 or uint32 (uint16 where every id fits). Beside X.npy goes X.json: count, dtype, bytes of text, this
        tokenizer's fingerprint, the id of <|endoftext|>, SHA-256. Both appear whole or not at all. OSError names the file
        where the disk is full.
        """
        from pathlib import Path

        from bpe.outputs import token_file

        special = self._policy.recognised(allowed_special)
        with reporter(progress) as report:
            return token_file.write(
                source,
                Path(out),
                encode=lambda data: self._encode_bytes(data, special),
                cut=lambda text, at: self._safe_cut(text, at, special),
                margin=special.longest,
                dtype=np.dtype(dtype)
                if dtype is not None
                else np.dtype(np.uint16 if self.n_vocab <= 1 << 16 else np.uint32),
                largest=self.max_token_value,
                tokenizer=self.fingerprint,
                end_of_text=self._data.special_tokens.get("<|endoftext|>"),
                workers=available_cpus() if workers is None else workers,
                report=report,
            )

    # Ids to text

    @cached_property
    def _decoder(self) -> Decoder:
        from bpe.encoding.decoder import Decoder

        return Decoder(self._data.vocab)

    def decode(self, tokens: Ids, errors: str = "replace") -> str:
        """The text of the ids. Bytes that are not UTF-8 are treated as `errors` says. As decode_bytes() for wrong ids."""
        return self._decoder.decode(tokens).decode("utf-8", errors)

    def decode_bytes(self, tokens: Ids) -> bytes:
        """The bytes of the ids: a list of them, an array of any integer type, anything that gives integers.

        KeyError for an unknown id, OverflowError for a negative one or one beyond 32 bits, TypeError for what is no integer.
        """
        return self._decoder.decode(tokens)

    def decode_single_token_bytes(self, token: int) -> bytes:
        """The bytes of one id. As decode_bytes() for a wrong one."""
        return self._decoder.decode_one(token)

    def decode_tokens_bytes(self, tokens: Ids) -> list[bytes]:
        """The bytes of each id. As decode_bytes() for wrong ones."""
        return self._decoder.decode_each(tokens)

    def decode_with_offsets(self, tokens: Ids) -> tuple[str, list[int]]:
        """The text of the ids, and for each the character at which it begins. UnicodeDecodeError where they are not UTF-8.

        A token that begins inside a character has the place of that character.
        """
        data, offsets = self._decoder.decode_with_offsets(tokens, True)
        return data.decode("utf-8"), offsets

    def decode_bytes_with_offsets(self, tokens: Ids) -> tuple[bytes, list[int]]:
        """The bytes of the ids, and for each the byte at which it begins."""
        return self._decoder.decode_with_offsets(tokens, False)

    def decode_batch(self, batch: Sequence[Ids], *, errors: str = "replace", num_threads: int = 8) -> list[str]:
        """decode() of each, in parallel."""
        return map_in_threads(lambda tokens: self.decode(tokens, errors), batch, num_threads)

    def decode_bytes_batch(self, batch: Sequence[Ids], *, num_threads: int = 8) -> list[bytes]:
        """decode_bytes() of each, in parallel."""
        return map_in_threads(self.decode_bytes, batch, num_threads)

    def decode_stream(self) -> DecodeStream:
        """A decoder to which ids are fed as they come, and which never gives part of a character."""
        from bpe.encoding.streaming import DecodeStream

        return DecodeStream(self.decode_bytes)

    # Between the two

    def _to_list(self, text: Text, rules: Rules) -> list[int]:
        """The ids of a text; see encode()."""
        if self._direct:
            self._set_encoder(self._encoder)
            ids = self._encoder.encode(text, rules)
            if ids is not None:
                return ids
        found: list[int] = self._encode_bytes(self._checked(text, rules), rules.recognised).tolist()
        return found

    def _to_array(self, text: Text, rules: Rules) -> NDArray[np.uint32]:
        """The ids of a text. UnicodeEncodeError for a lone surrogate, ValueError for a special token that is refused."""
        if self._direct:
            self._set_encoder(self._encoder)
            ids = self._encoder.encode_array(text, rules)
            if ids is not None:
                return ids
        return self._encode_bytes(self._checked(text, rules, repair=False), rules.recognised)

    def _checked(self, text: Text, rules: Rules, repair: bool = True) -> bytes | memoryview:
        """The bytes of a text that holds nothing that is refused.

        repair: lone surrogates in a str become U+FFFD and pairs characters, as in tiktoken; otherwise they are an error.
        """
        if not isinstance(text, str):
            data = buffer_of(text)
        else:
            try:
                data = text.encode()
            except UnicodeEncodeError:
                data = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
                if not repair:
                    check(data, rules)  # its error comes first, as in tiktoken
                    raise
        check(data, rules)
        return data

    def _safe_cut(self, text: Any, at: int, special: SpecialTokens) -> int:
        """The first place from `at` on where the text may be cut without changing an id; its length if there is none."""

        def cut(at: int) -> int:
            return safe_cut(text, at, self._scanner, special)

        return cut(at) if self._preparation is None else self._preparation.cut_safely(cut, text, at)

    def _encode_bytes(self, data: Any, special: SpecialTokens) -> NDArray[np.uint32]:
        if self._preparation is None:
            return self._encode_whole(data, special)
        text = bytes(data).decode("utf-8", "surrogateescape")
        if self._preparation.changes_nothing(text):
            return self._encode_whole(data, special)
        parts, none = [np.empty(0, dtype=np.uint32)], SpecialTokens()
        for piece, number in self._preparation.pieces(text, special):
            if number >= 0:
                parts.append(np.array([number], dtype=np.uint32))
            else:
                parts.append(self._encode_whole(piece.encode("utf-8", "surrogateescape"), none))
        return np.concatenate(parts)

    def _encode_whole(self, data: Any, special: SpecialTokens) -> NDArray[np.uint32]:
        """The ids of bytes that need no preparation."""
        if self._scanner < 0:
            return self._encode_split(data, special)
        ids = self._encoder.encode_array(data, Rules(special, _NOTHING))
        assert ids is not None  # it refuses nothing, and bytes have no surrogates
        return ids

    def _encode_split(self, data: Any, special: SpecialTokens) -> NDArray[np.uint32]:
        """Encode under a pattern that only `regex` can split by."""
        parts = [np.empty(0, dtype=np.uint32)]
        for piece, index in special.split(data):
            if index >= 0:
                parts.append(np.array([special.ids[index]], dtype=np.uint32))
            else:
                parts.append(self._encoder.encode_pieces(patterns.split(piece, self._data.pattern)))
        return np.concatenate(parts)


_NOTHING = SpecialTokens()


def _remake(data: TokenizerData, cache_bytes: int) -> Tokenizer:
    return Tokenizer.from_data(data, cache_bytes=cache_bytes)
