"""Tokens of a text as coloured HTML: each is a span, whose title gives id and bytes.

Bytes that are no whole character, and characters that cannot be seen or would reverse the page's text, are escaped.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from importlib import resources
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bpe.tokenizer import Tokenizer

COLOURS = 6


def asset(name: str) -> str:
    """The text of a file of assets/; lm's pages share tokens.css, tokens.js and encoder.js."""
    return (resources.files("bpe.reporting") / "assets" / name).read_text("utf-8")


STYLE = f"<style>\n{asset('tokens.css')}</style>\n"


def tokens_html(tokenizer: Tokenizer, text: str | bytes) -> str:
    """The tokens of a text as a fragment of HTML. A page needs STYLE once, however many fragments it has."""
    ids = tokenizer.encode(text, allowed_special="all")
    return f'<pre class="bpe-tokens" translate="no">{_spans(tokenizer, ids)}</pre>\n'


def chips_html(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """Tokens that do not form a text, such as the longest of a vocabulary, as a fragment that needs STYLE."""
    return f'<div class="bpe-chips" translate="no">{_spans(tokenizer, ids)}</div>\n'


def _spans(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    """The tokens, each in the colour of its id, or the next one beside a token of the same colour."""
    specials, spans, last = set(tokenizer.special_tokens.values()), [], -1
    for token in ids:
        piece = tokenizer.decode_single_token_bytes(token)
        colour = (token * 2654435761 >> 12) % COLOURS
        last = (colour + 1) % COLOURS if colour == last else colour
        kind = "bpe-special" if token in specials else f"bpe-c{last}"
        label = "special token" if token in specials else "1 byte" if len(piece) == 1 else f"{len(piece)} bytes"
        shown = "".join(map(_visible, html.escape(piece.decode("utf-8", "backslashreplace"))))
        spans.append(f'<span class="bpe-t {kind}" title="{token} · {label} · {piece.hex(" ")}">{shown}</span>')
    return "".join(spans)


def _visible(character: str) -> str:
    if character == "\n":
        return '<i class="bpe-n">\n</i>'
    return character if character.isprintable() else character.encode("unicode_escape").decode()
