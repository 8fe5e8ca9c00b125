"""Fill-in-the-middle: what is rearranged comes back, and depends on nothing but the seed and the document's index."""

from __future__ import annotations

import numpy as np
import pytest
from corpora import restored
from hypothesis import given, settings
from hypothesis import strategies as st

from lm.data.infill import NAMES, FillInTheMiddle

PREFIX, MIDDLE, SUFFIX = 256, 257, 258


def encode(text):
    return np.frombuffer(text, dtype=np.uint8).astype(np.uint32)


texts = st.one_of(st.text(max_size=40).map(str.encode), st.binary(max_size=40))


@given(
    texts, st.integers(0, 2**40), st.integers(0, 9), st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from([0.0, 0.5, 1.0])
)
@settings(max_examples=200, deadline=None)
def test_the_document_comes_back(text, index, seed, rate, spm_rate):
    infill = FillInTheMiddle(PREFIX, MIDDLE, SUFFIX, rate, spm_rate, seed)
    ids = infill.encode(text, index, encode)
    assert bytes(restored(infill, ids).astype(np.uint8)) == text
    cut = infill.cut(text, index)
    assert (cut is None) == (len(ids) == len(text))
    if cut is not None:
        assert cut.prefix + cut.middle + cut.suffix == text
        marks = [i for i in ids.tolist() if i >= 256]
        assert marks == [PREFIX, SUFFIX, MIDDLE]
        middle = ids.tolist().index(MIDDLE)
        after, first = bytes(ids[middle + 1 :].astype(np.uint8)), ids[1]
        assert after == (cut.prefix + cut.middle if cut.spm else cut.middle)
        assert cut.spm <= (first == SUFFIX)


@given(st.text(max_size=30), st.integers(0, 1000))
@settings(max_examples=100, deadline=None)
def test_cuts_fall_between_characters(text, index):
    parts = FillInTheMiddle(PREFIX, MIDDLE, SUFFIX, rate=1.0).cut(text.encode(), index)[:3]
    letters = [part.decode() for part in parts]  # raises where a part begins or ends inside of a character
    assert "".join(letters) == text
    assert sum(map(len, letters)) == len(text)


def test_rates_are_kept_and_cuts_are_spread():
    infill = FillInTheMiddle(PREFIX, MIDDLE, SUFFIX, rate=0.7, spm_rate=0.25, seed=3)
    text = b"x" * 99
    cuts = [infill.cut(text, index) for index in range(4000)]
    applied = [cut for cut in cuts if cut is not None]
    assert abs(len(applied) / 4000 - 0.7) < 0.03
    assert abs(sum(cut.spm for cut in applied) / len(applied) - 0.25) < 0.03
    for part in range(3):  # two uniform cuts make three parts of a third each, on average
        assert abs(sum(len(cut[part]) for cut in applied) / len(applied) - 33) < 2
    assert cuts == [infill.cut(text, index) for index in range(4000)]
    assert cuts != [
        FillInTheMiddle(PREFIX, MIDDLE, SUFFIX, 0.7, 0.25, seed=4).cut(text, index) for index in range(4000)
    ]


def test_what_it_cannot_do_is_said():
    assert FillInTheMiddle.of({**dict(zip(NAMES, (3, 4, 5), strict=True)), "<|endoftext|>": 1}).middle_id == 4
    with pytest.raises(KeyError, match="no special token '<a>' or '<c>'"):
        FillInTheMiddle.of({"<b>": 1}, ("<a>", "<b>", "<c>"))
    with pytest.raises(ValueError, match=r"rate is a share .* got 1\.5"):
        FillInTheMiddle(1, 2, 3, rate=1.5)
