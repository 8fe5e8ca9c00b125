"""Experts in training: the balancing loss of a step, whatever the micro-batches, processes and recomputation."""

from __future__ import annotations

import dataclasses

import pytest
import torch
from processes import processes, train
from runs import CONFIG, metrics, run, some_tokens

from lm.config import FrozenTable
from lm.data.batches import batch
from lm.documents import IGNORE
from lm.families import family
from lm.families.experts import Experts, Load, balancing_loss
from lm.training.trainer import Trainer
from lm.training.validation import evaluate

MIXTRAL = family("mixtral")
ROPE = FrozenTable(rope_type="default", rope_theta=10000.0)
SHAPE = MIXTRAL.config_type(
    *(50, 16, 2, 16, 2, 24),
    **{"family": "mixtral", "num_kv_heads": 1, "rope_parameters": ROPE, "num_local_experts": 4},
    router_aux_loss_coef=0.5,
)
SPARSE = dataclasses.replace(CONFIG, batch_size=8, steps=4, warmup_steps=0, eval_every=2, gradient_clip=0.0)


def a_model(dtype=torch.float64):
    torch.manual_seed(0)
    return MIXTRAL(SHAPE).to(dtype)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("checkpointing", ["none", "full", "selective"])
def test_micro_batches_give_the_gradients_of_the_whole_batch(masked, checkpointing):
    ids, losses, gradients = some_tokens(3000), [], []
    for micro in (8, 2, 1):
        config = dataclasses.replace(SPARSE, micro_batch_size=micro, activation_checkpointing=checkpointing)
        if masked:
            config = dataclasses.replace(config, objective="sft")
        trainer = Trainer(a_model(), config)
        batches = [batch(ids, 0, i, 0, 1, micro, 16) for i in range(8 // micro)]
        if masked:  # another share of each row, so that micro-batches differ in it
            batches = [(x, torch.where(x % 7 < 4, IGNORE, y)) for x, y in batches]
        lines = [trainer.train_step(iter(batches)) for _ in range(2)]
        losses.append([(line["loss"], line["gradient_norm"], line["expert_load/1"]) for line in lines])
        gradients.append([p.detach().clone() for p in trainer.model.parameters()])
    for other_losses, other in zip(losses[1:], gradients[1:], strict=True):
        for one, two in zip(losses[0], other_losses, strict=True):
            assert one == pytest.approx(two, rel=1e-6)
        for one, two in zip(gradients[0], other, strict=True):
            torch.testing.assert_close(one, two, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("checkpointing", ["none", "full"])
def test_held_out_loss_has_no_balancing_loss(checkpointing):
    trainer = Trainer(a_model(torch.float32), dataclasses.replace(SPARSE, activation_checkpointing=checkpointing))
    ids = some_tokens(600)
    trainer.train_step(iter([batch(ids, 0, 0, 0, 1, 8, 16)]))
    assert all(layer.load is None for layer in trainer.objective.experts)
    tokens = some_tokens(300, 1)
    expected = evaluate(trainer.model, tokens).loss
    for _ in range(2):
        assert evaluate(trainer.model, tokens, summed=trainer.objective).loss == pytest.approx(expected, abs=1e-6)


def test_layers_that_collapse_apart_are_not_balanced_together():
    """Two layers that each send all tokens to two other experts: by each layer's own loss, twice the least."""
    model = a_model()
    layers = [module for module in model.modules() if isinstance(module, Experts)]
    halves = torch.tensor([1.0, 1, 0, 0]), torch.tensor([0.0, 0, 1, 1])
    for layer, half in zip(layers, halves, strict=True):
        layer.load = Load(10 * half, 5 * half, 10)  # of ten tokens with two choices
    assert balancing_loss(model, 1).item() == pytest.approx(0.5 * 4.0)
    for layer in layers:
        layer.load = Load(torch.full((4,), 5.0), torch.full((4,), 2.5), 10)
    assert balancing_loss(model, 1).item() == pytest.approx(0.5 * 2.0)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_processes_have_the_losses_of_one(data, tmp_path, parallel):
    run(data, tmp_path / "alone", SPARSE, SHAPE)
    config = dataclasses.replace(SPARSE, parallel=parallel, micro_batch_size=2)
    ends = processes(2, train, data, tmp_path / "both", config, None, SHAPE)
    assert [how for how, _ in ends] == ["done", "done"], ends
    names = "loss", "gradient_norm", "val_loss", "expert_load/0"
    rows = [[line[n] for line in metrics(tmp_path / f) for n in names if n in line] for f in ("alone", "both")]
    assert rows[0] == pytest.approx(rows[1], rel=1e-4)
