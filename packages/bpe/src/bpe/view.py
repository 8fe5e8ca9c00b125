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
from typing import Literal, Protocol

COLOURS = 6

STYLE = """\
<style>
.bpe-tokens, .bpe-chips {
  --bpe-0: #d9e6f4; --bpe-1: #f9e0cd; --bpe-2: #dcecd6; --bpe-3: #eadff2; --bpe-4: #f7eabf; --bpe-5: #d3ebea;
  --bpe-ink: #1c1d21; --bpe-faint: rgb(0 0 0 / .36); --bpe-paper: #fdfcf9; --bpe-bad: #b3261e;
  --bpe-mono: "SF Mono", "Cascadia Mono", Menlo, Consolas, "Noto Sans Mono", "DejaVu Sans Mono", monospace;
}
@media (prefers-color-scheme: dark) {
  .bpe-tokens, .bpe-chips {
    --bpe-0: #233c57; --bpe-1: #4f3527; --bpe-2: #2a4432; --bpe-3: #40334e; --bpe-4: #473e1f; --bpe-5: #1f4446;
    --bpe-ink: #e9e6df; --bpe-faint: rgb(255 255 255 / .38); --bpe-paper: #15171b; --bpe-bad: #ff8a80;
  }
}
@media print {
  .bpe-tokens, .bpe-chips {
    --bpe-0: #d9e6f4; --bpe-1: #f9e0cd; --bpe-2: #dcecd6; --bpe-3: #eadff2; --bpe-4: #f7eabf; --bpe-5: #d3ebea;
    --bpe-ink: #1c1d21; --bpe-faint: rgb(0 0 0 / .36); --bpe-paper: #fff; --bpe-bad: #b3261e;
  }
}
.bpe-tokens, .bpe-chips { margin: 0; color: var(--bpe-ink); font: 13px/1.75 var(--bpe-mono); }
.bpe-tokens { white-space: pre-wrap; overflow-wrap: anywhere; tab-size: 4; }
.bpe-chips { display: flex; flex-wrap: wrap; align-items: center; gap: 8px; }
.bpe-chips .bpe-t { padding: 1px 7px; white-space: pre-wrap; overflow-wrap: anywhere; tab-size: 4; }
.bpe-chips .bpe-n { white-space: normal; }
.bpe-t {
  padding: 2px 0; border-radius: 3px; -webkit-box-decoration-break: clone; box-decoration-break: clone;
  print-color-adjust: exact; -webkit-print-color-adjust: exact;
}
.bpe-c0 { background: var(--bpe-0); } .bpe-c1 { background: var(--bpe-1); } .bpe-c2 { background: var(--bpe-2); }
.bpe-c3 { background: var(--bpe-3); } .bpe-c4 { background: var(--bpe-4); } .bpe-c5 { background: var(--bpe-5); }
.bpe-special {
  padding: 2px 6px; border-radius: 9px; background: var(--bpe-ink); color: var(--bpe-paper); font-size: .86em;
}
.bpe-t:hover { outline: 1.5px solid var(--bpe-ink); }
.bpe-t:hover::after {
  content: attr(title); position: fixed; z-index: 9; left: 50%; bottom: 18px; transform: translateX(-50%);
  max-width: calc(100vw - 32px); padding: 7px 16px; border-radius: 6px; background: var(--bpe-ink);
  color: var(--bpe-paper); font-size: 13px; line-height: 1.5; white-space: pre-wrap; overflow-wrap: anywhere;
}
.bpe-t i { font-style: normal; }
.bpe-s { background: radial-gradient(circle at 50% 54%, var(--bpe-faint) .055em, transparent .09em) 0 0 / 1ch 100%; }
.bpe-n::before { content: "↵"; color: var(--bpe-faint); font-size: .86em; }
.bpe-r::before { content: "␍"; color: var(--bpe-faint); }
.bpe-h { position: relative; }
.bpe-h::before { content: "→"; position: absolute; left: .2ch; color: var(--bpe-faint); }
.bpe-x { font-weight: 400; }
.bpe-x::before {
  content: attr(data-x); margin: 0 1px; padding: 0 2px; border-radius: 2px; font-size: .72em; letter-spacing: .03em;
  box-shadow: inset 0 0 0 1px var(--bpe-faint);
}
.bpe-bad::before { color: var(--bpe-bad); box-shadow: inset 0 0 0 1px var(--bpe-bad); }
</style>
"""


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


def page(tokenizers: Encodes | Mapping[str, Encodes], text: str, *, title: str = "Tokens") -> str:
    """A page of its own around a text's tokens; with several tokenizers by name, they stand side by side."""
    named = tokenizers if isinstance(tokenizers, Mapping) else {"": tokenizers}
    size, columns = len(_bytes(text)), []
    for name, tokenizer in named.items():
        ids = tokenizer.encode(text, allowed_special="all")
        heading = f"<h2>{html.escape(name)}</h2>" if name else ""
        ratio = f"{size / len(ids):.2f}" if ids else "—"
        facts = (
            (f"{size:,}", "bytes"),
            (f"{len(text):,}", "characters"),
            (f"{len(ids):,}", "tokens"),
            (ratio, "bytes a token"),
        )
        told = "".join(f"<div><b>{value}</b> <span>{unit}</span></div>" for value, unit in facts)
        drawn = tokens_html(tokenizer, text, ids=ids)
        columns.append(f'<section>{heading}<div class="facts">{told}</div>{drawn}</section>\n')
    return PAGE.format(title=html.escape(title), style=STYLE, columns="".join(columns))


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


PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>{title}</title>
{style}<style>
:root {{ --paper: #fdfcf9; --ink: #1c1d21; --soft: #6a6b70; }}
@media (prefers-color-scheme: dark) {{ :root {{ --paper: #15171b; --ink: #e7e4dd; --soft: #a09f9c; }} }}
@media print {{ :root {{ --paper: #fff; --ink: #1c1d21; --soft: #5a5b60; }} }}
* {{ box-sizing: border-box; }}
body {{
  max-width: 1240px; margin: 0 auto; padding: 56px 40px 96px; background: var(--paper); color: var(--ink);
  font: 15px/1.55 Inter, "Helvetica Neue", "Segoe UI", Roboto, "Liberation Sans", Arial, sans-serif;
}}
h1, h2, .facts b {{
  font-family: "Iowan Old Style", Charter, "Bitstream Charter", "Palatino Linotype", Palatino, Georgia,
    "TeX Gyre Pagella", serif;
  font-weight: 500;
}}
h1 {{ margin: 0 0 36px; font-size: 42px; line-height: 1.1; letter-spacing: -.012em; overflow-wrap: anywhere; }}
h2 {{ margin: 0 0 10px; font-size: 23px; }}
main {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 420px), 1fr)); gap: 40px 56px; }}
section {{ min-width: 0; padding-top: 20px; border-top: 1px solid var(--ink); }}
.facts {{ display: flex; flex-wrap: wrap; gap: 6px 28px; margin-bottom: 26px; }}
.facts b {{ font-size: 24px; font-variant-numeric: lining-nums; }}
.facts span {{ color: var(--soft); font-size: 13px; }}
@media (max-width: 680px) {{ body {{ padding: 32px 20px 72px; }} h1 {{ font-size: 32px; }} }}
@media print {{ body {{ padding: 0; }} }}
</style>
</head>
<body>
<h1>{title}</h1>
<main>
{columns}</main>
</body>
</html>
"""
