"""`bpe view`: a page that carries whole tokenizers, encodes while one types, and draws the tokens."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping

from bpe.reporting import javascript, view
from bpe.reporting.view import asset
from bpe.tokenizer import Tokenizer

SAMPLE = """\
Type here. Every colour is a token, and no two neighbours share one.

The quick brown fox isn't quicker than the QUICK-brown_fox2000; 3.14159265 and 1,234,567 are cut into pieces.
Größe, naïve, ἀρχή, начало, 言葉と言語, 한국어, \
العربية, हिन्दी, 👩‍🔬 and 🇨🇭.

    def fibonacci(n: int) -> int:
        return n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)
"""


def page(tokenizers: Tokenizer | Mapping[str, Tokenizer], text: str = SAMPLE, *, title: str = "Tokens") -> str:
    """The page of a text under one tokenizer or several, side by side, by name; it refers to nothing outside."""
    named = tokenizers if isinstance(tokenizers, Mapping) else {tokenizers.name: tokenizers}
    columns, vocabularies = [], []
    for number, (name, tokenizer) in enumerate(named.items()):
        try:
            packed = javascript.packed(tokenizer.data).decode()
        except ValueError as error:
            trouble = f"{html.escape(str(error))}; the tokens here do not follow the text box."
            spans = view.tokens_html(tokenizer, text)
            columns.append(_column(name, f'<p class="trouble">{trouble}</p>{spans}'))
            continue
        columns.append(_column(name, _LIVE.format(name=html.escape(name)), f' data-vocabulary="vocabulary-{number}"'))
        vocabularies.append(f'<script type="text/plain" id="vocabulary-{number}">{packed}</script>')
    parts = {
        "title": html.escape(title),
        "style": asset("dress.css") + asset("tokens.css") + asset("view.css"),
        "columns": "\n".join(columns),
        "text": json.dumps(text).replace("<", "\\u003c"),
        "vocabularies": "\n".join(vocabularies),
        "script": asset("encoder.js") + asset("tokens.js") + asset("view.js"),
    }
    return re.sub(r"\{\{(\w+)\}\}", lambda mark: parts[mark[1]], asset("view.html"))


_LIVE = """\
<p class="about"></p><div class="facts"></div><p class="trouble" role="status"></p>
<pre class="bpe-tokens" tabindex="0" translate="no" role="group" aria-label="The tokens of {name}"></pre>
<p class="more"></p>"""


def _column(name: str, inside: str, attributes: str = "") -> str:
    return f'<section data-name="{html.escape(name)}"{attributes}>\n<h2>{html.escape(name)}</h2>\n{inside}\n</section>'
