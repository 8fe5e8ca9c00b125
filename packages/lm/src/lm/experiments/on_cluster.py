"""An experiment's runs on a Ray cluster, each a task: one whose node is lost is tried again, and goes on.

The data lie under the same paths on every node, and so does the folder of the runs. Where that is no shared disk, a
run's weights stay on the node that made them; how it ended is written down on the calling machine too.
"""

from __future__ import annotations

import contextlib
import re
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from lm.data import open_data
from lm.experiments.run_trials import OUTCOME, Tell, asked, perform, read_outcome, write_outcome
from lm.experiments.trials import Outcome, Trial
from lm.extras import need
from lm.files import atomic_write
from lm.training.metrics import METRICS
from lm.training.run import CONFIG, version
from lm.training.train import Stopped, stop_signals

RETRIES = 3  # of a run whose node or process was lost
TO_SAVE = 60.0  # seconds that runs have to save when the experiment is stopped


class RunsFailed(RuntimeError):
    """Some of an experiment's runs failed, and are named; the others are finished."""


@dataclass(frozen=True)
class Ended:
    """How a run ended, and the small files of its folder by name, which the experiment's page is drawn from."""

    outcome: Outcome
    files: dict[str, bytes]


@dataclass(frozen=True)
class Failure:
    """Why a run failed, and on which node."""

    node: str
    why: str


def run_all(
    trials: list[Trial],
    data: Any,
    out: Path,
    fingerprints: dict[str, Any],
    address: str,
    outcomes: dict[str, Outcome],
    tell: Tell,
) -> None:
    """Runs trials as tasks of the cluster at an address, and adds how they ended to outcomes.

    Raises:
        RunsFailed: Some failed; after the others have ended.
        Stopped: By Ctrl-C or SIGTERM, with what runs saved.
        ConnectionError: No cluster answers.
        ValueError: No node has what a run needs.
    """
    failures: dict[str, Failure] = {}
    # An exception that a signal raises inside Ray would come out as another.
    with connected(address) as ray, stop_signals() as stop, cancelled_at_the_end(ray) as running:
        for trial in trials:
            cpus, gpus = needs(trial, ray.nodes())
            task = ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=RETRIES)(perform_there)
            where = (absolute(data), (out / trial.name).absolute())
            running[task.remote(trial, *where, fingerprints, cpus, versions())] = trial
        while running:
            done, _ = ray.wait(list(running), num_returns=1, timeout=1.0)
            if stop.is_set():
                raise Stopped("the experiment was asked to stop: the same command goes on with it")
            for reference in done:
                trial, ended = running[reference], result(ray, reference)
                del running[reference]
                if isinstance(ended, Failure):
                    failures[trial.name] = ended
                    continue
                outcomes[trial.name] = ended.outcome
                if not (out / trial.name / OUTCOME).exists():  # no disk is shared
                    (out / trial.name).mkdir(parents=True, exist_ok=True)
                    for name, content in ended.files.items():
                        atomic_write(out / trial.name / name, content)
                    write_outcome(out / trial.name, asked(trial, fingerprints), ended.outcome)
                tell(outcomes)
    in_order = {trial.name: outcomes.pop(trial.name) for trial in trials if trial.name in outcomes}
    outcomes |= in_order  # as if they had ended one after another
    if failures:
        said = "; ".join(f"{out / name} on {failed.node}: {failed.why}" for name, failed in sorted(failures.items()))
        raise RunsFailed(f"{len(failures)} of {len(trials)} runs failed, and the same command tries them again: {said}")


def perform_there(
    trial: Trial, data: Any, folder: Path, fingerprints: dict[str, Any], cpus: int, expected: dict[str, str]
) -> Ended | Failure:
    """The task: trains one trial on a node, or reads how it ended where it has been there already."""
    import ray

    torch.set_num_threads(cpus)
    try:
        for name, here in versions().items():
            if here != expected[name]:
                raise ValueError(f"this node has {name} {here}, and the calling machine {expected[name]}")
        found = open_data(data).fingerprints()
        for name in sorted(found.keys() | fingerprints.keys()):
            if found.get(name) != fingerprints.get(name):
                raise ValueError(f"the data in {data} have another {name} on this node than on the calling machine")
        outcome = read_outcome(folder, asked(trial, fingerprints))
        if outcome is None:
            outcome = perform(trial, data, folder, fingerprints, progress=False)
        paths = [folder / name for name in (CONFIG, METRICS, "environment.json")]
        return Ended(outcome, {path.name: path.read_bytes() for path in paths if path.exists()})
    except Exception as error:
        return Failure(ray.util.get_node_ip_address(), f"{type(error).__name__}: {error}")


def result(ray: Any, reference: Any) -> Ended | Failure:
    """What a task gave; a Failure too where Ray lost it for good."""
    try:
        ended: Ended | Failure = ray.get(reference)
    except ray.exceptions.RayError as error:
        return Failure("the cluster", f"{type(error).__name__}: {first_line(error)}")
    return ended


def needs(trial: Trial, nodes: list[dict[str, Any]]) -> tuple[int, int]:
    """The CPUs and GPUs that a run takes of its node.

    As many CPUs as the run has threads: those that are set, else those of the calling machine; no more than a node has.
    A GPU, where the run is to be on one, or may be and there is one.
    """
    resources = [node["Resources"] for node in nodes if node["Alive"]]
    most = int(max(node.get("CPU", 0) for node in resources))
    gpus = max(node.get("GPU", 0) for node in resources)
    if trial.train.device == "cuda" and not gpus:
        raise ValueError("device 'cuda' is asked for, and no node of the cluster has a GPU: start Ray with --num-gpus")
    if not most:
        raise ValueError("no node of the cluster has a CPU for a run: start Ray with --num-cpus")
    cpus = min(trial.train.threads or torch.get_num_threads(), most)
    return cpus, int(gpus >= 1 and trial.train.device in ("auto", "cuda"))


def versions() -> dict[str, str]:
    """What a run's figures depend on: the same on all nodes."""
    return {"groundup-lm": version(), "torch": torch.__version__}


def absolute(data: Any) -> Any:
    """What open_data takes, with absolute paths: a task has another working folder."""
    if isinstance(data, str | Path):
        return str(Path(data).absolute())
    paths = ("path", "train", "heldout")
    return {
        key: absolute(value) if key in paths or isinstance(value, Mapping) else value for key, value in data.items()
    }


@contextlib.contextmanager
def connected(address: str) -> Iterator[Any]:
    """Ray, connected to a cluster. ConnectionError: none answers at the address."""
    ray = need("ray", "--cluster", "groundup-lm[ray]")
    started = not ray.is_initialized()
    if started:
        try:
            if (found := re.fullmatch(r"([^/]+):(\d+)", address)) is not None:  # Ray would try it for minutes
                socket.create_connection((found[1], int(found[2])), timeout=10).close()
            ray.init(address=address, log_to_driver=False, logging_level="ERROR", configure_logging=False)
        except (OSError, ValueError) as error:
            raise ConnectionError(f"no Ray cluster answers at {address!r}: {first_line(error)}") from None
    try:
        yield ray
    finally:
        if started:
            ray.shutdown()


@contextlib.contextmanager
def cancelled_at_the_end(ray: Any) -> Iterator[dict[Any, Trial]]:
    """The tasks that run; those that are left when an exception comes are asked to save and end, as by Ctrl-C."""
    running: dict[Any, Trial] = {}
    try:
        yield running
    except BaseException:
        for reference in running:
            ray.cancel(reference, force=False)
        ray.wait(list(running), num_returns=len(running), timeout=TO_SAVE)
        raise


def first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
