"""Objectives of one's own, distillation, early stopping, and callbacks that see the model."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
import torch.nn.functional as F
from runs import CONFIG, MODEL, assert_continues, assert_same_run, metrics, run, stop_at

import lm
from lm.training import checkpoint
from lm.training.objectives.distill import Distillation
from lm.training.train import Stopped
from lm.training.trainer import Trainer
from lm.training.validation import Score

OWN = """
import torch.nn.functional as F
from lm.training.objectives.next_token import NextToken

class Smoothed(NextToken):
    def forward(self, inputs, targets, special=None):
        if not self.model.training:
            return super().forward(inputs, targets, special)
        logits = self.model(inputs).flatten(0, 1)
        self.sums["entropy"] += float(-(logits.softmax(-1) * logits.log_softmax(-1)).sum().detach())
        return F.cross_entropy(logits, targets.flatten(), label_smoothing=0.1, reduction="sum")

not_one = 3

class Other: pass
"""


def test_an_objective_of_a_file_trains_and_continues_to_the_bit(data, tmp_path):
    path = tmp_path / "own_objective.py"
    path.write_text(OWN)
    assert_continues(data, tmp_path, dataclasses.replace(CONFIG, objective=f"{path}:Smoothed"), step=7)
    lines = [line for line in metrics(tmp_path / "whole") if "entropy" in line]
    assert len(lines) == CONFIG.steps
    assert lines[-1]["loss"] < lines[0]["loss"]
    for name, says in (("Other", "to be a subclass"), ("not_one", "nothing to call"), ("no", "nothing to call")):
        with pytest.raises(ValueError, match=says):
            run(data, tmp_path / name, dataclasses.replace(CONFIG, objective=f"{path}:{name}"))
    with pytest.raises(ValueError, match="objective 'sf' is unknown: did you mean 'sft'"):
        dataclasses.replace(CONFIG, objective="sf")


@pytest.mark.parametrize("divergence", ["forward", "reverse"])
def test_distillation_is_the_divergence_from_the_teacher_and_brings_the_model_nearer(data, base, tmp_path, divergence):
    config = dataclasses.replace(CONFIG, objective="distill", teacher=str(base), distill_divergence=divergence)
    teacher, small = lm.load(base), dataclasses.replace(MODEL, num_layers=1, d_ff=16)
    torch.manual_seed(1)
    loss = Distillation(lm.Transformer(small).train(), config, None, teacher)
    inputs, targets = torch.arange(32).view(2, 16), torch.arange(1, 33).view(2, 16)
    targets[:, :3] = -100
    one, other = teacher(inputs)[:, 3:].log_softmax(-1), loss.model(inputs)[:, 3:].log_softmax(-1)
    if divergence == "reverse":
        one, other = other, one
    assert loss.count([(inputs, targets)]) == 26
    torch.testing.assert_close(loss(inputs, targets), F.kl_div(other, one, log_target=True, reduction="sum"))
    assert_continues(data, tmp_path, config, small, step=7)
    lines = [line for line in metrics(tmp_path / "whole") if "loss" in line]
    assert lines[-1]["loss"] < 0.7 * lines[0]["loss"]
    for change, says in (({"vocab_size": 51}, "the model 51 and 16"), ({"context_length": 32}, "the model 50 and 32")):
        with pytest.raises(ValueError, match=says):
            run(data, tmp_path / says, config, dataclasses.replace(small, **change))
    with pytest.raises(ValueError, match="goes with objective 'distill'"):
        dataclasses.replace(CONFIG, teacher="x")


def test_a_run_ends_when_its_held_out_loss_no_longer_falls(data, tmp_path):
    """At a rate that ruins the model after a while; the same command finds it complete, to the bit."""
    config = dataclasses.replace(
        CONFIG, steps=60, learning_rate=0.5, warmup_steps=50, eval_every=2, early_stopping=3, gradient_clip=0.0
    )
    result = run(data, tmp_path / "whole", config)
    scores = [line["val_loss"] for line in metrics(tmp_path / "whole") if "val_loss" in line]
    assert result.steps == 2 * len(scores) < 60
    lowest = scores.index(min(scores))
    assert len(scores) == lowest + 1 + 3
    assert run(data, tmp_path / "whole", config).steps == result.steps
    with pytest.raises(Stopped):
        run(data, tmp_path / "stopped", config, on_step=stop_at(result.steps - 3))
    run(data, tmp_path / "stopped", config)
    assert_same_run(tmp_path / "stopped", tmp_path / "whole")


def test_an_evaluation_that_is_not_a_number_is_never_the_best():
    trainer = Trainer(lm.Transformer(MODEL), CONFIG)
    for step, loss in enumerate((math.nan, 3.0, math.nan)):
        trainer.step = trainer.scored_at = step
        trainer.score = Score(loss, 1)
        trainer.state()
    assert trainer.best == [1, 3.0]


def test_callbacks_see_the_model_after_each_step_and_may_stop_the_run(data, tmp_path):
    norms = []

    def watch(trainer, line):
        norms.append(trainer.model.embedding.weight.norm().item())
        return line["step"] == 6

    with pytest.raises(Stopped):
        run(data, tmp_path / "run", CONFIG, callbacks=[watch])
    assert len(norms) == len(set(norms)) == 6
    saved = checkpoint.load(tmp_path / "run" / "checkpoints")
    assert (saved.step, float(saved.model["embedding.weight"].norm())) == (6, norms[-1])


@pytest.mark.parametrize("change", [{}, {"optimizer": "normuon"}, {"lora_rank": 2}])
def test_the_moving_average_is_that_of_the_weights_of_all_steps(data, base, tmp_path, change):
    """By its recurrence, from the weights after each step; a stopped run continues to the bit."""
    config = dataclasses.replace(
        CONFIG, steps=12, ema=0.5, **change, **({"init_from": str(base)} if "lora_rank" in change else {})
    )
    averages = {}

    def watch(trainer, line):
        decay = min(0.5, line["step"] / (9 + line["step"]))
        for name, weight in trainer.model.named_parameters():
            if weight.requires_grad:
                average = averages.setdefault(name, weight.detach().clone())
                average.lerp_(weight.detach(), 1 - decay)

    assert_continues(data, tmp_path, config)
    result = run(data, tmp_path / "watched", config, callbacks=[watch])
    assert_same_run(tmp_path / "watched", tmp_path / "whole")
    own = {name: weight.detach().clone() for name, weight in result.model.named_parameters()}
    for name, average in averages.items():
        result.model.get_parameter(name).detach().copy_(average)
    plain = lm.lora.merge(result.model) if change.get("lora_rank") else result.model
    loaded = lm.load(tmp_path / "whole", "average")
    for name, weight in plain.named_parameters():
        torch.testing.assert_close(loaded.get_parameter(name), weight, rtol=1e-6, atol=1e-7)
    assert any(not torch.equal(own[name], average) for name, average in averages.items())
    heldout = lm.data.open_data(data).heldout[""]
    assert result.heldout.loss == pytest.approx(lm.evaluate(loaded, heldout, max_tokens=100).loss, rel=1e-6)


def test_a_run_without_an_average_says_how_to_get_one(base, tmp_path):
    with pytest.raises(ValueError, match=r"train one with --train\.ema"):
        lm.load(base, "average")
