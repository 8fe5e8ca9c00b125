"""encode_arrow() and decode_arrow(): what encode() and decode() give, in columns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import DATA, corpus

import bpe
from bpe.encoding import arrow as columns
from bpe.encoding import text_encoder

arrow = pytest.importorskip("pyarrow")

TEXT = corpus(3, words=400)
TOKENIZER = bpe.train([TEXT], 400)
TEXTS = st.lists(st.none() | DATA.map(lambda data: data.decode("utf-8", "replace")), max_size=8)
KINDS = {
    "string": arrow.string(),
    "large_string": arrow.large_string(),
    "string_view": arrow.string_view(),
    "binary": arrow.binary(),
    "large_binary": arrow.large_binary(),
    "binary_view": arrow.binary_view(),
}


def expected(texts: list[Any], tokenizer: bpe.Tokenizer = TOKENIZER) -> list[Any]:
    return [None if text is None else tokenizer.encode(text, disallowed_special=()) for text in texts]


def encoded(array: Any, tokenizer: bpe.Tokenizer = TOKENIZER, **options: Any) -> Any:
    actual = tokenizer.encode_arrow(array, **{"disallowed_special": (), **options})
    assert actual.type == arrow.list_(arrow.uint32())
    actual.validate(full=True)
    return actual


@given(TEXTS, st.sampled_from(list(KINDS)), st.integers(0, 3), st.integers(1, 3))
def test_every_kind_of_text_with_nulls_and_slices(texts: list[Any], kind: str, begin: int, num_threads: int) -> None:
    values = [text.encode() if text is not None and "binary" in kind else text for text in texts]
    array = arrow.array(values, KINDS[kind]).slice(begin)
    actual = encoded(array, num_threads=num_threads)
    assert actual.to_pylist() == expected(texts[begin:])
    assert TOKENIZER.decode_arrow(actual).to_pylist() == texts[begin:]


@given(st.lists(TEXTS, max_size=4), st.sampled_from(list(KINDS)))
def test_chunks_stay_chunks(chunks: list[list[Any]], kind: str) -> None:
    if "binary" in kind:
        chunks = [[None if text is None else text.encode() for text in chunk] for chunk in chunks]
    array = arrow.chunked_array([arrow.array(chunk, KINDS[kind]) for chunk in chunks], type=KINDS[kind])
    actual = encoded(array)
    assert actual.to_pylist() == expected([text for chunk in chunks for text in chunk])
    back = TOKENIZER.decode_arrow(actual)
    assert isinstance(back, arrow.ChunkedArray)
    assert back.cast(arrow.large_binary()).to_pylist() == array.cast(arrow.large_binary()).to_pylist()


def test_dictionaries_nulls_and_arrays_of_nothing() -> None:
    words = arrow.array(["low", None, "lower", "low"]).dictionary_encode()
    assert encoded(words).to_pylist() == expected(["low", None, "lower", "low"])
    assert encoded(arrow.nulls(3)).to_pylist() == [None] * 3
    assert encoded(arrow.array([], arrow.string())).to_pylist() == []
    assert encoded(arrow.chunked_array([], type=arrow.string())).to_pylist() == []
    assert TOKENIZER.decode_arrow(arrow.nulls(2)).to_pylist() == [None, None]


def test_bytes_under_a_null_are_nobodys_text() -> None:
    text = b"low<|endoftext|>lower"
    offsets = arrow.py_buffer(np.array([0, 3, 16, 21], dtype=np.int32))
    array = arrow.Array.from_buffers(arrow.string(), 3, [arrow.py_buffer(b"\5"), offsets, arrow.py_buffer(text)])
    assert TOKENIZER.encode_arrow(array).to_pylist() == expected(["low", None, "lower"])


def test_offsets_that_point_outside_are_refused() -> None:
    for offsets in ([0, 5, 3], [-1, 2, 3], [0, 2, 100]):
        buffers = [None, arrow.py_buffer(np.array(offsets, dtype=np.int32)), arrow.py_buffer(b"some text")]
        with pytest.raises(ValueError, match=r"(?i)offsets"):
            TOKENIZER.encode_arrow(arrow.Array.from_buffers(arrow.string(), 2, buffers))


def test_long_rows_are_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(text_encoder, "SHARED_TEXT", 1000)
    monkeypatch.setattr(text_encoder, "THREAD_TEXT", 100)
    texts = ["low", TEXT, None, "", TEXT[:999], TEXT[:1500] + "é", "lower"]
    assert encoded(arrow.array(texts), num_threads=3).to_pylist() == expected(texts)
    assert encoded(arrow.array(texts), num_threads=1).to_pylist() == expected(texts)
    refused = ["low", "x" * 2000 + "<|endoftext|>"]
    with pytest.raises(ValueError, match=r"disallowed special token '<\|endoftext\|>'"):
        TOKENIZER.encode_arrow(arrow.array(refused), num_threads=2)


def test_what_is_too_much_for_one_array_is_encoded_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    texts = ["low", None, TEXT[:100], "lower"] * 20
    monkeypatch.setattr(columns, "MOST_TEXT", 200)
    assert encoded(arrow.chunked_array([texts])).to_pylist() == expected(texts)
    monkeypatch.setattr(columns, "MOST_IDS", 10)
    with pytest.raises(ValueError, match="give it in chunks"):
        encoded(arrow.array(texts))


def test_special_tokens_as_in_encode() -> None:
    array = arrow.array(["low<|endoftext|>", "lower"])
    assert TOKENIZER.encode_arrow(array, allowed_special="all").to_pylist() == [
        TOKENIZER.encode(text, allowed_special="all") for text in array.to_pylist()
    ]
    with pytest.raises(ValueError, match=r"disallowed special token '<\|endoftext\|>'"):
        TOKENIZER.encode_arrow(array)


@pytest.mark.parametrize("asks", [{"normalizer": "NFC"}, {"add_prefix_space": True}])
def test_texts_that_are_prepared_first(asks: dict[str, Any]) -> None:
    tokenizer = bpe.Tokenizer.from_data(TOKENIZER.data._replace(**asks))
    texts = ["e\u0301 low", None, "lower", ""]
    assert encoded(arrow.array(texts), tokenizer).to_pylist() == expected(texts, tokenizer)


def test_a_pattern_that_has_no_scanner() -> None:
    tokenizer = bpe.Tokenizer(dict(TOKENIZER.vocab), TOKENIZER.merges, pattern=r"\w+|\W")
    texts = ["low lower", None, "é"]
    assert encoded(arrow.array(texts), tokenizer).to_pylist() == expected(texts, tokenizer)


def test_bytes_that_are_no_text_are_encoded_and_come_back_as_asked() -> None:
    array = arrow.array([b"low\xff", None, b"\xc3", b"\xa9"])
    actual = encoded(array)
    assert actual.to_pylist() == expected([b"low\xff", None, b"\xc3", b"\xa9"])
    assert TOKENIZER.decode_arrow(actual).to_pylist() == ["low\ufffd", None, "\ufffd", "\ufffd"]
    assert TOKENIZER.decode_arrow(actual, "ignore").to_pylist() == ["low", None, "", ""]
    with pytest.raises(UnicodeDecodeError):
        TOKENIZER.decode_arrow(actual, "strict")


@pytest.mark.parametrize("number", [arrow.int8(), arrow.uint16(), arrow.int32(), arrow.int64()])
def test_lists_of_any_integers_decode(number: Any) -> None:
    ids = [[108, 111], None, [], [119, 32, 97, 97]]
    for kind in (arrow.list_(number), arrow.large_list(number)):
        array = arrow.array(ids, kind)
        assert TOKENIZER.decode_arrow(array).to_pylist() == ["lo", None, "", "w aa"]
        assert TOKENIZER.decode_arrow(array.slice(1, 2)).to_pylist() == [None, ""]
    fixed = arrow.array([[97, 98], None, [99, 100]], arrow.list_(number, 2))
    assert TOKENIZER.decode_arrow(fixed).to_pylist() == ["ab", None, "cd"]


def test_what_is_no_column_of_text_or_of_ids_is_refused() -> None:
    for array in (arrow.array([1, 2]), arrow.array([["a"]])):
        with pytest.raises(TypeError, match="not text"):
            TOKENIZER.encode_arrow(array)
    with pytest.raises(TypeError, match="an array of Arrow is expected that holds texts, not list"):
        TOKENIZER.encode_arrow(["low"])
    for array in (arrow.array(["a"]), arrow.array([[1.5]])):
        with pytest.raises(TypeError, match="not lists of ids"):
            TOKENIZER.decode_arrow(array)
    with pytest.raises(ValueError, match="1 of the ids are null"):
        TOKENIZER.decode_arrow(arrow.array([[1, None]]))
    with pytest.raises(KeyError, match="no token has the id 99999"):
        TOKENIZER.decode_arrow(arrow.array([[97, 99_999]]))
    with pytest.raises(OverflowError):
        TOKENIZER.decode_arrow(arrow.array([[-1]]))
    with pytest.raises(ValueError, match="num_threads is 0"):
        TOKENIZER.encode_arrow(arrow.array(["a"]), num_threads=0)


def test_columns_of_other_libraries() -> None:
    polars, pandas = pytest.importorskip("polars"), pytest.importorskip("pandas")
    texts = ["low", None, "lower é"]
    assert encoded(polars.Series(texts)).to_pylist() == expected(texts)
    assert encoded(arrow.array(pandas.Series(texts, dtype="string[pyarrow]"))).to_pylist() == expected(texts)
    assert polars.Series(encoded(polars.Series(texts))).to_list() == expected(texts)
