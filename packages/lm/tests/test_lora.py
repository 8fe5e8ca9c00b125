"""LoRA and dropout: adapters that do nothing at first, learn alone, and merge into a plain model; runs that go on."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch
from processes import assert_two_have_the_losses_of_one
from runs import CONFIG, MODEL, assert_continues, assert_same_run, run, stop_at

import accounting
import lm
from lm import lora, to_huggingface
from lm.model import Transformer
from lm.ops import nf4
from lm.ops.cpu import products
from lm.ops.cpu.products import FusedLinear
from lm.training import checkpoint
from lm.training.budget import trained_shape
from lm.training.train import Stopped
from lm.training.trainer import Trainer


def adapting(base, **more):
    return dataclasses.replace(CONFIG, **{"init_from": str(base), "lora_rank": 3, "lora_alpha": 6.0, **more})


def with_adapters(seed=0):
    """A model whose adapters change what it computes."""
    torch.manual_seed(seed)
    model = lora.add(Transformer(MODEL), rank=3, alpha=6.0)
    for name, p in model.named_parameters():
        if name.endswith("lora_b"):
            torch.nn.init.normal_(p, 0, 0.1)
    return model


def test_adapters_are_their_definition_and_nothing_at_first():
    torch.manual_seed(0)
    plain = Transformer(MODEL)
    model = Transformer(MODEL)
    model.load_state_dict(plain.state_dict())
    lora.add(model, rank=3, alpha=6.0)
    ids = torch.arange(12).view(1, -1)
    assert torch.equal(model(ids), plain(ids))
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert len(trained) == 2 * 4 * MODEL.num_layers
    assert all("lora" in name for name in trained)
    layer = model.blocks[0].ffn.down
    torch.nn.init.normal_(layer.lora_b)
    x = torch.randn(5, layer.in_features)
    want = x @ layer.weight.T + 6 / 3 * (x @ layer.lora_a.T) @ layer.lora_b.T
    torch.testing.assert_close(layer(x), want)
    lora.enable(model, False)
    assert torch.equal(model(ids), plain(ids))


def test_fused_blocks_compute_the_same():
    plain, fused = with_adapters(), lm.fuse(with_adapters())
    ids = torch.arange(24).view(2, -1)
    for model in (plain, fused):
        model(ids).square().sum().backward()
    torch.testing.assert_close(fused(ids), plain(ids))
    for (name, p), q in zip(plain.named_parameters(), fused.parameters(), strict=True):
        assert (p.grad is None) == (not p.requires_grad)
        if p.grad is not None:
            torch.testing.assert_close(q.grad, p.grad, rtol=0, atol=3e-6 * float(p.grad.abs().max()), msg=name)


@pytest.mark.parametrize("optimizer", ["adamw", "muon"])
def test_a_run_trains_adapters_alone_and_ends_as_a_plain_model(data, base, tmp_path, optimizer):
    config = adapting(base, optimizer=optimizer)
    result = assert_continues(data, tmp_path, config)
    before, after = (checkpoint.load(f / "checkpoints").model for f in (base, tmp_path / "whole"))
    assert all(torch.equal(after[name], weight) for name, weight in before.items())
    assert any(name.endswith("lora_b") and weight.any() for name, weight in after.items())
    loaded, ids = lm.load(tmp_path / "whole"), torch.arange(12).view(1, -1)
    with torch.no_grad():
        torch.testing.assert_close(loaded(ids), result.model(ids))
    assert loaded.state_dict().keys() == before.keys()
    assert len(lm.generate(result.model, [1, 2], max_new_tokens=4)) >= 4
    to_huggingface(loaded, tmp_path / "hf")
    with torch.no_grad():
        torch.testing.assert_close(lm.load(tmp_path / "hf")(ids), loaded(ids))
    again = dataclasses.replace(CONFIG, init_from=str(tmp_path / "whole"), steps=4, warmup_steps=1)
    run(data, tmp_path / "again", again)  # another run begins with the merged weights
    first = checkpoint.load(tmp_path / "again" / "checkpoints").model
    assert first.keys() == before.keys()


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_processes_have_the_losses_of_one(data, base, tmp_path, parallel):
    config = adapting(base, parallel=parallel, steps=8, batch_size=8)
    assert_two_have_the_losses_of_one(data, tmp_path, config)
    ids = torch.arange(12).view(1, -1)
    with torch.no_grad():
        both, alone = (lm.load(tmp_path / f)(ids) for f in ("both", "alone"))
    torch.testing.assert_close(both, alone, rtol=1e-3, atol=1e-3)


def test_adapters_of_random_weights_are_refused(data, tmp_path):
    with pytest.raises(ValueError, match="lora_rank 3 adapts weights"):
        run(data, tmp_path, dataclasses.replace(CONFIG, lora_rank=3))
    assert not (tmp_path / "config.toml").exists()
    with pytest.raises(ValueError, match="at least 1"):
        lora.add(Transformer(MODEL), rank=0)
    with pytest.raises(ValueError, match="adapters already"):
        lora.add(with_adapters(), rank=2)


def test_dropout_zeroes_its_share_in_training_alone():
    torch.manual_seed(0)
    model = Transformer(MODEL)
    ids = torch.arange(12).view(1, -1)
    want = model.eval()(ids)
    model.set_dropout(0.25)
    assert torch.equal(model(ids), want)
    dropped = model.train().blocks[0].dropout(torch.ones(10_000))
    assert sorted(set(dropped.tolist())) == pytest.approx([0.0, 1 / 0.75])
    assert (dropped == 0).float().mean() == pytest.approx(0.25, abs=0.03)


@pytest.mark.parametrize("checkpointing", ["none", "selective", "full"])
@pytest.mark.parametrize(("dtype", "rounding"), [(torch.float32, 3e-6), (torch.float64, 1e-14)])
def test_dropout_is_the_same_whatever_is_recomputed_and_fused(dtype, rounding, checkpointing):
    torch.manual_seed(0)
    plain, fused = Transformer(MODEL).to(dtype), lm.fuse(Transformer(MODEL).to(dtype))
    fused.load_state_dict(plain.state_dict())
    fused.set_activation_checkpointing(checkpointing)
    for model in (plain, fused):
        model.set_dropout(0.3)
        torch.manual_seed(1)
        model.train()(torch.arange(24).view(2, -1)).square().sum().backward()
    for p, q in zip(plain.parameters(), fused.parameters(), strict=True):  # other numbers dropped would change all
        torch.testing.assert_close(q.grad, p.grad, rtol=0, atol=rounding * float(p.grad.abs().max()))


def test_a_run_with_dropout_continues_to_the_bit(data, tmp_path):
    config = dataclasses.replace(CONFIG, dropout=0.2)
    torch.manual_seed(3)
    run(data, tmp_path / "whole", config)
    after = torch.rand(1)
    with pytest.raises(Stopped):
        run(data, tmp_path / "stopped", config, on_step=stop_at(7))
    torch.rand(5)
    run(data, tmp_path / "stopped", config)
    assert_same_run(tmp_path / "stopped", tmp_path / "whole")
    torch.manual_seed(3)
    assert torch.equal(torch.rand(1), after), "the caller's random numbers are as they were"


def test_steps_and_processes_drop_other_numbers(data):
    trainer = Trainer(Transformer(MODEL), dataclasses.replace(CONFIG, dropout=0.2))
    drawn = []
    for step in (0, 1, 0):
        trainer.step = step
        with trainer.random_numbers():
            drawn.append(torch.rand(4))
    assert torch.equal(drawn[0], drawn[2])
    assert not torch.equal(drawn[0], drawn[1])


def test_frozen_matrices_stay_fused_with_adapters_and_after_them():
    kinds = []
    for order in (("fuse", "add"), ("add", "fuse")):
        model = Transformer(MODEL)
        for what in order:
            if what == "fuse":
                lm.fuse(model)
            else:
                lora.add(model, 2)
        kinds.append(type(model.blocks[0].attention.qkv))
        assert type(lora.merge(model).blocks[0].attention.qkv) is FusedLinear
    assert kinds == [lora.FusedLoRALinear] * 2
    assert type(lora.merge(lora.add(Transformer(MODEL), 2)).blocks[0].ffn.down) is torch.nn.Linear


def test_adapters_go_through_the_fused_matmul(monkeypatch):
    monkeypatch.setattr(products, "has_fast_onednn", lambda: True)
    model = lm.fuse(lora.add(Transformer(MODEL), 2))
    matmul, calls = products.product, []

    def counted(*arguments):
        calls.append(arguments)
        return matmul(*arguments)

    monkeypatch.setattr(products, "product", counted)
    with torch.no_grad():
        model(torch.arange(12).view(1, -1))
    assert len(calls) >= 4 * len(model.blocks)


def rounded_by_the_paper(weight):
    """NF4 with double quantization in loops: the codes, and the matrix that they stand for."""
    flat, nearest = (
        weight.flatten().tolist(),
        lambda x, values: min(range(len(values)), key=lambda i: abs(values[i] - x)),
    )
    blocks = [flat[i : i + 64] for i in range(0, len(flat), 64)]
    scales = [max(map(abs, block)) for block in blocks]
    mean = sum(scales) / len(scales)
    groups = [[s - mean for s in scales[i : i + 256]] for i in range(0, len(scales), 256)]
    steps = [max(map(abs, group)) for group in groups]
    sixteen, _, levels = (table.tolist() for table in nf4.tables(torch.device("cpu")))
    eight = [[nearest(s / step, levels) for s in group] for group, step in zip(groups, steps, strict=True)]
    again = [levels[code] * step + mean for group, step in zip(eight, steps, strict=True) for code in group]
    four = [[nearest(x / s, sixteen) for x in block] for block, s in zip(blocks, scales, strict=True)]
    values = [sixteen[code] * s for block, s in zip(four, again, strict=True) for code in block]
    return [code for block in four for code in block], torch.tensor(values).view_as(weight)


@pytest.mark.parametrize("shape", [(130, 128), (10, 13)])  # more than 256 blocks; a last block that is not full
def test_4_bits_are_those_of_the_paper(shape):
    torch.manual_seed(0)
    weight = torch.randn(shape) * (1 + torch.arange(shape[0]) % 3)[:, None]
    stored = nf4.quantize(weight)
    codes, values = rounded_by_the_paper(weight)
    assert torch.stack((stored[0] >> 4, stored[0] & 15), 1).flatten().tolist()[: weight.numel()] == codes
    torch.testing.assert_close(nf4.dequantize(*shape, *stored), values, rtol=1e-6, atol=0)
    assert torch.equal(nf4.dequantize(4, 32, *nf4.quantize(torch.zeros(4, 32))), torch.zeros(4, 32))


@pytest.mark.parametrize("kind", [{}, {"dora": True}, {"targets": ("qkv", "down")}], ids=["lora", "dora", "some"])
def test_gradients_over_4_bits_are_those_over_the_numbers_they_stand_for(kind):
    def saved_bytes(model):
        """Bytes that a forward pass keeps for the backward pass, without the weights; the gradients come to be."""
        weights, kept = {p.untyped_storage().data_ptr() for p in model.parameters()}, {}

        def keep(tensor):
            if tensor.untyped_storage().data_ptr() not in weights:
                kept[tensor.untyped_storage().data_ptr()] = tensor
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            loss = model(torch.arange(24).view(2, -1)).square().sum()
        loss.backward()
        return sum(tensor.untyped_storage().nbytes() for tensor in kept.values())

    torch.manual_seed(0)
    four = lora.add(Transformer(dataclasses.replace(MODEL, bias=True)), 3, base="nf4", **kind)
    plain = Transformer(four.config)
    plain.load_state_dict(lora.merge(copy.deepcopy(four)).state_dict())
    lora.add(plain, 3, **kind)
    plain.load_state_dict({name: p for name, p in four.state_dict().items() if "lora" in name}, strict=False)
    for name, p in four.named_parameters():
        if "lora_b" in name:
            torch.nn.init.normal_(p, 0, 0.1)
            plain.get_parameter(name).data.copy_(p)
    bytes_of = [saved_bytes(model.double()) for model in (four, plain)]
    if not kind.get("dora"):  # whose norms are of the whole matrices
        assert bytes_of[0] <= bytes_of[1]
    trained = {name: p.grad for name, p in four.named_parameters() if p.requires_grad}
    assert all("lora" in name for name in trained)
    for name, grad in trained.items():
        torch.testing.assert_close(grad, plain.get_parameter(name).grad, rtol=1e-12, atol=1e-12, msg=name)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        four = lora.merge(four.float()) if kind.get("dora") else four.float()  # DoRA's norms are in fp32
        assert four.blocks[0].ffn.down(torch.ones(1, 24)).dtype == torch.bfloat16


def test_a_base_in_4_bits_takes_the_memory_that_accounting_counts():
    config = lm.ModelConfig(50, 16, 2, 128, 2, 256)  # every matrix is whole groups of 256 scales
    model = lora.add(Transformer(config), 4, base="nf4")
    shape = trained_shape(config, adapting("base", lora_rank=4))
    policy = accounting.Policy(precision="autocast", frozen_dtype="nf4")
    counted = int(accounting.training_memory(shape, 1, policy=policy)["parameters"])
    offsets = 4 * sum(isinstance(layer, nf4.NF4Linear) for layer in model.modules())  # which are not counted
    assert sum(p.nbytes for p in model.parameters()) == counted + offsets


def test_a_run_trains_adapters_beside_4_bits(data, base, tmp_path):
    result = assert_continues(data, tmp_path, adapting(base, lora_base="nf4", optimizer="muon"))
    saved = checkpoint.load(tmp_path / "whole" / "checkpoints")
    assert len(lm.generate(result.model, [1, 2], max_new_tokens=4)) >= 4
    assert not any(name.endswith(("qkv.weight", "down.weight")) for name in saved.model)
    rounded = nf4.quantize(checkpoint.load(base / "checkpoints").model["blocks.0.ffn.down.weight"])
    for name, tensor in zip(nf4.PARTS, rounded, strict=True):
        assert torch.equal(saved.model[f"blocks.0.ffn.down.{name}"], tensor), name
    ids = torch.arange(12).view(1, -1)
    with torch.no_grad():
        torch.testing.assert_close(lm.load(tmp_path / "whole")(ids), result.model(ids))
    with pytest.raises(ValueError, match="lora_base 'nf4' goes with parallel 'ddp'"):
        adapting(base, lora_base="nf4", parallel="fsdp")
    with pytest.raises(ValueError, match="lora_base nf4 has no effect without a lora_rank"):
        dataclasses.replace(CONFIG, lora_base="nf4")
