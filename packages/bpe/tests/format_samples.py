"""Samples of the tests of the formats: small tokenizers, their ids, changes to files, the sentences of errors."""

from __future__ import annotations

import json
import os
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from bpe import patterns, reference
from bpe.formats import TokenizerData, folder, vocabularies

BYTES = [bytes([byte]) for byte in range(256)]


MERGES = [(b"t", b"h"), (b" ", b"th"), (b" th", b"e"), (b"#", b"#"), (b"\xc3", b"\xa9"), (b" ", b" "), (b"1", b"2")]


TEXTS = ["", "the  ##12 é e\u0301 the\n\n THE it's 12345", "<s>the</s> <tool> 世界 \x1c\x85 \n \n  ", " <tool><s>é<s"]


data_folder = os.environ.get("GROUNDUP_DATA")


needs_data = pytest.mark.skipif(
    data_folder is None, reason="GROUNDUP_DATA names no folder with the published vocabularies"
)


def vocabulary(folder_file: str) -> Path:
    assert data_folder is not None
    return Path(data_folder, "vocab", folder_file)


def sample(**changes: Any) -> TokenizerData:
    """A small tokenizer with something of everything."""
    tokens = [*BYTES, *(left + right for left, right in MERGES), b" unreached"]
    vocab = dict(enumerate(tokens)) | {300: b"<s>", 301: b"</s>", 310: b"<tool>"}
    data = TokenizerData(
        vocab=vocab,
        merges=list(MERGES),
        special_tokens={"<s>": 300, "</s>": 301},
        pattern=patterns.resolve("gpt2"),
        added_tokens={"<tool>": 310},
    )
    return data._replace(**changes)


def encode(data: TokenizerData, text: str) -> list[int]:
    """The ids of text as reference.py has them."""
    cut_out = data.special_tokens | data.added_tokens
    cut_out_ids = set(cut_out.values())
    ids = {token: number for number, token in data.vocab.items() if number not in cut_out_ids}
    merges = None if data.merges is None else reference.rank_merges(data.merges)

    def encode_pretoken(pretoken: bytes) -> list[int]:
        if merges is None:
            return reference.encode_pretoken_by_ranks(pretoken, ids, ignore_merges=data.ignore_merges)
        return reference.encode_pretoken_by_merges(pretoken, merges, ids, ignore_merges=data.ignore_merges)

    if data.normalizer == "NFC":
        text = unicodedata.normalize("NFC", text)
    body = reference.encode(text.encode(), encode_pretoken, pattern=data.pattern, special_tokens=cut_out)
    return [data.special_tokens[n] for n in data.prefix] + body + [data.special_tokens[n] for n in data.suffix]


def says(*parts: str) -> str:
    """An expression for a message that begins with the first part and goes on to hold the others."""
    return "(?s)^" + ".*".join(map(re.escape, parts))


def write_text(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8", newline="")
    return path


def read_pair(vocab_json: Path, merges_txt: Path) -> Any:
    """(vocab, merges) of GPT-2's two files."""
    contents = vocab_json.read_bytes(), merges_txt.read_bytes()
    data = folder.parse_pair(*contents, {}, vocab_json, merges_txt, special_tokens=())
    return data.vocab, data.merges


def spelled(tokens: dict[int, bytes]) -> dict[str, int]:
    return {vocabularies.to_printable(token): number for number, token in tokens.items()}


ALL = json.dumps(spelled(dict(enumerate(BYTES))))[1:-1]


def peer_of(path: Path) -> Any:
    tokenizers = pytest.importorskip("tokenizers", reason="reads the file with tokenizers itself")
    return tokenizers.Tokenizer.from_file(str(path))


VARIANTS: list[dict[str, Any]] = [
    {},
    {"ignore_merges": True},
    {"normalizer": "NFC"},
    {"prefix": ("<s>",)},
    {"prefix": ("<s>", "<s>"), "suffix": ("</s>",)},
    {"normalized": frozenset({"<tool>"})},
    {"pattern": patterns.resolve(None)},
    {"pattern": patterns.resolve(r"\d")},
    {"special_tokens": {}, "added_tokens": {}, "merges": []},
    *({"pattern": patterns.resolve(name)} for name in patterns.PATTERNS),
]


def put(*path: str | int, value: Any) -> Callable[[dict[str, Any]], None]:
    def change(file: Any) -> None:
        for key in path[:-1]:
            file = file[key]
        file[path[-1]] = value

    return change


tokens = st.lists(st.binary(min_size=2, max_size=6), unique=True, max_size=8)
