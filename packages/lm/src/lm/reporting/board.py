"""The metrics of a run for TensorBoard, beside its own metrics.jsonl."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lm.extras import need


@contextlib.contextmanager
def board(folder: Path, step: int) -> Iterator[Callable[[dict[str, Any]], None]]:
    """What takes lines of metrics and writes their numbers under `folder`, after `step`: later ones that are there are
    dropped.

    MissingExtra: the package tensorboard is not installed.
    """
    need("tensorboard", "--tensorboard", "groundup-lm[tensorboard]")
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder), purge_step=step + 1) as writer:

        def write(line: dict[str, Any]) -> None:
            for name, value in line.items():
                if name != "step" and isinstance(value, int | float):
                    writer.add_scalar(name, value, line["step"])

        yield write
