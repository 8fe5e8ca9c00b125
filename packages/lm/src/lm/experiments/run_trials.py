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
    """Runs what the experiment asks for until it asks for no more; the same call goes on where it was stopped.

    Each run is a folder of `out`, as of lm.train, with an outcome.json when it is over. tell: called with all outcomes
    at the beginning and after each run. jobs: runs at a time, in processes of their own that share the processors
    evenly.

    Stopped: by Ctrl-C or SIGTERM, with what runs saved. ValueError: `out` holds runs of another configuration or other
        data.
    OutOfMemory, checkpoint.NotSaved: as lm.train, of one of the runs.
    """
    fingerprints = open_data(data).fingerprints()
    outcomes: dict[str, Outcome] = {}
    while missing := [trial for trial in experiment.wanted(outcomes) if trial.name not in outcomes]:
        left = []
        for trial in missing:
            known = read_outcome(out / trial.name, asked(trial, fingerprints))
            if known is None:
                left.append(trial)
            else:
                outcomes[trial.name] = known
        if left:
            tell(outcomes)
        if jobs == 1:
            for trial in left:
                outcomes[trial.name] = perform(trial, data, out / trial.name, fingerprints, progress)
                tell(outcomes)
        elif left:
            side_by_side(left, data, out, fingerprints, jobs, outcomes, tell)
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
    write_outcome(folder, asked(trial, fingerprints), outcome)
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
                known = read_outcome(out / trial.name, asked(trial, fingerprints))
                if known is None:
                    raise Stopped(f"the run in {out / trial.name} was stopped: the same command goes on with it")
                outcomes[trial.name] = known
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


def asked(trial: Trial, fingerprints: dict[str, Any]) -> dict[str, Any]:
    """The settings and data of a trial, which its outcome records."""
    return {"model": to_table(trial.model), "train": to_table(trial.train), "data": fingerprints}


def read_outcome(folder: Path, wanted: dict[str, Any]) -> Outcome | None:
    """Return the outcome of the run in a folder; None if it has not ended. ValueError: it is of other settings."""
    path = folder / OUTCOME
    if not path.exists():
        return None
    try:
        says = json.loads(path.read_text())
        there, outcome = says["asked"], Outcome(**{**says["outcome"], "loss": float(says["outcome"]["loss"])})
    except (ValueError, KeyError, TypeError):
        raise ValueError(f"{path} is damaged: remove {folder}, and it is run again") from None
    for section, table in json.loads(json.dumps(wanted)).items():
        for key in sorted(table.keys() | there[section].keys()):
            if table.get(key) != there[section].get(key):
                raise ValueError(
                    f"the run in {folder} has {section}.{key} = {there[section].get(key)!r}, and this call asks for "
                    f"{table.get(key)!r}: ask for the same to go on, or choose another folder"
                )
    return outcome


def write_outcome(folder: Path, wanted: dict[str, Any], outcome: Outcome) -> None:
    table = {**asdict(outcome), "loss": str(outcome.loss)}  # JSON has no infinity
    atomic_write(folder / OUTCOME, json.dumps({"outcome": table, "asked": wanted}, indent=1))


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
        known = counts[counts > 0] / counts.sum()
        entropy += float(share) * float(-(known * np.log(known)).sum())
    return entropy
