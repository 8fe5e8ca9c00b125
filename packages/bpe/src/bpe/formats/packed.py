"""A tokenizer as bytes for pickles: the same tokenizer gives the same bytes in every process.

pickle itself does not: the order of a set follows the hash seed of the process, and which equal objects are one object
follows how they came about. What caches by pickles, as `datasets` does, would not find its own work again.
"""

from __future__ import annotations

import json

from bpe.formats import TokenizerData, without_collector
from bpe.formats.native import read_fields, write_fields


@without_collector()
def pack(data: TokenizerData) -> bytes:
    """Return JSON. A byte is written as the character of the same number (Latin-1)."""
    plain = write_fields(data)
    plain["vocab"] = [[number, token.decode("latin-1")] for number, token in sorted(data.vocab.items())]
    if data.merges is not None:
        plain["merges"] = [[left.decode("latin-1"), right.decode("latin-1")] for left, right in data.merges]
    return json.dumps(plain).encode()


@without_collector()
def unpack(packed: bytes) -> TokenizerData:
    """The tokenizer of bytes that pack() gave."""
    plain = json.loads(packed)
    vocab = {number: token.encode("latin-1") for number, token in plain["vocab"]}
    merges = None
    if "merges" in plain:
        merges = [(left.encode("latin-1"), right.encode("latin-1")) for left, right in plain["merges"]]
    return TokenizerData(vocab, merges, **read_fields(plain, "a pickle"))
