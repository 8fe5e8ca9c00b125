"""Outcomes of experiments whose runs are not trained: the loss of each is that of a function."""

from __future__ import annotations

import math

from lm.experiments.trials import Outcome


def ended(trial, loss, speed=100.0):
    why = None if math.isfinite(loss) else "the loss is nan"
    return Outcome(trial.variant, trial.seed, loss, trial.train.steps, 1.0, speed, trial.x, loss, why)


def simulate(experiment, loss):
    """Outcomes of an experiment's trials, when the loss of each is that of a function."""
    outcomes = {}
    while missing := [trial for trial in experiment.trials_for(outcomes) if trial.name not in outcomes]:
        for trial in missing:
            outcomes[trial.name] = ended(trial, loss(trial))
        assert len(outcomes) < 80
    return outcomes
