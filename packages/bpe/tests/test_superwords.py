"""Superwords against the reference: SuperBPE's second stage."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from strategies import corpus

import bpe
from bpe import reference
from bpe.commands.main import main
from bpe.counting import count as counting
from bpe.merging.superbpe import SUPERWORD_PATTERN

SPECIAL = ["<|endoftext|>"]
TIE_BREAKS = ["bytes", "huggingface", "ids"]
TEXTS = st.lists(
    st.lists(
        st.sampled_from(
            ["of", " of", " the", "the ", " a", ": ", ", ", ".\n", "12", " 's", "é", "  ", SPECIAL[0], " x"]
        )
    ).map("".join),
    max_size=4,
)


@given(
    texts=TEXTS,
    before=st.integers(0, 12),
    after=st.integers(0, 12),
    tie_break=st.sampled_from(TIE_BREAKS),
    max_words=st.sampled_from([None, 1, 2, 4]),
)
@example(texts=["a: b a: b a: b"], before=0, after=5, tie_break="bytes", max_words=None)
@settings(max_examples=40)
def test_superbpe_as_the_reference(
    texts: list[str], before: int, after: int, tie_break: str, max_words: int | None
) -> None:
    vocab_size, transition = 257 + before + after, 257 + before
    data = [text.encode() for text in texts]
    counts, chunks = (reference.count_pretokens(data, pattern, SPECIAL) for pattern in ("gpt2", SUPERWORD_PATTERN))
    vocab, merges = reference.train(counts, vocab_size, tie_break=tie_break, superwords=(chunks, transition, max_words))
    superwords = bpe.SuperBPE(transition=transition, max_words=max_words)
    if len(vocab) == vocab_size:
        tokenizer = bpe.train(texts, vocab_size, superwords=superwords, tie_break=tie_break)
        assert (tokenizer.vocab, list(tokenizer.merges)) == (vocab, merges)
    else:
        with pytest.raises(ValueError, match=f"pairs to merge for {len(vocab)} tokens and no more"):
            bpe.train(texts, vocab_size, superwords=superwords, tie_break=tie_break)


@pytest.fixture(scope="module")
def superbpe() -> bpe.Tokenizer:
    return bpe.train([corpus(5)], 600, superwords="superbpe")


def test_superbpe_has_words_and_then_superwords(superbpe: bpe.Tokenizer) -> None:
    words = bpe.train([corpus(5)], 540)  # nine tenths
    assert superbpe.merges[: len(words.merges)] == words.merges
    superwords = [left + right for left, right in superbpe.merges[len(words.merges) :]]
    assert any(token.count(b" ") > 1 for token in superwords)
    assert all(len(token.split()) <= 4 for token in superwords)
    text = corpus(5, 300).replace("<|endoftext|>", "")
    assert superbpe.decode(superbpe.encode(text)) == text
    assert len(superbpe.encode(text)) < len(bpe.train([corpus(5)], 600).encode(text))


def test_superbpe_encodes_as_the_reference_and_in_tokenizers(superbpe: bpe.Tokenizer, tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    text = corpus(6, 300).replace("<|endoftext|>", "") + "a: b  c, 1234 — déjà\n\nvu :) \t x"
    ranks, ids = reference.rank_merges(superbpe.merges), {token: i for i, token in superbpe.vocab.items()}
    expected = reference.encode(
        text.encode(), lambda chunk: reference.encode_pretoken_by_merges(chunk, ranks, ids), pattern=SUPERWORD_PATTERN
    )
    superbpe.to_huggingface(tmp_path / "tokenizer.json")
    superbpe.save(tmp_path / "superbpe.bpe")
    assert superbpe.encode(text) == expected
    assert tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json")).encode(text).ids == expected
    for name in ("tokenizer.json", "superbpe.bpe"):
        assert bpe.load(tmp_path / name).encode(text) == expected


def test_superwords_need_a_source_that_can_be_read_twice(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="read once"):
        bpe.train(iter(["the cat"]), 260, superwords="superbpe")
    (tmp_path / "text").write_text(corpus(5))
    with (tmp_path / "text").open("rb") as file, pytest.raises(ValueError, match="read twice"):
        bpe.train([file], 400, superwords="superbpe")


def test_a_checkpoint_spares_the_first_reading(superbpe: bpe.Tokenizer, tmp_path: Path) -> None:
    (tmp_path / "text").write_text(corpus(5))
    for _ in range(2):
        tokenizer = bpe.train([tmp_path / "text"], 600, superwords="superbpe", checkpoint=tmp_path / "counts")
        assert tokenizer.merges == superbpe.merges


@pytest.mark.parametrize(
    "superwords",
    ["super", "boundless", bpe.SuperBPE(transition=1.5), bpe.SuperBPE(transition=100), bpe.SuperBPE(max_words=0)],
)
def test_wrong_settings_are_refused(superwords: bpe.SuperBPE) -> None:
    with pytest.raises(ValueError, match=r"superwords|transition|max_words"):
        bpe.train(["the cat"], 260, superwords=superwords)


def test_the_command_trains_them(superbpe: bpe.Tokenizer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.txt").write_text(corpus(5))
    text, out = str(tmp_path / "text.txt"), str(tmp_path / "superbpe.bpe")
    command = ["train", text, "--vocab-size", "600", "--out", out, "--superwords", "superbpe"]
    assert main(command) == 0
    assert bpe.load(out).data == superbpe.data
    assert main([*command, "--extend", out]) != 0
    assert "--superwords" in capsys.readouterr().err


def test_threads_chunks_and_memory_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [corpus(seed, 2000) for seed in range(4)]
    (tmp_path / "text").write_text("".join(texts))
    whole = bpe.train([tmp_path / "text"], 500, superwords="superbpe", num_threads=1).data
    listed = bpe.train(texts, 500, superwords="superbpe", num_threads=1).data
    monkeypatch.setattr(counting, "CHUNK", 1000)
    monkeypatch.setattr(counting, "THREAD_BYTES", 5000)
    assert bpe.train([tmp_path / "text"], 500, superwords="superbpe", num_threads=3).data == whole
    assert bpe.train(texts[::-1], 500, superwords="superbpe", num_threads=3, memory_limit=100_000).data == listed
