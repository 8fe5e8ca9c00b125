"""What a tokenizer.json may do to a text before it is encoded, as tokenizers does it: normalize, and look for added tokens.

First the added tokens that are looked for in the text as it is are cut out, then what lies between them is normalized, then
the others are cut out of that, and what is left may be given a space in front. A tokenizer that does none of this has no
Preparation, and is spared the cost.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING

from bpe.native.lazy_imports import regex
from bpe.scanning.special_tokens import SpecialTokens

if TYPE_CHECKING:
    from bpe.formats import TokenizerData

# The normalizers of tokenizers 0.23 follow Unicode 9: what has come since neither composes, nor decomposes, nor is put in
# order with other marks. Found by asking them; Python's follow the Unicode of each Python.
_SINCE_UNICODE_9 = (
    r"([\u05c8\u05c9\u07fd\u0897-\u089f\u08ca-\u08d3\u09fe\u0c3c\u0d3b\u0d3c\u0eba\u1715\u1abf-\u1af0\u1df6-\u1dfa\u32ff"
    r"\ua7f1-\ua7f4\ua82c\uab69\U000105c0-\U000105ff\U00010781-\U000107bf\U00010d24-\U00010d27\U00010d69-\U00010d6d"
    r"\U00010eab-\U00010eac\U00010ecb-\U00010ecf\U00010ef0-\U00010eff\U00010f46-\U00010f50\U00010f82-\U00010f85\U00011070"
    r"\U0001133b\U00011380-\U000113ff\U0001145e\U00011839\U0001183a\U00011900-\U0001195f\U000119e0\U00011a34\U00011a47"
    r"\U00011a99\U00011d42-\U00011d45\U00011d97\U00011f41\U00011f42\U00016100-\U0001613f\U00016d40-\U00016d7f\U00016ff0"
    r"\U00016ff1\U0001ccd6-\U0001ccf9\U0001d127\U0001d128\U0001d250-\U0001d281\U0001e030-\U0001e08f\U0001e130-\U0001e136"
    r"\U0001e2ae\U0001e2ec-\U0001e2ef\U0001e4ec-\U0001e4ef\U0001e5ee\U0001e5ef\U0001e6e3-\U0001e6f5\U0001f16c"
    r"\U0001fbf0-\U0001fbf9]+)"
)
_SPACES = r"\s*"
_SPACE = r"\s"
_WORD = r"[\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\p{Join_Control}]"  # \w of the engine that tokenizers asks here

Cut = tuple[str, int]  # a piece of text, and the id of the token that it is, or -1


@functools.cache
def _compiled(expression: str) -> regex.Pattern[str]:
    return regex.compile(expression)


def normalize(text: str, form: str | None) -> str:
    """The text in one of bpe.formats.NORMALIZERS, as tokenizers has it."""
    if form is None or text.isascii():
        return text
    import unicodedata  # a megabyte that most tokenizers do without

    parts = _compiled(_SINCE_UNICODE_9).split(text)
    parts[::2] = [unicodedata.normalize(form, part) for part in parts[::2]]  # type: ignore[arg-type]
    return "".join(parts)


class Preparation:
    """The preparation that a tokenizer asks for; see needed()."""

    def __init__(self, data: TokenizerData) -> None:
        self._normalizer = data.normalizer
        self._prefix_space = data.add_prefix_space
        self._late = data.normalized
        self._lstrip, self._rstrip, self._single_word = (
            names | {normalize(name, data.normalizer) for name in names}
            for names in (data.lstrip, data.rstrip, data.single_word)
        )
        self._flagged = bool(data.lstrip or data.rstrip or data.single_word)
        # A token with a space in it may be found only once the text is normalized, and no cut could see it before.
        hidden = data.normalizer is not None and any(" " in name for name in data.normalized)
        self._uncuttable = self._flagged or data.normalizer in ("NFKC", "NFKD") or hidden
        self._made: dict[tuple[bytes, ...], tuple[SpecialTokens, SpecialTokens]] = {}

    @staticmethod
    def needed(data: TokenizerData) -> bool:
        """Whether any text is changed, or added tokens found otherwise than the longest at the leftmost place."""
        if data.normalizer or data.add_prefix_space or data.lstrip or data.rstrip or data.single_word:
            return True
        early = (data.special_tokens.keys() | data.added_tokens.keys()) - data.normalized
        return any(_may_overlap(one, other) for one in early for other in data.normalized)

    def changes_nothing(self, text: str) -> bool:
        """Whether this text is encoded as it stands, with all added tokens looked for at once."""
        if self._prefix_space or self._flagged or self._late:
            return False
        return self._normalizer is None or normalize(text, self._normalizer) == text

    def cut_safely(self, cut: Callable[[int], int], text: bytes, at: int) -> int:
        """The first safe cut from `at` on where the preparation of both sides is that of the whole; its length for none.

        Between two ASCII characters, the second a space: no normalizer joins them, none but those of compatibility makes
        another class of character of what stands beside them, and no space is put before a space.
        """
        if self._uncuttable:
            return len(text)
        while (at := cut(at)) < len(text) and not (text[at - 1] < 0x80 and text[at] == 0x20):
            at += 1
        return at

    def pieces(self, text: str, tokens: SpecialTokens) -> list[Cut]:
        """The text cut up, ready to be encoded piece by piece. tokens: those to look for, with their ids."""
        early, late = self._early_and_late(tokens)
        pieces: list[Cut] = []
        for piece, number in self._cut_out(text, early):
            if number >= 0:
                pieces.append((piece, number))
            else:
                pieces += self._cut_out(normalize(piece, self._normalizer), late)
        if self._prefix_space:
            return [(_with_space(piece) if number < 0 else piece, number) for piece, number in pieces]
        return pieces

    def _early_and_late(self, tokens: SpecialTokens) -> tuple[SpecialTokens, SpecialTokens]:
        found = self._made.get(tokens.names)
        if found is None:
            ids = dict(zip((name.decode() for name in tokens.names), tokens.ids, strict=True))
            late = {normalize(name, self._normalizer): ids[name] for name in ids if name in self._late}
            early = {name: ids[name] for name in ids if name not in self._late}
            found = (SpecialTokens(early, early.values()), SpecialTokens(late, late.values()))
            self._made[tokens.names] = found
        return found

    def _cut_out(self, text: str, tokens: SpecialTokens) -> list[Cut]:
        if not tokens:
            return [(text, -1)] if text else []
        found = [
            (piece.decode("utf-8", "surrogateescape"), tokens.ids[index] if index >= 0 else -1)
            for piece, index in tokens.split(text.encode("utf-8", "surrogateescape"))
        ]
        return self._with_flags(text, found) if self._flagged else found

    def _with_flags(self, text: str, found: list[Cut]) -> list[Cut]:
        """What was found, less what is inside a word and should not be, and with the white space that belongs to it."""
        pieces: list[Cut] = []
        taken = end = 0
        for name, number in found:
            begin, end = end, end + len(name)
            stop = end
            if number < 0:
                continue
            if name in self._single_word and (
                (begin and _compiled(_WORD).match(text, begin - 1))
                or (end < len(text) and _compiled(_WORD).match(text, end))
            ):
                continue
            if name in self._lstrip:
                while begin > taken and _compiled(_SPACE).match(text, begin - 1):
                    begin -= 1
            if name in self._rstrip:
                stop = _compiled(_SPACES).match(text, end).end()
            if taken < begin:
                pieces.append((text[taken:begin], -1))
            pieces.append((name, number))
            taken = stop
        if taken < len(text):
            pieces.append((text[taken:], -1))
        return pieces


def _with_space(text: str) -> str:
    return text if text.startswith(" ") else f" {text}"


def _may_overlap(one: str, other: str) -> bool:
    """Whether a text can hold both, one of them beginning inside the other."""
    if one in other or other in one:
        return True
    sizes = range(1, min(len(one), len(other)))
    return any(one[-size:] == other[:size] or other[-size:] == one[:size] for size in sizes)
