"""Methods of bpe.Tokenizer for texts in parts: in chunks, growing, of segments, and cut into pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import bpe  # whose public types are imported when an annotation is evaluated
from bpe.encoding.calls import NONE
from bpe.encoding.policy import Special
from bpe.encoding.texts import Text, TextChunks
from bpe.native.lazy_imports import import_lock

if TYPE_CHECKING:
    from bpe.encoding.decoder import Decoder
    from bpe.encoding.text_encoder import TextEncoder


class PartMethods:
    """A part of bpe.Tokenizer."""

    if TYPE_CHECKING:

        @property
        def _texts(self) -> TextEncoder: ...
        @property
        def _decoder(self) -> Decoder: ...

    def encode_iterable(
        self, chunks: TextChunks, *, allowed_special: Special = NONE, disallowed_special: Special = "all"
    ) -> Iterator[int]:
        """The ids of the chunks joined, as they become certain: the same wherever the text is cut.

        What a later chunk could still change is held back: the text after the last place that surely ends a pretoken
        and has no special token across it. So memory is bounded by the longest pretoken. Where the pattern sets that no
        bound, as for letters without end, or is an expression of one's own, a pretoken is held whole until it ends.

        Args:
            chunks: the text, in str or bytes of any length.
            allowed_special, disallowed_special: as encode() takes them.

        Returns:
            An iterator over the ids, which are those of encode() of the chunks joined.

        Raises:
            ValueError: the text holds a disallowed special token; raised when the ids before it have been given.

        Example:
            >>> list(tokenizer.encode_iterable(["lo", "w low", "er"]))
            [258, 260, 114]
        """
        return self._texts.ids_of_chunks(chunks, self._texts.policy.rules(allowed_special, disallowed_special))

    def encode_segments(self, segments: Iterable[tuple[Text, bool]]) -> list[int]:
        """The ids of one text of which only trusted segments may hold special tokens, as a chat of users' messages is.

        In a trusted segment special and added tokens get their ids; in others they are ordinary text, but for added
        tokens of white space alone, which are recognised everywhere. The text is encoded as a whole: the words and
        spaces at the borders of segments have the ids that they have in the text, and special tokens may lie across
        the border of two trusted segments.

        Args:
            segments: (text, trusted) of each; str, or UTF-8 as bytes, in whole characters.

        Returns:
            The ids, without those that add_special_tokens() puts around a text.

        Example:
            >>> tokenizer.encode_segments([("low", False), ("<|endoftext|>", True), ("<|", False)])
            [258, 256, 60, 124]
        """
        ids: list[int] = self._texts.segments_to_ids(segments).tolist()
        return ids

    def encode_session(
        self, *, allowed_special: Special = NONE, disallowed_special: Special = "all"
    ) -> bpe.EncodeSession:
        """An encoder of a text that grows at its end, as a chat does: only the tail of the text is encoded again.

        After each append() the ids are those of encode() of the whole text. The tail begins at the last place that
        surely ends a pretoken whatever follows, mostly a word or two from the end, as for encode_iterable(). Where
        there is no such place, the whole text is encoded again: without a split pattern, in a pretoken without end, and
        where the tokenizer's normalizer or its added tokens (lstrip, rstrip, single_word) may look at any place.

        Args:
            allowed_special, disallowed_special: as encode() takes them.

        Example:
            >>> session = tokenizer.encode_session()
            >>> session.append("low low"), session.append("er")
            ((0, [258, 32, 258]), (1, [260, 114]))
            >>> session.ids.tolist() == tokenizer.encode("low lower")
            True
        """
        with import_lock:
            from bpe.encoding.streaming import EncodeSession

        return EncodeSession(self._texts.tail_encoder(self._texts.policy.rules(allowed_special, disallowed_special)))

    def truncate(
        self, text: Text, tokens: int, *, allowed_special: Special = NONE, disallowed_special: Special = "all"
    ) -> bpe.Piece:
        """The beginning of a text that has at most so many tokens, which is all of it that is encoded.

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
        with import_lock:
            from bpe.encoding.budgets import truncate

        rules = self._texts.policy.rules(allowed_special, disallowed_special)
        return truncate(self._texts, self._decoder, text, rules, tokens)

    def split(
        self,
        text: Text,
        tokens: int,
        overlap: int = 0,
        *,
        allowed_special: Special = NONE,
        disallowed_special: Special = "all",
    ) -> list[bpe.Piece]:
        """A text in pieces of at most so many tokens. It is encoded once.

        Args:
            text, allowed_special, disallowed_special: as encode() takes them.
            tokens: the most ids of a piece.
            overlap: the most ids at the end of a piece with which the next one begins again.

        Returns:
            (text, ids) of each piece. No character is divided. Without overlap the texts joined are the text, and the
            ids those of encode(). Those of a piece are as in the whole text: encoded alone, one that begins or ends
            inside a word may get others.

        Raises:
            ValueError: the text holds a disallowed special token; a character has more tokens than a piece may have (up
                to four, five with the space before a SentencePiece text); overlap is not below tokens.

        Example:
            >>> [piece.text for piece in tokenizer.split("low lower lowest", 2, overlap=1)]
            ['low lowe', ' lower', 'r lowe', ' lowest']
        """
        with import_lock:
            from bpe.encoding.budgets import split

        rules = self._texts.policy.rules(allowed_special, disallowed_special)
        return split(self._texts, self._decoder, text, rules, tokens, overlap)
