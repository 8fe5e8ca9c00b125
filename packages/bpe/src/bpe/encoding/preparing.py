"""Preparation of texts by a tokenizer.json before they are encoded: normalizing, and looking for added tokens.

First the added tokens that are looked for in the text as it is are cut out, then what lies between them is normalized,
then the others are cut out of that, and what is left may be given a space in front. A tokenizer that does none of this
has no Preparation, and is spared the cost.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any

from bpe.encoding.normalizing import FORMS, cuts_at_spaces, marks_spaces_only, normalizer_of, steps_of
from bpe.encoding.policy import keep
from bpe.encoding.segments import Span, spans_of, trusted_spans
from bpe.native.lazy_imports import import_lock, regex
from bpe.native.lazy_imports import numpy as np
from bpe.scanning.special_tokens import SpecialTokens

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bpe.formats import TokenizerData

_SPACES = r"\s*"
_SPACE = r"\s"
_WORD = r"[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]"  # \w of the engine that tokenizers asks here

PieceOrToken = tuple[str, int]  # a piece of text, and the id of the token that it is, or -1


@functools.cache
def _compiled(expression: str) -> regex.Pattern[str]:
    return regex.compile(expression)


class Preparation:
    """The preparation that a tokenizer asks for; see needed()."""

    def __init__(self, data: TokenizerData) -> None:
        self._normalizer = data.normalizer
        self._normalize = normalizer_of(data.normalizer)
        # The normal form, if a text is put into one ("": into none) and nothing else is done to it. Added tokens are in
        # this form already, so they can be found before or after normalizing. With flags, or with tokens that may
        # overlap, only texts without added tokens are encoded by this path.
        plain = not (data.characters or data.words or data.add_prefix_space) and data.normalizer in (None, *FORMS)
        plain = plain and all(self._normalize(name) == name for name in data.normalized)
        self.form = data.normalizer or "" if plain else None
        early = (data.special_tokens.keys() | data.added_tokens.keys()) - data.normalized
        flagged = bool(data.lstrip or data.rstrip or data.single_word)
        self.alone = plain and (flagged or _may_overlap(early, data.normalized))
        self._by_character = cuts_at_spaces(data.normalizer)
        self._prefix_space = data.add_prefix_space
        self._characters = data.characters
        self._marks_text = data.characters is not None and data.characters.prepend == "text"
        # The ids after which a text goes on.
        self._inside = {-1, *data.added_tokens.values()} if self._marks_text else {-1}
        self._continued = self._normalize if data.characters is None else normalizer_of(data.normalizer, continued=True)
        self._late = data.normalized
        ids = data.special_tokens | data.added_tokens
        self._lstrip, self._rstrip, self._single_word = (
            {ids[name] for name in names} for names in (data.lstrip, data.rstrip, data.single_word)
        )
        self._flagged = flagged
        # A token with a space in it may be found only once the text is normalized, and no cut could see it before.
        hidden = data.normalizer is not None and any(" " in name for name in data.normalized)
        # Whether a text may be cut before a space, and go on from there.
        self.goes_on = data.characters is not None and not self._flagged and marks_spaces_only(data.normalizer)
        # Whether cut_safely() finds any place.
        self.can_cut = not (self._flagged or self._characters is not None or not self._by_character or hidden)
        # Whether the encoder takes texts as they are: all that is left to do is what it does about spaces.
        self.space = space_of(data)
        self.spaces_only = data.characters is not None and not self._flagged and _spaces_only(data)
        self._early_and_late_of: dict[tuple[bytes, ...], tuple[SpecialTokens, SpecialTokens]] = {}

    @staticmethod
    def needed(data: TokenizerData) -> bool:
        """True if texts are changed, or added tokens matched otherwise than the longest at the leftmost place."""
        if (
            data.characters
            or data.words
            or data.normalizer
            or data.add_prefix_space
            or data.lstrip
            or data.rstrip
            or data.single_word
        ):
            return True
        early = (data.special_tokens.keys() | data.added_tokens.keys()) - data.normalized
        return _may_overlap(early, data.normalized)

    def changes_nothing(self, text: str) -> bool:
        """True if this text is encoded as it stands, with all added tokens looked for at once."""
        if self._prefix_space or self._flagged or self._late or self._characters is not None:
            return False
        return self._normalizer is None or (self._by_character and self._normalize(text) == text)

    def tokens_meet(self, text: bytes | memoryview, tokens: SpecialTokens) -> bool:
        """True if the tokens in this text may be others than the leftmost and longest: with flags, or of both kinds."""
        return self._flagged or all(kind.search(text) is not None for kind in self._early_and_late(tokens))

    def cut_safely(self, cut: Callable[[int], int], text: bytes, at: int) -> int:
        """The first safe cut from `at` on where both sides are prepared as the whole is; the text's length for none.

        Between two ASCII characters, the second a space: no normalizer joins them, none but those of compatibility
        makes another class of character of what stands beside them, and no space is put before a space.
        """
        if not self.can_cut:
            return len(text)
        while (at := cut(at)) < len(text) and not (text[at - 1] < 0x80 and text[at] == 0x20):
            at += 1
        return at

    def ends_open(self, pieces: list[PieceOrToken]) -> bool:
        """True if what follows these pieces goes on from them, and gets no space in front."""
        return bool(pieces) and pieces[-1][1] in self._inside

    def pieces(
        self, text: str, tokens: SpecialTokens, continued: bool = False, trusted: NDArray[np.bool_] | None = None
    ) -> list[PieceOrToken]:
        """The text cut up, ready to be encoded piece by piece.

        Args:
            tokens: those to look for, with their ids.
            continued: whether the text goes on where another was cut, see ends_open().
            trusted: for each character, whether it may be of such a token; all may, if None.
        """
        early, late = self._early_and_late(tokens)
        if trusted is not None and late:  # the characters of the normal form have to be traced to those of the text
            return [(piece, number) for piece, number, _ in self.aligned_pieces(text, tokens, trusted)]
        pieces: list[PieceOrToken] = []
        for begin, end, number in self._spans(text, early, trusted):
            piece = text[begin:end]
            if number >= 0:
                pieces.append((piece, number))
            else:
                goes_on = continued and not pieces
                normalize = self._continued if goes_on else self._normalize
                piece = normalize(piece)
                mark = "▁" if piece and self._marks_text and not goes_on else ""
                piece = mark + piece
                pieces += [(piece[begin:end], number) for begin, end, number in self._spans(piece, late)]
        if self._characters is not None:
            return self._with_marks(pieces, self._characters.prepend, continued)
        if self._prefix_space:
            return [(_with_space(piece) if number < 0 else piece, number) for piece, number in pieces]
        return pieces

    def aligned_pieces(
        self, text: str, tokens: SpecialTokens, trusted: NDArray[np.bool_] | None = None
    ) -> list[tuple[str, int, NDArray[Any]]]:
        """pieces(), and for the characters of each, or for the token, where in the text they come from."""
        with import_lock:
            from bpe.encoding.aligning import normalize_aligned, with_text_before

        early, late = self._early_and_late(tokens)
        pieces: list[tuple[str, int, NDArray[Any]]] = []
        for begin, end, number in self._spans(text, early, trusted):
            if number >= 0:
                pieces.append((text[begin:end], number, np.array([begin])))
                continue
            piece, places = normalize_aligned(self._normalizer, text[begin:end], np.arange(begin, end))
            if self._marks_text:
                piece, places = with_text_before("▁", piece, places)
            spans = self._spans(piece, late, None if trusted is None else trusted[places])
            pieces += [(piece[b:e], n, places[b:e] if n < 0 else places[b : b + 1]) for b, e, n in spans]
        ready = [(piece, number) for piece, number, _ in pieces]
        if self._characters is not None:
            ready = self._with_marks(ready, self._characters.prepend, False)
        elif self._prefix_space:
            ready = [(_with_space(piece) if number < 0 else piece, number) for piece, number in ready]
        return [
            (piece, number, with_text_before(" " * (len(piece) - len(before)), before, places)[1])
            for (piece, number), (before, _, places) in zip(ready, pieces, strict=True)
        ]

    def _with_marks(self, pieces: list[PieceOrToken], prepend: str, continued: bool) -> list[PieceOrToken]:
        """Spaces for SentencePiece's marks, and one before a piece as Metaspace puts it."""
        marked: list[PieceOrToken] = []
        for place, (piece, number) in enumerate(pieces):
            if number < 0:
                piece = piece.replace("▁", " ")
                if prepend == "always" or (prepend == "first" and not place):
                    piece = piece if continued and not place else _with_space(piece)
            marked.append((piece, number))
        return marked

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
                (begin and _compiled(_WORD).match(text, begin - 1))
                or (end < len(text) and _compiled(_WORD).match(text, end))
            ):
                continue
            if number in self._lstrip:
                while begin > done and _compiled(_SPACE).match(text, begin - 1):
                    begin -= 1
                begin = max(begin, done)
            if number in self._rstrip:
                stop = _compiled(_SPACES).match(text, end).end()
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
    """True if texts are changed in nothing but a space in front, and added tokens found in them as they are."""
    steps = steps_of(data.normalizer)
    prepended = [step for step in steps if step == {"type": "Prepend", "prepend": "▁"}]
    marked = [step for step in steps if step == {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]
    names = data.special_tokens.keys() | data.added_tokens.keys()
    late = names & data.normalized
    if len(prepended) > 1 or len(prepended) + len(marked) < len(steps) or any({" ", "▁"} & {*name} for name in late):
        return False
    return not late or not (prepended or _may_overlap(names - late, late))


def _with_space(text: str) -> str:
    return text if text.startswith(" ") else f" {text}"


def _may_overlap(some: Collection[str], others: Collection[str]) -> bool:
    """True if a text can hold one of some and one of others, of which one begins inside the other."""
    if any(one in other or other in one for one in some for other in others):
        return True
    return not (_ends(some).isdisjoint(_beginnings(others)) and _ends(others).isdisjoint(_beginnings(some)))


def _beginnings(texts: Collection[str]) -> set[str]:
    return {text[:size] for text in texts for size in range(1, len(text))}


def _ends(texts: Collection[str]) -> set[str]:
    return {text[size:] for text in texts for size in range(1, len(text))}
