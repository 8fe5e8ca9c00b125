"""Runs: what they write, and that they continue to the bit from wherever they stop."""

from __future__ import annotations

import dataclasses
import itertools
import math
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
import tomllib

import numpy as np
import pytest
import torch
from runs import CONFIG, MODEL, assert_same_run, metrics, run, some_tokens, stop_at, timeless

from lm.data import batch, write_tokens
from lm.documents import IGNORE
from lm.extras import MissingExtra
from lm.files import Locked, lock
from lm.model import Transformer
from lm.training import checkpoint
from lm.training.checkpoint import NotSaved
from lm.training.metrics import read_lines
from lm.training.run import Run, read
from lm.training.train import Diverged, Stopped
from lm.training.trainer import Trainer


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """A run that was never stopped."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, run(data, folder)


def test_a_run_writes_what_it_says(data, whole):
    folder, result = whole
    names = ".lock checkpoints config.toml environment.json metrics.jsonl"
    assert sorted(p.name for p in folder.iterdir()) == names.split()
    assert sorted(p.name for p in (folder / "checkpoints").iterdir()) == ["00000016", "00000020", "latest"]
    assert (folder / "checkpoints" / "latest").read_text() == "00000020\n"
    tables = tomllib.loads((folder / "config.toml").read_text())
    assert tables["model"]["d_ff"] == 24
    assert tables["train"]["learning_rate"] == 1e-2
    assert tables["data"]["tokenizer"] == "t"
    config = read(folder)
    assert (config.model, config.train) == (MODEL, CONFIG)
    lines = [line for line in metrics(folder) if "loss" in line]
    assert [line["step"] for line in lines] == list(range(1, 21))
    assert lines[4]["tokens"] == 5 * 4 * 16
    assert lines[4]["bits_per_byte"] == pytest.approx(lines[4]["loss"] / 3 / math.log(2))
    assert [line["learning_rate"] for line in lines[:4]] == pytest.approx([2.5e-3, 5e-3, 7.5e-3, 1e-2])
    heldout = [line for line in metrics(folder) if "val_loss" in line]
    assert [line["step"] for line in heldout] == [5, 10, 15, 20]
    assert heldout[-1]["val_bits_per_byte"] == pytest.approx(result.heldout.bits_per_byte)
    assert result.heldout.bits_per_byte == pytest.approx(result.heldout.loss / 3 / math.log(2))
    assert result.steps == 20
    assert result.loss == lines[-1]["loss"] < lines[0]["loss"] - 0.5
    model = Run.load(folder)
    assert not model.training
    for name, weight in result.model.state_dict().items():
        assert torch.equal(model.state_dict()[name], weight)


def test_a_finished_run_is_only_read_again(data, whole):
    folder, result = whole
    before = (folder / "metrics.jsonl").read_bytes()
    again = run(data, folder)
    assert (again.loss, again.heldout, again.steps) == (result.loss, result.heldout, 20)
    assert (folder / "metrics.jsonl").read_bytes() == before


def test_a_stopped_run_continues_to_the_bit(data, whole, tmp_path):
    for stop in (1, 4, 5, 7, 8, 9, 15, 19):
        with pytest.raises(Stopped, match=f"stopped after step {stop} of 20"):
            run(data, tmp_path, on_step=stop_at(stop))
        assert checkpoint.steps(tmp_path / "checkpoints")[-1] == stop
    run(data, tmp_path)
    # The best checkpoint is the best of those saved, and stopping saves at other steps too.
    one, other = (checkpoint.load(folder / "checkpoints").state["best"] for folder in (tmp_path, whole[0]))
    assert one[1] <= other[1]
    assert_same_run(tmp_path, whole[0], but=("seconds", "best"))


def test_a_run_that_crashed_goes_back_to_its_checkpoint(data, whole, tmp_path):
    def crash(line):
        if line["step"] == 11:
            raise RuntimeError("power")

    with pytest.raises(RuntimeError, match="power"):
        run(data, tmp_path, on_step=crash)
    with open(tmp_path / "metrics.jsonl", "ab") as file:
        file.write(b'\xff\x00\n{"step": 12, "lo')
    (tmp_path / "ends.jsonl").write_text('{"step": 1}\n{"step": 2}')
    assert read_lines(tmp_path / "ends.jsonl") == ['{"step": 1}\n', '{"step": 2}\n']
    run(data, tmp_path)
    assert_same_run(tmp_path, whole[0])


@pytest.mark.skipif(sys.platform != "linux", reason="/proc says which file is flushed")
def test_a_checkpoint_is_named_only_when_what_it_goes_with_is_on_the_disk(data, tmp_path, monkeypatch):
    happened, fsync, rename = [], os.fsync, os.rename

    def flush(handle):
        happened.append(os.path.basename(os.readlink(f"/proc/self/fd/{handle}")))
        fsync(handle)

    def move(source, target):
        happened.append(f"renamed {os.path.basename(target)}")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(os, "rename", move)
    run(data, tmp_path)
    saves = [i for i, what in enumerate(happened) if what == "metrics.jsonl"]
    assert len(saves) == 5
    for begin, end in itertools.pairwise([*saves, len(happened)]):
        first = happened[begin:end]
        renamed = next(i for i, what in enumerate(first) if what.startswith("renamed 0"))
        assert {"model.safetensors", "optimizer.pt", "state.json"} <= set(first[:renamed])
        assert any(what.startswith(".latest.") for what in first[renamed:])


KILLED = """
import sys, torch
sys.path[:0] = sys.argv[4:]
from lm.config import ModelConfig, TrainConfig
from lm.training.train import train
model = ModelConfig(50, 16, 2, 16, 2, 24)
every = {"eval_every": 150, "eval_tokens": 100, "checkpoint_every": 10}
config = TrainConfig(int(sys.argv[3]), batch_size=2, threads=1, device="cpu", **every)
train(model, config, sys.argv[1], sys.argv[2], progress=False, on_step=lambda line: print(line["step"], flush=True))
"""


def kill_again_and_again(data, tmp_path, *, kills, steps, seed):
    """Kills a run so often, each time some way on from where it was, anywhere in a step or a save; then lets it end."""

    def start():
        command = [
            sys.executable,
            "-c",
            KILLED,
            str(data),
            str(tmp_path / "killed"),
            str(steps),
            *filter(None, sys.path),
        ]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    dice, killed = random.Random(seed), []
    for _ in range(kills):
        process = start()
        enough = dice.randrange(20, 20 + steps // (2 * kills + 2))
        for i, line in enumerate(process.stdout):
            if i == enough:
                time.sleep(dice.random() / 50)
                process.kill()
                killed.append(int(line))
                break
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    assert len(killed) == kills
    _, errors = (process := start()).communicate()
    assert process.returncode == 0, errors
    run(data, tmp_path / "whole", read(tmp_path / "killed").train)
    assert_same_run(tmp_path / "killed", tmp_path / "whole")


def test_kill_9_at_random_moments_changes_nothing(data, tmp_path):
    kill_again_and_again(data, tmp_path, kills=3, steps=300, seed=5)


@pytest.mark.parametrize("mask", [False, True])
@pytest.mark.parametrize("end_of_text", [None, 3])
def test_micro_batches_give_the_gradients_of_the_whole_batch(end_of_text, mask):
    torch.manual_seed(0)
    model = Transformer(MODEL).double()
    ids = some_tokens(3000)
    grads = []
    trainer = Trainer(model, CONFIG, end_of_text=end_of_text)
    masked = batch(ids, 0, 0, 0, 1, 8, 16)[1] % 7 == 0 if mask else torch.zeros(8, 16, dtype=torch.bool)
    for micro in (8, 4, 1):
        batches = [batch(ids, 0, i, 0, 1, micro, 16) for i in range(8 // micro)]
        batches = [(x, y.masked_fill(m, IGNORE)) for (x, y), m in zip(batches, masked.split(micro), strict=True)]
        loss = trainer.forward_backward(batches, int((~masked).sum()))
        grads.append([loss, *(p.grad.clone() for p in model.parameters())])
        model.zero_grad()
    for other in grads[1:]:
        for a, b in zip(grads[0], other, strict=True):
            torch.testing.assert_close(torch.as_tensor(a), torch.as_tensor(b), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"config": {"learning_rate": 2e-2}}, r"train\.learning_rate = 0\.01, and this call asks for 0\.02"),
        ({"config": {"steps": 10}}, r"train\.steps = 20, and this call asks for 10"),
        ({"model": {"d_ff": 28}}, r"model\.d_ff = 24"),
        ({"model": {"sliding_window": 4}}, r"model\.sliding_window = None, and this call asks for 4"),
        ({"data": True}, r"data\.train_sha256"),
    ],
)
def test_a_run_of_another_configuration_is_refused(data, whole, tmp_path, change, says):
    other = {"train": data / "train.npy", "heldout": data / "heldout.npy"}
    if "data" in change:
        write_tokens(tmp_path / "other.npy", some_tokens(3000, 9), tokenizer="t")
        other["train"] = tmp_path / "other.npy"
    with pytest.raises(ValueError, match=says):
        run(
            other,
            whole[0],
            dataclasses.replace(CONFIG, **change.get("config", {})),
            dataclasses.replace(MODEL, **change.get("model", {})),
        )


def test_a_configuration_that_was_edited_is_refused(data, tmp_path):
    with pytest.raises(Stopped):
        run(data, tmp_path, on_step=stop_at(5))
    path = tmp_path / "config.toml"
    path.write_text(path.read_text().replace("learning_rate = 0.01", "learning_rate = 0.02"))
    with pytest.raises(ValueError, match=r"train\.learning_rate = 0\.01, and this call asks for 0\.02"):
        run(data, tmp_path, read(tmp_path).train)


def test_what_changes_nothing_learned_may_change(data, tmp_path, whole):
    with pytest.raises(Stopped):
        run(data, tmp_path, on_step=stop_at(9))
    run(data, tmp_path, dataclasses.replace(CONFIG, keep_checkpoints=1, checkpoint_every=0, threads=0))
    assert timeless(tmp_path) == timeless(whole[0])
    best = checkpoint.load(tmp_path / "checkpoints").state["best"][0]
    assert checkpoint.steps(tmp_path / "checkpoints") == sorted({int(best), 20})


def test_bad_data_is_refused_before_anything_is_written(data, tmp_path):
    write_tokens(tmp_path / "short.npy", np.arange(16), tokenizer="t")
    write_tokens(tmp_path / "high.npy", np.arange(60), tokenizer="t")
    write_tokens(tmp_path / "foreign.npy", np.arange(40), tokenizer="u")
    good = data / "train.npy"
    for paths, says in (
        ({"train": tmp_path / "short.npy"}, "16 tokens are not enough"),
        ({"train": tmp_path / "high.npy"}, "token id 59"),
        ({"train": good, "heldout": tmp_path / "high.npy"}, "token id 59"),
        ({"train": good, "heldout": tmp_path / "foreign.npy"}, "different tokenizers"),
        ({"heldout": good}, "give 'train'"),
    ):
        with pytest.raises(ValueError, match=says):
            run(paths, tmp_path / "run")
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        run(tmp_path / "nowhere", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_no_finite_gradient_is_left_out_unless_that_is_set():
    def decide(loss, norm, norms, **settings):
        trainer = Trainer(Transformer(MODEL), dataclasses.replace(CONFIG, **settings))
        trainer.gradient_norms = list(norms)
        return trainer.decide(loss, norm, 1), trainer

    usual = [1.0, 2.0, 0.5] * 20
    assert decide(3.0, 1e9, usual)[0] is None
    assert decide(3.0, 0.3, [0.0] * 40)[0] is None
    assert "loss is nan" in decide(math.nan, 1.0, usual)[0]
    assert "norm is inf" in decide(3.0, math.inf, usual)[0]
    skipped, trainer = decide(3.0, 30.0, usual, skip_outliers=20.0, gradient_clip=0.0)
    assert "norm is 30, more than 20 times" in skipped
    assert (trainer.skipped, trainer.skips_in_a_row) == (1, 0)  # it never ends a run
    assert decide(3.0, 30.0, usual, skip_outliers=20.0)[0] is None  # clipping leaves 1
    assert decide(3.0, 30.0, usual[:20], skip_outliers=20.0, gradient_clip=0.0)[0] is None  # too early to tell
    assert decide(3.0, 0.0, usual)[1].gradient_norms == usual  # what had no gradient is no measure of the others


def test_what_is_not_yet_learned_is_learned_after_saturation():
    """A batch whose gradient is a hundred times those of the last steps: a second data set, or a rare example."""
    model = Transformer(MODEL)
    trainer = Trainer(model, dataclasses.replace(CONFIG, steps=300, schedule="constant", batch_size=2))
    first, second = (torch.randint(50, (2, 17), generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))

    def learn(ids, steps):
        batch = (ids[:, :-1], ids[:, 1:])
        return [trainer.train_step(iter([batch])) for _ in range(steps)]

    quiet = learn(first, 150)[-1]
    lines = learn(second, 100)
    assert lines[0]["gradient_norm"] > 20 * quiet["gradient_norm"]
    assert not any("skipped" in line for line in lines)
    assert lines[-1]["loss"] < 0.1 < lines[0]["loss"]


def test_weights_that_are_not_numbers_are_never_saved(data, tmp_path, monkeypatch):
    real = Trainer.update

    def spoil(self, *rest):
        result = real(self, *rest)
        if self.step == 9:
            with torch.no_grad():
                self.model.blocks[0].ffn.down.weight[0, 0] = math.nan
        return result

    monkeypatch.setattr(Trainer, "update", spoil)
    config = dataclasses.replace(CONFIG, checkpoint_every=4, keep_checkpoints=1, eval_every=0)
    with pytest.raises(Diverged, match=r"after step 12 a weight is NaN .*step 8\) .*--step 8 "):
        run(data, tmp_path, config)
    assert checkpoint.steps(tmp_path / "checkpoints") == [8]
    assert all(p.isfinite().all() for p in Run.load(tmp_path).parameters())


def break_gradients(monkeypatch, steps):
    """The gradients of these steps, counted over the whole run, are NaN."""
    real = Trainer.forward_backward
    count = iter(range(1, 10**6))

    def broken(self, *rest):
        loss = real(self, *rest)
        if next(count) in steps:
            self.model.embedding.weight.grad[0, 0] = math.nan
            return math.nan
        return loss

    monkeypatch.setattr(Trainer, "forward_backward", broken)


def test_a_step_in_trouble_is_skipped_and_said(data, tmp_path, monkeypatch, capsys):
    break_gradients(monkeypatch, {3, 7})
    result = run(data, tmp_path)
    assert [line["step"] for line in metrics(tmp_path) if "skipped" in line] == [3, 7]
    assert "loss" not in metrics(tmp_path)[2]  # JSON has no NaN
    assert "step 3 is skipped: the loss is nan" in capsys.readouterr().err
    assert math.isfinite(result.loss)
    assert result.skipped == 2
    assert all(p.isfinite().all() for p in result.model.parameters())


def test_a_second_ctrl_c_ends_at_once(data, tmp_path):
    def twice(line):
        if line["step"] == 3:
            signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        run(data, tmp_path, on_step=twice)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_training_outside_the_main_thread(data, tmp_path, whole):
    worker = threading.Thread(target=run, args=(data, tmp_path))
    worker.start()
    worker.join()
    assert timeless(tmp_path) == timeless(whole[0])


def test_a_folder_that_cannot_be_written_is_one_sentence(data, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotSaved, match="cannot be written"):
        run(data, tmp_path / "file" / "run")


def test_load_without_a_run_or_a_checkpoint(data, tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no run"):
        Run.load(tmp_path)
    with pytest.raises(Stopped):
        run(data, tmp_path, on_step=stop_at(1))
    shutil.rmtree(tmp_path / "checkpoints")
    with pytest.raises(FileNotFoundError, match="no checkpoint yet"):
        Run.load(tmp_path)


@pytest.mark.filterwarnings("ignore")  # the compiler's own, of several kinds
def test_compiled_blocks_give_the_same_gradients():
    if shutil.which(os.environ.get("CXX", "g++")) is None:
        pytest.skip("torch.compile needs a C++ compiler, and there is none")
    torch.manual_seed(0)
    model = Transformer(dataclasses.replace(MODEL, num_layers=1))
    ids, results = torch.from_numpy(some_tokens(32).reshape(2, 16)), []
    for _ in range(2):
        hidden = model.hidden(ids)
        hidden.sin().sum().backward()
        results.append([hidden.detach(), *(p.grad.clone() for p in model.parameters() if p.grad is not None)])
        model.zero_grad()
        for block in model.blocks:
            block.compile()
    assert len(results[0]) == len(results[1])
    for actual, want in zip(*results, strict=True):
        torch.testing.assert_close(actual, want, rtol=1e-4, atol=1e-4)


def test_what_was_learned_outlives_an_evaluation_that_fails(data, tmp_path, monkeypatch):
    def fails(*_):
        raise ValueError("the evaluation fails")

    config = dataclasses.replace(CONFIG, steps=4, eval_every=3, checkpoint_every=99)
    monkeypatch.setattr(Trainer, "evaluate", fails)
    with pytest.raises(ValueError, match="the evaluation fails"):
        run(data, tmp_path, config)
    assert checkpoint.load(tmp_path / "checkpoints").step == 3
    monkeypatch.undo()
    run(data, tmp_path, config)
    assert [line["step"] for line in metrics(tmp_path) if "loss" in line] == [1, 2, 3, 4]


def test_two_processes_in_one_folder_are_refused(data, tmp_path):
    with lock(tmp_path), pytest.raises(Locked, match=rf"process {os.getpid()} is at work in .*: let it end"):
        run(data, tmp_path)
    assert not (tmp_path / "config.toml").exists()
    run(data, tmp_path, dataclasses.replace(CONFIG, steps=4))


def test_metrics_for_tensorboard(data, tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    with pytest.raises(Stopped):
        run(data, tmp_path, on_step=stop_at(6), trackers=["tensorboard"])
    run(data, tmp_path, trackers=["tensorboard"])
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    lines = metrics(tmp_path)
    assert [event.step for event in events.Scalars("loss")] == list(range(1, 21))
    for name in ("loss", "val_loss", "learning_rate", "gradient_norm"):
        expected = [line[name] for line in lines if name in line]
        assert [event.value for event in events.Scalars(name)] == pytest.approx(expected, rel=1e-6)


def test_mlflow_continues_the_curve_of_a_resumed_run(data, tmp_path, monkeypatch):
    library = pytest.importorskip("mlflow", reason="the package mlflow is not installed")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    library.set_tracking_uri((tmp_path / "store").as_uri())
    with pytest.raises(Stopped):
        run(data, tmp_path / "run", on_step=stop_at(6), trackers=["mlflow"])
    run(data, tmp_path / "run", trackers=["mlflow"])
    client = library.MlflowClient()
    (one,) = client.search_runs(["0"])
    history = client.get_metric_history(one.info.run_id, "loss")
    losses = [(line["step"], line["loss"]) for line in metrics(tmp_path / "run") if "loss" in line]
    assert [(metric.step, metric.value) for metric in history] == losses
    assert one.info.status == "FINISHED"


def test_wandb_continues_the_curve_of_a_resumed_run(data, tmp_path, monkeypatch):
    """Offline: each part is a folder of its own with one id, as `wandb sync` puts them together."""
    library = pytest.importorskip("wandb", reason="the package wandb is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    lines, log = [], library.Run.log
    monkeypatch.setattr(
        library.Run, "log", lambda run, values, step: lines.append((step, values)) or log(run, values, step)
    )
    with pytest.raises(Stopped):
        run(data, tmp_path, on_step=stop_at(6), trackers=["wandb"])
    run(data, tmp_path, trackers=["wandb"])
    losses = [(line["step"], line["loss"]) for line in metrics(tmp_path) if "loss" in line]
    assert [(step, values["loss"]) for step, values in lines if "loss" in values] == losses
    assert len(losses) == 20
    number = (tmp_path / "wandb" / "id").read_text()
    assert len(list((tmp_path / "wandb").glob(f"offline-run-*-{number}"))) == 2


def test_trackers_are_missed_in_one_sentence(data, tmp_path, monkeypatch):
    for name in ("tensorboard", "wandb", "mlflow"):
        monkeypatch.setitem(sys.modules, name, None)
        message = rf"--track {name} needs the package '{name}': pip install 'groundup-lm\[{name}"
        with pytest.raises(MissingExtra, match=message):
            run(data, tmp_path, trackers=[name])
    with pytest.raises(ValueError, match="expected a tracker of"):
        run(data, tmp_path, trackers=["other"])


@pytest.mark.soak
def test_a_hundred_kills_change_nothing(data, tmp_path):
    kill_again_and_again(data, tmp_path, kills=100, steps=3000, seed=6)
