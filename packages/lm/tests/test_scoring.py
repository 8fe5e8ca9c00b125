"""Scores: exact to the first token, by a forward pass for each."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from runs import MODEL, some_tokens

import lm
from lm.data import write_tokens
from lm.model import Transformer
from lm.training.validation import evaluate


def brute_force(model, ids, context, stride, before):
    """Each token by a forward pass of its own over exactly the tokens that its window shows."""
    text = ids.tolist() if before is None else [before, *ids.tolist()]
    count = len(text) - 1
    total = math.log(model.config.vocab_size) if before is None else 0.0
    for position in range(count):
        if position < context:
            begin = 0
        else:
            end = min(count, context + stride * ((position - context) // stride + 1))
            begin = end - context
        with torch.no_grad():
            logits = model(torch.tensor([text[begin : position + 1]]))[0, -1].double()
        total -= float(logits.log_softmax(-1)[text[position + 1]])
    return total


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 40, 47])
@pytest.mark.parametrize("stride", [1, 3, 8])
@pytest.mark.parametrize("before", [None, 4])
def test_evaluate_is_exact_to_the_first_token(tmp_path, count, stride, before):
    torch.manual_seed(1)
    model = Transformer(MODEL).double()
    ids = some_tokens(count)
    tokens = write_tokens(tmp_path / "a.npy", ids, text_bytes=3 * count, end_of_text=before)
    score = evaluate(model, tokens, context_length=8, stride=stride, batch_size=3)
    assert score.tokens == count
    assert score.nats == pytest.approx(brute_force(model, ids, 8, stride, before), rel=1e-9)
    ends = 0 if before is None else int((ids == before).sum())
    if ends == count:
        assert score.bits_per_byte is None  # there is no text
    else:
        assert score.bytes == pytest.approx(3 * count)
        assert score.bits_per_byte == pytest.approx(score.text_nats / math.log(2) / (3 * count))
    assert (score.text_nats < score.nats) == (ends > 0)
    if before is None:
        assert evaluate(model, ids, context_length=8, stride=stride).nats == pytest.approx(score.nats, rel=1e-9)
    assert model.training


def test_bits_per_byte_do_not_depend_on_the_name_of_the_end_of_text(tmp_path):
    """The same model, ids and text by two tokenizers that differ in that name; by nanochat's definition."""
    bpe = pytest.importorskip("bpe")
    scores = []
    for name in ("<|endoftext|>", "</s>"):
        (tmp_path / "t.txt").write_text("".join(f"the cat sat on mat {i}{name}" for i in range(40)))
        tokenizer = bpe.train([tmp_path / "t.txt"], 300, special_tokens=[name])
        tokenizer.encode_file(tmp_path / "t.txt", tmp_path / "t.npy", end_of_text=name)
        torch.manual_seed(0)
        model = Transformer(dataclasses.replace(MODEL, vocab_size=300, num_layers=1))
        scores.append(evaluate(model, lm.data.open_tokens(tmp_path / "t.npy")))
    assert scores[0].nats == scores[1].nats
    assert scores[0].bits_per_byte == scores[1].bits_per_byte
    assert scores[0].bytes == sum(len(f"the cat sat on mat {i}") for i in range(40))


def test_a_sample_is_spread_over_the_text_and_in_proportion(tmp_path):
    torch.manual_seed(1)
    model = Transformer(MODEL)
    tokens = write_tokens(tmp_path / "a.npy", some_tokens(1000), text_bytes=2500)
    score = evaluate(model, tokens, max_tokens=200)
    assert 150 <= score.tokens <= 217
    assert score.bytes == pytest.approx(2.5 * score.tokens)
    assert score == evaluate(model, tokens, max_tokens=200)
    assert score.loss == pytest.approx(evaluate(model, tokens).loss, rel=0.05)


def test_evaluate_refuses_windows_that_do_not_fit():
    model = Transformer(MODEL)
    for context, stride in ((17, 1), (8, 9), (8, 0)):
        with pytest.raises(ValueError, match="expected 1 <= stride"):
            evaluate(model, some_tokens(50), context_length=context, stride=stride)
