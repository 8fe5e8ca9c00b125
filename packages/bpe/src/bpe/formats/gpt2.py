"""GPT-2's two files: vocab.json (encoder.json), {token: id}, and merges.txt (vocab.bpe), one merge a line in order.

Tokens are text with a printable stand-in for each byte: see bpe.formats.vocabularies. bpe.formats.folder reads them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence

from bpe import formats
from bpe.formats import (
    UTF8_BYTES,
    Pair,
    TokenizerData,
    check_bytes,
    check_merged,
    check_plain,
    ordinary_ids,
    write_bytes,
)
from bpe.formats.vocabularies import to_printable
from bpe.native.atomic_file import StrPath


def write(
    folder: StrPath,
    tokenizer: TokenizerData,
    merges: Sequence[Pair],
    never_merged: Callable[[Mapping[bytes, int]], list[bytes]],
) -> None:
    """Write folder/vocab.json and folder/merges.txt, each atomically; the folder is made where there is none.

    merges: of the tokenizer, also if it merges by rank. never_merged: returns the tokens, of {token: id}, that
    merging their own bytes does not reach. ValueError where the files cannot say what the tokenizer does, or reading
    would refuse them, as where two ids hold the same bytes.
    """
    form = "vocab.json with merges.txt"
    check_plain(tokenizer, folder, form)
    if tokenizer.ignore_merges:
        check_merged(never_merged(ordinary_ids(tokenizer)), folder, form)
    vocab_path, merges_path = os.path.join(folder, "vocab.json"), os.path.join(folder, "merges.txt")
    check_bytes({*tokenizer.vocab.values()}, vocab_path, UTF8_BYTES)
    spelled = [(json.dumps(to_printable(token), ensure_ascii=False), n) for n, token in sorted(tokenizer.vocab.items())]
    items = ",".join(f"{text}:{number}" for text, number in spelled)
    lines = "".join(f"{to_printable(left)} {to_printable(right)}\n" for left, right in merges)
    vocab_data, merges_data = f"{{{items}}}".encode(), f"#version: 0.2\n{lines}".encode()
    formats.folder.parse_pair(vocab_data, merges_data, {}, vocab_path, merges_path, special_tokens=())
    if "://" not in os.fspath(folder):  # at a URL a file makes its folder
        os.makedirs(folder, exist_ok=True)
    write_bytes(vocab_path, vocab_data)
    write_bytes(merges_path, merges_data)
