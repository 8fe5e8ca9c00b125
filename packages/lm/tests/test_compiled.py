"""A compiled run that is stopped continues to the bit."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch
from runs import environment, timeless, write_settings

from lm.training import checkpoint

pytestmark = [
    pytest.mark.soak,  # each process compiles for some twenty seconds
    pytest.mark.skipif(shutil.which(os.environ.get("CXX", "g++")) is None, reason="torch.compile needs a C++ compiler"),
]


def lm_train(folder, out, until):
    """Runs `lm train`, with nothing compiled beforehand, until it has made so many steps, then presses Ctrl-C."""
    command = [sys.executable, "-m", "lm", "train", str(folder / "small.toml"), "--out", str(out)]
    cache = folder / f"compiled-{out.name}-{until}"  # torch passes it to a shell: no spaces
    own = environment(TORCHINDUCTOR_CACHE_DIR=str(cache))
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=own)
    while process.poll() is None and not ((out / "metrics.jsonl").exists() and metrics_so_far(out) >= until):
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, output = process.communicate()
    assert process.returncode == 130, output
    assert "the same command continues it" in output
    assert any(cache.rglob("*.so"))  # what was compiled was compiled here, and not found


def metrics_so_far(out):
    return (out / "metrics.jsonl").read_text().count("\n")


def test_a_compiled_run_continues_to_the_bit(data, tmp_path):
    every = {"eval_every": 15, "eval_tokens": 100, "checkpoint_every": 10, "keep_checkpoints": 1_000_000}
    size = {"batch_size": 4, "micro_batch_size": 2, "threads": 1, "device": "cpu"}
    write_settings(tmp_path / "small.toml", data, steps=10_000_000, compile="on", **size, **every)
    lm_train(tmp_path, tmp_path / "stopped", 30)
    stopped = checkpoint.steps(tmp_path / "stopped" / "checkpoints")[-1]
    lm_train(tmp_path, tmp_path / "stopped", stopped + 60)
    last = checkpoint.steps(tmp_path / "stopped" / "checkpoints")[-1]
    lm_train(tmp_path, tmp_path / "whole", last + 10)
    one, other = (timeless(tmp_path / name) for name in ("stopped", "whole"))
    assert one == other[: len(one)]
    step = last // 10 * 10
    assert step > stopped
    saved, want = (checkpoint.load(tmp_path / name / "checkpoints", step) for name in ("stopped", "whole"))
    for name, weight in want.model.items():
        assert torch.equal(saved.model[name], weight), name
    for index, state in want.optimizer["state"].items():
        for key, value in state.items():
            assert torch.equal(saved.optimizer["state"][index][key], value), key
