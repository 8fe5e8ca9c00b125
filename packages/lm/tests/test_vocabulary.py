"""A model with another vocabulary: rows that stay, and how those of new tokens begin."""

from __future__ import annotations

import copy

import pytest
import torch

import lm
from lm.vocabulary import METHODS

bpe = pytest.importorskip("bpe")
TEXT = ["the cat sat on the mat, the hat"]
OLD = bpe.train(TEXT, 265, special_tokens=["<|endoftext|>"])
NEW = bpe.extend(OLD, ["\u043a\u043e\u0442 \u0438 \u043a\u043e\u0442 \u0438 \u043a\u043e\u0442"], 270)
OTHER = bpe.train(["a dog and a dog and the cat"], 262, special_tokens=["<|im_start|>", "<|endoftext|>"])
IDS = torch.tensor([OLD.encode("the cat sat")])


def model_of(**changes: object) -> lm.Transformer:
    torch.manual_seed(0)
    shape = {
        "vocab_size": OLD.n_vocab,
        "context_length": 16,
        "num_layers": 2,
        "d_model": 16,
        "num_heads": 2,
        "d_ff": 24,
    }
    return lm.Transformer(lm.ModelConfig(**{**shape, **changes}))


KINDS = {
    "plain": {},
    "tied": {"tied_embeddings": True},
    "padded": {"vocab_multiple": 16},
    "value embeddings": {"value_embeddings": True},
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", KINDS)
def test_rows_stay_and_new_ones_begin_as_their_method_says(kind: str, method: lm.vocabulary.Method) -> None:
    model = model_of(**KINDS[kind]).eval()
    before = copy.deepcopy(model.state_dict())
    larger = lm.extend_vocabulary(model, OLD, NEW, method)
    assert type(larger) is type(model)
    assert larger.config.vocab_size == NEW.n_vocab
    assert not larger.training
    assert all(parameter.requires_grad for parameter in larger.parameters())
    assert all(torch.equal(before[name], rows) for name, rows in model.state_dict().items())
    assert torch.equal(larger(IDS)[..., : OLD.n_vocab], model(IDS))  # old text is read and scored as before
    after, size = larger.state_dict(), OLD.n_vocab
    tables = [name for name in before if name == "head.weight" or name.endswith("embedding.weight")]
    assert len(tables) == {"plain": 2, "tied": 1, "padded": 2, "value embeddings": 3}[kind]
    for name in tables:
        rows, new_rows = before[name][:size], after[name]
        assert torch.equal(new_rows[:size], rows)
        assert not new_rows[NEW.n_vocab :].any()
        for number in range(size, NEW.n_vocab):
            pieces = OLD.encode_ordinary(NEW.decode_single_token_bytes(number))
            assert len(pieces) > 1
            expected = {
                "pieces": rows[pieces].mean(0),
                "ends": rows[pieces[0] if name == "head.weight" else pieces[-1]],
                "mean": rows.mean(0),
            }
            if kind == "tied":
                expected["ends"] = expected["pieces"]
            if method in expected:
                torch.testing.assert_close(new_rows[number], expected[method])
    if method == "normal":
        again, another = (lm.extend_vocabulary(model, OLD, NEW, method, seed=seed) for seed in (0, 1))
        assert torch.equal(again.embedding.weight, larger.embedding.weight)
        assert not torch.equal(another.embedding.weight, larger.embedding.weight)


def test_normal_rows_have_the_mean_and_the_covariance_of_the_old_ones() -> None:
    rows = (
        torch.randn(500, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
        @ torch.randn(6, 6).double()
    )
    drawn = lm.vocabulary.combined(rows, [[]] * 60_000, "normal", False, torch.Generator().manual_seed(2))
    scale = float(rows.var(0).max())
    torch.testing.assert_close(drawn.mean(0), rows.mean(0), atol=0.03 * scale**0.5, rtol=0)
    torch.testing.assert_close(torch.cov(drawn.T), torch.cov(rows.T), atol=0.03 * scale, rtol=0)


def test_any_tokenizer_may_be_the_new_one() -> None:
    model = model_of().double()
    other = lm.extend_vocabulary(model, OLD, OTHER)
    assert other.embedding.weight.dtype == torch.float64
    rows = model.embedding.weight
    for number, token in OTHER.vocab.items():
        mine = other.embedding.weight[number]
        if token == b"<|endoftext|>":
            assert torch.equal(mine, rows[OLD.eot_token])
        elif token == b"<|im_start|>":
            torch.testing.assert_close(mine, rows.mean(0))  # its letters say nothing of its use
        else:
            torch.testing.assert_close(mine, rows[OLD.encode_ordinary(token)].mean(0))


def test_what_cannot_be_extended() -> None:
    with pytest.raises(ValueError, match="'best'"):
        lm.extend_vocabulary(model_of(), OLD, NEW, "best")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="265"):
        lm.extend_vocabulary(model_of(vocab_size=260), OLD, NEW)
