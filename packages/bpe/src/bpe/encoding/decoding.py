"""The decoder that a tokenizer asks for: plain, with the space that SentencePiece puts first taken off, or of words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bpe.encoding.decoder import Decoder
from bpe.encoding.streaming import DecodeStream
from bpe.native.lazy_imports import import_lock

if TYPE_CHECKING:
    from bpe.formats import TokenizerData


def decoder_of(data: TokenizerData) -> Decoder:
    """Return the decoder of a tokenizer."""
    if data.words is not None:
        with import_lock:
            from bpe.encoding.words import WordDecoder

        return WordDecoder(data.vocab, data.words)
    return _Stripping(data.vocab) if _strips(data) else Decoder(data.vocab)


def stream_of(data: TokenizerData, decoder: Decoder, skipped: frozenset[int]) -> DecodeStream:
    """Return a stream that decodes the ids of one text as they come, but for those that are skipped."""
    if data.words is not None:
        return decoder.stream(skipped)  # type: ignore[attr-defined, no-any-return]
    if _strips(data):
        return DecodeStream(lambda ids: b"".join(decoder.decode_each(ids)), begin=b" ", skipped=skipped)
    return DecodeStream(decoder.decode, skipped=skipped)


def _strips(data: TokenizerData) -> bool:
    return data.characters is not None and bool(data.characters.strip)


class _Stripping(Decoder):
    """A decoder that takes the space from the beginning of a text which SentencePiece's encoders put there."""

    def decode(self, tokens: Any) -> bytes:
        return bytes(super().decode(tokens).removeprefix(b" "))

    def decode_with_offsets(self, tokens: Any, characters: bool) -> tuple[bytes, list[int]]:
        data, offsets = super().decode_with_offsets(tokens, characters)
        if data.startswith(b" "):
            return data[1:], [max(0, offset - 1) for offset in offsets]
        return data, offsets
