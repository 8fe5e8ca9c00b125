"""Training that begins with any model: another program's is made a run first, whose weights init_from takes."""

from __future__ import annotations

import dataclasses
import os
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lm.config import ModelConfig, TrainConfig
from lm.data import Mixture
from lm.interop.importing import import_run
from lm.interop.loading import is_run, located, place_of
from lm.training import loop
from lm.training.distributed import launched
from lm.training.run_folder import read

INITIAL = "initial"  # the folder, in a run's, of the model that it began with


def train(
    model_config: ModelConfig | None,
    train_config: TrainConfig,
    data: str | Path | Mapping[str, Any] | Mixture,
    run_dir: str | Path,
    **more: Any,
) -> loop.Result:
    """Trains a model in run_dir, or continues the training that stopped there.

    A continued run gives the losses and weights of one that never stopped, bit for bit on a CPU with as many threads.
    train_config.init_from may name any model that lm.load reads, on the Hugging Face Hub too: it is made a run in
    RUN_DIR/initial, which keeps its tokenizer and its chat template.

    Args:
        model_config: The model; None for that of init_from.
        train_config: Its training.
        data: A folder of token files, {"train": path, "heldout": path}, or a mixture of such sets (see data.open_data).
        run_dir: The run's folder.
        more: What training.loop.train takes besides: progress, on_step, tensorboard, tokenizer, restart, branch, step.

    Returns:
        The result, with the model.

    Raises:
        Exception: As training.loop.train. ValueError: no model is given, neither here nor by init_from; or the run in
            run_dir began with another one.
    """
    run_dir = Path(run_dir)
    config = with_run(train_config, run_dir, restart=bool(more.get("restart")))
    if model_config is None:
        if config.init_from == "scratch":
            raise ValueError("there is no [model]: describe one, or name one to begin with by train.init_from")
        model_config = read(config.init_from).model
    return loop.train(model_config, config, data, run_dir, **more)


def with_run(config: TrainConfig, run_dir: Path, *, restart: bool = False) -> TrainConfig:
    """A configuration whose init_from is a run: one in run_dir, made of the model that it names if that is none.

    Raises:
        ValueError: The run in run_dir began with another model, and restart is not asked for.
    """
    source, made = config.init_from, run_dir / INITIAL
    if source == "scratch":
        return config
    if is_run(source):
        return dataclasses.replace(config, init_from=as_known(source, loop.known_training(run_dir, restart)))
    if is_run(made) and not is_made_of(made, source) and is_run(run_dir) and not restart:
        began = read(made).start.get("from", "another model")
        raise ValueError(
            f"the run in {run_dir} began with {began}, and this call names {source}: choose another "
            f"folder, or begin again with --restart"
        )
    if not launched() or os.environ["RANK"] == "0":
        if not is_made_of(made, source):
            located(source)
            shutil.rmtree(made, ignore_errors=True)  # what an import left that was stopped
            import_run(source, made)
    else:
        last = time.monotonic() + config.collective_timeout
        while not is_made_of(made, source):
            if time.monotonic() > last:
                raise ValueError(
                    f"{made} is not there after {config.collective_timeout} s: look at what process 0 says, and give "
                    f"all processes one folder"
                )
            time.sleep(0.2)
    return dataclasses.replace(config, init_from=str(made))


def is_made_of(made: Path, source: str) -> bool:
    """Whether a folder holds the run that import_run made of a model."""
    return is_run(made) and read(made).start.get("from") == place_of(source)


def as_known(run: str, known: TrainConfig | None) -> str:
    """The path of a run that training begins with, as an earlier call wrote it where it named the same folder."""
    if known is not None and Path(known.init_from).resolve() == Path(run).resolve():
        return known.init_from
    return str(Path(run))
