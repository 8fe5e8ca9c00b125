"""GRPO: advantages, the clipped loss, problems in windows, and runs that learn from rewards."""

from __future__ import annotations

import copy
import dataclasses
import itertools

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from processes import processes, train
from runs import CONFIG, MODEL, assert_continues, metrics, run, write_windows

import lm
from lm.data import open_data, open_tokens
from lm.data.problems import problems_of
from lm.documents import IGNORE
from lm.model import Transformer
from lm.training.objectives.distill import Distillation
from lm.training.objectives.grpo import GroupRelativePolicy, answers_to, group_advantages, padded, policy_losses

WINDOW, END, DOT = 16, 3, 4
GRPO = dataclasses.replace(
    CONFIG,
    objective="grpo",
    grpo_group_size=4,
    grpo_answer_tokens=3,
    document_masking=True,
    steps=14,
    learning_rate=2e-2,
    eval_every=7,
)


def three_problems(random):
    """[end, a, b | larger of both, dot] three times."""
    row, mask = [], []
    for pair in random.integers(10, 14, (3, 2)):
        row += [END, *pair, max(pair), DOT]
        mask += [0, 0, 0, 1, 1]
    return row, mask


@pytest.fixture(scope="module")
def problems(tmp_path_factory):
    return write_windows(tmp_path_factory.mktemp("problems"), WINDOW, END, three_problems)


@pytest.fixture(scope="module")
def base(problems, tmp_path_factory):
    """A model that answers in the right form, and with the right number now and then."""
    folder = tmp_path_factory.mktemp("base")
    run(
        problems,
        folder,
        dataclasses.replace(CONFIG, objective="sft", document_masking=True, steps=24, learning_rate=5e-3),
    )
    return folder


def objective(**more):
    torch.manual_seed(0)
    model = Transformer(MODEL)
    return GroupRelativePolicy(model, dataclasses.replace(GRPO, **more), END)


def test_advantages_are_within_a_group():
    """Right values by CS336's definition: (reward - baseline) / (normalizer + eps), with the sample's deviation."""
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0], [0.0] * 4, [1.0] * 4])
    by_std = group_advantages(rewards)
    torch.testing.assert_close(by_std, torch.tensor([[1.5, -0.5, -0.5, -0.5], [0.0] * 4, [0.0] * 4]), atol=1e-5, rtol=0)
    assert group_advantages(rewards, normalizer="none")[0].tolist() == [0.75, -0.25, -0.25, -0.25]
    assert group_advantages(rewards, normalizer="mean")[0].tolist() == pytest.approx([3, -1, -1, -1], abs=1e-4)
    assert group_advantages(rewards, baseline="none", normalizer="none").equal(rewards)


CLIPS = (2.0, 1.1, -2.2, True), (2.0, 1.5, -2.4, False), (2.0, 0.5, -1.0, True)
CLIPS += (-2.0, 1.5, 3.0, True), (-2.0, 0.5, 1.6, False)


@pytest.mark.parametrize(("advantage", "ratio", "loss", "learns"), CLIPS)
def test_the_clip_ends_the_gradient_where_the_ratio_has_gone_far_enough(advantage, ratio, loss, learns):
    log_probs = torch.tensor([[-1.0]], requires_grad=True)
    old = log_probs.detach() - np.log(ratio)
    counts = torch.ones(1, 1, dtype=torch.bool)
    losses, clipped = policy_losses(torch.tensor([[advantage]]), log_probs, old, counts, "grpo", 0.2)
    losses.sum().backward()
    assert losses.item() == pytest.approx(loss)
    assert bool(log_probs.grad.abs() > 0) == learns == (not clipped.item())


def test_problems_are_the_last_answers_of_documents():
    row = [END, 10, 11, 20, DOT, END, 12, 21, 13, 22, 23, DOT, END, 7, 8, 9, 6]
    learned = {3, 4, 7, 9, 10, 11, 16}
    targets = [row[i + 1] if i + 1 in learned else IGNORE for i in range(len(row) - 1)]
    assert list(problems_of(row[:-1], targets, END)) == [
        ([END, 10, 11], [20, DOT]),
        ([END, 12, 21, 13], [22, 23, DOT]),
        ([END, 7, 8, 9], [6]),
    ]
    inputs, answers = padded([([END, 5], []), ([END], [])], [[[6, DOT]], [[7]]], torch.device("cpu"))
    assert inputs.tolist() == [[END, 5, 6], [END, 0, 0]]
    assert answers.tolist() == [[IGNORE, 6, DOT], [7, IGNORE, IGNORE]]


METHODS = (
    {},
    {"grpo_normalizer": "none", "grpo_normalization": "constant", "grpo_kl": 0.02},
    {"grpo_method": "gspo", "grpo_clip": 0.1},
    {"grpo_method": "noclip", "grpo_normalizer": "mean"},
    {"grpo_method": "none", "grpo_baseline": "none", "grpo_normalizer": "none"},
)


@pytest.mark.parametrize("settings", METHODS, ids=["grpo", "dr_grpo and kl", "gspo", "maxrl", "reinforce"])
def test_the_loss_is_its_definition(problems, settings):
    """One answer at a time, from the formulas of the module's first lines."""
    loss = objective(**settings)
    loss.references = [copy.deepcopy(loss.model)]
    batch = open_data(problems).batch(0, 0, 0, 1, 2, WINDOW)
    [(inputs, targets, advantages, old, *first)] = loss.prepare([batch], 5)
    assert len(inputs) == 2 * 3 * 4 == loss.count([(inputs, targets, advantages, old)])
    again = loss.prepare([batch], 5)[0]
    assert all(
        torch.equal(one, other) for one, other in zip((inputs, targets, advantages, old, *first), again, strict=True)
    )
    advantages = torch.linspace(-1, 1, len(inputs))[:, None]
    with torch.no_grad():
        for p in loss.model.parameters():
            p.add_(torch.randn_like(p), alpha=0.3)
    method, clip = loss.config.grpo_method, loss.config.grpo_clip or 0.2
    want = torch.zeros(())
    for row in range(len(inputs)):
        log_probs = F.log_softmax(loss.model(inputs[row : row + 1])[0], -1)
        places = [i for i, target in enumerate(targets[row].tolist()) if target != IGNORE]
        now = torch.stack([log_probs[i, targets[row, i]] for i in places])
        ratios, a = (now - old[row, places]).exp(), advantages[row, 0]
        if method == "gspo":
            ratios = ratios.prod().pow(1 / len(places)).expand(len(places))
        terms = -torch.minimum(ratios * a, ratios.clamp(1 - clip, 1 + clip) * a)
        terms = {"none": -a * now, "noclip": -ratios * a}.get(method, terms)
        if first:
            to_first = first[0][row, places] - now
            terms = terms + loss.config.grpo_kl * (to_first.exp() - to_first - 1)
        constant = loss.config.grpo_normalization == "constant"
        want = want + terms.sum() / (GRPO.grpo_answer_tokens if constant else len(places))
    torch.testing.assert_close(loss(inputs, targets, advantages, old, *first), want)
    assert 0 < loss.sums["clipped"] < len(inputs) or method in ("none", "noclip")
    assert bool(first) == (loss.sums["kl"] > 0)


def test_answers_end_with_their_token_or_at_their_length(problems):
    loss = objective()
    inputs, targets = torch.zeros(2, WINDOW, dtype=torch.int64), torch.full((2, WINDOW), IGNORE)
    inputs[0, :4], inputs[1] = torch.tensor([END, 10, 11, DOT]), torch.tensor([END, *range(5, 19), DOT])
    targets[0, 1:3], targets[1, 14] = torch.tensor([11, DOT]), DOT
    answers = answers_to(loss, (inputs, targets), 1, itertools.count(), 3, samples=40)[1]
    assert all(DOT not in answer[:-1] and 1 <= len(answer) <= 3 for answer in answers[0])
    assert all(answer[-1] == DOT or len(answer) == 3 for answer in answers[0])
    assert all(len(answer) == 1 for answer in answers[1])  # the context has 16 positions
    rows = [[END, 5, 11, END, 6, 12]], [[IGNORE, 11, IGNORE, IGNORE, 12, IGNORE]]
    with pytest.raises(ValueError, match=r"end with one token, got \[11, 12\]"):
        answers_to(loss, tuple(map(torch.tensor, rows)), 1, itertools.count(), 3)


def test_the_groups_of_a_step_are_independent_however_it_is_cut(problems):
    """The same prompt again and again has other answers each time: a batch of prompts is worth more than one."""
    loss = objective(grpo_group_size=4, grpo_answer_tokens=3)
    row = torch.tensor([[END, 10, 11, 12, DOT]])
    learned = torch.tensor([[IGNORE, IGNORE, 12, DOT]])
    rows = [(row[:, :-1], learned)] * 8
    answers = [inputs for inputs, *_ in loss.prepare(rows, 5)]
    assert len({str(group.tolist()) for group in answers}) == 8
    together = loss.prepare([tuple(torch.cat(parts) for parts in zip(*rows, strict=True))], 5)[0][0]
    width = max(group.shape[1] for group in answers)
    assert torch.equal(together, torch.cat([F.pad(group, (0, width - group.shape[1])) for group in answers]))


@pytest.mark.filterwarnings("error")
def test_a_prompt_that_fills_the_context_is_left_out(problems):
    loss = objective()
    ids = torch.tensor([[END, *range(5, 5 + WINDOW)]])
    targets = torch.full((1, WINDOW), IGNORE)
    targets[0, -1] = DOT
    batches = loss.prepare([(ids[:, :-1], targets)], 0)
    assert loss.count(batches) == 0
    assert loss(*batches[0]) == 0


@pytest.mark.parametrize("settings", METHODS[:2], ids=["grpo", "dr_grpo and kl"])
def test_a_run_earns_more_and_continues_to_the_bit(problems, base, tmp_path, settings):
    config = dataclasses.replace(GRPO, init_from=str(base), **settings, micro_batch_size=2, grpo_updates=2)
    assert_continues(problems, tmp_path, config, step=5)
    lines = [line for line in metrics(tmp_path / "whole") if "reward" in line]
    rewards = [line["reward"] for line in lines]
    assert np.mean(rewards[-4:]) > 3 * np.mean(rewards[:4])
    assert all(1 <= line["answer_length"] <= 3 and 0 <= line["clipped"] <= 1 for line in lines)
    scores = [line for line in metrics(tmp_path / "whole") if "val_reward" in line]
    assert 0 < scores[-1]["val_reward"] == pytest.approx(1 - scores[-1]["val_loss"])
    tokens = open_tokens(problems / "heldout.npy")
    assert objective().evaluate(tokens, 3 * WINDOW).tokens == 9


def test_processes_draw_answers_of_their_own(problems, base, tmp_path):
    config = dataclasses.replace(GRPO, init_from=str(base), steps=3, eval_every=0)
    ends = processes(2, train, problems, tmp_path / "both", config)
    assert [how for how, _ in ends] == ["done", "done"], ends
    assert all(0 <= line["reward"] <= 1 for line in metrics(tmp_path / "both") if "reward" in line)


def test_what_is_no_problem_is_refused(problems, data, base, tmp_path):
    config = dataclasses.replace(GRPO, init_from=str(base))
    for change, where, says in (
        ({"init_from": "scratch"}, problems, "begins with random"),
        ({"document_masking": False}, problems, "goes with document_masking"),
        ({"dropout": 0.1}, problems, "without dropout"),
        ({}, data, "learns from problems"),
    ):
        with pytest.raises(ValueError, match=says):
            run(where, tmp_path / "run", dataclasses.replace(config, **change))
    with pytest.raises(ValueError, match=r"grpo_clip 0\.3 has no effect"):
        dataclasses.replace(CONFIG, grpo_clip=0.3)
    with pytest.raises(ValueError, match=r"grpo_clip 0\.3 has no effect without grpo_method"):
        dataclasses.replace(GRPO, grpo_method="noclip", grpo_clip=0.3)


def test_on_policy_distillation_brings_the_model_nearer_where_it_goes_itself(problems, base, tmp_path):
    settings = {"objective": "distill", "teacher": str(base), "distill_divergence": "reverse"}
    config = dataclasses.replace(
        CONFIG, **settings, distill_answer_tokens=3, document_masking=True, steps=30, learning_rate=1e-2
    )
    torch.manual_seed(1)
    small, teacher = dataclasses.replace(MODEL, num_layers=1), lm.load(base)
    loss = Distillation(Transformer(small).train(), config, END, teacher)
    batch = open_data(problems).batch(0, 0, 0, 1, 2, WINDOW)
    [(inputs, targets)] = loss.prepare([batch], 5)
    prompts, groups = answers_to(loss, batch, 5, itertools.count(), 3)
    assert targets[targets != IGNORE].tolist() == [id for [answer] in groups for id in answer]
    assert [row[: len(prompt)] for row, (prompt, _) in zip(inputs.tolist(), prompts, strict=True)] == [
        p for p, _ in prompts
    ]
    one, other = (model(inputs)[targets != IGNORE].log_softmax(-1) for model in (loss.model, teacher))
    torch.testing.assert_close(loss(inputs, targets), F.kl_div(other, one, log_target=True, reduction="sum"))
    assert_continues(problems, tmp_path, config, small, step=7)
    lines = [line["loss"] for line in metrics(tmp_path / "whole") if "loss" in line]
    assert sum(lines[-5:]) < 0.5 * sum(lines[:5])
    with pytest.raises(ValueError, match="goes with document_masking"):
        run(problems, tmp_path / "bad", dataclasses.replace(config, document_masking=False), small)
