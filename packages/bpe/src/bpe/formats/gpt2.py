"""GPT-2's two files: vocab.json (encoder.json), {token: id}, and merges.txt (vocab.bpe), one merge a line in order.

Tokens are written as text with a printable stand-in for each byte: see bpe.formats.vocabularies.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping, Sequence

from bpe.formats import (
    UTF8_BYTES,
    Pair,
    TokenizerData,
    check_bytes,
    check_merged,
    check_plain,
    ordinary_ids,
    parse_json,
    parse_text,
    refuse,
    without_collector,
    write_bytes,
)
from bpe.formats.spelled import tokens_of
from bpe.formats.vocabularies import check_ids_of, encode_text, read_merges, to_printable
from bpe.native.atomic_file import StrPath


def write(folder: StrPath, vocab: Mapping[int, bytes], merges: Sequence[Pair]) -> None:
    """Write folder/vocab.json and folder/merges.txt, each atomically; the folder is made where there is none.

    Raises ValueError where parse would refuse or change what was written, as where two ids hold the same bytes.
    """
    vocab_path, merges_path = os.path.join(folder, "vocab.json"), os.path.join(folder, "merges.txt")
    items = ",".join(f"{_quote(to_printable(token))}:{number}" for number, token in sorted(vocab.items()))
    lines = "".join(f"{to_printable(left)} {to_printable(right)}\n" for left, right in merges)
    vocab_data, merges_data = f"{{{items}}}".encode(), f"#version: 0.2\n{lines}".encode()
    parse(vocab_data, merges_data, vocab_path, merges_path)
    if "://" not in os.fspath(folder):  # at a URL a file makes its folder
        os.makedirs(folder, exist_ok=True)
    write_bytes(vocab_path, vocab_data)
    write_bytes(merges_path, merges_data)


def write_tokenizer(
    folder: StrPath,
    tokenizer: TokenizerData,
    merges: Sequence[Pair],
    never_merged: Callable[[Mapping[bytes, int]], list[bytes]],
) -> None:
    """Write the vocabulary and the merges of a tokenizer. ValueError where these two cannot say what it does.

    merges: also of one that merges by rank.
    never_merged: returns the tokens, of {token: id}, that merging their own bytes does not reach.
    """
    form = "vocab.json with merges.txt"
    check_plain(tokenizer, folder, form)
    if tokenizer.ignore_merges:
        check_merged(never_merged(ordinary_ids(tokenizer)), folder, form)
    write(folder, tokenizer.vocab, merges)


@without_collector()
def parse(
    vocab_data: bytes, merges_data: bytes, vocab_source: StrPath, merges_source: StrPath
) -> tuple[dict[int, bytes], Sequence[Pair]]:
    """(vocab, merges) from the bytes of the two files; the sources are what errors call them.

    The format does not say which tokens are special: they stand in vocab like the others. A token with a character that
    is no stand-in is taken as its UTF-8. Raises ValueError with path, line and reason for a wrong file.
    """
    content = parse_json(vocab_data, vocab_source)
    if not isinstance(content, dict):
        refuse(vocab_source, f"a vocabulary is an object of tokens and ids, not {type(content).__name__}")
    check_ids_of(content, [*content.values()], vocab_source)
    spelled = zip(content, tokens_of(content), strict=True)
    tokens = {text: encode_text(text, vocab_source) if token is None else token for text, token in spelled}
    ids: dict[bytes, int] = {}
    for text, token in tokens.items():
        if ids.setdefault(token, content[text]) != content[text]:
            refuse(vocab_source, f"the token {token!r} stands twice, with ids {ids[token]} and {content[text]}")
    check_bytes(ids, vocab_source, UTF8_BYTES)
    lines, first_line = lines_of_merges(merges_data, merges_source)
    return dict(zip(ids.values(), ids, strict=True)), read_merges(lines, tokens, merges_source, first_line)


def lines_of_merges(data: bytes, source: StrPath) -> tuple[list[str], int]:
    """Return the merges of a merges.txt, and the number of the line of the first."""
    lines = parse_text(data, source).replace("\r\n", "\n").split("\n")
    if lines[-1] == "":
        lines.pop()
    # The first merge joins two single characters, so a first line that begins so is no merge; any later one may be.
    first_line = 2 if lines and lines[0].startswith("#version") else 1
    return lines[first_line - 1 :], first_line


def _quote(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
