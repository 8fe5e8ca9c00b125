"""A tokenizer as bytes for pickles: the same tokenizer gives the same bytes in every process.

pickle itself does not: the order of a set follows the hash seed of the process, and which equal objects are one object
follows how they came about. What caches by pickles, as `datasets` does, would not find its own work again.
"""

from __future__ import annotations

import json
from typing import Any

from bpe.formats import Characters, TokenizerData, Words, without_collector
from bpe.patterns import from_plain, to_plain


@without_collector()
def pack(data: TokenizerData) -> bytes:
    """JSON, in which bytes are the characters of the same numbers."""
    plain: dict[str, Any] = data._asdict()
    plain["vocab"] = [[number, token.decode("latin-1")] for number, token in sorted(data.vocab.items())]
    if data.merges is not None:
        plain["merges"] = [[left.decode("latin-1"), right.decode("latin-1")] for left, right in data.merges]
    plain["pattern"] = to_plain(data.pattern)
    return json.dumps({name: sorted(v) if isinstance(v, frozenset) else v for name, v in plain.items()}).encode()


@without_collector()
def unpack(packed: bytes) -> TokenizerData:
    """The tokenizer of bytes that pack() gave."""
    plain = json.loads(packed)
    plain["vocab"] = {number: token.encode("latin-1") for number, token in plain["vocab"]}
    if plain["merges"] is not None:
        plain["merges"] = [(left.encode("latin-1"), right.encode("latin-1")) for left, right in plain["merges"]]
    plain["pattern"] = from_plain(plain["pattern"])
    if plain["characters"] is not None:
        byte_ids, prepend, strip, late = plain["characters"]
        plain["characters"] = Characters(tuple(byte_ids), prepend, strip, tuple(late))
    if plain["words"] is not None:
        plain["words"] = Words(*plain["words"])
    for name, default in TokenizerData._field_defaults.items():
        if isinstance(default, (frozenset, tuple)):
            plain[name] = type(default)(plain[name])
    return TokenizerData(**plain)
