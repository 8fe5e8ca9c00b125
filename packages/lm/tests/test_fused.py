"""The fused twins of lm.ops.cpu against lm.model's plain modules: logits, gradients, state, when they step aside."""

import copy
import io
from collections import Counter

import models
import pytest
import torch
from models import needs_compiler
from torch import nn

import lm
from lm.attention import rope_at
from lm.config import ModelConfig
from lm.device import autocast
from lm.documents import document_ids_of
from lm.generation.decoder import Decoder
from lm.loss import chunked_cross_entropy
from lm.model import Attention, Block, Transformer
from lm.ops.cpu import fused
from lm.ops.cpu.fused import FusedAttention, FusedLinear, fuse

SHAPES = models.SHAPES | {"biases": {"bias": True, "ffn": "gelu_exact"}}


def new_model(shape, dtype=torch.float64):
    torch.manual_seed(0)
    model = Transformer(ModelConfig(50, 40, 2, 32, 4, 48, **SHAPES[shape])).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    return model


def results(model, ids, document_ids):
    logits = model(ids, document_ids)
    return [logits.detach(), *torch.autograd.grad(logits.sin().sum(), list(model.parameters()))]


@pytest.mark.parametrize("keys", [0, 256])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_fused_model_is_the_plain_model_forward_and_backward(shape, dtype, keys, monkeypatch):
    monkeypatch.setattr(fused, "MATMUL_KEYS", keys)
    model = new_model(shape, dtype)
    twin = fuse(copy.deepcopy(model))
    assert all(type(block.attention) is FusedAttention for block in twin.blocks)
    ids = torch.randint(50, (3, 40))
    for document_ids in (None, document_ids_of(ids, int(ids[0, 7]))):
        bounds = {"rtol": 1e-9, "atol": 1e-11} if dtype == torch.float64 else {"rtol": 1e-4, "atol": 1e-4}
        for one, other in zip(results(model, ids, document_ids), results(twin, ids, document_ids), strict=True):
            torch.testing.assert_close(one, other, **bounds)
        with torch.no_grad():
            torch.testing.assert_close(model(ids, document_ids), twin(ids, document_ids), **bounds)


@needs_compiler
@pytest.mark.parametrize("shape", SHAPES)
def test_a_fused_model_in_bfloat16_is_as_exact_as_the_plain_one(shape):
    model, ids = new_model(shape, torch.float32), torch.randint(50, (3, 40))
    twin = fuse(copy.deepcopy(model))

    def learned(model, documents):
        loss = chunked_cross_entropy(model.hidden(ids, documents), model.head_weight, ids.roll(-1, 1))
        return [loss.detach(), *torch.autograd.grad(loss, list(model.parameters()))]

    for documents in (None, document_ids_of(ids, int(ids[0, 7]))):
        exact = learned(copy.deepcopy(model).double(), documents)
        with autocast(torch.device("cpu"), "bf16"):
            plain, narrow = learned(model, documents), learned(twin, documents)
        for right, one, other in zip(exact, plain, narrow, strict=True):
            assert other.dtype == torch.float32
            assert (other - right).norm() <= 2 * (one - right).norm() + 0.01 * right.norm()


@pytest.mark.parametrize("shape", SHAPES)
def test_fusing_keeps_state_and_parameters(shape):
    model = new_model(shape)
    before, parameters = {k: v.clone() for k, v in model.state_dict().items()}, [id(p) for p in model.parameters()]
    assert lm.fuse(model) is model
    assert [id(p) for p in model.parameters()] == parameters
    assert list(model.state_dict()) == list(before)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    fresh = new_model(shape)
    fresh.load_state_dict(torch.load(file))
    classes = [type(module) for module in model.modules()]
    assert [type(module) for module in fuse(model).modules()] == classes


def test_modules_of_other_types_are_left_alone_and_hooks_from_before_fusing_change_what_they_did():
    class Doubled(Attention):
        def forward(self, *inputs):
            return 2 * super().forward(*inputs)

    model = new_model("llama")
    model.blocks[0].attention = Doubled(model.config).double()
    model.blocks[1].attention.register_forward_hook(lambda module, inputs, out: out * 0.5)
    ids = torch.randint(50, (2, 12))
    expected = results(model, ids, None)
    fuse(model)
    assert type(model.blocks[0].attention) is Doubled
    assert type(model.blocks[1].attention) is FusedAttention
    for one, other in zip(expected, results(model, ids, None), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(
    "name", ["attention_norm", "attention", "attention.qkv", "ffn_norm", "ffn", "ffn.gate_up", "ffn.down"]
)
def test_hooks_that_come_after_fusing_are_called(name):
    model, calls = fuse(new_model("llama")), []
    ids = torch.randint(50, (2, 12))
    expected = results(model, ids, None)
    model.blocks[0].get_submodule(name).register_forward_hook(lambda *_: calls.append(name))
    for one, other in zip(expected, results(model, ids, None), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-11)
    assert calls == [name]


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("kind", ["forward", "forward_pre", "full_backward", "full_backward_pre"])
def test_hooks_of_all_modules_are_called_as_for_plain_modules(kind):
    """A hook that torch registers for every module, as profilers do: before and after fusing, training and decoding."""
    register = getattr(torch.nn.modules.module, f"register_module_{kind}_hook")
    ids, counts = torch.randint(50, (2, 12)), []
    for prepare in (lambda model: model, fuse):
        model, calls = prepare(new_model("llama")), []
        handle = register(lambda module, *_, calls=calls: calls.append(type(module).__name__.removeprefix("Fused")))
        try:
            results(model, ids, None)
            training = Counter(calls)
            lm.generate(model, [1, 2], max_new_tokens=3, seed=0)
        finally:
            handle.remove()
        counts.append((training, Counter(calls)))
    assert counts[0] == counts[1]
    assert counts[0][0]["Block"] == 2
    assert kind not in ("forward", "forward_pre") or counts[0][1]["Block"] == 2 * 4


def test_blocks_of_a_subclass_stay():
    class Own(Block):
        pass

    model = new_model("llama")
    model.blocks[0] = Own(model.config).double()
    fuse(model)
    assert [type(block) for block in model.blocks] == [Own, Block]
    assert type(model.blocks[0].ffn.down) is FusedLinear
    assert type(model.blocks[0].attention) is FusedAttention


@pytest.mark.parametrize("position", ["rope", "none", "learned"])
def test_attention_and_blocks_alone_rotate_by_the_given_angles(position):
    """Without rotation the last row of attention does not change when earlier tokens change places."""
    config = ModelConfig(50, 16, 1, 32, 4, 48, position=position)
    x = torch.randn(1, 6, 32, dtype=torch.float64)
    swapped = x[:, [1, 0, 2, 3, 4, 5]]
    rope = rope_at(config, slice(0, 6), x)
    for module in (Attention(config).double(), Block(config).double()):
        for twin in (module, fuse(nn.ModuleList([copy.deepcopy(module)]))[0]):
            same = torch.allclose(twin(x, rope)[:, -1], twin(swapped, rope)[:, -1], atol=1e-12)
            assert same == (position != "rope")


@pytest.mark.parametrize("shape", SHAPES)
def test_a_fused_model_is_decoded_as_the_plain_one_is(shape):
    model = new_model(shape, torch.float32)
    plain = Decoder(model)
    twin = Decoder(fuse(copy.deepcopy(model)))
    assert twin.how == plain.how
    for decoder in (plain, twin):
        decoder.read(0, [1, 2, 3])
    torch.testing.assert_close(twin.step([4]).clone(), plain.step([4]).clone(), rtol=1e-4, atol=1e-4)


def test_the_gradient_of_a_narrow_head_is_as_good_in_many_chunks_as_in_one():
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randn(size, 64, generator=generator) for size in (2048, 96))
    targets = torch.randint(96, (2048,), generator=generator)

    def weight_gradient(dtype, chunk_rows):
        hidden, weight = x.to(dtype), w.to(dtype).requires_grad_()
        chunked_cross_entropy(hidden, weight, targets, chunk_bytes=4 * 96 * chunk_rows).backward()
        assert weight.grad.dtype == dtype
        return weight.grad.double()

    exact = weight_gradient(torch.float64, 2048)
    errors = [(weight_gradient(torch.bfloat16, rows) - exact).norm() / exact.norm() for rows in (2048, 16)]
    assert errors[1] < 1.5 * errors[0]
