"""Experiments: what they ask for, what they say of it, and that they go on where they were stopped."""

from __future__ import annotations

import dataclasses
import json
import math
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from corpora import write_predictable_tokens
from outcomes import ended, simulate

from lm.commands.cli import main
from lm.commands.configuration import configuration, presets
from lm.config import ModelConfig, TrainConfig
from lm.data import open_data, write_tokens
from lm.experiments import page
from lm.experiments.run_trials import run, unigram_entropy
from lm.experiments.run_trials import work as work_of
from lm.experiments.trials import BASE, Ablations, BatchSizes, LearningRates, Mean, Outcome, Trial, gap
from lm.model import Transformer
from lm.training import checkpoint
from lm.training.run import lock
from lm.training.train import OutOfMemory
from lm.training.trainer import Trainer

MODEL = ModelConfig(vocab_size=24, context_length=8, num_layers=1, d_model=16, num_heads=2, d_ff=32)
TRAIN = TrainConfig(
    steps=30, batch_size=4, learning_rate=1e-2, warmup_steps=2, threads=1, eval_every=0, checkpoint_every=0
)
UNIGRAM = 3.0


def valley(best, edge):
    """Losses by rate: lowest at the best, and no number from the edge on.

    Seeds add a little that is the same for all.
    """

    def loss(trial):
        distance = abs(math.log2(trial.train.learning_rate / best))
        return math.inf if trial.train.learning_rate >= edge else 1 + 0.1 * distance + 0.01 * trial.train.seed

    return loss


@pytest.mark.parametrize("best", [1e-2, 1.25e-3, 3e-4, 8e-2, 0.3])
@pytest.mark.parametrize("times", [1.7, 3.0, 11.0])
def test_a_sweep_finds_the_best_rate_and_the_edge(best, times):
    experiment = LearningRates(MODEL, TRAIN, UNIGRAM)
    outcomes = simulate(experiment, valley(best, best * times))
    finding = experiment.finding(outcomes)
    rate, edge = (
        float(re.search(pattern, finding)[1])
        for pattern in (r"best learning rate is ([\de.+-]+),", r"to diverge is ([\de.+-]+),")
    )
    assert best / 1.5 < rate < best * 1.5
    assert best * times <= edge * 1.001
    assert edge < best * times * 1.5  # known to within half a factor of two
    seeds = [one.seed for one in outcomes.values()]
    assert [seeds.count(seed) for seed in (1, 2)] == [2, 2]  # the best and the runner-up again
    assert "which is more than the seeds differ by" in finding


def test_a_sweep_over_given_rates_runs_those_and_says_what_they_show():
    experiment = LearningRates(MODEL, TRAIN, UNIGRAM, seeds=1, rates=(1e-3, 1e-2))
    outcomes = simulate(experiment, valley(1e-2, 1.0))
    assert sorted(outcomes) == ["0.001-seed-0", "0.01-seed-0"]
    finding = experiment.finding(outcomes)
    assert finding == (
        "The best learning rate is 0.01, at a loss of 1.0000; 0.001 is 0.3322 behind (one seed, so how much of that is "
        "chance is not known). None of the rates up to 0.01 fails."
    )
    assert "No rate learned" in experiment.finding(simulate(experiment, lambda trial: UNIGRAM))


def test_what_a_rate_too_low_to_learn_is_no_edge():
    experiment = LearningRates(MODEL, TRAIN, UNIGRAM)
    outcomes = simulate(experiment, lambda t: 3.5 if t.train.learning_rate < 4e-3 else valley(1e-2, 0.05)(t))
    assert "The lowest rate above it to diverge is 0.0566" in experiment.finding(outcomes)


def test_batch_sizes_see_as_many_tokens():
    experiment = BatchSizes(MODEL, dataclasses.replace(TRAIN, steps=64, batch_size=8, warmup_steps=6), UNIGRAM)
    outcomes = simulate(experiment, lambda trial: 1 + abs(math.log2(trial.train.batch_size / 16)) + 0.01 * trial.seed)
    trials = {trial.variant: trial.train for trial in experiment.trials_for({})}
    assert list(trials) == ["1", "2", "4", "8", "16", "32", "64"]
    for size, config in trials.items():
        assert config.steps * config.batch_size == 512
        assert config.learning_rate == pytest.approx(1e-2 * math.sqrt(int(size) / 8))
        assert config.micro_batch_size == min(8, int(size))
    assert trials["16"].warmup_steps == 3
    finding = experiment.finding(outcomes)
    assert "batches of 16 end lowest, at a loss of 1.0100 ± 0.0248" in finding
    same = BatchSizes(MODEL, TRAIN, UNIGRAM, scale_rate=False, sizes=(3, 100))
    assert [trial.train.learning_rate for trial in same.trials_for({})] == [1e-2, 1e-2]


def test_the_fastest_batch_is_said():
    experiment = BatchSizes(MODEL, TRAIN, UNIGRAM, seeds=1, sizes=(4, 8))
    outcomes = {trial.name: ended(trial, 1 + trial.x / 100, speed=100 * trial.x) for trial in experiment.trials_for({})}
    assert "Batches of 8 are 2.00 times as fast and end +0.0400 above" in experiment.finding(outcomes)


@pytest.mark.parametrize("preset", presets())
def test_every_preset_can_be_swept_and_ablated(preset):
    model, train = configuration(preset, [])
    for experiment in (LearningRates(model, train, 5.0), BatchSizes(model, train, 5.0), Ablations(model, train, 5.0)):
        assert len({trial.name for trial in experiment.trials_for({})}) > 6


def test_ablations_change_one_thing_and_keep_the_parameters():
    small = dataclasses.replace(MODEL, d_model=32, d_ff=96)
    models = Ablations(small, TRAIN, UNIGRAM).models()
    assert sorted(models) == sorted(
        [
            "no-norm",
            "layernorm",
            "post-norm",
            "no-positions",
            "learned-positions",
            "silu",
            "relu2",
            "gelu",
            "tied",
            "qk-norm",
            "value-embeddings",
            "softcap",
        ]
    )
    count = {name: sum(p.numel() for p in Transformer(model).parameters()) for name, model in models.items()}
    whole = sum(p.numel() for p in Transformer(small).parameters())
    for name in ("silu", "relu2", "gelu", "post-norm", "no-positions"):
        assert count[name] == whole
    assert models["silu"].d_ff == 144
    assert Ablations(models["silu"], TRAIN, UNIGRAM).models()["swiglu"].d_ff == 96
    assert list(Ablations(small, TRAIN, UNIGRAM, only=("silu",)).models()) == ["silu"]
    with pytest.raises(ValueError, match=r"no ablation is named 'no-rope': those of this model are .*no-positions"):
        Ablations(small, TRAIN, UNIGRAM, only=("no-rope",))


def test_an_ablation_that_equals_its_base_is_refused():
    for name in ("rope", "swiglu", "rmsnorm", "pre-norm", "untied", "no-qk-norm"):
        with pytest.raises(ValueError, match=f"the ablation '{name}' changes nothing: the base has"):
            Ablations(MODEL, TRAIN, UNIGRAM, only=(name,))


def test_no_norm_leaves_no_norm_in_the_model():
    model = dataclasses.replace(MODEL, qk_norm=True)
    bare = Transformer(Ablations(model, TRAIN, UNIGRAM, only=("no-norm",)).models()["no-norm"])
    assert not [name for name, _ in bare.named_parameters() if "norm" in name]
    assert "no-norm" in Ablations(dataclasses.replace(MODEL, norm="none", qk_norm=True), TRAIN, UNIGRAM).models()


def test_ablations_of_the_training_follow_its_rate_and_its_steps():
    train = dataclasses.replace(TRAIN, steps=40, warmup_steps=4, learning_rate=0.5)
    configs = {trial.variant: trial.train for trial in Ablations(MODEL, train, UNIGRAM, seeds=1).trials_for({})}
    assert (configs["wsd"].schedule, configs["wsd"].decay_steps) == ("linear", 20)
    assert configs["embedding-rate-x4"].embedding_learning_rate == 2.0
    assert configs["head-rate-quarter"].head_learning_rate == 0.125
    assert {"muon", "normuon", "linear"} < set(configs)
    diverging = Ablations(MODEL, train, UNIGRAM, seeds=1, only=("head-rate-half",))
    rates = {}

    def loss(trial):
        rates[trial.variant] = trial.train
        return math.inf if trial.variant == "head-rate-half" else 1.0

    simulate(diverging, loss)
    lower = rates["head-rate-half-rate-over-4"]
    assert (lower.learning_rate, lower.head_learning_rate) == (0.125, 0.0625)


def test_an_ablation_that_diverges_is_tried_at_lower_rates():
    experiment = Ablations(MODEL, TRAIN, UNIGRAM, seeds=2, only=("no-norm", "silu"))
    loss = {"no-norm": math.inf, "no-norm-rate-over-4": 3.1, "no-norm-rate-over-16": 1.5, "silu": 1.0, BASE: 1.0}
    outcomes = simulate(
        experiment, lambda trial: loss[trial.variant] + 0.1 * trial.seed + 0.05 * (trial.variant == "silu") * trial.seed
    )
    assert len(outcomes) == 10
    assert outcomes["no-norm-rate-over-16-seed-0"].loss == 1.5
    assert experiment.trials_for({})[0].variant == BASE
    finding = experiment.finding(outcomes)
    assert "no-norm-rate-over-16 +0.5000 ± 0.0000" in finding
    assert ". no-norm diverges. no-norm-rate-over-4 learns no more than how often each token occurs" in finding
    assert "Within what the seeds differ by: silu" in finding


def test_what_learned_nothing_is_not_said_to_diverge():
    experiment = Ablations(MODEL, TRAIN, UNIGRAM, seeds=1, only=("tied", "silu"))
    finding = experiment.finding(simulate(experiment, lambda trial: UNIGRAM + 0.1))
    assert finding.startswith(
        "The base learns no more than how often each token occurs (3.1000): lower the rate, or train"
    )
    assert "diverge" not in finding
    assert "silu-rate-over-4" in finding
    finding = experiment.finding(simulate(experiment, lambda trial: math.inf))
    assert finding.startswith("The base diverges: lower the rate. ")
    assert "how often" not in finding
    finding = experiment.finding(simulate(experiment, lambda trial: 1.0 if trial.variant == "tied" else math.inf))
    assert finding.startswith("The base diverges: lower the rate; tied ends at 1.0000. ")


def test_intervals_are_student_s():
    assert Mean.of([1.0]) == Mean(1.0, None)
    values = [1.0, 1.5, 0.5, 1.2]
    assert Mean.of(values).margin == pytest.approx(3.182 * np.std(values, ddof=1) / 2)
    outcomes = {
        f"{v}{s}": Outcome(v, s, loss, 1, 1, 1)
        for v, s, loss in (("a", 0, 1), ("a", 1, 2), ("b", 0, 2), ("b", 1, 2), ("b", 2, 9))
    }
    assert gap(outcomes, "b", "a") == Mean.of([1, 0])  # over the seeds that both have


# Real runs


@pytest.fixture
def work(tmp_path, monkeypatch):
    """A text that can be learned in part, and the configuration of a small model."""
    write_predictable_tokens(tmp_path)
    model, train = ({k: v for k, v in dataclasses.asdict(c).items() if v is not None} for c in (MODEL, TRAIN))
    lines = [
        line
        for name, table in (("model", model), ("train", train))
        for line in (f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in table.items()))
    ]
    (tmp_path / "tiny.toml").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def lm(*arguments):
    return main(["experiment", *arguments])


def base(*more):
    return ["--preset", "tiny.toml", "--data", ".", "--out", "runs", "--quiet", *more]


def test_frequencies_are_the_entropy_of_the_tokens(work):
    assert 2.5 < unigram_entropy(open_data(work)) < math.log(24)
    write_tokens(work / "even.npy", np.arange(400) % 4)
    assert unigram_entropy(open_data(work / "even.npy")) == pytest.approx(math.log(4))


def test_a_sweep_from_the_command_line_and_again(work, capsys, monkeypatch):
    arguments = ["lr-sweep", *base("--rates", "1e-3,1e-2,30", "--seeds", "2")]
    assert lm(*arguments) == 0
    stdout = capsys.readouterr().out
    assert "The best learning rate is 0.01, at a loss of" in stdout
    assert (
        "The lowest rate above it to learn no more than how often each token occurs is 30, 3e+03 times the best"
        in stdout
    )
    assert stdout.splitlines()[0].split() == [
        "learning",
        "rate",
        "loss",
        "against",
        "0.01",
        "bits/byte",
        "tokens/s",
        "seconds",
        "runs",
    ]
    assert re.search(r"^30 +learned nothing", stdout, re.MULTILINE)
    page = (work / "runs" / "report.html").read_text()
    assert "Loss by learning rate" in page
    assert "The best learning rate is 0.01" in page
    monkeypatch.setattr(Trainer, "train_step", None)  # nothing is run again
    assert lm(*arguments) == 0
    assert capsys.readouterr().out == stdout
    assert lm(*arguments, "--train.steps", "31") == 2
    assert "train.steps = 30, and this call asks for 31" in capsys.readouterr().err
    (work / "runs" / "0.01-seed-0" / "outcome.json").write_text("{")
    assert lm(*arguments) == 2
    assert "is damaged: remove" in capsys.readouterr().err


def test_an_experiment_that_was_stopped_goes_on(work, capsys, monkeypatch):
    arguments = ["ablations", *base("--only", "silu,tied", "--seeds", "1", "--train.steps", "8")]
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
    assert steps == 24  # three runs of eight steps, and none of them twice
    assert "The base ends at a loss of" in capsys.readouterr().out


def test_what_does_not_fit_the_memory_is_one_sentence(work, capsys):
    assert lm("lr-sweep", *base("--rates", "1e-3", "--model.d_model", "2000000")) == 1
    stderr = capsys.readouterr().err
    assert stderr.startswith("lm: not enough memory on CPU")
    assert stderr.count("\n") == 1


def test_what_prevents_a_run_side_by_side_is_raised_here(work):
    big = dataclasses.replace(MODEL, d_model=2_000_000)
    trial = Trial("a", 0, big, TRAIN)
    hears, says = multiprocessing.Pipe(duplex=False)
    work_of(trial, str(work), work / "a", open_data(work).fingerprints(), torch.get_num_threads(), says)
    assert isinstance(message := hears.recv(), OutOfMemory)
    assert "not enough memory on CPU" in str(message)


def test_the_page_shows_the_first_seed_that_has_ended(work):
    assert lm("ablations", *base("--only", "silu", "--seeds", "2", "--train.steps", "3")) == 0
    read = json.loads((work / "runs" / "base-seed-1" / "outcome.json").read_text())["outcome"]
    ended = {"base-seed-1": Outcome(BASE, 1, float(read["loss"]), 3, 1.0, 1.0)}
    page.write(Ablations(MODEL, TRAIN, UNIGRAM), ended, work / "runs")  # the runs beside it are still at work
    assert f"{float(read['loss']):.4f}" in (work / "runs" / "report.html").read_text()


@pytest.mark.soak  # a process that imports torch
def test_runs_side_by_side_fail_as_those_in_turn(work, capfd):
    more = base("--rates", "1e-3", "--model.d_model", "2000000", "--jobs", "2")
    assert lm("lr-sweep", *more) == 1
    stderr = capfd.readouterr().err
    assert stderr.startswith("lm: not enough memory on CPU")
    assert stderr.count("\n") == 1


@pytest.mark.soak  # five processes that import torch
def test_sigterm_stops_runs_side_by_side(work):
    more = ["--train.steps", "20000", "--train.log_every", "100", "--rates", "1e-3,1e-2", "--seeds", "1", "--jobs", "2"]
    command = [sys.executable, "-m", "lm", "experiment", "lr-sweep", *base(*more)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(os.path.abspath, filter(None, sys.path)))}
    process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True)
    runs = [work / "runs" / f"{rate}-seed-0" for rate in ("0.001", "0.01")]
    while process.poll() is None and not all((folder / "metrics.jsonl").exists() for folder in runs):
        time.sleep(0.01)
    process.send_signal(signal.SIGTERM)
    _, stderr = process.communicate()
    assert process.returncode == 130
    assert stderr == "lm: stopped: the same command goes on with the runs in runs\n"
    for folder in runs:
        with lock(folder):  # nobody is at work in it any more
            assert checkpoint.steps(folder / "checkpoints")
            assert not (folder / "outcome.json").exists()


@pytest.mark.soak  # two processes that import torch
def test_runs_side_by_side_are_those_in_turn(work, capsys):
    model, train = configuration("tiny.toml", ["--train.steps", "6"])
    experiment = BatchSizes(model, train, unigram_entropy(open_data(work)), seeds=1, sizes=(2, 4))
    alone = run(experiment, str(work), work / "alone", progress=False)
    counts = []
    beside = run(
        experiment,
        str(work),
        work / "beside",
        jobs=2,
        progress=False,
        tell=lambda outcomes: counts.append(len(outcomes)),
    )
    assert {name: one.loss for name, one in alone.items()} == {name: one.loss for name, one in beside.items()}
    assert counts == [0, 1, 2, 2]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["lr-sweep", *base("--seeds", "0")], "--seeds must be at least 1"),
        (["lr-sweep", *base("--jobs", "0")], "--jobs must be at least 1"),
        (["lr-sweep", *base("--model.layers", "2")], "did you mean 'num_layers'"),
        (["batch-sweep", *base("--sizes", "0")], "at least 1 row"),
        (["ablations", *base("--only", "rope2")], "those of this model are no-norm"),
        (["ablations", *base("--only", "rope")], "changes nothing"),
        (["ablations", "--preset", "tiny.toml", "--data", "nowhere", "--out", "runs"], "no folder nowhere"),
    ],
)
def test_a_mistake_is_one_sentence(work, capsys, arguments, says):
    assert lm(*arguments) == 2
    output = capsys.readouterr()
    assert says in output.err
    assert output.err.count("\n") == 1
    assert not (work / "runs").exists()
