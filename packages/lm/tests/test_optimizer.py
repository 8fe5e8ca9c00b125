"""Muon and NorMuon beside the papers' algorithms in numpy, the groups that learn at rates of their own, and runs."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from models import SHAPES
from processes import assert_two_have_the_losses_of_one, orthogonalize_together, processes
from runs import CONFIG, MODEL, assert_continues, run, stop_at
from torch import nn

from lm.config import ModelConfig
from lm.model import Transformer
from lm.optimizer import Muon, adamw, row_splits
from lm.training import checkpoint
from lm.training.train import Stopped

MUON = dataclasses.replace(CONFIG, optimizer="muon", embedding_learning_rate=3e-2, head_learning_rate=5e-3)


def newton_schulz(g):
    """Jordan's iteration, in numpy."""
    x = g.T if g.shape[0] > g.shape[1] else g
    x = x / (np.sqrt((x * x).sum()) + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.T if g.shape[0] > g.shape[1] else x


def by_the_papers(w, gradients, lr, decay, momentum, beta2, rows):
    """Muon (Jordan 2024, scaled as Liu et al. 2025) or NorMuon (Li et al. 2025, algorithm 1) of one matrix."""
    m, v = np.zeros_like(w), np.zeros((len(w), 1))
    for g in gradients:
        m = momentum * m + (1 - momentum) * g
        o = newton_schulz(momentum * m + (1 - momentum) * g)  # Nesterov
        if rows:
            v = beta2 * v + (1 - beta2) * (o * o).mean(1, keepdims=True)
            o = o / (np.sqrt(v) + 1e-10)
            o = 0.2 * np.sqrt(o.size) / np.sqrt((o * o).sum()) * o
        else:
            o = 0.2 * np.sqrt(max(o.shape)) * o
        w = w - lr * decay * w - lr * o
    return w


@pytest.mark.parametrize("rows", [False, True], ids=["muon", "normuon"])
@pytest.mark.parametrize("shape", [(5, 8), (8, 5), (6, 6), (1, 7)])
def test_a_matrix_moves_as_in_the_papers(shape, rows):
    random = np.random.default_rng(0)
    weight, gradients = random.normal(size=shape), random.normal(size=(4, *shape))
    layer = nn.Linear(shape[1], shape[0], bias=False, dtype=torch.float64)
    layer.weight.data = torch.tensor(weight)
    optimizer = Muon(layer, 0.03, (0.9, 0.8), weight_decay=0.5, momentum=0.7, normalize_rows=rows)
    for gradient in gradients:
        layer.weight.grad = torch.tensor(gradient)
        optimizer.step()
    expected = by_the_papers(weight, gradients, 0.03, 0.5, 0.7, 0.8, rows)
    np.testing.assert_allclose(layer.weight.detach().numpy(), expected, rtol=1e-9, atol=1e-9)


def test_muon_is_torchs_but_for_its_bfloat16():
    torch.manual_seed(0)
    ours, theirs = nn.Linear(24, 40, bias=False), nn.Linear(24, 40, bias=False)
    theirs.load_state_dict(ours.state_dict())
    optimizers = [
        Muon(ours, 0.01, weight_decay=0.3),
        torch.optim.Muon(theirs.parameters(), 0.01, 0.3, adjust_lr_fn="match_rms_adamw"),
    ]
    for seed in range(3):
        for layer, optimizer in zip((ours, theirs), optimizers, strict=True):
            layer.weight.grad = torch.randn(40, 24, generator=torch.Generator().manual_seed(seed))
            optimizer.step()
    torch.testing.assert_close(ours.weight, theirs.weight, rtol=0, atol=0.01 * 0.2 * 0.05 * 3)


def test_matrices_that_share_a_product_are_updated_one_by_one():
    """Queries, keys and values: the update of the whole is that of three matrices apart."""
    config = ModelConfig(40, 8, 1, 16, 4, 24, num_kv_heads=2)
    model = Transformer(config)
    splits = {name: row_splits(model).get(id(p)) for name, p in model.named_parameters()}
    assert splits["blocks.0.attention.qkv.weight"] == (16, 8, 8)
    assert splits["blocks.0.ffn.gate_up.weight"] == (24, 24)
    assert splits["blocks.0.ffn.down.weight"] == (16,)
    assert splits["embedding.weight"] is splits["head.weight"] is splits["final_norm.weight"] is None
    qkv = model.blocks[0].attention.qkv
    before, gradient = qkv.weight.detach().clone(), torch.randn(32, 16)
    qkv.weight.grad = gradient.clone()
    Muon(model, 0.1, weight_decay=0.0).step()
    for part, old, grad in zip(*(t.split((16, 8, 8)) for t in (qkv.weight, before, gradient)), strict=True):
        alone = nn.Linear(16, len(part), bias=False)
        alone.weight.data, alone.weight.grad = old.clone(), grad.clone()
        Muon(alone, 0.1, weight_decay=0.0).step()
        torch.testing.assert_close(part, alone.weight)


@pytest.mark.parametrize("make", [adamw, Muon])
def test_what_is_no_matrix_moves_by_adamw_at_its_own_rate(make):
    model, other = Transformer(MODEL), Transformer(MODEL)
    other.load_state_dict(model.state_dict())
    ours, alone = make(model, 1e-2, embedding_lr=3e-2, head_lr=5e-3), adamw(other, 1e-2)
    for step in range(3):
        for network in (model, other):
            generator = torch.Generator().manual_seed(step)
            for p in network.parameters():
                p.grad = torch.randn(p.shape, generator=generator)
        ours.step()
        alone.step()
    for (name, p), start in zip(model.named_parameters(), other.parameters(), strict=True):
        if p.ndim < 2:
            torch.testing.assert_close(p, start, msg=name)
    rates = {
        ours_lr(ours, p): name for name, p in model.named_parameters() if name in ("embedding.weight", "head.weight")
    }
    assert rates == {3e-2: "embedding.weight", 5e-3: "head.weight"}
    decays = {g["weight_decay"] for g in ours.param_groups if any(p is model.embedding.weight for p in g["params"])}
    assert decays == {0.0}


def ours_lr(optimizer, parameter):
    return next(g["lr"] for g in optimizer.param_groups if any(p is parameter for p in g["params"]))


@pytest.mark.parametrize(("optimizer", "shape"), [("muon", "llama"), ("normuon", "valued")])
def test_a_stopped_run_continues_to_the_bit(data, tmp_path, optimizer, shape):
    config = dataclasses.replace(MUON, optimizer=optimizer)
    assert_continues(data, tmp_path, config, dataclasses.replace(MODEL, **SHAPES[shape]))
    states = checkpoint.load(tmp_path / "whole" / "checkpoints").optimizer["state"].values()
    assert {frozenset(state) for state in states} == {
        frozenset({"step", "exp_avg", "exp_avg_sq"}),
        frozenset({"momentum"} if optimizer == "muon" else {"momentum", "row_mean_square"}),
    }


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_processes_have_the_losses_of_one(data, tmp_path, parallel):
    config = dataclasses.replace(MUON, optimizer="normuon", parallel=parallel, steps=8, batch_size=8)
    assert_two_have_the_losses_of_one(data, tmp_path, config)
    with pytest.raises(Stopped):  # what two wrote, one goes on with
        run(data, tmp_path / "both", dataclasses.replace(config, steps=12), on_step=stop_at(10))


@pytest.mark.parametrize("size", [2, 3])
def test_processes_share_the_matrices_of_muon(size):
    """Of 3 matrices of a shape, then of 1; all processes come to one result, which is that of one process."""
    ends = processes(size, orthogonalize_together, 3, size)
    assert ends == [("done", "")] * size, ends


def test_a_rate_for_a_head_that_is_the_embedding_is_refused(data, tmp_path):
    with pytest.raises(ValueError, match="head_learning_rate"):
        run(data, tmp_path, MUON, dataclasses.replace(MODEL, tied_embeddings=True))
    assert not (tmp_path / "config.toml").exists()


def moved(optimizer, model, gradient, steps=3):
    """Take steps with one gradient for all weights; return whether all stay finite, and whether any moved."""
    before = [p.detach().clone() for p in model.parameters()]
    for _ in range(steps):
        for p in model.parameters():
            p.grad = gradient(p)
        optimizer.step()
    assert all(p.isfinite().all() for p in model.parameters())
    return [not torch.equal(old, p) for old, p in zip(before, model.parameters(), strict=True)]


MAKES = {
    "adamw": adamw,
    "muon": Muon,
    "normuon": lambda model, lr, **more: Muon(model, lr, normalize_rows=True, **more),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", MAKES)
def test_gradients_of_zero_move_nothing_and_stay_numbers(kind, dtype):
    """Of LoRA's A at first, of experts without tokens, of GRPO with equal rewards, of outputs that begin at 0."""
    torch.manual_seed(0)
    model = Transformer(dataclasses.replace(MODEL, num_layers=1)).to(dtype)
    optimizer = MAKES[kind](model, 0.1, weight_decay=0.0)
    assert not any(moved(optimizer, model, torch.zeros_like))
    assert all(moved(optimizer, model, torch.ones_like))  # and what comes after them is learned
    assert all(value.isfinite().all() for state in optimizer.state.values() for value in state.values())


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", MAKES)
def test_rows_of_zeros_and_matrices_of_one_element_stay_numbers(kind, dtype):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6, bias=False), nn.Linear(1, 1, bias=False), nn.Linear(5, 1, bias=False))
    optimizer = MAKES[kind](model.to(dtype), 0.1, weight_decay=0.0)

    def gradient(p):
        g = torch.randn_like(p)
        g[1::2] = 0
        return g

    assert all(moved(optimizer, model, gradient))
    tiny = torch.finfo(dtype).tiny
    assert len(moved(optimizer, model, lambda p: torch.full_like(p, tiny))) == 3
