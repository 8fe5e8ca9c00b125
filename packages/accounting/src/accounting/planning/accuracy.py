"""Errors of step_time() over published training runs, and the range that they give a predicted time.

accuracy.csv is written by benchmarks/published_runs.py.
"""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass

from accounting.shape import TransformerShape

TABLE = os.path.join(os.path.dirname(__file__), "accuracy.csv")


@dataclass(frozen=True)
class Accuracy:
    """Errors over the published runs of one kind of model, as parts of the published rate.

    Args:
        kind: "dense" or "mixture".
        runs, held_out: number of runs, and of those that no constant was fitted to.
        devices, frameworks: number of kinds among the runs.
        median, largest: errors of all runs.
        median_held_out, largest_held_out: errors of the runs that are held out.
        shortest, longest: measured over predicted time, between which nine runs in ten lie.
    """

    kind: str
    runs: int
    held_out: int
    devices: int
    frameworks: int
    median: float
    largest: float
    median_held_out: float
    largest_held_out: float
    shortest: float
    longest: float

    @property
    def words(self) -> str:
        """The errors in a sentence."""
        models = "dense models" if self.kind == "dense" else "mixtures of experts"
        return (
            f"{self.runs} published runs of {models} on {self.devices} kinds of device by {self.frameworks} "
            f"frameworks: median error {self.median:.0%}, largest {self.largest:.0%}; of the {self.held_out} held out "
            f"{self.median_held_out:.0%} and {self.largest_held_out:.0%}"
        )


def accuracy(shape: TransformerShape) -> Accuracy:
    """Errors over the published runs of models of the shape's kind."""
    kind = "mixture" if shape.most_experts > 1 else "dense"
    row = next(row for row in rows() if row["kind"] == kind)
    values = {name.replace(" ", "_"): value for name, value in row.items() if name != "kind"}
    numbers = {name: float(value) if "." in value else int(value) for name, value in values.items()}
    return Accuracy(kind, **numbers)  # type: ignore[arg-type]


def rows() -> list[dict[str, str]]:
    """The rows of accuracy.csv, by the names of its columns."""
    with open(TABLE, encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
