"""The examples beside the package: exercises of the courses, worked out."""

from __future__ import annotations

import math

import grpo
import numpy as np
import pytest
import sgd

import lm


@pytest.mark.parametrize("rate", [1.0, 10.0, 100.0, 1000.0])
def test_the_exercise_is_its_closed_form(rate):
    losses = sgd.exercise(rate, 8, shape=(4, 5), seed=2)
    expected = losses[0]
    for step, loss in enumerate(losses):
        assert loss == pytest.approx(expected, rel=1e-4, abs=1e-9)
        expected *= (1 - 2 * rate / (20 * math.sqrt(step + 1))) ** 2


def test_the_exercise_from_the_command_line(capsys):
    sgd.main([])
    stdout = capsys.readouterr().out
    assert stdout.splitlines()[0].split() == ["step", "rate", "10", "rate", "100", "rate", "1000"]
    assert len(stdout.splitlines()) == 12
    assert "rate 10 falls slowly: to 0.13 of the loss in 10 steps" in stdout
    assert "rate 100 arrives: the loss is 0, to rounding, after 4 steps" in stdout
    assert "rate 1000 diverges: the loss grows by" in stdout
    for settings, says in [(["--rates", "0"], "more than 0"), (["--steps", "0"], "at least 1 step")]:
        with pytest.raises(ValueError, match=says):
            sgd.main(settings)


def test_grpo_on_sums_says_what_it_learned(tmp_path, capsys):
    out, chart = tmp_path / "out", tmp_path / "chart.svg"
    small = ["--supervised", "3", "--steps", "2", "--problems", "2", "--group-size", "2", "--chart", str(chart)]
    before, after = grpo.main([str(out), *small])
    stdout = capsys.readouterr().out.splitlines()
    assert stdout[0] == f"after 3 steps of supervised training: {before:.1%} of the sums are right"
    assert stdout[1].endswith(f"s: {after:.1%} of the sums are right")
    assert "likeliest answers, unseen problems" in chart.read_text()
    tokens = lm.data.open_tokens(out / "data" / "heldout.npy")
    text = "".join(grpo.VOCABULARY[id] for id in np.asarray(tokens.ids)[:16])
    learned = "".join(c for c, mark in zip(text, np.asarray(tokens.mask)[:16], strict=True) if mark)
    assert learned == f"{int(text[1:3]) + int(text[4:6])}."
    assert text == f"{text[:7]}{learned}".ljust(16, "|")
