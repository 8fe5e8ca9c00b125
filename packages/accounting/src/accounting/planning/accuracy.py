"""The range of a predicted time: the least and the greatest part of theirs that the published runs most like it took.

runs.csv and accuracy.csv are written by benchmarks/published_runs.py. As in conformal prediction (Vovk et al. 2005),
nine in ten runs like their NEAREST published runs lie between the shortest and the longest of them.
"""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass
from math import log2

from accounting.counting.parameters import parameters
from accounting.hardware.devices import DEVICES, Device
from accounting.shape import TransformerShape

FOLDER = os.path.dirname(__file__)
NEAREST = 19  # between the least and the greatest of 19 lie 18 of 20
NAMED = 3  # of them that are named


@dataclass(frozen=True)
class PublishedRun:
    """A published run beside its prediction.

    Args:
        took: the measured time over the predicted one.
        fitted: False for a run that no constant was fitted to.
        active: parameters that a token passes.
    """

    kind: str
    model: str
    device: str
    devices: int
    framework: str
    precision: str
    length: int
    active: int
    took: float
    fitted: bool

    @property
    def words(self) -> str:
        """The run in a few words."""
        precision = "" if self.precision == "bf16" else f" in {self.precision}"
        return f"{self.model}{precision} on {self.devices:,} × {self.device} by {self.framework} {self.took:.2f}"


@dataclass(frozen=True)
class Accuracy:
    """The nearest published runs, and the errors over all of their kind.

    Args:
        nearest: runs like the one that is predicted, the nearest first.
        runs, held_out: number of published runs of its kind, and of those that no constant was fitted to.
        median, largest: errors of the rates that were never fitted, as parts of the published rate.
        covered: part of them that lies in the range that their own nearest runs give.
    """

    nearest: tuple[PublishedRun, ...]
    kind: str
    runs: int
    held_out: int
    median: float
    largest: float
    covered: float

    @property
    def shortest(self) -> float:
        """Measured over predicted time, the least of the nearest runs."""
        return min(run.took for run in self.nearest)

    @property
    def longest(self) -> float:
        """Measured over predicted time, the greatest of the nearest runs."""
        return max(run.took for run in self.nearest)

    @property
    def words(self) -> str:
        """The range and the errors in a sentence."""
        models = "dense models" if self.kind == "dense" else "mixtures of experts"
        named = "; ".join(run.words for run in self.nearest[:NAMED])
        return (
            f"the {len(self.nearest)} published runs most like it, which took {self.shortest:.2f} to "
            f"{self.longest:.2f} of the predicted time, the nearest: {named}. Of {self.held_out} runs of {models} that "
            f"were never fitted (of {self.runs}) {self.covered:.0%} lie in such a range; their median error is "
            f"{self.median:.0%}, the largest {self.largest:.0%}"
        )


def accuracy(
    shape: TransformerShape, device: Device, devices: int, seq_len: int | None = None, *, precision: str = "bf16"
) -> Accuracy:
    """The published runs most like a step of this shape on these devices, and the errors over its kind."""
    kind = "mixture" if shape.most_experts > 1 else "dense"
    active, length = int(parameters(shape, active=True).total), shape.sequence(seq_len)
    mine = PublishedRun(kind, "", device.name, devices, "", precision, length, active, 1.0, False)
    every = [_run(row) for row in run_rows()]
    row = next(row for row in rows() if row["kind"] == kind)
    numbers = {name: float(row[name]) for name in ("median", "largest", "covered")}
    return Accuracy(nearest(mine, device, every), kind, int(row["runs"]), int(row["held out"]), **numbers)


def nearest(mine: PublishedRun, device: Device, among: list[PublishedRun]) -> tuple[PublishedRun, ...]:
    """The runs of the same kind most like one, of one model, device, framework and precision the nearest alone."""
    some = sorted((run for run in among if run.kind == mine.kind), key=lambda run: _distance(mine, device, run))
    first: dict[tuple[str, str, str, str], PublishedRun] = {}
    for run in some:
        first.setdefault((run.model, run.device, run.framework, run.precision), run)
    return tuple(first.values())[:NEAREST]


def _distance(mine: PublishedRun, device: Device, run: PublishedRun) -> int:
    """Octaves in which sizes differ, a sixth each; another device is half a step and half of the octaves of its peak,
    of another maker one more; another precision is a step. In millionths, so that ties do not hang on a last digit."""
    sizes = (mine.devices / run.devices, mine.active / run.active, mine.length / run.length)
    distance = sum(abs(log2(ratio)) for ratio in sizes) / 6
    if (mine.precision == "bf16") != (run.precision == "bf16"):
        distance += 1
    if run.device != mine.device:
        other = DEVICES[run.device]
        peaks = [float(one.peaks.get("bf16") or max(one.peaks.values())) for one in (device, other)]
        distance += 0.5 + abs(log2(peaks[0] / peaks[1])) / 2 + (device.maker != other.maker)
    return round(distance * 1e6)


def _run(row: list[str]) -> PublishedRun:
    kind, model, device, devices, framework, precision, length, active, took, fitted = row
    sizes = int(length), int(active), float(took)
    return PublishedRun(kind, model, device, int(devices), framework, precision, *sizes, fitted == "yes")


def rows() -> list[dict[str, str]]:
    """The rows of accuracy.csv, by the names of its columns."""
    with open(os.path.join(FOLDER, "accuracy.csv"), encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def run_rows() -> list[list[str]]:
    """The rows of runs.csv below its names, in the order of PublishedRun's fields."""
    with open(os.path.join(FOLDER, "runs.csv"), encoding="utf-8", newline="") as file:
        return list(csv.reader(file))[1:]
