"""The metrics of a run for TensorBoard, Weights & Biases or MLflow, beside its own metrics.jsonl.

A resumed run continues its curves. What belongs to a run is kept in its folder, under the tracker's name.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from lm.config import read_toml
from lm.extras import need

Line = dict[str, Any]
Tracker = Callable[[Path, int], AbstractContextManager[Callable[[Line], None]]]


def numbers(line: Line) -> dict[str, float]:
    return {name: value for name, value in line.items() if name != "step" and isinstance(value, int | float)}


@contextlib.contextmanager
def tensorboard(run_dir: Path, step: int) -> Iterator[Callable[[Line], None]]:
    """A function that writes lines of metrics under run_dir/tensorboard; later ones than `step` there are dropped."""
    need("tensorboard", "--track tensorboard", "groundup-lm[tensorboard]")
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(run_dir / "tensorboard"), purge_step=step + 1) as writer:

        def write(line: Line) -> None:
            for name, value in numbers(line).items():
                writer.add_scalar(name, value, line["step"])

        yield write


@contextlib.contextmanager
def wandb(run_dir: Path, step: int) -> Iterator[Callable[[Line], None]]:
    """A function that logs lines to Weights & Biases, which its own environment variables configure; steps that it has
    already stay."""
    library = need("wandb", "--track wandb", "groundup-lm[wandb]")
    folder = run_dir / "wandb"
    number = stored(folder / "id", lambda: uuid.uuid4().hex)
    table = read_toml(run_dir / "config.toml")
    run = library.init(id=number, resume="allow", name=run_dir.name, dir=str(run_dir), config=table)

    def write(line: Line) -> None:
        if line["step"] >= run.step:
            run.log(numbers(line), step=line["step"])

    try:
        yield write
    finally:
        run.finish()


@contextlib.contextmanager
def mlflow(run_dir: Path, step: int) -> Iterator[Callable[[Line], None]]:
    """A function that logs lines to MLflow, which its own environment variables configure; steps that it has already
    stay."""
    library = need("mlflow", "--track mlflow", "groundup-lm[mlflow]")
    file = run_dir / "mlflow" / "id"
    with library.start_run(run_id=file.read_text() if file.exists() else None, run_name=run_dir.name) as run:
        number = stored(file, lambda: str(run.info.run_id))
        library.log_artifact(str(run_dir / "config.toml"), run_id=number)
        history = library.MlflowClient().get_metric_history(number, "loss")
        last = max((metric.step for metric in history), default=-1)

        def write(line: Line) -> None:
            if line["step"] > last:
                library.log_metrics(numbers(line), step=line["step"], run_id=number)

        yield write


def stored(file: Path, make: Callable[[], str]) -> str:
    """The text of a file, which is made if it is not there."""
    if not file.exists():
        file.parent.mkdir(exist_ok=True)
        file.write_text(make())
    return file.read_text()


def tracker(name: str) -> Tracker:
    trackers: dict[str, Tracker] = {"tensorboard": tensorboard, "wandb": wandb, "mlflow": mlflow}
    if name not in trackers:
        raise ValueError(f"expected a tracker of {', '.join(trackers)}, got {name!r}")
    return trackers[name]
