"""Tokens of a text as coloured HTML.

Each token is a span; its title gives id and bytes. White space is marked faintly, and a line end breaks the line. Where
a token holds only part of a character, its bytes are shown as chips, boxes with two hexadecimal digits; the character
itself follows the chips in the token that completes it.

Chips are drawn by the style sheet and are no text of the page. So what a reader copies from the page, or searches for
in it, is the original text, with three exceptions: bytes that are not UTF-8, control characters, and the invisible
characters that would reverse the direction of the page's own text.
"""

import html
import re
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from importlib import resources
from typing import Literal, Protocol

COLOURS = 6


def asset(name: str) -> str:
    """The text of a file of assets/; lm's pages share dress.css, tokens.css, tokens.js and encoder.js."""
    return (resources.files("bpe.reporting") / "assets" / name).read_text("utf-8")


STYLE = f"<style>\n{asset('tokens.css')}</style>\n"


class Encodes(Protocol):
    """The part of a tokenizer that is used here."""

    @property
    def special_tokens(self) -> Mapping[str, int]: ...

    def encode(self, text: str | bytes, /, *, allowed_special: Literal["all"]) -> list[int]: ...

    def decode_single_token_bytes(self, token: int, /) -> bytes: ...


def tokens_html(tokenizer: Encodes, text: str | bytes, *, ids: Sequence[int] | None = None) -> str:
    """The tokens of a text as a fragment of HTML. A page needs STYLE once, however many fragments it has.

    Args:
        tokenizer: What encodes the text.
        text: The text.
        ids: The ids of the text, if they are known already.

    Raises:
        ValueError: The ids spell another text; the message says at which byte they differ.
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
    """Tokens that do not form a text, such as the longest of a vocabulary, as a fragment that needs STYLE."""
    specials, spans = set(tokenizer.special_tokens.values()), []
    for token in ids:
        piece = tokenizer.decode_single_token_bytes(token)
        spans.append(_span(token, piece, next(_pieces([piece])), _colour(token, -1), token in specials))
    return f'<div class="bpe-chips" translate="no">{"".join(spans)}</div>\n'


def _bytes(text: str | bytes) -> bytes:
    """The UTF-8 of a text, lone surrogates as U+FFFD."""
    if isinstance(text, bytes):
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _pieces(pieces: Sequence[bytes]) -> Iterator[str]:
    """Return the text drawn inside each token. A character that several tokens share is drawn in the last of them."""
    drawn = [""] * len(pieces)
    index, room = 0, len(pieces[0]) if pieces else 0  # the current token, and how many of its bytes are not drawn yet
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
    """Whole characters as HTML: white space marked, unprintable ones as chips."""
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
    label = "special token" if special else "1 byte" if len(piece) == 1 else f"{len(piece)} bytes"
    return f'<span class="bpe-t {kind}" title="{token} · {label} · {piece.hex(" ")}">{drawn}</span>'


def _colour(token: int, last: int) -> int:
    """The colour of a token: the same wherever it stands, unless the token before it has that colour."""
    colour = (token * 2654435761 >> 12) % COLOURS
    return (colour + 1) % COLOURS if colour == last else colour
