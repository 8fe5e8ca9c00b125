"""The board of optimizers: its own optimizers beside the papers' algorithms in numpy, and the search of a rate."""

import runpy
from pathlib import Path

import numpy as np
import pytest
import torch

BOARD = runpy.run_path(str(Path(__file__).parent.parent / "packages/lm/benchmarks/optimizers.py"))
LR, BETA1, BETA2, DECAY = 0.1, 0.9, 0.99, 0.2


def lion(w, gradients):
    m = np.zeros_like(w)
    for g in gradients:
        w = w - LR * (np.sign(BETA1 * m + (1 - BETA1) * g) + DECAY * w)
        m = BETA2 * m + (1 - BETA2) * g
    return w, w


def schedule_free(w, gradients):
    x, y, z, v = w, w, w, np.zeros_like(w)
    for t, g in enumerate(gradients, 1):
        v = BETA2 * v + (1 - BETA2) * g * g
        z = z - LR * g / (np.sqrt(v / (1 - BETA2**t)) + 1e-8) - LR * DECAY * y
        x = (1 - 1 / t) * x + z / t  # the weights of equal rates
        y = (1 - BETA1) * z + BETA1 * x
    return y, x


@pytest.mark.parametrize(("name", "reference"), [("Lion", lion), ("ScheduleFree", schedule_free)])
def test_an_optimizer_is_its_paper(name, reference):
    random = np.random.default_rng(0)
    model = torch.nn.Linear(3, 4, bias=False).double()
    optimizer = BOARD[name](model, LR, (BETA1, BETA2), DECAY)
    start, gradients = model.weight.detach().numpy().copy(), random.standard_normal((5, 4, 3))
    for g in gradients:
        model.weight.grad = torch.from_numpy(g)
        optimizer.step()
    learned, evaluated = reference(start, gradients)
    np.testing.assert_allclose(model.weight.detach(), learned, rtol=1e-12)
    with BOARD["averaged"](optimizer):
        np.testing.assert_allclose(model.weight.detach(), evaluated, rtol=1e-12)


def test_the_rate_that_costs_least_lies_between_two_that_cost_more():
    costs = {2.0**n: abs(n - 3) for n in range(-2, 6)}
    assert BOARD["best_rate"](costs.__getitem__, BOARD["Entry"](None, 1.0)) == 8.0
