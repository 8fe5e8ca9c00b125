"""Runs of a grid of settings, in turn or side by side; their table and their page."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, cast

import torch

from lm.config import ModelConfig, TrainConfig
from lm.reporting import report
from lm.reporting.charts import Html, table, text
from lm.training.train import Diverged, Stopped, train

HEADERS = ("variant", "loss", "against the best", "bits/byte", "tokens/s", "seconds", "runs")


@dataclass(frozen=True)
class Trial:
    """One run: the name of its variant, and the number of its seed."""

    variant: str
    seed: int
    model: ModelConfig
    train: TrainConfig

    @property
    def name(self) -> str:
        """The folder of its run."""
        return f"{self.variant}-seed-{self.seed}"


@dataclass(frozen=True)
class Outcome:
    """The end of a trial. loss: nats a held-out token, or the mean of the last tenth of the steps; inf: it diverged."""

    loss: float
    steps: int = 0
    seconds: float = 0.0
    tokens_per_second: float = math.nan
    bits_per_byte: float | None = None


Outcomes = Mapping[str, Outcome]  # by the name of their trial


def run(
    trials: Iterable[Trial],
    data: Any,
    out: Path,
    *,
    jobs: int = 1,
    progress: bool = True,
    tell: Callable[[Outcomes], None] = lambda outcomes: None,
) -> dict[str, Outcome]:
    """Run the trials, each in a folder of `out`; a finished one is only read.

    jobs: runs at a time, in processes of their own that share the processors evenly; tell: called with all outcomes
    after each run. Stopped: by Ctrl-C or SIGTERM; the runs are saved. Other errors are lm.train's.
    """
    outcomes = dict[str, Outcome]()
    if jobs == 1:
        for trial in trials:
            outcomes[trial.name] = perform(trial, data, out / trial.name, progress)
            tell(outcomes)
        return outcomes
    spawn, threads = multiprocessing.get_context("spawn"), max(1, torch.get_num_threads() // jobs)
    waiting, running = [*trials][::-1], dict[Connection, Trial]()
    workers = dict[Connection, multiprocessing.context.SpawnProcess]()
    try:
        for _ in waiting[:jobs]:
            # A pipe to each: a pool's processes share a lock, and one that ends with it leaves the others waiting.
            pipe, end = spawn.Pipe()
            process = spawn.Process(target=work, args=(end, threads))
            process.start()
            workers[pipe] = process
            end.close()  # so that reading fails when the process ends
        while waiting or running:
            # No more are sent than run, so that none begins after one has failed.
            for pipe in [pipe for pipe in workers if pipe not in running][: len(waiting)]:
                running[pipe] = trial = waiting.pop()
                pipe.send((trial, data, out / trial.name))
            for pipe in cast(list[Connection], wait([*running])):
                result = pipe.recv()
                if isinstance(result, Exception):
                    raise result
                outcomes[running.pop(pipe).name] = result
                tell(outcomes)
    except (EOFError, ConnectionError):
        raise Stopped("a run was stopped: the same command goes on with it") from None
    finally:
        for pipe, process in workers.items():
            pipe.close()  # an idle process ends
            process.terminate()  # SIGTERM: a run is saved, and its process ends
        for process in workers.values():
            process.join()
    return outcomes


def work(pipe: Connection, threads: int) -> None:
    """Perform the trials that come through a pipe, and send the outcome or the error of each, until it is closed."""
    torch.set_num_threads(threads)
    with contextlib.suppress(EOFError, ConnectionError, KeyboardInterrupt):
        while True:
            arguments = pipe.recv()
            try:
                pipe.send(perform(*arguments))
            except Exception as error:
                pipe.send(error)


def perform(trial: Trial, data: Any, folder: Path, progress: bool = False) -> Outcome:
    """Train one trial, or read how it ended."""
    if progress:
        print(f"{folder}:", flush=True)
    try:
        result = train(trial.model, trial.train, data, folder, progress=progress)
    except Diverged:
        return Outcome(math.inf)
    heldout, seconds = result.heldout, result.seconds
    losses = [loss for _, loss in report.read(folder).points("loss")]
    loss = statistics.fmean(losses[-max(1, len(losses) // 10) :]) if heldout is None else heldout.loss
    tokens = result.steps * trial.train.batch_size * trial.model.context_length
    bits = None if heldout is None else heldout.bits_per_byte
    return Outcome(loss, result.steps, seconds, tokens / max(seconds, 1e-9), bits)


def by_variant(trials: Iterable[Trial], outcomes: Outcomes) -> dict[str, dict[int, Outcome]]:
    """The outcomes of each variant by the number of the seed, the lowest mean loss first."""
    groups = dict[str, dict[int, Outcome]]()
    for trial in trials:
        if trial.name in outcomes:
            groups.setdefault(trial.variant, {})[trial.seed] = outcomes[trial.name]
    return dict(sorted(groups.items(), key=lambda group: mean_loss(group[1])))


def mean_loss(group: Mapping[int, Outcome]) -> float:
    return statistics.fmean(outcome.loss for outcome in group.values())


def rows(trials: Sequence[Trial], outcomes: Outcomes) -> list[tuple[str, ...]]:
    """A row for each variant, in the columns of HEADERS; losses are compared to the best seed by seed."""
    groups = by_variant(trials, outcomes)
    best, table = next(iter(groups.values()), {}), list[tuple[str, ...]]()
    for variant, group in groups.items():
        ended, gaps = [*group.values()], [one.loss - best[seed].loss for seed, one in group.items() if seed in best]
        bits = [one.bits_per_byte for one in ended if one.bits_per_byte is not None]
        learned = math.isfinite(mean_loss(group))
        row = variant, mean_and_error([one.loss for one in ended]) if learned else "diverged"
        gap = mean_and_error(gaps, "+") if learned and gaps and group is not best else ""
        bits_per_byte = f"{statistics.fmean(bits):.4f}" if bits and learned else ""
        speed = f"{statistics.fmean(one.tokens_per_second for one in ended):,.0f}" if learned else ""
        table.append((*row, gap, bits_per_byte, speed, f"{sum(one.seconds for one in ended):,.0f}", str(len(ended))))
    return table


def mean_and_error(values: Sequence[float], sign: str = "") -> str:
    """A mean with its standard error, which one value does not have."""
    error = f" ± {statistics.stdev(values) / math.sqrt(len(values)):.4f}" if len(values) > 1 else ""
    return f"{statistics.fmean(values):{sign}.4f}{error}"


def write(
    trials: Sequence[Trial],
    outcomes: Outcomes,
    out: Path,
    *,
    title: str = "Experiment",
    headline: str | None = None,
    sections: Iterable[report.Section] = (),
) -> Path:
    """Draw the page: the given sections, the table, and curves of one seed."""
    first = {trial.variant: trial for trial in reversed(trials) if trial.name in outcomes}
    cells = [[Html(text(cell).replace(" ± ", "\u00a0±\u00a0")) for cell in row] for row in rows(trials, outcomes)]
    leading = [*sections, report.Section("Results", table(HEADERS, cells), "± is a standard error over seeds.")]
    drawn_trials = [first[name] for name in by_variant(trials, outcomes)]
    return report.write(
        [out / trial.name for trial in drawn_trials],
        out / "report.html",
        title=title,
        names=[trial.variant for trial in drawn_trials],
        headline=headline,
        leading=leading,
    )
