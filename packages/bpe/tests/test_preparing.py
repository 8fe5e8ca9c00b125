"""Preparation of texts by a tokenizer.json, beside tokenizers."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import PIECES, corpus
from tokenizers import normalizers

import bpe
from bpe.encoding.normalizing import FORMS, normalizer_of
from bpe.tokenizer import Tokenizer

WITHOUT_SPACES = "<s> </s> <s s> tool \u00e9\u00e9 e\u0301 \ufb01 <s></s> _t \u4e2d 11"
CONTENTS = [*WITHOUT_SPACES.split(), " x", "x ", "a b"]
TOKENS = st.dictionaries(
    st.sampled_from(CONTENTS),
    st.fixed_dictionaries(
        {option: st.booleans() for option in ("special", "normalized", "lstrip", "rstrip", "single_word")}
    ),
    max_size=5,
)
TEXTS = st.lists(
    st.sampled_from([*CONTENTS, *PIECES, " ", "  ", "\u0301", "x", "\u0316", "\u1e9b", "\u0898"]), max_size=20
)


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    path = tmp_path_factory.mktemp("plain") / "tokenizer.json"
    bpe.train([corpus(3)], 400, special_tokens=[], tie_break="huggingface").to_huggingface(path)
    file: dict[str, Any] = json.loads(path.read_text())
    return file


def variant(
    plain: dict[str, Any], normalizer: str | None, prefix_space: bool, tokens: dict[str, dict[str, bool]]
) -> str:
    off = {"special": True, "normalized": False, "lstrip": False, "rstrip": False, "single_word": False}
    added = [{"id": 400 + i, "content": name, **off, **options} for i, (name, options) in enumerate(tokens.items())]
    return json.dumps(
        plain
        | {
            "added_tokens": added,
            "normalizer": normalizer and {"type": normalizer},
            "pre_tokenizer": plain["pre_tokenizer"] | {"add_prefix_space": prefix_space},
        }
    )


@settings(max_examples=100)
@given(
    normalizer=st.sampled_from([None, *FORMS]), prefix_space=st.booleans(), tokens=TOKENS, pieces=TEXTS, data=st.data()
)
def test_prepares_as_tokenizers_does(
    plain: dict[str, Any],
    tmp_path_factory: pytest.TempPathFactory,
    normalizer: str | None,
    prefix_space: bool,
    tokens: dict[str, dict[str, bool]],
    pieces: list[str],
    data: st.DataObject,
) -> None:
    text = "".join(pieces)
    file = variant(plain, normalizer, prefix_space, tokens)
    path = tmp_path_factory.mktemp("written") / "prepared.json"
    path.write_text(file)
    theirs, ours = tokenizers.Tokenizer.from_file(str(path)), Tokenizer.from_huggingface(path)
    expected = theirs.encode(text, add_special_tokens=False).ids
    assert ours.encode(text, allowed_special="all") == expected
    assert ours.encode_to_numpy(text.encode(), allowed_special="all").tolist() == expected
    assert ours.count_tokens(text, allowed_special="all") == len(expected)
    assert ours.encode_batch([text, text.encode()], disallowed_special=()) == [ours.encode_ordinary(text)] * 2
    cut = data.draw(st.integers(0, len(text)))
    chunks = ours._text_encoder.chunks([text[:cut], text[cut:]], ours._text_encoder.policy.rules("all", ()), 1)
    assert [number for chunk in chunks for number in chunk.tolist()] == expected
    # what is written says the same
    ours.to_huggingface(path)
    again = tokenizers.Tokenizer.from_file(str(path))
    assert again.encode(text, add_special_tokens=False).ids == expected
    ours.save(path)
    assert Tokenizer.load(path).encode(text, allowed_special="all") == expected


@pytest.mark.parametrize("form", FORMS)
def test_normalizes_every_code_point_as_tokenizers_does(form: str) -> None:
    theirs = getattr(normalizers, form)()
    every = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    for context in ("{}", "a{}\u0316\u0301", "a\u0301{}", "{}\u0338"):
        # a line each: line ends are starters that nothing composes with
        text = "\n".join(context.format(character) for character in every)
        assert normalizer_of(form)(text) == theirs.normalize_str(text), context


def test_a_late_token_across_a_space_is_not_cut(plain: dict[str, Any], tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    path.write_text(variant(plain, "NFC", False, {"c \u00e9": {"normalized": True}}))
    ours = Tokenizer.from_huggingface(path)
    text = "ab c e\u0301 d"
    assert 400 in ours.encode(text, allowed_special="all")
    for cut in range(len(text)):
        arrays = ours._text_encoder.chunks([text[:cut], text[cut:]], ours._text_encoder.policy.rules("all", ()), 1)
        assert [number for array in arrays for number in array.tolist()] == ours.encode(text, allowed_special="all")


def test_what_needs_no_preparation_has_none(plain: dict[str, Any], tmp_path: Path) -> None:
    def needed(normalizer: str | None = None, prefix_space: bool = False, **tokens: dict[str, bool]) -> bool:
        path = tmp_path / "tokenizer.json"
        path.write_text(variant(plain, normalizer, prefix_space, tokens))
        return Tokenizer.from_huggingface(path)._text_encoder._preparation is not None

    late = {"special": True, "normalized": True}
    assert not needed()
    assert not needed(late=late, soon=late | {"normalized": False})
    assert needed(late=late, terse=late | {"normalized": False})  # "late" and "terse" may share "te"
    assert needed("NFC")
    assert needed(None, True)
    assert needed(word=late | {"single_word": True})


@settings(max_examples=60)
@given(
    st.lists(
        st.lists(
            st.sampled_from(["e", "\u0301", "caf\u00e9", "\u1100", "\u1161", " x", "\ufb01", "\u0898"]), max_size=4
        )
    ),
    st.sampled_from(FORMS),
)
def test_texts_given_together_are_normalized_one_by_one(
    plain: dict[str, Any], tmp_path_factory: pytest.TempPathFactory, parts: list[list[str]], form: str
) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    path = tmp_path_factory.mktemp("written") / "tokenizer.json"
    path.write_text(variant(plain, form, False, {}))
    tokenizer = Tokenizer.from_huggingface(path)
    texts = ["".join(one) for one in parts]
    expected = [tokenizer.encode(text) for text in texts]
    assert tokenizer.encode_batch(texts) == expected
    column = pyarrow.array(["\u0301", *texts, None], pyarrow.string())
    assert tokenizer.encode_arrow(column.slice(1)).to_pylist() == [*expected, None]


def test_texts_that_are_normalized_first_are_not_called_slow(plain: dict[str, Any], tmp_path: Path) -> None:
    """The warning is of a pattern without a scanner, which this tokenizer's is not."""
    pyarrow = pytest.importorskip("pyarrow")
    path = tmp_path / "tokenizer.json"
    path.write_text(variant(plain, "NFC", False, {}))
    tokenizer = Tokenizer.from_huggingface(path)
    texts = ["cafe\u0301"] * 40
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert tokenizer.encode_batch(texts) == [tokenizer.encode("caf\u00e9")] * 40
        assert tokenizer.encode_arrow(pyarrow.array(texts)).to_pylist() == tokenizer.encode_batch(texts)
