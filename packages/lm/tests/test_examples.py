"""The examples beside the package: exercises of the courses, worked out."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path

import pytest
import torch

import lm

EXAMPLES = Path(__file__).parent.parent / "examples"


def example(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("rate", [1.0, 10.0, 100.0, 1000.0])
def test_the_exercise_is_its_closed_form(rate):
    losses = example("sgd").exercise(rate, 8, shape=(4, 5), seed=2)
    expected = losses[0]
    for step, loss in enumerate(losses):
        assert loss == pytest.approx(expected, rel=1e-4, abs=1e-9)
        expected *= (1 - 2 * rate / (20 * math.sqrt(step + 1))) ** 2


def test_the_exercise_from_the_command_line(capsys):
    sgd = example("sgd")
    sgd.main([])
    said = capsys.readouterr().out
    assert said.splitlines()[0].split() == ["step", "rate", "10", "rate", "100", "rate", "1000"]
    assert len(said.splitlines()) == 12
    assert "rate 10 falls slowly: to 0.13 of the loss in 10 steps" in said
    assert "rate 100 arrives: the loss is 0, to rounding, after 4 steps" in said
    assert "rate 1000 diverges: the loss grows by" in said
    for given, says in [(["--rates", "0"], "more than 0"), (["--steps", "0"], "at least 1 step")]:
        with pytest.raises(ValueError, match=says):
            sgd.main(given)


@pytest.fixture
def grpo():
    return example("grpo")


def test_a_reward_is_for_the_sum_and_nothing_else(grpo):
    answers = {"72.": 1, "72": 0, "072.": 0, "7.": 0, ".": 0, "": 0, "27+.": 0}
    assert {answer: grpo.reward((27, 45), grpo.encode(answer)) for answer in answers} == answers


def test_advantages_are_within_a_group(grpo):
    got = grpo.compute_group_normalized_rewards(torch.tensor([[1.0, 0.0, 0.0, 1.0], [0.0] * 4, [1.0] * 4]))
    torch.testing.assert_close(got[0], torch.tensor([1.0, -1.0, -1.0, 1.0]) / (2 / 3**0.5), rtol=1e-4, atol=0)
    assert not got[1:].any()


def test_the_clip_ends_the_gradient_where_the_ratio_has_gone_far_enough(grpo):
    ratios = torch.tensor([[0.5, 1.0, 1.1, 1.5]], dtype=torch.float64)
    for advantage, gains in ((2.0, (0.5, 1.0, 1.1, 1.2)), (-2.0, (0.8, 1.0, 1.1, 1.5))):
        log_probs = ratios.log().requires_grad_()
        old = torch.zeros_like(ratios)
        loss = grpo.compute_grpo_clip_loss(torch.tensor([[advantage]]), log_probs, old, 0.2)
        torch.testing.assert_close(loss, -advantage * torch.tensor([gains], dtype=torch.float64))
        loss.sum().backward()
        within = torch.tensor([[gain == ratio for gain, ratio in zip(gains, ratios[0].tolist(), strict=True)]])
        torch.testing.assert_close(log_probs.grad, torch.where(within, -advantage * ratios, 0.0))


def test_prompts_and_answers_of_several_lengths_are_masked(grpo):
    inputs, labels, mask = grpo.tokenize_prompt_and_output([[1, 2], [3]], [[4, 5, 6], [7]])
    assert labels[mask.bool()].tolist() == [4, 5, 6, 7]
    assert inputs[mask.bool()].tolist() == [2, 4, 5, 3]
    assert grpo.masked_mean(torch.where(mask.bool(), labels, 99).float(), mask) == (5 + 7) / 2


def test_answers_are_the_model_s_own_with_their_end(grpo):
    torch.manual_seed(0)
    model = lm.Transformer(lm.ModelConfig(len(grpo.VOCABULARY), 16, 1, 16, 2, 24))
    groups = grpo.sample(model, [(1, 2), (30, 4)], 8, seed=1)
    assert groups == grpo.sample(model, [(1, 2), (30, 4)], 8, seed=1)
    for answer in (answer for group in groups for answer in group):
        assert grpo.END not in answer[:-1]
        assert 1 <= len(answer) <= grpo.LONGEST
        assert answer[-1] == grpo.END or len(answer) == grpo.LONGEST
    assert any(answer[-1] == grpo.END for answer in groups[0] + groups[1])


def test_what_was_rewarded_becomes_likelier(grpo):
    torch.manual_seed(0)
    model = lm.Transformer(lm.ModelConfig(len(grpo.VOCABULARY), 16, 1, 16, 2, 24))
    optimizer = lm.optimizer.adamw(model, lr=1e-2)
    answers = [grpo.encode(text) for text in ("5.", "6.", "15.", "5+5.")]

    def likelihoods():
        given = grpo.tokenize_prompt_and_output([grpo.prompt_of((2, 3))] * 4, answers)
        with torch.no_grad():
            return (grpo.get_response_log_probs(model, *given[:2]) * given[2]).sum(1)

    before = likelihoods()
    for _ in range(3):
        assert grpo.update(model, optimizer, [(2, 3)], [answers], epochs=2) == 0.25
    assert (likelihoods() > before).tolist() == [True, False, False, False]
    settled = likelihoods()
    grpo.update(model, torch.optim.SGD(model.parameters(), lr=1.0), [(2, 3)], [answers[1:]], epochs=2)
    assert torch.equal(likelihoods(), settled)  # a group without a right answer teaches nothing


def test_the_program_says_what_it_learned(grpo, capsys):
    before, after = grpo.main(["--supervised", "3", "--steps", "10", "--problems", "2", "--group-size", "4"])
    said = capsys.readouterr().out.splitlines()
    assert said[0] == f"after 3 steps of ordinary training: {before:.1%} of the sums are right"
    assert said[1].startswith("step 10: mean reward 0.")
    assert said[2] == f"after 10 steps of GRPO: {after:.1%} of the sums are right"
