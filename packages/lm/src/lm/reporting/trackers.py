"""The metrics of a run for TensorBoard, Weights & Biases or MLflow, where a resumed run continues its curves."""

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
Tracker = Callable[[Path, int], AbstractContextManager[Callable[[Line], object]]]


def numbers(line: Line) -> dict[str, float]:
    return {name: value for name, value in line.items() if name != "step" and isinstance(value, int | float)}


@contextlib.contextmanager
def tensorboard(run_dir: Path, step: int) -> Iterator[Callable[[Line], object]]:
    """A function that writes lines of metrics under run_dir/tensorboard; later ones than `step` there are dropped."""
    need("tensorboard", "--track tensorboard", "groundup-lm[tensorboard]")
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(run_dir / "tensorboard"), purge_step=step + 1) as writer:
        yield lambda line: [writer.add_scalar(name, value, line["step"]) for name, value in numbers(line).items()]


@contextlib.contextmanager
def wandb(run_dir: Path, step: int) -> Iterator[Callable[[Line], object]]:
    """A function that logs lines to Weights & Biases, configured by its environment variables; steps it has stay."""
    library, table = need("wandb", "--track wandb", "groundup-lm[wandb]"), read_toml(run_dir / "config.toml")
    number = stored(run_dir / "wandb" / "id", lambda: uuid.uuid4().hex)
    with library.init(id=number, resume="allow", name=run_dir.name, dir=str(run_dir), config=table) as run:
        first = run.step
        yield lambda line: run.log(numbers(line), step=line["step"]) if line["step"] >= first else None


@contextlib.contextmanager
def mlflow(run_dir: Path, step: int) -> Iterator[Callable[[Line], object]]:
    """A function that logs lines to MLflow, configured by its environment variables; steps it has stay."""
    library, file = need("mlflow", "--track mlflow", "groundup-lm[mlflow]"), run_dir / "mlflow" / "id"
    with library.start_run(run_id=file.read_text() if file.exists() else None, run_name=run_dir.name) as run:
        number = stored(file, lambda: str(run.info.run_id))
        library.log_artifact(str(run_dir / "config.toml"), run_id=number)
        history = library.MlflowClient().get_metric_history(number, "loss")
        last, log = max((metric.step for metric in history), default=-1), library.log_metrics
        yield lambda line: log(numbers(line), step=line["step"], run_id=number) if line["step"] > last else None


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
