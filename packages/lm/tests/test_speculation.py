"""Guesses from earlier places of a text: the same tokens as without them, in fewer steps."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models import make, some_ids
from test_native import needs_compiler

from lm.generation.decoder import Decoder
from lm.generation.engine import Scheduler
from lm.generation.kv_cache import bytes_of_page
from lm.generation.sampling import Sampling
from lm.generation.speculation import Drafts
from lm.generation.stream import generate, generate_batch


def drafts_of(tokens, most=4):
    drafts = Drafts(most)
    for token in tokens:
        drafts.append(token)
    return drafts


def test_what_followed_the_last_place_that_ended_alike_is_guessed():
    assert drafts_of([]).guess(4) == drafts_of([1, 2, 3]).guess(4) == drafts_of([1, 1, 1]).guess(4) == []
    assert drafts_of([1, 1, 1, 1]).guess(4) == [1, 1, 1, 1]
    assert drafts_of([9, 1, 2, 1, 2, 1]).guess(4) == [2, 1, 2, 1]
    tokens = [1, 2, 3, 4, 1, 2, 3, 5, 6, 7, 8, 1, 2, 3]
    assert drafts_of(tokens).guess(4) == [5, 6, 7, 8]
    assert drafts_of(tokens).guess(2) == [5, 6]
    assert drafts_of(tokens).guess(0) == []
    assert drafts_of([*tokens, 9]).guess(4) == []


def test_chances_are_left_out_while_guesses_are_wrong():
    drafts = drafts_of([1, 2, 3, 4, 5, 6, 7, 1, 2, 3])
    for right, left_out in ((2, 0), (0, 1), (0, 3), (0, 7), (1, 0), (0, 1)):
        drafts.learn(4, right)
        assert [len(drafts.guess(9)) for _ in range(left_out + 1)] == [0] * left_out + [4]
    drafts.learn(0, 0)
    assert drafts.guess(9) == [4, 5, 6, 7]


@pytest.mark.parametrize("native", [pytest.param(True, marks=needs_compiler), False])
def test_tokens_of_one_row_in_a_step_have_the_logits_of_steps_one_by_one(native):
    model, ids = make(num_kv_heads=1, qk_norm=True), some_ids(1, 9)[0].tolist()
    one, many = Decoder(model, rows=2, native=native), Decoder(model, rows=2, native=native)
    wanted = torch.cat([one.step([token], [1]).clone() for token in ids])
    got = torch.cat([many.step(ids[:4], [1] * 4).clone(), many.step([7, *ids[4:]], [0] + [1] * 5)[1:].clone()])
    assert many.cache.lengths == [1, 9]
    if native:
        assert torch.equal(got, wanted)
    torch.testing.assert_close(got, wanted, rtol=1e-5, atol=1e-5)
    with pytest.raises(ValueError, match="a row holds 10 tokens"):
        many.step([1, 2], [1, 1])
    assert many.cache.lengths == [1, 9]


@needs_compiler
@settings(max_examples=60, deadline=None)
@given(
    prompts=st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=14), min_size=1, max_size=3),
    speculate=st.integers(1, 6),
    temperature=st.sampled_from([0.0, 0.3, 1.5]),
    penalty=st.sampled_from([1.0, 1.3]),
    when_full=st.sampled_from(["slide", "end"]),
    stop=st.booleans(),
)
def test_texts_are_the_same(prompts, speculate, temperature, penalty, when_full, stop):
    model = make(vocab_size=5, context_length=24)
    how = {
        "max_new_tokens": 40,
        "temperature": temperature,
        "repetition_penalty": penalty,
        "when_full": when_full,
        "stop_tokens": [3] if stop else [],
        "seed": 5,
        "rows": 2,
    }
    wanted = generate_batch(model, prompts, **how)
    assert generate_batch(model, prompts, speculate=speculate, **how) == wanted


@pytest.mark.parametrize("native", [pytest.param(True, marks=needs_compiler), False])
def test_a_text_that_repeats_itself_takes_fewer_steps(native):
    model = make(context_length=256)
    sequences, counts = [], []
    for speculate in (0, 4):
        batch = Scheduler(model, rows=1, native=native)
        text = batch.add([1, 2, 3], max_new_tokens=200, sampling=Sampling(temperature=0), speculate=speculate)
        steps = 0
        while batch.texts:
            batch.step()
            steps += 1
        sequences.append(text.tokens)
        counts.append(steps)
        assert batch.decode.tokens == 199
    assert sequences[0] == sequences[1]
    assert counts[0] == 200
    assert counts[1] < 120


@needs_compiler
def test_logprobs_and_full_memory():
    model = make(context_length=256, vocab_size=6)
    made = []
    for speculate, pages in ((0, 8), (5, 8), (5, 4)):
        batch = Scheduler(model, rows=2, memory=pages * bytes_of_page(model))
        texts = [
            batch.add(prompt, max_new_tokens=150, sampling=Sampling(temperature=0), top_logprobs=2, speculate=speculate)
            for prompt in ([1, 2, 3, 4], [5, 0, 1])
        ]
        while batch.texts:
            batch.step()
        made.append([(text.tokens, text.logprobs, text.ended) for text in texts])
    assert made[0] == made[1] == made[2]


def test_less_than_no_guess_is_refused():
    with pytest.raises(ValueError, match="speculate must be at least 0, and -1 is not"):
        generate(make(), [1], max_new_tokens=1, speculate=-1)
