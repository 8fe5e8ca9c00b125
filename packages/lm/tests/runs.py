"""Small runs on a small text, and what it means for two of them to be the same."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import sys

import numpy as np
import pytest
import tomli_w
import torch
from models import SHAPES

from lm.config import ModelConfig, TrainConfig, to_table
from lm.data import write_tokens
from lm.model import Transformer
from lm.training import checkpoint
from lm.training.train import Stopped, train

MODEL = ModelConfig(50, 16, 2, 16, 2, 24)
CONFIG = TrainConfig(
    20,
    batch_size=4,
    learning_rate=1e-2,
    warmup_steps=3,
    eval_every=5,
    eval_tokens=100,
    checkpoint_every=4,
    threads=1,
    device="cpu",
    precision="fp32",
)


def new_model(shape, dtype=torch.float64):
    torch.manual_seed(0)
    return Transformer(dataclasses.replace(MODEL, **SHAPES[shape])).to(dtype)


def write_settings(path, data=None, **train):
    """Write the configuration of a run of MODEL as TOML."""
    tables = {"model": to_table(MODEL), "train": train} | ({"data": {"path": str(data)}} if data else {})
    path.write_text(tomli_w.dumps(tables))


def some_tokens(count, seed=0):
    """A text that can be learned: each token is one or two more than the one before."""
    return np.cumsum(np.random.default_rng(seed).integers(1, 3, count)) % 50


def write_windows(folder, window, end, examples, **more):
    """A folder of windows, each of what examples(random) returns, ids and which of them are learned, then of ends."""
    for name, count, seed in (("train", 40, 0), ("heldout", 10, 1)):
        random, rows, masks = np.random.default_rng(seed), [], []
        for _ in range(count):
            row, mask = examples(random)
            rows.append(row + [end] * (window - len(row)))
            masks.append(mask + [0] * (window - len(mask)))
        ids, mask = (np.array(part).reshape(-1) for part in (rows, masks))
        write_tokens(folder / f"{name}.npy", ids, tokenizer="t", end_of_text=end, mask=mask, window=window, **more)
    return folder


def run(data, folder, config=CONFIG, model=MODEL, **more):
    return train(model, config, data, folder, progress=False, **more)


def metrics(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def losses(folder):
    """Those of training and of held-out text, in their order."""
    return [line.get("loss", line.get("val_loss")) for line in metrics(folder)]


def environment(**more):
    """The environment of another process that can import what this one can."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, filter(None, sys.path))), **more}


TIMES = ("seconds", "tokens_per_second")


def timeless(folder):
    return [{k: v for k, v in line.items() if k not in TIMES} for line in metrics(folder)]


def assert_same_run(folder, whole, but=("seconds",)):
    """The same metrics, weights and optimizer state, to the bit; and the same of what else is kept, `but` for that."""
    assert timeless(folder) == timeless(whole)
    one, other = (checkpoint.load(f / "checkpoints") for f in (folder, whole))
    assert one.step == other.step
    for name, weight in other.model.items():
        assert torch.equal(one.model[name], weight), name
    for index, state in other.optimizer["state"].items():
        for key, value in state.items():
            assert torch.equal(one.optimizer["state"][index][key], value), key
    states = [{key: value for key, value in saved.state.items() if key not in but} for saved in (one, other)]
    assert states[0] == states[1]


def assert_continues(data, folder, config=CONFIG, model=MODEL, step=7):
    """A run that is stopped goes on as folder/whole, which is not stopped, to the bit. Returns its result."""
    run(data, folder / "whole", config, model)
    with pytest.raises(Stopped):
        run(data, folder / "stopped", config, model, on_step=stop_at(step))
    result = run(data, folder / "stopped", config, model)
    assert_same_run(folder / "stopped", folder / "whole")
    return result


def stop_at(step):
    """Asks for a stop as Ctrl-C does, in the middle of the step before."""

    def on_step(line):
        if line["step"] == step and "loss" in line:
            signal.raise_signal(signal.SIGTERM if step % 2 else signal.SIGINT)

    return on_step
