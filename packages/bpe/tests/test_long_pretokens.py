"""Training on pretokens of thousands of bytes: extend(), memory_limit, checkpoints and signals hold there too."""

from __future__ import annotations

import random
import warnings
from pathlib import Path

import pytest
from alarms import needs_alarms, rings_after

import bpe
from bpe import reference
from bpe.counting.pretoken_counts import PretokenCounts
from bpe.counting.records import pack_table
from bpe.merging.merger import Merger

SIZE = 270
PRETOKENS = {
    "one byte": "a" * 3000,
    "two bytes in turn": "ab" * 1500,
    "letters": "".join(random.Random(1).choices("abcdef", k=3000)),
    "Chinese": "".join(random.Random(2).choices("的一是不了人", k=1000)),
}


@pytest.mark.parametrize("kind", PRETOKENS)
def test_extending_as_the_reference(kind: str) -> None:
    text = PRETOKENS[kind][:1000]
    start = bpe.train([text[:200] + " and text"], 259, pattern=None, special_tokens=[])
    ranks, ids = reference.rank_merges(list(start.merges)), {token: i for i, token in start.vocab.items()}
    expected, new = reference.extend(
        {text.encode(): 1},
        dict(start.vocab),
        lambda pretoken: reference.encode_pretoken_by_merges(pretoken, ranks, ids),
        264,
    )
    larger = bpe.extend(start, [text], 264)
    assert (dict(larger.vocab), list(larger.merges)) == (expected, [*start.merges, *new])


@pytest.mark.parametrize("kind", PRETOKENS)
def test_neither_a_memory_limit_nor_threads_change_the_result(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "corpus.txt"
    path.write_text(PRETOKENS[kind] + " " + PRETOKENS[kind][::-1], encoding="utf-8")
    size = 264 if kind == "one byte" else SIZE
    for pattern in ("gpt2", None):
        expected = bpe.train(path, size, pattern=pattern)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # merging takes more than this limit, which it says
            actual = bpe.train(path, size, pattern=pattern, memory_limit=1000, num_threads=2)
        assert (actual.vocab, actual.merges) == (expected.vocab, expected.merges)


@needs_alarms
def test_one_merge_in_a_long_pretoken_can_be_interrupted() -> None:
    table = PretokenCounts()
    table.add_count(b"ab" * 6_000_000, 1)
    merger = Merger(
        pack_table(table), tokens=[bytes([byte]) for byte in range(256)], by_bytes=True, most=4, min_count=1,
        max_token_bytes=0, floor=1,
    )  # fmt: skip
    result: list[int] = []
    with rings_after(0.002):
        result.extend(map(merger.advance, [1]))  # no bytecode between the call's end and the list
    assert result == [], "it was heard before the end"
