"""Preparation of texts by a tokenizer.json before they are encoded: normalizing, and looking for added tokens.

First the added tokens that are looked for in the original text are cut out, then what lies between them is normalized,
then the others are cut out of that, and the rest may get a space in front. A tokenizer that does none of this
has no Preparation, and is spared the cost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, NamedTuple

from bpe.encoding.normalizing import (
    FORMS,
    Offsets,
    cuts_at_spaces,
    marks_spaces_only,
    normalize,
    normalizer_of,
    put_before,
    steps_of,
)
from bpe.encoding.policy import keep
from bpe.encoding.segments import Span, spans_of, trusted_spans
from bpe.native.lazy_imports import numpy as np
from bpe.native.lazy_imports import regex
from bpe.native.printable import SPACE_MARK
from bpe.scanning.special_tokens import SpecialTokens

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bpe.formats import TokenizerData

_SPACES = r"\s*"
_SPACE = r"\s"
_WORD = r"[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]"  # \w of the engine that tokenizers asks here


class Piece(NamedTuple):
    """A piece of text, the id of the token that it is, or -1, and where its characters come from, if that is needed."""

    text: str
    id: int
    offsets: Offsets


class Preparation:
    """The preparation that a tokenizer asks for.

    Attributes:
        form: the normal form of Unicode that the encoder expects of texts, "" for any text, where nothing else is done
            to them; None where their pieces have to be made here.
        alone: True if the encoder takes only texts without added tokens so: where tokens have flags, or may overlap.
        space: the rule for a space in front, as bpe.encoding.encoder.Encoder takes it.
        can_cut: True if cut_safely() finds positions in any long text.
        goes_on: True if a text may be cut before a space, and go on from there.
    """

    def __init__(self, data: TokenizerData) -> None:
        self._normalizer, self._late = data.normalizer, data.normalized
        self._normalize = normalizer_of(data.normalizer)
        self._prefix_space, self._characters = data.add_prefix_space, data.characters
        ids = data.special_tokens | data.added_tokens
        self._lstrip, self._rstrip, self._single_word = (
            {ids[name] for name in names} for names in (data.lstrip, data.rstrip, data.single_word)
        )
        self._flagged = bool(data.lstrip or data.rstrip or data.single_word)
        self._marks_text = data.characters is not None and data.characters.prepend == "text"
        # The ids after which a text goes on.
        self._inside = {-1, *data.added_tokens.values()} if self._marks_text else {-1}
        plain = not (data.characters or data.words or data.add_prefix_space) and data.normalizer in (None, *FORMS)
        # Added tokens that are in the form already can be looked for before or after normalizing.
        plain = plain and all(self._normalize(name) == name for name in data.normalized)
        self.form = data.normalizer or "" if plain else None
        self.alone = plain and (self._flagged or _may_overlap(ids.keys() - data.normalized, data.normalized))
        self.space = space_of(data)
        if data.characters is not None and not self._flagged and _spaces_only(data):
            self.form = ""
        # A token with a space in it may be found only once the text is normalized, and no cut could see it before.
        hidden = data.normalizer is not None and any(" " in name for name in data.normalized)
        by_character = data.characters is None and cuts_at_spaces(data.normalizer)
        self.can_cut = by_character and not self._flagged and not hidden
        self.goes_on = data.characters is not None and not self._flagged and marks_spaces_only(data.normalizer)
        self._early_and_late_of: dict[tuple[bytes, ...], tuple[SpecialTokens, SpecialTokens]] = {}

    def tokens_meet(self, text: bytes | bytearray | memoryview, tokens: SpecialTokens) -> bool:
        """True if the tokens in this text may be others than the leftmost and longest: with flags, or of both kinds."""
        return self._flagged or all(kind.search(text) is not None for kind in self._early_and_late(tokens))

    def cut_safely(self, cut: Callable[[int], int], text: bytes, at: int) -> int:
        """The first safe cut from `at` on where both sides are prepared as the whole is; the text's length for none.

        Between two ASCII characters, the second a space: no normalizer joins them, only the forms of compatibility
        change the class of a character beside them, and no space is put before a space.
        """
        if not self.can_cut:
            return len(text)
        while (at := cut(at)) < len(text) and not (text[at - 1] < 0x80 and text[at] == 0x20):
            at += 1
        return at

    def ends_open(self, pieces: list[Piece]) -> bool:
        """True if what follows these pieces goes on from them, and gets no space in front."""
        return bool(pieces) and pieces[-1].id in self._inside

    def pieces(
        self,
        text: str,
        tokens: SpecialTokens,
        *,
        continued: bool = False,
        trusted: NDArray[np.bool_] | None = None,
        offsets: Offsets = None,
    ) -> list[Piece]:
        """The text cut up, ready to be encoded piece by piece.

        continued: it goes on where another was cut, see ends_open(). trusted: for each character, whether it may be of
        a token; all may, if None. offsets: of each character, if the pieces are to have any.
        """
        early, late = self._early_and_late(tokens)
        if trusted is not None and late and offsets is None:  # to know which characters of the form are trusted
            offsets = np.arange(len(text))
        pieces: list[Piece] = []
        for begin, end, number in self._spans(text, early, trusted):
            piece, at = text[begin:end], None if offsets is None else offsets[begin:end]
            if number >= 0:
                pieces.append(Piece(piece, number, at))
                continue
            goes_on = continued and not pieces
            piece, at = normalize(self._normalizer, piece, at, goes_on)
            if self._marks_text and not goes_on:
                piece, at = put_before(SPACE_MARK, piece, at)
            spans = self._spans(piece, late, None if trusted is None or not late else trusted[at])
            pieces += [Piece(piece[b:e], n, None if at is None else at[b:e]) for b, e, n in spans]
        return [
            piece if piece.id >= 0 else self._spaced(piece, first=not i, continued=continued and not i)
            for i, piece in enumerate(pieces)
        ]

    def _spaced(self, piece: Piece, first: bool, continued: bool) -> Piece:
        """A piece with spaces for SentencePiece's marks, and with one in front where the tokenizer puts it."""
        text, puts_space = piece.text, self._prefix_space
        if self._characters is not None:
            text, prepend = text.replace(SPACE_MARK, " "), self._characters.prepend
            puts_space = not continued and (prepend == "always" or (prepend == "first" and first))
        if not puts_space or text.startswith(" "):
            return piece._replace(text=text)
        text, offsets = put_before(" ", text, piece.offsets)
        return piece._replace(text=text, offsets=offsets)

    def _early_and_late(self, tokens: SpecialTokens) -> tuple[SpecialTokens, SpecialTokens]:
        both = self._early_and_late_of.get(tokens.names)
        if both is None:
            ids = dict(zip((name.decode() for name in tokens.names), tokens.ids, strict=True))
            late: dict[str, int] = {}  # of two that normalize to one text the one with the lower id
            for name in sorted(ids, key=ids.__getitem__):
                if name in self._late and (text := self._normalize(name)):
                    late.setdefault(text, ids[name])
            early = {name: ids[name] for name in ids if name not in self._late}
            both = (SpecialTokens(early, early.values()), SpecialTokens(late, late.values()))
            keep(self._early_and_late_of, tokens.names, both)
        return both

    def _spans(self, text: str, tokens: SpecialTokens, trusted: NDArray[np.bool_] | None = None) -> list[Span]:
        """The text cut up at these tokens, with the white space that belongs to each."""
        if not tokens:
            return [(0, len(text), -1)] if text else []
        spans = spans_of(text, tokens) if trusted is None else trusted_spans(text, tokens, trusted)
        return self._with_flags(text, spans) if self._flagged else spans

    def _with_flags(self, text: str, spans: list[Span]) -> list[Span]:
        """Return the matches but those inside a word that must stand alone, with the white space that they take."""
        flagged: list[Span] = []
        done = 0
        for begin, end, number in spans:
            stop = end
            if number < 0:
                continue
            if number in self._single_word and (
                (begin and regex.match(_WORD, text, pos=begin - 1))
                or (end < len(text) and regex.match(_WORD, text, pos=end))
            ):
                continue
            if number in self._lstrip:
                while begin > done and regex.match(_SPACE, text, pos=begin - 1):
                    begin -= 1
                begin = max(begin, done)
            if number in self._rstrip:
                stop = regex.match(_SPACES, text, pos=end).end()
            if begin >= stop:  # all of it is white space that belongs to the token before
                continue
            if done < begin:
                flagged.append((done, begin, -1))
            flagged.append((begin, stop, number))
            done = stop
        if done < len(text):
            flagged.append((done, len(text), -1))
        return flagged


def space_of(data: TokenizerData) -> str:
    """Return the rule for a space in front, as bpe.encoding.encoder.Encoder takes it."""
    if data.characters is None:
        return "never"
    if any(step["type"] == "Prepend" for step in steps_of(data.normalizer)):
        return "always"
    return {"never": "never", "first": "first", "always": "each", "text": "text"}[data.characters.prepend]


def _spaces_only(data: TokenizerData) -> bool:
    """True if texts only get a space in front, and added tokens are found in the text before it is normalized."""
    steps = steps_of(data.normalizer)
    prepended = [step for step in steps if step == {"type": "Prepend", "prepend": SPACE_MARK}]
    marked = [step for step in steps if step == {"type": "Replace", "pattern": {"String": " "}, "content": SPACE_MARK}]
    names = data.special_tokens.keys() | data.added_tokens.keys()
    late = names & data.normalized
    if (
        len(prepended) > 1
        or len(prepended) + len(marked) < len(steps)
        or any({" ", SPACE_MARK} & {*name} for name in late)
    ):
        return False
    return not late or not (prepended or _may_overlap(names - late, late))


def _may_overlap(some: Collection[str], others: Collection[str]) -> bool:
    """True if a text can hold one of some and one of others that overlap."""
    if any(one in other or other in one for one in some for other in others):
        return True
    for one, other in ((some, others), (others, some)):
        ends = {text[size:] for text in one for size in range(1, len(text))}
        if not ends.isdisjoint(text[:size] for text in other for size in range(1, len(text))):
            return True
    return False
