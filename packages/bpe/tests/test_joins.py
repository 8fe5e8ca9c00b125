"""Splitting between characters that no token joins, and encoding SentencePiece-style without preparing a text first."""

from __future__ import annotations

import gzip
import random
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sentencepiece_samples import shapes, texts
from strategies import DATA

import bpe
from bpe.corpus import sources
from bpe.encoding.encoder import Encoder, Ranks
from bpe.native import cpu
from bpe.outputs.encode_source import CHUNK
from bpe.scanning import scanner
from bpe.scanning.special_tokens import SpecialTokens

SPACES = (" ", "▁")
NONE = SpecialTokens()
LETTERS = "ab1.é世🙂 ▁\n"
tokens_and_texts = st.tuples(
    st.lists(st.text(LETTERS.replace("▁", ""), min_size=1, max_size=4), max_size=9), st.text(LETTERS, max_size=200)
)


@given(tokens_and_texts, st.booleans())
def test_pieces_begin_where_no_token_joins(tokens_and_text: tuple[list[str], str], every_space: bool) -> None:
    tokens, text = tokens_and_text
    number = scanner.register_joins([token.encode() for token in tokens], every_space)
    data = text.encode()
    ends = set(scanner.boundaries(data, number).tolist())
    for level in cpu.AVAILABLE:
        assert set(scanner.boundaries(data, number, level=level).tolist()) == ends, level
    crosses = any(" " in token.lstrip(" ") for token in tokens)
    at = 0
    for before, after in pairwise(text):
        at += len(before.encode())
        if after in SPACES and (every_space or (before not in SPACES and not crosses)):
            assert at in ends, (before, after)
        elif before in SPACES or any(before + after in token for token in tokens):
            assert at not in ends, (before, after)


def test_all_that_can_be_split_is() -> None:
    number = scanner.register_joins([b" a", b"ab", "世界".encode(), b".\n"], False)
    text = "ab  a.\n世界世世界é,é  ▁ a▁b x1y"
    pieces = ["ab", "  a", ".\n", "世界", "世", "世界", "é", ",", "é", "  ▁ a", "▁b", " x", "1", "y"]
    assert scanner.split(text.encode(), number) == [piece.encode() for piece in pieces]
    number = scanner.register_joins([b" a", b"ab", "世界".encode(), b".\n"], True)
    pieces[9:10] = [" ", " ", "▁", " a"]
    pieces[1:2] = [" ", " a"]
    assert scanner.split(text.encode(), number) == [piece.encode() for piece in pieces]
    number = scanner.register_joins([b"b a"], False)  # a token that goes on across a space
    assert scanner.split(b"ab a c a", number) == [b"ab a", b" c", b" a"]


@given(DATA, st.booleans(), st.integers(0, 200))
def test_any_bytes_and_cuts(data: bytes, every_space: bool, at: int) -> None:
    number = scanner.register_joins([b" a", b"ab", "é\u0301".encode(), "中文".encode(), b"'s", b"\n\n"], every_space)
    pieces = scanner.split(data, number)
    assert b"".join(pieces) == data
    for level in cpu.AVAILABLE:
        assert scanner.split(data, number, level=level) == pieces, level
    cut = scanner.cut(data, at, number)
    assert at <= cut <= len(data) or cut == len(data)
    assert scanner.split(data[:cut], number) + scanner.split(data[cut:], number) == pieces


def test_numbers_of_no_scanner_are_refused() -> None:
    with pytest.raises(KeyError):
        scanner.split(b"text", (1 << 20) + 1024)


# Encoding


@pytest.fixture(scope="module", params=shapes().items(), ids=lambda item: item[0])
def tokenizer(request: Any) -> bpe.Tokenizer:
    result: bpe.Tokenizer = request.param[1]
    assert result._text_encoder.direct
    return result


def prepared(tokenizer: bpe.Tokenizer, text: str) -> list[int]:
    """The ids of a text that is prepared in Python and encoded piece by piece."""
    inside = tokenizer._text_encoder
    assert inside._preparation is not None
    special = inside.policy.rules("all", ()).recognised
    return inside.pieces_to_ids(inside._preparation.pieces(text, special)).tolist()


def test_a_text_as_it_is_has_the_ids_of_one_that_is_prepared(tokenizer: bpe.Tokenizer) -> None:
    for text in texts(11, 800):
        assert tokenizer.encode(text, allowed_special="all") == prepared(tokenizer, text), text
        assert tokenizer.encode(text.encode(), allowed_special="all") == prepared(tokenizer, text), text
        assert tokenizer.count_tokens(text, allowed_special="all") == len(prepared(tokenizer, text))


def test_long_texts_in_blocks_and_in_threads(tokenizer: bpe.Tokenizer) -> None:
    chance = random.Random(5)
    text = "".join(chance.choice(["</s>", "<s>", "", " ", "  ", "▁"]) + part for part in texts(12, 60_000))
    assert len(text) > 1 << 20
    expected = prepared(tokenizer, text)
    for given_text in (text, text.encode()):
        assert tokenizer.encode(given_text, allowed_special="all") == expected
        for num_threads in (1, 3):
            (actual,) = tokenizer.encode_batch_to_numpy([given_text], num_threads=num_threads, allowed_special="all")
            assert actual.tolist() == expected
    many = list(texts(13, 3000))
    arrays = tokenizer.encode_batch_to_numpy(many, num_threads=3, allowed_special="all")
    assert [array.tolist() for array in arrays] == [prepared(tokenizer, each) for each in many]


def test_texts_of_more_ids_than_bytes_in_threads() -> None:
    """A space before the text and after each special token is an id too, in threads as alone."""
    pyarrow = pytest.importorskip("pyarrow")
    tokenizer = bpe.train_sentencepiece(["ab ba xyz"], 263, special_tokens=["|"], max_token_bytes=1)
    for text in ("|a" * 200_000, "|é" * 200_000, "|b" * 600_000):
        (expected,) = tokenizer.encode_batch_to_numpy([text], num_threads=1, allowed_special="all")
        assert expected.tolist() == tokenizer.encode(text, allowed_special="all")
        assert len(expected) > len(text)
        for num_threads in (2, 3):
            settings = {"num_threads": num_threads, "allowed_special": "all"}
            assert np.array_equal(tokenizer.encode_batch_to_numpy([text], **settings)[0], expected)
            assert tokenizer.encode_batch([text], **settings)[0] == expected.tolist()
            column = tokenizer.encode_arrow(pyarrow.array([text]), **settings)
            assert np.array_equal(column.flatten().to_numpy(), expected)


def test_an_id_that_stands_for_others_has_one_for_each_byte() -> None:
    ranks = Ranks(
        symbols=[bytes([byte]) for byte in range(256)] + ["é".encode()[:1] + b"x"], merges=[(0xC3, 0x78, 256)]
    )
    ids = np.arange(257, dtype=np.uint32)
    Encoder(ranks=ranks, ids=ids, scanner=0, cache_bytes=0, stands_for={256: (0xC3, 0x78)})
    for stands_for in ({256: (1, 2, 3)}, {256: (1,)}, {256: (1, 2, 3, 4)}, {255: (1, 2)}):
        with pytest.raises(ValueError, match=r"ids|stands for"):
            Encoder(ranks=ranks, ids=ids, scanner=0, cache_bytes=0, stands_for=stands_for)


def test_columns_and_files(tokenizer: bpe.Tokenizer, tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    many = list(texts(14, 500))
    column = tokenizer.encode_arrow(pyarrow.array(many), allowed_special="all")
    assert column.to_pylist() == [prepared(tokenizer, each) for each in many]
    tokenizer.encode_file(many, tmp_path / "ids.npy")
    expected = [number for each in many for number in prepared(tokenizer, each)]
    assert np.load(tmp_path / "ids.npy").tolist() == expected


def test_a_large_file_is_encoded_in_parts(tokenizer: bpe.Tokenizer, tmp_path: Path) -> None:
    chance = random.Random(6)
    part = "".join(chance.choice(["</s>", "<s>", "", " ", "  ", "▁"]) + each for each in texts(15, 20_000))
    text = part * (1 + (2 * CHUNK) // len(part.encode()))
    plain, packed = tmp_path / "text.txt", tmp_path / "text.txt.gz"
    plain.write_text(text, encoding="utf-8", newline="")
    packed.write_bytes(gzip.compress(plain.read_bytes(), 1))
    parts = list(sources.stretches(plain, lambda data, at: tokenizer._text_encoder.safe_cut(data, at, NONE), 4, CHUNK))
    assert [stretch.first for stretch in parts] == [True, *[False] * (len(parts) - 1)]
    assert len(parts) > 1
    expected = tokenizer.encode_to_numpy(text, allowed_special="all")
    for file in (plain, packed):
        tokenizer.encode_file([file, plain], tmp_path / "ids.npy", num_threads=2)
        assert np.array_equal(np.load(tmp_path / "ids.npy"), np.concatenate([expected, expected]))


@pytest.mark.parametrize("first", ["x" * 300, " " + "x" * 300, "é" * 200, "x", " ", "▁", "", "\n"])
def test_the_first_pretoken_of_any_length(tokenizer: bpe.Tokenizer, first: str) -> None:
    for text in (first, first + " the", f"<s>{first}</s>{first}"):
        assert tokenizer.encode(text, allowed_special="all") == prepared(tokenizer, text)


def test_with_too_many_scanners_it_goes_on_without(tokenizer: bpe.Tokenizer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bpe.encoding.text_encoder.register_joins", lambda tokens, every_space: -1)
    slow = bpe.Tokenizer.from_data(tokenizer.data)
    assert not slow._text_encoder.direct
    for text in texts(16, 300):
        assert slow.encode(text, allowed_special="all") == tokenizer.encode(text, allowed_special="all"), text


def test_special_tokens_that_are_refused(tokenizer: bpe.Tokenizer) -> None:
    with pytest.raises(ValueError, match="<s>"):
        tokenizer.encode("the cat<s>")
    with pytest.raises(ValueError, match="</s>"):
        tokenizer.encode_batch_to_numpy(["the cat", "</s>"])


@pytest.mark.parametrize(
    "changed",
    [
        {"lstrip": frozenset(["<s>"])},
        {"normalizer": '[{"type": "Prepend", "prepend": "▁"}]', "normalized": frozenset(["<s>"])},
        {"normalizer": '[{"type": "Replace", "pattern": {"String": " "}, "content": "_"}]'},
    ],
)
def test_what_asks_for_more_is_prepared(changed: dict[str, Any]) -> None:
    result = bpe.train_sentencepiece(["the cat and the hat"], 275)
    assert result._text_encoder.direct
    assert not bpe.Tokenizer.from_data(result.data._replace(**changed))._text_encoder.direct


@pytest.mark.parametrize("name", ["<s> ", "▁<s>"])
def test_special_tokens_with_spaces_are_found_in_the_text_as_it_is(name: str) -> None:
    data = bpe.train_sentencepiece(["the cat and the hat"], 275).data
    tokenizer = bpe.Tokenizer.from_data(data._replace(special_tokens={name: 1}))
    assert tokenizer._text_encoder.direct
    chance = random.Random(3)
    for _ in range(1000):
        text = "".join(chance.choices(["<s>", "<s> ", "▁<s>", " ", "▁", "the", "cat", "<"], k=chance.randrange(1, 8)))
        assert tokenizer.encode(text, allowed_special="all") == prepared(tokenizer, text), text
