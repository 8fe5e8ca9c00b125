"""Texts to ids under the rules for special tokens.

Nearly every text is scanned and encoded as it stands, by bpe.encoding.encoder. Here is the rest: texts that are
prepared first, patterns that only `regex` can split by, lone surrogates, batches in threads, and texts in chunks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from bpe import encoding, patterns
from bpe.encoding.encoder import Batch, Encoder
from bpe.encoding.normal_forms import in_form
from bpe.encoding.policy import Policy
from bpe.encoding.texts import Text, TextChunks, checked, utf8
from bpe.native.lazy_imports import numpy as np
from bpe.native.once import made_once_property
from bpe.native.parallel import map_in_threads, run_together
from bpe.native.text import buffer_of
from bpe.native.warn import warn_caller
from bpe.scanning.safe_cut import safe_cut
from bpe.scanning.scanner import boundaries, register_joins, split
from bpe.scanning.special_tokens import Rules, SpecialTokens

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bpe.encoding.decoder import Decoder
    from bpe.encoding.preparing import Piece, Preparation
    from bpe.encoding.streaming import TailEncoder
    from bpe.formats import TokenizerData
    from bpe.formats.vocabulary import Tables

THREAD_TEXT = 1 << 17  # bytes of a batch, about, that are worth a thread, which takes some 60 µs to start and join
SHARED_TEXT = 1 << 18  # bytes of a text, about, that threads share block by block
STREAMED = 1 << 15  # bytes of a text in chunks that are encoded at a time
LISTED = 1 << 12  # ids of a text in chunks that are ints at a time: a list takes ten times the memory of an array

NO_TOKENS = SpecialTokens()


def preparation_of(data: TokenizerData) -> Preparation | None:
    """The preparation of texts that a tokenizer asks for; most ask for none, and import nothing for it."""
    changes = (data.characters, data.words, data.normalizer, data.add_prefix_space)
    changes_text = any(changes) or bool(data.lstrip or data.rstrip or data.single_word)
    if not changes_text and not data.normalized:
        return None
    preparation = encoding.preparing.Preparation(data)
    return preparation if changes_text or preparation.alone else None


def _scanner_of_joins(data: TokenizerData) -> int:
    """The scanner of scanning/joins.h, which keeps the time linear where characters are merged; otherwise -1."""
    if data.characters is None:
        return -1
    split_off = {*data.special_tokens.values(), *data.added_tokens.values()}
    tokens = [token for number, token in data.vocab.items() if number not in split_off]
    return register_joins(tokens, every_space=not data.pattern.is_none)


class TextEncoder:
    """The encoder of a tokenizer, made when the first text comes, with the tokenizer's rules and preparation.

    tables: makes the tables of the encoder; its argument is data.ignore_merges, or False where no pretoken is to be
    looked up whole. special_ids: of special and added tokens.

    Attributes:
        policy: which special tokens a call recognises and refuses.
        form: the normal form of Unicode that the encoder expects of texts, "" for any; None where it takes none.
        alone: True if it takes only texts without special and added tokens.
    """

    def __init__(
        self, data: TokenizerData, special_ids: frozenset[int], tables: Callable[[bool], Tables], cache_bytes: int
    ) -> None:
        self.data, self.special_ids, self._tables, self._cache_bytes = data, special_ids, tables, cache_bytes
        self.policy = Policy(data.special_tokens, data.added_tokens)
        joins = _scanner_of_joins(data)
        self._scanner = joins if joins >= 0 else -1 if data.words else patterns.scanner_of(data.pattern)
        self._preparation = preparation_of(data)
        self.form: str | None = "" if self._preparation is None else self._preparation.form
        self.alone = self._preparation is not None and self._preparation.alone
        if self._scanner < 0 or (data.characters is not None and joins < 0):
            self.form = None

    @property
    def direct(self) -> bool:
        """True if the encoder takes every text."""
        return self.form == "" and not self.alone

    @made_once_property
    def encoder(self) -> Encoder:
        """The encoder of pretokens. Making it refuses merges that contradict the vocabulary."""
        return self._make_encoder(self.data.ignore_merges, self._cache_bytes)

    @made_once_property
    def _merging_encoder(self) -> Encoder:
        """As `encoder`, but every pretoken is merged, none is looked up whole."""
        return self._make_encoder(False, 0) if self.data.ignore_merges else self.encoder

    def _make_encoder(self, ignore_merges: bool, cache_bytes: int) -> Encoder:
        if self.data.words is not None:
            return encoding.words.WordEncoder(self.data._replace(ignore_merges=ignore_merges))  # type: ignore[return-value]
        tables = self._tables(ignore_merges)
        return Encoder(
            ranks=tables.ranks,
            ids=tables.ids,
            scanner=self._scanner,
            cache_bytes=cache_bytes,
            cuts=self.data.characters is None,
            space="never" if self._preparation is None else self._preparation.space,
            stands_for=tables.stands_for,
            added_ids=tuple(self.data.added_tokens.values()),
        )

    def merge(self, pieces: Iterable[bytes]) -> NDArray[np.uint32]:
        """The ids that each of the pieces is merged to, one after another, whole pieces not looked up."""
        return self._merging_encoder.encode_pieces(pieces)

    def never_merged(self, ids: Mapping[bytes, int]) -> list[bytes]:
        """The tokens, of {token: id}, to which merging their own bytes does not lead."""
        if self.merge(ids).tolist() == list(ids.values()):
            return []
        return [token for token, number in ids.items() if self.merge([token]).tolist() != [number]]

    # A text

    def to_array(self, text: Text, rules: Rules, *, repair: bool) -> NDArray[np.uint32]:
        """The ids of any text as uint32, also of one that the encoder does not take.

        ValueError for a special token that is refused; UnicodeEncodeError for a lone surrogate, unless with `repair` it
        becomes U+FFFD, and a pair of them one character, as in tiktoken's encode().
        """
        return self.to_ids(checked(text, rules, repair), rules.recognised)

    def to_ids(self, data: bytes | memoryview, special: SpecialTokens) -> NDArray[np.uint32]:
        """The ids of bytes: these special tokens are recognised, none is refused."""
        rules = Rules(special, NO_TOKENS)
        ready = self.ready(data, rules)
        if ready is not None:
            return self.encoder.encode_array(ready, rules)
        if self._preparation is None:
            return self.unprepared_to_ids(data, special)
        return self.pieces_to_ids(self.pieces(data, special))

    def ready(self, text: Text, rules: Rules) -> Text | None:
        """The text as the encoder takes it: itself, or in a normal form; None where it is encoded piece by piece."""
        if self.form is None or self._preparation is None or self.direct:
            return None if self.form is None else text
        alone = self.alone and (isinstance(text, str) or self._preparation.tokens_meet(text, rules.recognised))
        ready: Text | None = in_form(text, self.form, rules.all, alone)
        return ready

    def takes_unchanged(self, text: Text, rules: Rules) -> bool:
        """True if the text's own bytes are encoded: not a normal form, and no spaces that stand for marks."""
        return self._preparation is None or (self.data.characters is None and self.ready(text, rules) is text)

    def pieces(self, data: bytes | memoryview, special: SpecialTokens) -> list[Piece]:
        """The pieces of a text, prepared, that are encoded one by one."""
        return self._any_preparation.pieces(bytes(data).decode("utf-8", "surrogateescape"), special)

    def pieces_to_ids(self, pieces: Iterable[tuple[str | bytes, int, Any]]) -> NDArray[np.uint32]:
        parts = [np.empty(0, dtype=np.uint32)]
        for piece, number, _ in pieces:
            if number >= 0:
                parts.append(np.array([number], dtype=np.uint32))
            else:
                data = piece.encode("utf-8", "surrogateescape") if isinstance(piece, str) else piece
                parts.append(self.unprepared_to_ids(data, NO_TOKENS))
        return np.concatenate(parts)

    def unprepared_to_ids(self, data: bytes | memoryview, special: SpecialTokens) -> NDArray[np.uint32]:
        """As to_ids(), the text not normalized and no space put before it."""
        if self._scanner >= 0:
            return self.encoder.encode_array(data, Rules(special, NO_TOKENS), begins=False)
        self.warn_if_slow()
        parts = [np.empty(0, dtype=np.uint32)]
        for piece, index in special.partition(data):
            if index >= 0:
                parts.append(np.array([special.ids[index]], dtype=np.uint32))
            else:
                parts.append(self.encoder.encode_pieces(patterns.split(piece, self.data.pattern)))
        return np.concatenate(parts)

    def segments_to_ids(self, segments: Iterable[tuple[Text, bool]]) -> NDArray[np.uint32]:
        """The ids of one text; only its trusted segments hold special and added tokens."""
        pairs = [(utf8(text) if isinstance(text, str) else bytes(buffer_of(text)), flag) for text, flag in segments]
        parts, flags = [part for part, _ in pairs], np.array([flag for _, flag in pairs], dtype=bool)
        data, tokens = b"".join(parts), self.policy.recognised("all")
        if self._preparation is not None and not self.takes_unchanged(data, Rules(tokens, NO_TOKENS)):
            texts = [part.decode("utf-8", "surrogateescape") for part in parts]
            trusted = np.repeat(flags, np.array(list(map(len, texts)), dtype=int))
            return self.pieces_to_ids(self._preparation.pieces("".join(texts), tokens, trusted=trusted))
        trusted = np.repeat(flags, np.array(list(map(len, parts)), dtype=int))
        return self.pieces_to_ids(
            (data[b:e], number, None) for b, e, number in encoding.segments.trusted_spans(data, tokens, trusted)
        )

    @made_once_property
    def _lost_bytes(self) -> bytes:
        """The bytes that are left out of a text, as no token has them."""
        if not self.data.drops_bytes or self.data.words is not None:  # whose encoder gives positions itself
            return b""
        apart = self.special_ids | self.data.unspelled
        tokens = {token for number, token in self.data.vocab.items() if number not in apart}
        return bytes(byte for byte in range(256) if bytes([byte]) not in tokens)

    @made_once_property
    def _spaces_added(self) -> str:
        """When the pattern's steps put a space before a pretoken: see bpe.encoding.offsets.spaces_added_by()."""
        if not self.data.pattern.steps or self.data.words is not None:
            return "never"
        return encoding.offsets.spaces_added_by(self.data.pattern.steps)

    @made_once_property
    def _any_preparation(self) -> Preparation:
        """The preparation, also where it changes no text."""
        return self._preparation or encoding.preparing.Preparation(self.data)

    def with_offsets(
        self, text: Text, rules: Rules, decoder: Decoder, *, exact: bool = False
    ) -> tuple[list[int], list[int], list[int]] | None:
        """The ids of a text, and where in it each begins and ends; None where the text is encoded as it stands.

        exact: a token behind bytes that are left out begins where it stands. Otherwise, as in tokenizers, such bytes
            move the tokens behind them in their pretoken to the left.
        """
        unchanged = self.takes_unchanged(text, rules)
        if unchanged and not self._lost_bytes and self._spaces_added == "never":
            return None
        data = bytes(checked(text, rules, repair=True))
        loses = len(data.translate(None, self._lost_bytes)) < len(data)
        if unchanged and not loses and self._spaces_added == "never":
            return None
        ids: list[int] = []
        spans = [np.empty((2, 0), dtype=np.int64)]
        characters = data.decode("utf-8", "surrogateescape")
        for piece, number, positions in self._any_preparation.pieces(
            characters, rules.recognised, offsets=np.arange(len(characters))
        ):
            if number >= 0:
                ids.append(number)
                spans.append(np.array([positions[:1], positions[-1:]]))
                continue
            of_piece = piece.encode("utf-8", "surrogateescape")
            if self.data.words is not None:
                piece_ids, *both = self.encoder.with_spans(of_piece, self.split(of_piece))  # type: ignore[attr-defined]
            elif loses or self._spaces_added != "never":
                how = self._lost_bytes if exact else None, self._spaces_added
                piece_ids, *both = encoding.offsets.positions_by_pretoken(
                    of_piece, self.split(of_piece), self.encoder, decoder, *how
                )
            else:
                piece_ids = self.unprepared_to_ids(of_piece, NO_TOKENS).tolist()
                sizes = [len(token) for token in decoder.decode_each(piece_ids)]
                edges = np.cumsum([0, *sizes])
                both = [edges[:-1], edges[1:]]
            begins, ends = np.array(both, dtype=np.int64)
            of_bytes = np.append(encoding.offsets.characters_of_bytes(of_piece), len(positions) - 1)
            edges = np.minimum([begins, np.maximum(ends - 1, begins)], len(of_piece))
            spans.append(positions[of_bytes[edges]])
            ids += piece_ids
        begins, ends = np.concatenate(spans, axis=1) + np.array([[0], [1]])
        if not isinstance(text, str):
            sizes = [len(character.encode("utf-8", "surrogateescape")) for character in characters]
            begins, ends = np.cumsum([0, *sizes])[[begins, ends]]
        return ids, begins.tolist(), ends.tolist()

    def word_ids(self, text: Text, rules: Rules) -> list[int]:
        """For each id of a text, the number of its word: of the pretoken, or of the special or added token."""
        sizes: list[int] = []
        for piece, number, _ in self.pieces(checked(text, rules, repair=True), rules.recognised):
            data = piece.encode("utf-8", "surrogateescape")
            # The scanner of a tokenizer of characters splits between tokens too.
            pretokens = self.split(data) if self.data.characters is None else patterns.split(data, self.data.pattern)
            sizes += [len(self.encoder.encode_pieces([pretoken])) for pretoken in pretokens] if number < 0 else [1]
        words: list[int] = np.repeat(np.arange(len(sizes)), sizes).tolist()
        return words

    # Many texts

    def batch(self, texts: Iterable[Text], rules: Rules, threads: int, *, lists: bool) -> list[Any]:
        """The ids of each text, as a list or as an array of uint32; errors as to_array(), of the first at fault."""
        texts = list(texts)

        def alone(text: Text) -> Any:
            ids = self.to_array(text, rules, repair=lists)
            return ids.tolist() if lists else ids

        if self.form is None:
            self.warn_if_slow()  # not in a thread, which has no caller
            return map_in_threads(alone, texts, threads)
        ready: list[Text | None] = list(texts)
        if not self.direct:
            few, form, special = sum(map(len, texts)) < 4 * THREAD_TEXT, self.form, rules.all

            def in_its_form(text: Text) -> Text | None:  # ready() without the steps that are the same for all
                return in_form(text, form, special)

            one_ready = partial(self.ready, rules=rules) if self.alone else in_its_form
            ready = list(map(one_ready, texts)) if few or threads == 1 else map_in_threads(one_ready, texts, threads)
        sources = texts if self.direct else [b"" if text is None else text for text in ready]
        batch = self.run_batch(sources, rules, threads)
        results: list[Any] = batch.lists() if lists else batch.arrays()
        for i in sorted(batch.failures):
            if not isinstance(batch.failures[i], UnicodeError):
                raise batch.failures.pop(i)  # it would keep this frame, and the frame the batch
            results[i] = alone(texts[i])
        for i, text in enumerate(ready):
            if text is None:
                results[i] = alone(texts[i])
        return results

    def run_batch(self, texts: Any, rules: Rules, threads: int, **options: Any) -> Batch:
        """Encode texts that the encoder takes, in several threads. texts, options: see Batch."""
        batch = Batch(
            self.encoder, texts, rules, threads=threads, thread_text=THREAD_TEXT, longest=SHARED_TEXT, **options
        )
        run_together(batch.work, batch.threads)
        return batch

    # A text in chunks

    def chunks(self, chunks: TextChunks, rules: Rules, room: int = STREAMED) -> Iterator[NDArray[np.uint32]]:
        """The ids of the chunks joined, in arrays, as they become certain. room: bytes that are encoded together."""
        return encoding.streaming.encode_chunks(chunks, self.tail_encoder(rules), room)

    def tail_encoder(self, rules: Rules) -> TailEncoder:
        """Return the encoder of a text that comes part by part."""
        preparation = self._preparation
        if preparation is None or not preparation.goes_on:

            def encode(data: bytes, continued: bool) -> tuple[NDArray[np.uint32], bool]:
                rules.check_text(data)
                return self.to_ids(data, rules.recognised), False

            return encoding.streaming.TailEncoder(encode, lambda text: self._last_cut(text, rules.all))

        def encode_marked(data: bytes, continued: bool) -> tuple[NDArray[np.uint32], bool]:
            """Encode for a tokenizer that puts a space before a text and not before what goes on from it."""
            rules.check_text(data)
            pieces = preparation.pieces(data.decode("utf-8", "surrogateescape"), rules.recognised, continued=continued)
            return self.pieces_to_ids(pieces), preparation.ends_open(pieces)

        def cut_at_space(text: bytes) -> int:
            def at_space(at: int) -> int:
                while (at := safe_cut(text, at, self._scanner, rules.all)) < len(text) and text[at] != 0x20:
                    at += 1
                return at

            return encoding.streaming.last_cut(len(text), at_space, rules.all.longest)

        return encoding.streaming.TailEncoder(encode_marked, cut_at_space)

    def ids_of_chunks(self, chunks: TextChunks, rules: Rules) -> Iterator[int]:
        """chunks(), one id after another."""
        for array in self.chunks(chunks, rules):
            for begin in range(0, len(array), LISTED):
                yield from array[begin : begin + LISTED].tolist()

    def each_to_ids(
        self, texts: list[memoryview], special: SpecialTokens, begins: list[bool]
    ) -> list[NDArray[np.uint32]]:
        """to_ids() of each text by the calling thread. begins: False for one that follows a safe_cut()."""
        if not self.direct:
            return [self.to_ids(text, special) for text in texts]
        batch = self.run_batch(texts, Rules(special, NO_TOKENS), 1, continued=[not begin for begin in begins])
        return batch.arrays()  # type: ignore[return-value]  # nothing is refused, and bytes hold no surrogates

    @property
    def can_cut(self) -> bool:
        """True if safe_cut() finds positions in any long text, and what follows one is as a text that begins there."""
        return self._scanner >= 0 and (self._preparation is None or self._preparation.can_cut)

    def safe_cut(self, text: Any, at: int, special: SpecialTokens) -> int:
        """The first position from `at` on where the text may be cut without changing an id; its length for none."""

        def cut(at: int) -> int:
            return safe_cut(text, at, self._scanner, special)

        if self.direct or self._preparation is None:
            return cut(at)
        return self._preparation.cut_safely(cut, text, at)

    def _last_cut(self, text: bytes, special: SpecialTokens) -> int:
        """The last position at which a text that begins with a pretoken may be cut, whatever follows it; 0 for none."""
        cut = encoding.streaming.last_cut(len(text), lambda at: self.safe_cut(text, at, special), special.longest)
        if cut or self._scanner < 0 or self._preparation is not None or self.data.pattern.name is None:
            return cut
        *_, (rest, index) = special.partition(text) or [(b"", -1)]
        if index >= 0 or len(rest) < special.longest:
            return 0
        ends = boundaries(rest, self.data.pattern.name)
        return len(text) - len(rest) + encoding.streaming.last_bounded_end(rest, ends, len(rest) - special.longest)

    # A text that is not finished

    def unstable(
        self, text: Text, rules: Rules, decoder: Decoder, tokens: list[bytes], number: Callable[[bytes], int]
    ) -> tuple[list[int], list[list[int]]]:
        """The ids that are certain whatever follows, and the completions of the rest: see bpe.encoding.unstable."""
        data, special = checked(text, rules, repair=False), rules.recognised
        ids = self.unprepared_to_ids(data, special).tolist()
        *_, (last, index) = special.partition(data) or [(b"", 0)]
        if index >= 0:
            return ids, []
        pretoken = self.split(last)[-1]
        pieces = decoder.decode_each(ids)
        begin = encoding.unstable.unstable_from(pieces, len(self.encoder.encode_pieces([pretoken])))
        return ids[:begin], encoding.unstable.completions(
            b"".join(pieces[begin:]),
            tokens=tokens,
            number=number,
            encode=lambda data: self.unprepared_to_ids(data, NO_TOKENS).tolist(),
            merge=lambda data: self.merge([data]).tolist(),
            size=lambda number: len(self.data.vocab[number]),
        )

    def split(self, text: bytes) -> list[bytes]:
        """The pretokens of a text, special tokens not looked for."""
        pattern = self.data.pattern
        return patterns.split(text, pattern) if self._scanner < 0 else split(text, self._scanner)

    def warn_if_slow(self) -> None:
        """Warn, once in a process, of a pattern that no compiled scanner serves."""
        pattern = self.data.pattern
        if self._scanner < 0 and self.data.words is None and pattern not in _slow:
            _slow.add(pattern)
            warn_caller(patterns.slow_warning(pattern))


_slow: set[patterns.Pattern] = set()  # this process has been warned of these
