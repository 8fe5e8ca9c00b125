"""train_sentencepiece(): tokens and ids beside tokenizers' BpeTrainer, and what the two do not share."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from command_line import refused
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models, pre_tokenizers, trainers

import bpe
from bpe.commands.main import main

SPECIAL = ("<unk>", "<s>", "</s>")
BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]
FIRST = len(SPECIAL) + 256  # ids that are neither a character's nor a merged token's
TEXTS = ["the cat and the hat\n", "the rat sat with the cat\n", "  ünder the ▁mat ", "世界 世界世\n\n", "\tx=1;\n"]


def trained_by_tokenizers(size: int, *, split: bool = True, prefix: bool = True) -> tuple[Any, Any]:
    """A tokenizer of tokenizers that is to be trained, and its trainer."""
    result = tokenizers.Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    result.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always" if prefix else "never", split=split)
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=[*SPECIAL, *BYTE_TOKENS], show_progress=False)
    return result, trainer


def model(tokenizer: Any) -> tuple[dict[str, int], list[list[str]]]:
    """The vocabulary and the merges as a tokenizer.json has them."""
    actual = json.loads(tokenizer.to_str())["model"]
    return actual["vocab"], actual["merges"]


def written(tokenizer: bpe.Tokenizer, folder: Path) -> Any:
    tokenizer.to_huggingface(folder / "tokenizer.json")
    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


def grown(train: Any, texts: Iterable[str] | str, **settings: Any) -> bpe.Tokenizer:
    """The largest vocabulary that a corpus allows, which is not known before."""
    with pytest.raises(ValueError, match=r"for \d+ tokens and no more") as caught:
        train(texts, 100_000, **settings)
    return train(texts, int(str(caught.value).split(" tokens and no more")[0].split()[-1]), **settings)


alphabets = st.sampled_from(["ab ", "ab▁ ", "aéü世界 ", "abcdef \n", "🙂é ▁\t", "a "])
corpora = alphabets.flatmap(lambda alphabet: st.lists(st.text(alphabet, max_size=30), max_size=8))


@given(corpora, st.integers(0, 30), st.booleans(), st.booleans())
def test_tokens_and_ids_are_those_of_tokenizers(
    tmp_path_factory: pytest.TempPathFactory, texts: list[str], merges: int, split: bool, prefix: bool
) -> None:
    texts = [" ", *texts]  # so that BpeTrainer has a token for the space
    characters = {character.replace(" ", "▁") for text in texts for character in text}
    size = FIRST + len(characters) + merges
    peer, trainer = trained_by_tokenizers(size, split=split, prefix=prefix)
    peer.train_from_iterator(texts, trainer)
    settings = {"add_prefix_space": prefix, "split_at_spaces": split, "split_lines": False}
    ours = bpe.train_sentencepiece(texts, peer.get_vocab_size(), **settings)
    again = written(ours, tmp_path_factory.mktemp("training"))
    assert model(again) == model(peer)
    for text in [*texts, "".join(texts), "zebra 世🙂", "▁", "  a"]:
        ids = ours.encode(text, disallowed_special=())
        assert ids == again.encode(text).ids, text
        assert ours.decode(ids) == again.decode(ids), text


@pytest.mark.parametrize("split", [True, False])
def test_lines_of_files_are_texts_as_in_tokenizers(tmp_path: Path, split: bool) -> None:
    path = tmp_path / "corpus.txt"
    path.write_bytes("".join(TEXTS * 3).encode() + b"a last line")
    peer, trainer = trained_by_tokenizers(320, split=split)
    peer.train([str(path)], trainer)
    ours = bpe.train_sentencepiece(path, 320, split_at_spaces=split)
    assert model(written(ours, tmp_path)) == model(peer)
    assert ours.data == bpe.train_sentencepiece(["".join(TEXTS * 3), "a last line"], 320, split_at_spaces=split).data
    together = bpe.train_sentencepiece(path, 320, split_at_spaces=split, split_lines=False)
    assert any(b"\n" in token[:-1] for token in together.vocab.values() if len(token) > 1)
    assert not any(b"\n" in token[:-1] for token in ours.vocab.values())


@pytest.mark.parametrize("settings", [{"num_threads": 4}, {"memory_limit": 1 << 18}, {"checkpoint": "run"}])
def test_how_it_runs_changes_nothing(tmp_path: Path, settings: dict[str, Any]) -> None:
    path = tmp_path / "corpus.txt"
    path.write_text("".join(f"line {number * number % 977} of the 世界 {number}\n" for number in range(4000)))
    plain = bpe.train_sentencepiece(path, 700)
    settings = {name: tmp_path / value if name == "checkpoint" else value for name, value in settings.items()}
    assert bpe.train_sentencepiece(path, 700, **settings).data == plain.data
    assert bpe.train_sentencepiece(path, 720, **settings).merges[: len(plain.merges)] == plain.merges  # and goes on


def test_a_checkpoint_of_other_settings_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "corpus.txt"
    path.write_text("".join(TEXTS), encoding="utf-8")
    bpe.train_sentencepiece(path, 300, checkpoint=tmp_path / "run")
    other: dict[str, Any]
    for other in ({"split_at_spaces": False}, {"split_lines": False}):
        with pytest.raises(ValueError, match="run"):
            bpe.train_sentencepiece(path, 300, checkpoint=tmp_path / "run", **other)
    for size, other in ((271, {"limit_alphabet": 9}), (300, {"add_prefix_space": False})):  # of the same counts
        actual = bpe.train_sentencepiece(path, size, checkpoint=tmp_path / "run", **other)
        assert actual.data == bpe.train_sentencepiece(path, size, **other).data


def test_the_commonest_characters_are_kept() -> None:
    texts = ["aab aab", "aab zab", "qb"]
    limited = bpe.train_sentencepiece(texts, FIRST + 5, limit_alphabet=3, add_prefix_space=False)
    assert [limited.vocab[number] for number in range(FIRST, FIRST + 5)] == [b"a", b"b", b" ", b"ab", b"aab"]
    # "z" and "q" divide: nothing was merged across them, and they are spelled by bytes
    assert limited.decode_tokens_bytes(limited.encode("zab")) == [b"z", b"ab"]
    assert limited.encode("z") == [len(SPECIAL) + ord("z")]
    assert grown(bpe.train_sentencepiece, ["xyx yxy"], limit_alphabet=1).merges == ()


def test_a_space_is_always_a_token() -> None:
    result = bpe.train_sentencepiece(["世界"], FIRST + 3, add_prefix_space=False)
    assert [result.vocab[number] for number in range(FIRST, FIRST + 3)] == [b" ", "世".encode(), "界".encode()]
    assert result.decode(result.encode("世 界")) == "世 界"


def test_what_is_not_utf8_divides() -> None:
    result = grown(bpe.train_sentencepiece, [b"ab\xffab\xe4\xb8ab\xff\xfe", "ab"], add_prefix_space=False)
    assert result.merges == ((b"a", b"b"),)
    assert result.decode_bytes(result.encode(b"ab\xffab")) == b"ab\xffab"


@pytest.mark.parametrize("source", [[], [""], ["a"], [b"\xff"], ["\n\n"], ["▁"]])
def test_next_to_nothing(source: list[str]) -> None:
    result = grown(bpe.train_sentencepiece, source)
    assert result.decode(result.encode("a text ü\n")) == "a text ü\n"


def test_special_tokens_split_the_text() -> None:
    result = bpe.train_sentencepiece(["ab<s>ab<s>ab"], FIRST + 5, split_lines=False)
    assert result.special_tokens == {"<unk>": 0, "<s>": 1, "</s>": 2}
    assert set(result.merges) == {(b"a", b"b"), (b" ", b"ab")}  # each piece begins with a space, as when it is encoded
    assert result.encode("ab<s>ab", allowed_special="all") == [FIRST + 4, 1, FIRST + 4]


def test_one_long_text_follows_its_length() -> None:
    text = "".join(random.Random(1).choices("abcdefgh", k=300_000))
    result = bpe.train_sentencepiece([text], 400, split_at_spaces=False)
    assert result.decode(result.encode(text)) == text


@pytest.mark.parametrize(
    ("size", "settings", "named"),
    [
        (100, {}, "vocab_size is 100"),
        (FIRST + 2, {}, "limit_alphabet"),
        (300, {"limit_alphabet": 0}, "limit_alphabet is 0"),
        (300, {"special_tokens": ["<s>", "<s>"]}, "<s>"),
        (300, {"num_threads": 0}, "num_threads is 0"),
        (300, {"min_count": -1}, "min_count is -1"),
    ],
)
def test_mistakes(size: int, settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        bpe.train_sentencepiece(TEXTS, size, **settings)


def test_it_cannot_be_extended() -> None:
    with pytest.raises(ValueError, match="SentencePiece-style"):
        bpe.extend(bpe.train_sentencepiece(TEXTS, 300), TEXTS, 310)


def test_the_command(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    path, out = tmp_path / "corpus.txt", tmp_path / "tok.json"
    path.write_text("".join(TEXTS), encoding="utf-8")
    requests = ["train", str(path), "--vocab-size", "300", "--out", str(out), "--sentencepiece"]
    assert main([*requests, "--limit-alphabet", "20"]) == 0
    assert bpe.load(out).data == bpe.train_sentencepiece(path, 300, limit_alphabet=20).data
    capfdbinary.readouterr()
    for beside in (["--pattern", "gpt2"], ["--tie-break", "bytes"], ["--extend", str(out)], ["--cluster", "local"]):
        assert beside[0] in refused(capfdbinary, *requests, *beside)
    assert "--limit-alphabet" in refused(capfdbinary, *requests[:-1], "--limit-alphabet", "20")
