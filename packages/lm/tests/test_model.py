"""The whole model: shapes, causality, documents, padding, initialisation."""

from __future__ import annotations

import math

import pytest
import torch
from models import SHAPES, make, some_ids

from lm.config import ModelConfig
from lm.generation.stream import generate
from lm.model import Transformer, softcapped


@pytest.mark.parametrize("shape", SHAPES)
def test_logits_have_their_shape_and_see_no_future(shape):
    model, ids = make(**SHAPES[shape]), some_ids()
    with torch.no_grad():
        logits = model(ids)
        assert logits.shape == (2, 10, 19)
        for cut in (1, 5, 9):
            changed = ids.clone()
            changed[:, cut:] = (changed[:, cut:] + 1) % 19
            torch.testing.assert_close(model(changed)[:, :cut], logits[:, :cut], rtol=0, atol=1e-12)
            assert (model(changed)[:, cut:] != logits[:, cut:]).any()


@pytest.mark.parametrize("shape", SHAPES)
def test_gradients_reach_every_parameter(shape):
    model = make(**SHAPES[shape])
    model(some_ids()).logsumexp(-1).sum().backward()
    for name, p in model.named_parameters():
        assert p.grad is not None, name
        assert (p.grad != 0).any(), name


def test_a_value_embedding_is_its_definition():
    """v ← v + 2 sigmoid(gate x) · e[token], for each key head: by hand, of the last block and every other one."""
    shape = SHAPES["valued"] | {"num_layers": 3, "num_kv_heads": 2}
    model, plain = make(**shape), make(**shape | {"value_embeddings": False})
    assert [block.attention.value_embedding is not None for block in model.blocks] == [True, False, True]
    attention, without, ids = model.blocks[2].attention, plain.blocks[2].attention, some_ids()
    x = torch.randn(2, 10, 8, dtype=torch.float64)
    without.load_state_dict({name: weight for name, weight in attention.state_dict().items() if "value" not in name})
    (q, k, v), (plain_q, plain_k, plain_v) = attention.project(x, ids), without.project(x, None)
    assert torch.equal(q, plain_q)
    assert torch.equal(k, plain_k)
    gate = 2 / (1 + (-(x @ attention.value_gate.weight.T)).exp())  # (2, 10, kv_heads)
    want = attention.value_embedding.weight[ids].view(2, 10, 2, 4) * gate[..., None]
    torch.testing.assert_close(v - plain_v, want)


def test_logits_are_capped():
    model = make(logit_softcap=0.5)
    free, ids = make(), some_ids()
    free.load_state_dict(model.state_dict())
    logits = free(ids)
    assert logits.abs().max() > 0.5
    torch.testing.assert_close(model(ids), 0.5 * torch.tanh(logits / 0.5))
    assert softcapped(logits, None) is logits


def test_padded_rows_of_the_vocabulary_change_nothing():
    model = make(vocab_multiple=16)
    assert model.head_weight.shape[0] == 32
    ids = some_ids()
    with torch.no_grad():
        before = model(ids)
        model.head_weight[19:] += 100.0
        torch.testing.assert_close(model(ids), before, rtol=0, atol=0)
    assert max(generate(model, [1], max_new_tokens=60, seed=0, temperature=5.0)) < 19


def test_a_sequence_beyond_the_context_is_refused():
    with pytest.raises(ValueError, match=r"11 tokens .* context of 10"):
        make()(some_ids(seq=11))


def test_initialisation_follows_its_recipe():
    torch.manual_seed(0)
    llama = Transformer(ModelConfig(500, 8, 4, 64, 4, 200))
    weights = dict(llama.named_parameters())
    cut = 0.9733  # the variance that a normal keeps when cut at three deviations
    assert weights["embedding.weight"].std().item() == pytest.approx(math.sqrt(cut), rel=0.02)
    down = weights["blocks.2.ffn.down.weight"]
    assert down.std().item() == pytest.approx(math.sqrt(cut * 2 / 264), rel=0.03)
    assert down.abs().max() <= 3 * math.sqrt(2 / 264)
    gpt2 = Transformer(ModelConfig(500, 64, 4, 64, 4, 200, position="learned", bias=True, norm="layernorm"))
    weights = dict(gpt2.named_parameters())
    assert weights["blocks.0.ffn.gate_up.weight"].std().item() == pytest.approx(0.02, rel=0.05)
    assert weights["blocks.3.ffn.down.weight"].std().item() == pytest.approx(0.02 / math.sqrt(8), rel=0.05)
    assert weights["positions.weight"].std().item() == pytest.approx(0.01, rel=0.05)
    assert all((p == 0).all() for name, p in weights.items() if name.endswith("bias"))
    assert (weights["final_norm.weight"] == 1).all()


@pytest.mark.parametrize(
    ("ids", "error", "words"),
    [
        (torch.rand(1, 3), TypeError, "float32"),
        ([1, 2], TypeError, "got list"),
        (torch.zeros(1, 0, dtype=torch.long), ValueError, "got none"),
        (torch.tensor([1, 2, 3]), ValueError, r"\(3,\)"),
        (torch.tensor([[1, -2, 3]]), ValueError, "-2"),
        (torch.tensor([[1, 64, 3]]), ValueError, "64"),
    ],
)
def test_ids_that_a_model_cannot_read_are_named(ids, error, words):
    with pytest.raises(error, match=words):
        Transformer(ModelConfig(64, 16, 1, 16, 2, 24))(ids)
