"""Small training runs for sale, until a budget of FLOPs is spent: the table of exercise 2 of chapter 8.

`tools/record_runs.py` filled it: each run is a model of four layers that `lm` trained on Python's standard library.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path

TABLE = Path(__file__).with_name("runs.csv")
Key = tuple[int, float, float]  # d_model, learning_rate, FLOPs


class OverBudget(Exception):
    """A run costs more FLOPs than are left."""


class Runs:
    """A table of runs, and what is left to spend on them.

    Attributes:
        remaining: FLOPs that are left.
        widths: Each d_model that was trained, in ascending order, and so for:
        learning_rates, budgets: What loss() takes.
    """

    def __init__(self, table: Mapping[Key, tuple[float, float]], flops: float, below: float) -> None:
        """table: parameters and loss of each run. Runs of `below` FLOPs and more are not for sale."""
        self._table = {key: run for key, run in table.items() if key[2] < below}
        self._bought: set[Key] = set()
        self.remaining = flops
        self.widths, self.learning_rates, self.budgets = map(sorted, map(set, zip(*self._table, strict=True)))

    def parameters(self, d_model: int) -> float:
        """Parameters of the model of a width; this costs nothing."""
        return next(parameters for key, (parameters, _) in self._table.items() if key[0] == d_model)

    def loss(self, d_model: int, learning_rate: float, flops: float) -> float:
        """Held-out loss of a run, in nats a token. It costs `flops`, once.

        Raises:
            OverBudget: It costs more than is left.
            KeyError: There is no such run.
        """
        key = d_model, learning_rate, flops
        _, loss = self._table[key]
        if key not in self._bought:
            if flops > self.remaining:
                raise OverBudget(f"a run of {flops:.3g} FLOPs, and {self.remaining:.3g} are left")
            self._bought.add(key)
            self.remaining -= flops
        return loss


def recorded() -> dict[Key, tuple[float, float]]:
    """Parameters and loss of each recorded run."""
    with TABLE.open(encoding="utf-8") as file:
        return {
            (int(row["d_model"]), float(row["learning_rate"]), float(row["flops"])): (
                float(row["parameters"]),
                float(row["loss"]),
            )
            for row in csv.DictReader(file)
        }
