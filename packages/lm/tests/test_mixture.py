"""Mixtures: which row is of which set, and what a run of them is."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lm.data import DataSet, Mixture, Tokens, open_data, write_tokens


def part(name, weight, ids, tokenizer=None):
    tokens = Tokens(path=Path(name), ids=np.asarray(ids, dtype=np.uint16), sha256=name, tokenizer=tokenizer)
    return DataSet(name, Fraction(weight), tokens)


@given(weights=st.lists(st.integers(1, 50), min_size=1, max_size=7), begin=st.integers(0, 10**12))
@settings(max_examples=60, deadline=None)
def test_every_set_has_its_share_of_any_stretch(weights, begin):
    mixture = Mixture([part(str(i), w, [0]) for i, w in enumerate(weights)])
    seen = [0] * len(weights)
    for row in range(300):
        index, place = mixture.pick(row)
        assert place == seen[index]  # a set's rows are numbered without a gap
        seen[index] += 1
        for count, weight in zip(seen, weights, strict=True):
            assert abs(count - Fraction((row + 1) * weight, sum(weights))) <= Fraction(len(weights), 2)
    # And far into a run, where nothing was counted on the way.
    for row in range(begin, begin + 20):
        index, place = mixture.pick(row)
        assert abs(place - Fraction(row * weights[index], sum(weights))) <= Fraction(len(weights), 2)


def test_a_whole_period_is_exact():
    mixture = Mixture([part("a", "0.1", [0]), part("b", "0.2", [0]), part("c", "0.7", [0])])
    for begin in (0, 10, 10**15):
        assert sorted(mixture.pick(row)[0] for row in range(begin, begin + 10)) == [0, 1, 1, 2, 2, 2, 2, 2, 2, 2]


@given(
    step=st.integers(0, 50),
    world=st.integers(1, 3),
    rows=st.integers(1, 5),
    context=st.integers(1, 9),
    seed=st.integers(0, 3),
)
@settings(max_examples=60, deadline=None)
def test_a_batch_is_a_pure_function_and_ranks_share_the_rows_of_one_process(step, world, rows, context, seed):
    mixture = Mixture([part("a", 3, range(40)), part("b", 1, range(100, 117)), part("c", 2, range(200, 250))])
    x, y = mixture.batch(seed, step, 0, 1, world * rows, context)
    ranks = [mixture.batch(seed, step, rank, world, rows, context) for rank in reversed(range(world))][::-1]
    assert torch.equal(torch.cat([r[0] for r in ranks]), x)
    assert torch.equal(torch.cat([r[1] for r in ranks]), y)


def test_each_set_has_its_own_epochs_whatever_is_mixed_with_it():
    a, b, c = part("a", 1, range(40)), part("b", 1, range(100, 160)), part("c", 2, range(200, 300))

    def rows_of(mixture, low, high):
        inputs = torch.cat([mixture.batch(7, step, 0, 1, 4, 5)[0] for step in range(20)])
        return inputs[(inputs[:, 0] >= low) & (inputs[:, 0] < high)]

    alone, beside = rows_of(Mixture([a, b]), 0, 40), rows_of(Mixture([a, c]), 0, 40)
    count = min(len(alone), len(beside))
    assert count >= 24
    assert torch.equal(alone[:count], beside[:count])
    first = alone[:8].flatten().tolist()
    assert len(set(first)) == 40  # an epoch has every token
    assert not torch.equal(alone[:8], alone[8:16])


def test_epochs_and_bytes_follow_the_weights(tmp_path):
    write_tokens(tmp_path / "a.npy", np.arange(100), text_bytes=300, tokenizer="t")
    write_tokens(tmp_path / "b.npy", np.arange(50), text_bytes=50, tokenizer="t")
    data = open_data({"a": {"path": tmp_path / "a.npy", "weight": 3}, "b": {"path": str(tmp_path / "b.npy")}})
    assert data.epochs(800) == {"a": 6.0, "b": 4.0}
    assert data.bytes_per_token == 0.75 * 3 + 0.25 * 1
    assert data.share("b") == 0.25
    says = data.fingerprints
    assert says["tokenizer"] == "t"
    assert says["a"] == {"train_sha256": data.parts[0].tokens.sha256, "weight": 3.0}
    assert data.heldout == {}


@pytest.mark.parametrize(
    ("data", "error", "says"),
    [
        ({}, ValueError, "names nothing"),
        ({"a": {"path": "x"}, "b": 3}, ValueError, "set 'b' is given as 3"),
        ({"a": {"weight": 1}}, ValueError, "give it a path"),
        ({"a": {"path": "x", "wieght": 1}}, ValueError, "give it a path"),
        ({"a b": {"path": "x"}}, ValueError, "named 'a b'"),
        ({"a": {"path": "x", "weight": 0}}, ValueError, "more than 0"),
        ({"a": {"path": "x", "weight": float("inf")}}, ValueError, "more than 0"),
        ({"a": {"path": "x", "weight": "much"}}, TypeError, "must be a number"),
        ({"a": {"path": "nowhere"}}, FileNotFoundError, "no folder nowhere"),
        ({"heldout": "x"}, ValueError, "give 'train'"),
    ],
)
def test_what_is_no_mixture_is_named(data, error, says):
    with pytest.raises(error, match=says):
        open_data(data)


def test_sets_that_do_not_go_together_are_refused():
    with pytest.raises(ValueError, match="different tokenizers"):
        Mixture([part("a", 1, [1], "t"), part("b", 1, [1], "u")])
    with pytest.raises(ValueError, match="at least one set"):
        Mixture([])
    mixture = Mixture([part("a", 1, range(30)), part("b", 1, range(5))])
    mixture.check(30, 4)
    with pytest.raises(ValueError, match="token id 29"):
        mixture.check(29, 4)
    with pytest.raises(ValueError, match="5 tokens are not enough"):
        mixture.check(30, 5)
