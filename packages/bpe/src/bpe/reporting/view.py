"""Text as a tokenizer cuts it, drawn in HTML.

A token is a coloured span whose title says its id and its bytes. White space shows discreetly and a new line breaks the
line. Bytes that are no whole character by themselves are chips of two hexadecimal digits; the token that completes
the character shows it after them. What a chip says is drawn by the style sheet, so the text copied from a page, or
found in it, is the text that went in, but for bytes that are not UTF-8, control characters, and the invisible ones that
would turn the page's own text around.
"""

import html
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import Literal, Protocol

COLOURS = 6

STYLE = f"<style>\n{(resources.files('bpe.reporting') / 'assets' / 'tokens.css').read_text('utf-8')}</style>\n"


class Encodes(Protocol):
    """What this page needs of a tokenizer."""

    @property
    def special_tokens(self) -> Mapping[str, int]: ...

    def encode(self, text: str | bytes, /, *, allowed_special: Literal["all"]) -> list[int]: ...

    def decode_single_token_bytes(self, token: int, /) -> bytes: ...


def tokens_html(tokenizer: Encodes, text: str | bytes, *, ids: Sequence[int] | None = None) -> str:
    """The tokens of a text as a fragment; a page that holds fragments needs STYLE once.

    ids: the text's tokens, where they are known already. ValueError if they spell another text.
    """
    data = _bytes(text)
    if ids is None:
        ids = tokenizer.encode(data if isinstance(text, bytes) else data.decode(), allowed_special="all")
    tokens = [(token, tokenizer.decode_single_token_bytes(token)) for token in ids]
    spelt = b"".join(piece for _, piece in tokens)
    if spelt != data:
        at = next((i for i, (a, b) in enumerate(zip(spelt, data, strict=False)) if a != b), min(len(spelt), len(data)))
        raise ValueError(f"the {len(tokens)} tokens do not spell the text: they differ from it at byte {at:,}")
    specials = set(tokenizer.special_tokens.values())
    spans, last = [], -1
    for (token, piece), drawn in zip(tokens, _pieces([piece for _, piece in tokens]), strict=True):
        last = _colour(token, last)
        spans.append(_span(token, piece, drawn, last, token in specials))
    return f'<pre class="bpe-tokens" translate="no">{"".join(spans)}</pre>\n'


def chips_html(tokenizer: Encodes, ids: Sequence[int]) -> str:
    """Tokens by themselves, one chip each: the longest of a vocabulary, say. A fragment that needs STYLE."""
    specials, spans = set(tokenizer.special_tokens.values()), []
    for token in ids:
        piece = tokenizer.decode_single_token_bytes(token)
        spans.append(_span(token, piece, next(_pieces([piece])), _colour(token, -1), token in specials))
    return f'<div class="bpe-chips" translate="no">{"".join(spans)}</div>\n'


def _bytes(text: str | bytes) -> bytes:
    """As UTF-8, where half of a surrogate pair that lost the other is U+FFFD."""
    return (
        text if isinstance(text, bytes) else text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()
    )


def _pieces(pieces: Sequence[bytes]) -> Iterator[str]:
    """Each token's inside. A character that several tokens share is drawn in the last; the others show its bytes."""
    drawn = [""] * len(pieces)
    index, room = 0, len(pieces[0]) if pieces else 0  # the token being filled, and its bytes still to be drawn
    run = ""
    for character in b"".join(pieces).decode("utf-8", "surrogateescape"):
        while room == 0:
            drawn[index] += _text(run)
            run, index = "", index + 1
            room = len(pieces[index])
        bad = "\udc80" <= character <= "\udcff"
        data = bytes([ord(character) - 0xDC00]) if bad else character.encode()
        if not bad and len(data) <= room:
            run, room = run + character, room - len(data)
            continue
        drawn[index] += _text(run)
        run = ""
        for byte in data:
            while room == 0:
                index += 1
                room = len(pieces[index])
            drawn[index] += _chip(f"{byte:02X}", bad)
            room -= 1
        drawn[index] += "" if bad else _text(character)
    if pieces:
        drawn[index] += _text(run)
    yield from drawn


MARKED = re.compile(r"( +)|(\r?\n)|(\t)|(\r)|([^\x20-\x7e])")


def _text(run: str) -> str:
    """Whole characters, white space marked and the unprintable as chips."""
    return MARKED.sub(_marked, html.escape(run)) if run else ""


def _marked(match: re.Match[str]) -> str:
    spaces, line, tab, carriage, other = match.groups()
    if spaces:
        return f'<i class="bpe-s">{spaces}</i>'
    if line:
        return f'<i class="bpe-n">{line.replace(chr(13), "&#13;")}</i>'
    if tab:
        return '<i class="bpe-h">\t</i>'
    if carriage:
        return '<i class="bpe-r">&#13;</i>'
    kind, chip = unicodedata.category(other), _chip(f"U+{ord(other):04X}")
    if kind == "Cc" or (kind == "Cf" and other not in "\u200c\u200d"):
        return chip
    return chip + other if kind[0] in "CZ" else other


def _chip(label: str, bad: bool = False) -> str:
    return f'<b class="bpe-x{" bpe-bad" if bad else ""}" data-x="{label}"></b>'


def _span(token: int, piece: bytes, drawn: str, colour: int, special: bool) -> str:
    kind = "bpe-special" if special else f"bpe-c{colour}"
    said = "special token" if special else "1 byte" if len(piece) == 1 else f"{len(piece)} bytes"
    return f'<span class="bpe-t {kind}" title="{token} · {said} · {piece.hex(" ")}">{drawn}</span>'


def _colour(token: int, last: int) -> int:
    """The same for the same token wherever it stands, unless its neighbour has it already."""
    colour = (token * 2654435761 >> 12) % COLOURS
    return (colour + 1) % COLOURS if colour == last else colour
