"""torch.compile: chosen by measuring, said, and no reason for a run that is stopped to become another."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time

import pytest
import torch
from runs import TIMES, metrics

from lm.training import checkpoint
from lm.training.run import read_config

pytestmark = [
    pytest.mark.soak,  # each process compiles for some twenty seconds
    pytest.mark.skipif(shutil.which(os.environ.get("CXX", "g++")) is None, reason="torch.compile needs a C++ compiler"),
]

SETTINGS = """
[model]
vocab_size = 50
context_length = 32
num_layers = 2
d_model = 32
num_heads = 2
d_ff = 64
[train]
steps = 10000000
batch_size = 4
micro_batch_size = 2
threads = 1
device = "cpu"
compile = "auto"
eval_every = 15
eval_tokens = 100
checkpoint_every = 10
keep_checkpoints = 1000000
"""
DECIDED = re.compile(r"^(not )?compiled: a step takes (\d+) ms compiled and (\d+) ms not(.*)$", re.MULTILINE)


def lm_train(folder, out, until, *settings):
    """Runs `lm train`, with nothing compiled beforehand, until it has made so many steps, then presses Ctrl-C: what it
    said."""
    command = [sys.executable, "-m", "lm", "train", str(folder / "small.toml"), "--out", str(out), *settings]
    cache = folder / f"compiled-{out.name}-{until}"  # torch passes it to a shell: no spaces
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "TORCHINDUCTOR_CACHE_DIR": str(cache),
    }
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    while process.poll() is None and not ((out / "metrics.jsonl").exists() and metrics_so_far(out) >= until):
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert process.returncode == 130, said
    assert "the same command continues it" in said
    if read_config(out)[1].compile == "on":  # what was compiled was compiled here, and not found
        assert any(cache.rglob("*.so"))
    return said


def metrics_so_far(out):
    return (out / "metrics.jsonl").read_text().count("\n")


def test_a_long_run_is_measured_decided_and_continued_to_the_bit(data, tmp_path):
    (tmp_path / "small.toml").write_text(f'{SETTINGS}[data]\npath = "{data}"\n')
    said = lm_train(tmp_path, tmp_path / "stopped", 30)
    found = DECIDED.search(said)
    assert found, said
    on = not found[1]
    config = read_config(tmp_path / "stopped")[1]
    assert config.compile == ("on" if on else "off")
    assert ("10000000 steps gain" in found[4]) == on
    assert int(found[2]) <= int(found[3]) if on else int(found[2]) >= int(found[3])
    settings = ()
    if not on:  # then compiled runs must be had by asking
        shutil.rmtree(tmp_path / "stopped")
        settings = ("--train.compile", "on")
        lm_train(tmp_path, tmp_path / "stopped", 30, *settings)
    stopped = checkpoint.steps(tmp_path / "stopped" / "checkpoints")[-1]
    again = lm_train(tmp_path, tmp_path / "stopped", stopped + 60, *settings)
    assert not DECIDED.search(again)  # once is enough
    last = checkpoint.steps(tmp_path / "stopped" / "checkpoints")[-1]
    lm_train(tmp_path, tmp_path / "whole", last + 10, "--train.compile", "on")
    one, other = (
        [{key: value for key, value in line.items() if key not in TIMES} for line in metrics(tmp_path / name)]
        for name in ("stopped", "whole")
    )
    assert one == other[: len(one)]
    step = last // 10 * 10
    assert step > stopped
    saved, want = (checkpoint.load(tmp_path / name / "checkpoints", step) for name in ("stopped", "whole"))
    for name, weight in want.model.items():
        assert torch.equal(saved.model[name], weight), name
    for index, state in want.optimizer["state"].items():
        for key, value in state.items():
            assert torch.equal(saved.optimizer["state"][index][key], value), key
