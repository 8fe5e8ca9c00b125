"""An experiment's runs, in turn or side by side: those that are finished are read, those that were stopped go on."""

from __future__ import annotations

import contextlib
import json
import math
import multiprocessing
import multiprocessing.connection
import signal
import statistics
import threading
from collections.abc import Callable
from dataclasses import asdict
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import torch

from lm.config import to_table
from lm.data import Mixture, open_data
from lm.experiments.trials import Experiment, Outcome, Trial
from lm.files import atomic_write
from lm.training.train import Diverged, OutOfMemory, Stopped, train

OUTCOME = "outcome.json"
SAMPLE = 10_000_000  # tokens that frequencies are counted in

Tell = Callable[[dict[str, Outcome]], None]


def run(
    experiment: Experiment,
    data: Any,
    out: Path,
    *,
    jobs: int = 1,
    progress: bool = True,
    tell: Tell = lambda outcomes: None,
) -> dict[str, Outcome]:
    """Run the trials that an experiment calls for until there are no more; the same call continues if it was stopped.

    Each run is a folder of `out`, as of lm.train, with an outcome.json when it is over. tell: called with all outcomes
    at the beginning and after each run. jobs: runs at a time, in processes of their own that share the processors
    evenly. ValueError: `out` holds runs of another configuration or other data. Other errors are lm.train's.
    """
    fingerprints = open_data(data).fingerprints()
    outcomes: dict[str, Outcome] = {}
    while missing := [trial for trial in experiment.trials_for(outcomes) if trial.name not in outcomes]:
        to_run = []
        for trial in missing:
            if (outcome := read_outcome(out / trial.name, settings_of(trial, fingerprints))) is None:
                to_run.append(trial)
            else:
                outcomes[trial.name] = outcome
        if to_run:
            tell(outcomes)
        if jobs == 1:
            for trial in to_run:
                outcomes[trial.name] = perform(trial, data, out / trial.name, fingerprints, progress)
                tell(outcomes)
        elif to_run:
            side_by_side(to_run, data, out, fingerprints, jobs, outcomes, tell)
    tell(outcomes)
    return outcomes


def perform(trial: Trial, data: Any, folder: Path, fingerprints: dict[str, Any], progress: bool) -> Outcome:
    """Trains one trial, and writes down how it ended."""
    seconds = steps = 0.0

    def note(line: dict[str, Any]) -> None:
        nonlocal seconds, steps
        seconds, steps = line["seconds"], line["step"]

    if progress:
        print(f"{folder}:", flush=True)
    try:
        result = train(trial.model, trial.train, data, folder, progress=progress, on_step=note)
    except Diverged as diverged:
        outcome = Outcome(trial.variant, trial.seed, math.inf, int(steps), seconds, 0.0, trial.x, why=str(diverged))
    else:
        losses = last_losses(folder / "metrics.jsonl")
        heldout = result.heldout
        loss = heldout.loss if heldout is not None else statistics.fmean(losses) if losses else math.nan
        tokens = result.steps * trial.train.batch_size * trial.model.context_length
        speed, bits = tokens / max(result.seconds, 1e-9), None if heldout is None else heldout.bits_per_byte
        outcome = Outcome(trial.variant, trial.seed, loss, result.steps, result.seconds, speed, trial.x, bits)
    table = {**asdict(outcome), "loss": str(outcome.loss)}  # JSON has no infinity
    record = {"outcome": table, "asked": settings_of(trial, fingerprints)}
    atomic_write(folder / OUTCOME, json.dumps(record, indent=1))
    return outcome


def side_by_side(
    trials: list[Trial],
    data: Any,
    out: Path,
    fingerprints: dict[str, Any],
    jobs: int,
    outcomes: dict[str, Outcome],
    tell: Tell,
) -> None:
    """The same in processes, `jobs` at a time."""
    spawn = multiprocessing.get_context("spawn")
    threads = max(1, torch.get_num_threads() // jobs)
    waiting, running = list(trials), dict[Any, tuple[Trial, SpawnProcess, Connection]]()
    before = stopped_by_sigterm()
    try:
        while waiting or running:
            while waiting and len(running) < jobs:
                trial = waiting.pop(0)
                hears, says = spawn.Pipe(duplex=False)
                process = spawn.Process(target=work, args=(trial, data, out / trial.name, fingerprints, threads, says))
                process.start()
                says.close()
                running[process.sentinel] = (trial, process, hears)
            for sentinel in multiprocessing.connection.wait(list(running)):
                trial, process, hears = running.pop(sentinel)
                process.join()
                with contextlib.suppress(EOFError):  # it had nothing to say
                    raise hears.recv()
                outcome = read_outcome(out / trial.name, settings_of(trial, fingerprints))
                if outcome is None:
                    raise Stopped(f"the run in {out / trial.name} was stopped: the same command goes on with it")
                outcomes[trial.name] = outcome
                tell(outcomes)
    finally:
        for _, process, _ in running.values():
            process.terminate()  # SIGTERM: it saves and ends
        for _, process, _ in running.values():
            process.join()
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def stopped_by_sigterm() -> Any:
    """Makes SIGTERM raise Stopped in the main thread, so that processes do not outlive this one; what it did before."""
    if threading.current_thread() is not threading.main_thread():
        return None

    def stop(number: int, frame: FrameType | None) -> None:
        raise Stopped("the experiment was asked to stop: the same command goes on with it")

    return signal.signal(signal.SIGTERM, stop)


def work(trial: Trial, data: Any, folder: Path, fingerprints: dict[str, Any], threads: int, failed: Connection) -> None:
    """Perform a trial in a process of its own. failed: receives the error that prevents the run."""
    torch.set_num_threads(threads)
    try:
        perform(trial, data, folder, fingerprints, progress=False)
    except (Stopped, KeyboardInterrupt):
        raise SystemExit(1) from None
    except (OutOfMemory, OSError, ValueError) as error:
        error.__cause__ = error.__context__ = None
        failed.send(error)


def settings_of(trial: Trial, fingerprints: dict[str, Any]) -> dict[str, Any]:
    """The settings and data of a trial, which its outcome records."""
    return {"model": to_table(trial.model), "train": to_table(trial.train), "data": fingerprints}


def read_outcome(folder: Path, settings: dict[str, Any]) -> Outcome | None:
    """Return the outcome of the run in a folder; None if it has not ended. ValueError: it is of other settings."""
    path = folder / OUTCOME
    if not path.exists():
        return None
    try:
        record = json.loads(path.read_text())
        there, table = record["asked"], record["outcome"]
        outcome = Outcome(**{**table, "loss": float(table["loss"])})
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path} is damaged: remove {folder}, and it is run again") from None
    for section, table in json.loads(json.dumps(settings)).items():
        for key in sorted(table.keys() | there[section].keys()):
            if table.get(key) != there[section].get(key):
                change = f"{key} = {there[section].get(key)!r}, and this call asks for {table.get(key)!r}"
                raise ValueError(f"the run in {folder} has {section}.{change}: choose another folder")
    return outcome


def last_losses(metrics: Path) -> list[float]:
    """The losses of the last tenth of a run's logged steps."""
    lines = [json.loads(line) for line in metrics.read_text().splitlines()]
    losses = [line["loss"] for line in lines if "loss" in line]
    return losses[-max(1, len(losses) // 10) :]


def unigram_entropy(data: Mixture) -> float:
    """Nats a token of a model that knows only how often each token occurs, in the first ten million."""
    entropy = 0.0
    for part, share in zip(data.parts, data.shares, strict=True):
        counts = np.bincount(part.tokens.ids[: min(len(part.tokens), SAMPLE)])
        frequencies = counts[counts > 0] / counts.sum()
        entropy += float(share) * float(-(frequencies * np.log(frequencies)).sum())
    return entropy
