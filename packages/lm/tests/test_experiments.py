"""Experiments: the variants of a command line, their table, and that they go on where they were stopped."""

from __future__ import annotations

import dataclasses
import math
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time

import pytest
import tomli_w
from runs import environment, some_tokens

from lm.commands.cli import main
from lm.commands.experiment import BASE, variants_of
from lm.config import ModelConfig, TrainConfig, to_table
from lm.data import write_tokens
from lm.experiments.grid import Outcome, Trial, mean_and_error, rows, run, write
from lm.files import lock
from lm.training import checkpoint
from lm.training.train import OutOfMemory, Stopped
from lm.training.trainer import Trainer

MODEL = ModelConfig(vocab_size=24, context_length=8, num_layers=1, d_model=16, num_heads=2, d_ff=32)
TRAIN = TrainConfig(
    steps=30, batch_size=4, learning_rate=1e-2, warmup_steps=2, threads=1, eval_every=0, checkpoint_every=0
)


def test_values_between_commas_are_a_grid_and_variants_stand_alone():
    settings = ["--train.learning_rate", "1e-3,2e-3", "--model.ffn=silu,gelu", "--train.steps", "8"]
    variants = dict(variants_of(settings, ["model.norm=none train.learning_rate=1e-4"]))
    assert list(variants) == [
        *(f"learning_rate={rate},ffn={ffn}" for rate in ("1e-3", "2e-3") for ffn in ("silu", "gelu")),
        "norm=none,learning_rate=1e-4",
    ]
    fixed = ["--train.steps", "8"]
    assert variants["learning_rate=2e-3,ffn=silu"] == [
        *fixed, "--train.learning_rate", "2e-3", "--model.ffn", "silu",
    ]  # fmt: skip
    assert variants["norm=none,learning_rate=1e-4"] == [
        *fixed, "--model.norm", "none", "--train.learning_rate", "1e-4",
    ]  # fmt: skip
    assert list(dict(variants_of(fixed, ["model.ffn=silu"]))) == [BASE, "ffn=silu"]
    assert list(dict(variants_of(["--model.windows", "[1,2]"], ()))) == [BASE]
    with pytest.raises(ValueError, match="two variants are called 'ffn=silu'"):
        dict(variants_of([], ["model.ffn=silu", "model.ffn=silu"]))
    with pytest.raises(ValueError, match="expected --variant"):
        dict(variants_of([], ["model.ffn"]))


def test_the_table_compares_to_the_best_seed_by_seed():
    losses = {"a": (1.0, 2.0), "b": (2.0, 2.5), "c": (math.inf, 1.0)}
    trials = [Trial(name, seed, MODEL, TRAIN) for name in losses for seed in (0, 1)]
    outcomes = {trial.name: Outcome(losses[trial.variant][trial.seed], 1, 1.0, 10.0, 3.0) for trial in trials}
    assert rows(trials, outcomes) == [
        ("a", "1.5000 ± 0.5000", "", "3.0000", "10", "2", "2"),
        ("b", "2.2500 ± 0.2500", "+0.7500 ± 0.2500", "3.0000", "10", "2", "2"),
        ("c", "diverged", "", "", "", "2", "2"),
    ]
    assert mean_and_error([1.0]) == "1.0000"


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A text that can be learned in part, and the configuration of a small model."""
    write_tokens(tmp_path / "train.npy", some_tokens(3500) % 24, text_bytes=3500)
    write_tokens(tmp_path / "heldout.npy", some_tokens(500, 1) % 24, text_bytes=500)
    (tmp_path / "tiny.toml").write_text(tomli_w.dumps({"model": to_table(MODEL), "train": to_table(TRAIN)}))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lm(*arguments):
    return main(["experiment", "tiny.toml", "--data", ".", "--out", "runs", "--quiet", *arguments])


def test_a_grid_from_the_command_line_and_again(work, capsys, monkeypatch):
    arguments = ["--train.learning_rate", "1e-3,1e-2", "--seeds", "2", "--train.steps", "12"]
    assert lm(*arguments) == 0
    stdout = capsys.readouterr().out
    assert re.search(r"^learning_rate=1e-2 +\d\.\d{4} ± ", stdout, re.MULTILINE)
    monkeypatch.setattr(Trainer, "train_step", None)  # nothing is trained again
    assert lm(*arguments) == 0
    assert capsys.readouterr().out == stdout
    assert lm(*arguments, "--train.eps", "1e-7") == 2
    assert "eps" in capsys.readouterr().err


def test_an_experiment_that_was_stopped_goes_on(work, capsys, monkeypatch):
    arguments = ["--variant", "model.ffn=silu", "--seeds", "1", "--train.steps", "8"]
    real = Trainer.train_step
    steps = 0

    def train_step(self, *arguments, **more):
        nonlocal steps
        steps += 1
        if steps == 11:
            os.kill(os.getpid(), 2)
        return real(self, *arguments, **more)

    monkeypatch.setattr(Trainer, "train_step", train_step)
    assert lm(*arguments) == 130
    assert "the same command goes on with the runs in runs" in capsys.readouterr().err
    assert lm(*arguments) == 0
    assert steps == 16  # two runs of eight steps, and none of them twice


def test_what_diverges_stands_last_and_memory_is_one_sentence(work, capsys, monkeypatch):
    assert lm("--train.learning_rate", "1e-3,1e30", "--seeds", "1") == 0
    assert re.search(r"learning_rate=1e30 +diverged +\d+ +1$", capsys.readouterr().out.splitlines()[-2])
    assert lm("--variant", "model.d_model=2000000", "--seeds", "1") == 1
    stderr = capsys.readouterr().err
    assert stderr.startswith("lm: not enough memory on CPU")
    assert stderr.count("\n") == 1


def test_the_page_shows_the_first_seed_that_has_ended(work):
    trial = Trial(BASE, 1, MODEL, dataclasses.replace(TRAIN, steps=3))
    outcomes = run([trial], str(work), work / "runs", progress=False)
    write([Trial(BASE, 0, MODEL, TRAIN), trial], outcomes, work / "runs")  # the first seed is still at work
    assert f"{outcomes[trial.name].loss:.4f}" in (work / "runs" / "report.html").read_text()


@pytest.mark.soak  # five processes that import torch
def test_sigterm_stops_runs_side_by_side(work):
    more = ["--train.steps", "20000", "--train.log_every", "100", "--train.learning_rate", "1e-3,1e-2", "--seeds", "1"]
    command = [sys.executable, "-m", "lm", "experiment", "tiny.toml", "--data", ".", "--out", "runs", "--quiet"]
    process = subprocess.Popen([*command, *more, "--jobs", "2"], env=environment(), stderr=subprocess.PIPE, text=True)
    runs = [work / "runs" / f"learning_rate={rate}-seed-0" for rate in ("1e-3", "1e-2")]
    while process.poll() is None and not all((folder / "metrics.jsonl").exists() for folder in runs):
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate()
    assert process.returncode == 130
    assert stderr == "lm: stopped: the same command goes on with the runs in runs\n"
    for folder in runs:
        with lock(folder):  # nobody is at work in it any more
            assert checkpoint.steps(folder / "checkpoints")


@pytest.mark.soak  # two processes that import torch
def test_a_run_that_fails_ends_the_one_beside_it_saved(work):
    """Which a supervisor's own signal to every process does not end before it has saved."""
    long = Trial("long", 0, MODEL, dataclasses.replace(TRAIN, steps=1_000_000, log_every=1))
    wide = Trial("wide", 0, dataclasses.replace(MODEL, d_model=2_000_000), TRAIN)
    metrics = work / "runs" / long.name / "metrics.jsonl"

    def tell(outcomes):
        """Fail once the long run is at work."""
        while not metrics.exists():
            time.sleep(0.01)
        for process in multiprocessing.active_children() * 50:
            if process.is_alive():
                os.kill(process.pid, signal.SIGTERM)
                time.sleep(0.001)

    short = Trial("short", 0, MODEL, dataclasses.replace(TRAIN, steps=2))
    with pytest.raises((OutOfMemory, Stopped)):
        run([long, short, wide], str(work), work / "runs", jobs=2, progress=False, tell=tell)
    assert not multiprocessing.active_children()
    assert checkpoint.steps(metrics.parent / "checkpoints")


@pytest.mark.soak  # two processes that import torch
def test_runs_side_by_side_are_those_in_turn(work):
    trials = [Trial(str(size), 0, MODEL, dataclasses.replace(TRAIN, steps=6, batch_size=size)) for size in (2, 4, 8)]
    alone = run(trials, str(work), work / "alone", progress=False)
    counts = []
    beside = run(
        trials, str(work), work / "beside", jobs=2, progress=False, tell=lambda outcomes: counts.append(len(outcomes))
    )
    assert {name: one.loss for name, one in alone.items()} == {name: one.loss for name, one in beside.items()}
    assert counts == [1, 2, 3]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--seeds", "0"], "--seeds must be at least 1"),
        (["--jobs", "0"], "--jobs must be at least 1"),
        (["--model.layers", "2"], "did you mean 'num_layers'"),
        (["--train.learning_rate", "1,-1"], "learning_rate"),
        (["--data", "nowhere"], "no folder nowhere"),
    ],
)
def test_a_mistake_is_one_sentence(work, capsys, arguments, says):
    if arguments[0] == "--data":
        assert main(["experiment", "tiny.toml", *arguments, "--out", "runs"]) == 2
    else:
        assert lm(*arguments) == 2
    output = capsys.readouterr()
    assert says in output.err
    assert output.err.count("\n") == 1
    assert not (work / "runs").exists()
