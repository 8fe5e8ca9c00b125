"""Runs: what they write, that they continue to the bit from wherever they stop, and that scores are exact."""

from __future__ import annotations

import dataclasses
import errno
import json
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

from lm import checkpoint, training
from lm.checkpoint import Damaged, NotSaved
from lm.config import ModelConfig, TrainConfig
from lm.data import write_tokens
from lm.model import Transformer
from lm.optimizer import adamw
from lm.training import Diverged, Stopped, evaluate, load, measure_speed, read_config, train

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
)


def some_tokens(count, seed=0):
    """A text that can be learned: each token is one or two more than the one before."""
    return np.cumsum(np.random.default_rng(seed).integers(1, 3, count)) % 50


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    write_tokens(folder / "train.npy", some_tokens(3000), text_bytes=9000, tokenizer="t")
    write_tokens(folder / "heldout.npy", some_tokens(500, 1), text_bytes=1500, tokenizer="t")
    return folder


def run(data, folder, config=CONFIG, model=MODEL, **more):
    return train(model, config, data, folder, progress=False, **more)


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    """A run that was never stopped."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, run(data, folder)


def metrics(folder):
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


TIMES = ("seconds", "tokens_per_second")


def timeless(folder):
    return [{k: v for k, v in line.items() if k not in TIMES} for line in metrics(folder)]


def assert_same_run(folder, whole):
    """The same metrics, weights and optimizer state, to the bit."""
    assert timeless(folder) == timeless(whole)
    one, other = (checkpoint.load(f / "checkpoints") for f in (folder, whole))
    assert one.step == other.step
    for name, weight in other.model.items():
        assert torch.equal(one.model[name], weight), name
    for index, state in other.optimizer["state"].items():
        for key, value in state.items():
            assert torch.equal(one.optimizer["state"][index][key], value), key
    assert {**one.state, "seconds": 0} == {**other.state, "seconds": 0}


def stop_at(step):
    """Asks for a stop as Ctrl-C does, in the middle of the step before."""

    def on_step(line):
        if line["step"] == step and "loss" in line:
            signal.raise_signal(signal.SIGTERM if step % 2 else signal.SIGINT)

    return on_step


def test_a_run_writes_what_it_says(data, whole):
    folder, result = whole
    assert sorted(p.name for p in folder.iterdir()) == ["checkpoints", "config.toml", "metrics.jsonl"]
    assert sorted(p.name for p in (folder / "checkpoints").iterdir()) == ["00000016", "00000020", "latest"]
    assert (folder / "checkpoints" / "latest").read_text() == "00000020\n"
    tables = tomllib.loads((folder / "config.toml").read_text())
    assert tables["model"]["d_ff"] == 24
    assert tables["train"]["learning_rate"] == 1e-2
    assert tables["data"]["tokenizer"] == "t"
    assert read_config(folder)[:2] == (MODEL, CONFIG)
    lines = [line for line in metrics(folder) if "loss" in line]
    assert [line["step"] for line in lines] == list(range(1, 21))
    assert lines[4]["tokens"] == 5 * 4 * 16
    assert lines[4]["bits_per_byte"] == pytest.approx(lines[4]["loss"] / 3 / math.log(2))
    assert [line["learning_rate"] for line in lines[:4]] == pytest.approx([2.5e-3, 5e-3, 7.5e-3, 1e-2])
    heldout = [line for line in metrics(folder) if "heldout_loss" in line]
    assert [line["step"] for line in heldout] == [5, 10, 15, 20]
    assert heldout[-1]["heldout_bits_per_byte"] == pytest.approx(result.heldout.bits_per_byte)
    assert result.heldout.bits_per_byte == pytest.approx(result.heldout.loss / 3 / math.log(2))
    assert result.steps == 20
    assert result.loss == lines[-1]["loss"] < lines[0]["loss"] - 0.5
    model = load(folder)
    assert not model.training
    for name, weight in result.model.state_dict().items():
        assert torch.equal(model.state_dict()[name], weight)


def test_a_finished_run_is_only_read_again(data, whole):
    folder, result = whole
    before = (folder / "metrics.jsonl").read_bytes()
    again = run(data, folder)
    assert (again.loss, again.heldout, again.steps) == (result.loss, result.heldout, 20)
    assert (folder / "metrics.jsonl").read_bytes() == before


@pytest.mark.parametrize("stops", [[1], [4], [7, 8, 9], [19], [5, 15]])
def test_a_stopped_run_continues_to_the_bit(data, whole, tmp_path, stops):
    for stop in stops:
        with pytest.raises(Stopped, match=f"stopped after step {stop} of 20"):
            run(data, tmp_path, on_step=stop_at(stop))
        assert checkpoint.steps(tmp_path / "checkpoints")[-1] == stop
    run(data, tmp_path)
    assert_same_run_but_for_kept_checkpoints(tmp_path, whole[0])


def assert_same_run_but_for_kept_checkpoints(folder, whole):
    # The best checkpoint is the best of those saved, and stopping saves at other steps too.
    one, other = (checkpoint.load(f / "checkpoints").state["best"] for f in (folder, whole))
    assert one[1] <= other[1]
    for f in (folder, whole):
        path = checkpoint.load(f / "checkpoints").path / "state.json"
        state = json.loads(path.read_text())
        path.write_text(json.dumps({**state, "best": None}))
    try:
        assert_same_run(folder, whole)
    finally:
        path = checkpoint.load(whole / "checkpoints").path / "state.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), "best": other}))


def test_a_run_that_crashed_goes_back_to_its_checkpoint(data, whole, tmp_path):
    def crash(line):
        if line["step"] == 11:
            raise RuntimeError("power")

    with pytest.raises(RuntimeError, match="power"):
        run(data, tmp_path, on_step=crash)
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 12, "lo')
    run(data, tmp_path)
    assert_same_run(tmp_path, whole[0])


KILLED = """
import sys, torch
sys.path[:0] = sys.argv[3:]
from lm.config import ModelConfig, TrainConfig
from lm.training import train
model = ModelConfig(50, 16, 2, 16, 2, 24)
config = TrainConfig(250, batch_size=2, eval_every=150, eval_tokens=100, checkpoint_every=10, threads=1)
train(model, config, sys.argv[1], sys.argv[2], progress=False, on_step=lambda line: print(line["step"], flush=True))
"""


def test_kill_9_at_random_moments_changes_nothing(data, tmp_path):
    def start(folder):
        command = [sys.executable, "-c", KILLED, str(data), str(folder), *filter(None, sys.path)]
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    dice, killed = random.Random(5), []
    for _ in range(2):
        process = start(tmp_path / "killed")
        enough = dice.randrange(20, 80)
        for i, line in enumerate(process.stdout):
            if i == enough:
                time.sleep(dice.random() / 50)  # anywhere within a step or a save
                process.kill()
                killed.append(int(line))
                break
        process.communicate()
        assert process.returncode == -signal.SIGKILL
    assert killed == sorted(killed)
    _, errors = (process := start(tmp_path / "killed")).communicate(timeout=120)
    assert process.returncode == 0, errors
    run(data, tmp_path / "whole", read_config(tmp_path / "killed")[1])
    assert_same_run(tmp_path / "killed", tmp_path / "whole")


def test_micro_batches_give_the_gradients_of_the_whole_batch():
    torch.manual_seed(0)
    model = Transformer(MODEL).double()
    ids = some_tokens(3000)
    grads = []
    for micro in (8, 4, 1):
        batches = (training.batch(ids, 0, i, 0, 1, micro, 16) for i in range(8 // micro))
        loss = training.accumulate(model, model.hidden, batches, 8 * 16)
        grads.append([loss, *(p.grad.clone() for p in model.parameters())])
        model.zero_grad()
    for other in grads[1:]:
        for a, b in zip(grads[0], other, strict=True):
            torch.testing.assert_close(torch.as_tensor(a), torch.as_tensor(b), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"config": {"learning_rate": 2e-2}}, r"train\.learning_rate = 0\.01, and this call asks for 0\.02"),
        ({"config": {"steps": 30}}, r"train\.steps = 20"),
        ({"model": {"d_ff": 28}}, r"model\.d_ff = 24"),
        ({"model": {"window": 4}}, r"model\.window = None, and this call asks for 4"),
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
    with pytest.raises(FileNotFoundError, match=r"train\.npy"):
        run(tmp_path / "nowhere", tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_trouble_is_told_from_usual_steps():
    usual = [1.0, 2.0, 0.5] * 20
    assert training.in_trouble(3.0, 10.0, usual) is None
    assert "loss is nan" in training.in_trouble(math.nan, 1.0, usual)
    assert "norm is inf" in training.in_trouble(3.0, math.inf, usual)
    assert "norm is 30" in training.in_trouble(3.0, 30.0, usual)
    assert training.in_trouble(3.0, 30.0, usual[:20]) is None  # too early to say what is usual


def break_gradients(monkeypatch, steps):
    """The gradients of these steps, counted over the whole run, are NaN."""
    real = training.accumulate
    count = iter(range(1, 10**6))

    def accumulate(model, *rest):
        loss = real(model, *rest)
        if next(count) in steps:
            model.embedding.weight.grad[0, 0] = math.nan
            return math.nan
        return loss

    monkeypatch.setattr(training, "accumulate", accumulate)


def test_a_step_in_trouble_is_skipped_and_said(data, tmp_path, monkeypatch, capsys):
    break_gradients(monkeypatch, {3, 7})
    result = run(data, tmp_path)
    assert [line["step"] for line in metrics(tmp_path) if "skipped" in line] == [3, 7]
    assert "loss" not in metrics(tmp_path)[2]  # JSON has no NaN
    assert "step 3 is skipped: the loss is nan" in capsys.readouterr().err
    assert math.isfinite(result.loss)
    assert all(p.isfinite().all() for p in result.model.parameters())


def test_a_diverged_run_stops_and_keeps_its_state(data, tmp_path, monkeypatch):
    break_gradients(monkeypatch, range(6, 1000))
    with pytest.raises(Diverged, match=r"10 steps in a row were skipped, .* lower learning_rate 0\.01"):
        run(data, tmp_path)
    assert checkpoint.load(tmp_path / "checkpoints").step == 15
    assert all(p.isfinite().all() for p in load(tmp_path).parameters())


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


def test_compile_auto_does_not_try_for_a_short_run(data, tmp_path):
    config = dataclasses.replace(CONFIG, compile="auto", steps=4)
    run(data, tmp_path, config)
    assert read_config(tmp_path)[1].compile == "off"
    run(data, tmp_path, config)  # and asking so again is no other configuration


def test_measure_speed():
    began = time.perf_counter()
    seconds = measure_speed(MODEL, CONFIG, steps=5, warmup=2)
    assert 0 < seconds < time.perf_counter() - began


# Checkpoints


@pytest.fixture
def saved(tmp_path):
    """Checkpoints of steps 1, 2 and 3, of which 1 is the best."""
    torch.manual_seed(0)
    model = Transformer(MODEL)
    optimizer = adamw(model, 1e-3)
    for step in (1, 2, 3):
        with torch.no_grad():
            model.embedding.weight[0, 0] = step
        checkpoint.save(tmp_path, step, model, optimizer, {"note": step}, keep=2, best=1)
    return tmp_path, model, optimizer


def test_checkpoints_kept_are_the_newest_and_the_best(saved):
    folder, model, optimizer = saved
    assert checkpoint.steps(folder) == [1, 2, 3]
    checkpoint.save(folder, 4, model, optimizer, {}, keep=2, best=1)
    assert checkpoint.steps(folder) == [1, 3, 4]
    loaded = checkpoint.load(folder, 3)
    assert (loaded.step, loaded.state) == (3, {"note": 3})
    assert loaded.model["embedding.weight"][0, 0] == 3
    assert checkpoint.load(folder / "nowhere") is None


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.pt", "state.json"])
@pytest.mark.parametrize("how", ["altered", "cut", "missing"])
def test_a_damaged_checkpoint_is_named_and_passed_over(saved, name, how):
    folder, _, _ = saved
    path = folder / "00000003" / name
    content = path.read_bytes()
    if how == "altered":
        path.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    elif how == "cut":
        path.write_bytes(content[: len(content) // 2])
    else:
        path.unlink()
    with pytest.raises(Damaged, match="00000003"):
        checkpoint.load(folder, 3)
    with pytest.warns(UserWarning, match=r"00000003 is damaged.*the one before it is used"):
        assert checkpoint.load(folder).step == 2


def test_when_all_are_damaged_none_is_used(saved):
    folder, _, _ = saved
    for step in (1, 2, 3):
        (folder / f"{step:08d}" / "state.json").write_text("{}")
    with pytest.warns(UserWarning, match="damaged"), pytest.raises(Damaged, match=r"00000003.*00000002.*00000001"):
        checkpoint.load(folder)


@pytest.mark.parametrize("failing", ["save_file", "torch.save", "fsync", "rename", "replace"])
def test_a_failed_save_leaves_the_ones_before_and_nothing_half_written(saved, monkeypatch, failing):
    folder, model, optimizer = saved

    def fail(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    target = {
        "save_file": (checkpoint.safetensors.torch, "save_file"),
        "torch.save": (checkpoint.torch, "save"),
        "fsync": (os, "fsync"),
        "rename": (os, "rename"),
        "replace": (os, "replace"),
    }[failing]
    with monkeypatch.context() as patch:
        patch.setattr(*target, fail)
        with pytest.raises(NotSaved, match=r"step 4 could not be saved .* the disk is full: free some space"):
            checkpoint.save(folder, 4, model, optimizer, {}, keep=9)
    assert not list(folder.glob(".*"))
    assert checkpoint.load(folder).step == (4 if failing == "replace" else 3)  # whole once it is renamed
    checkpoint.save(folder, 4, model, optimizer, {}, keep=9)
    assert checkpoint.load(folder).step == 4


def test_a_run_on_a_full_disk_ends_in_one_sentence(data, tmp_path, monkeypatch, whole):
    def fail(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint.torch, "save", fail)
        with pytest.raises(NotSaved, match=r"the checkpoint of step 4 could not be saved under .*: the disk is full"):
            run(data, tmp_path)
    run(data, tmp_path)
    assert_same_run(tmp_path, whole[0])


def test_a_folder_that_cannot_be_written_is_one_sentence(data, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(NotSaved, match="cannot be written"):
        run(data, tmp_path / "file" / "run")


def test_load_without_a_run_or_a_checkpoint(data, tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no run"):
        load(tmp_path)
    with pytest.raises(Stopped):
        run(data, tmp_path, on_step=stop_at(1))
    shutil.rmtree(tmp_path / "checkpoints")
    with pytest.raises(FileNotFoundError, match="no checkpoint yet"):
        load(tmp_path)


# Evaluation


def brute_force(model, ids, context, stride, before):
    """Each token by a forward pass of its own over exactly the tokens that its window shows."""
    text = ids.tolist() if before is None else [before, *ids.tolist()]
    count = len(text) - 1
    total = math.log(model.config.vocab_size) if before is None else 0.0
    for position in range(count):
        if position < context:
            begin = 0
        else:
            end = min(count, context + stride * ((position - context) // stride + 1))
            begin = end - context
        with torch.no_grad():
            logits = model(torch.tensor([text[begin : position + 1]]))[0, -1].double()
        total -= float(logits.log_softmax(-1)[text[position + 1]])
    return total


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 40, 47])
@pytest.mark.parametrize("stride", [1, 3, 8])
@pytest.mark.parametrize("before", [None, 4])
def test_evaluate_is_exact_to_the_first_token(tmp_path, count, stride, before):
    torch.manual_seed(1)
    model = Transformer(MODEL).double()
    ids = some_tokens(count)
    tokens = write_tokens(tmp_path / "a.npy", ids, text_bytes=3 * count, end_of_text=before)
    score = evaluate(model, tokens, context_length=8, stride=stride, batch_size=3)
    assert score.tokens == count
    assert score.nats == pytest.approx(brute_force(model, ids, 8, stride, before), rel=1e-9)
    assert score.bits_per_byte == pytest.approx(score.nats / math.log(2) / (3 * count))
    if before is None:
        assert evaluate(model, ids, context_length=8, stride=stride).nats == pytest.approx(score.nats, rel=1e-9)
    assert model.training


def test_a_sample_is_spread_over_the_text_and_in_proportion(tmp_path):
    torch.manual_seed(1)
    model = Transformer(MODEL)
    tokens = write_tokens(tmp_path / "a.npy", some_tokens(1000), text_bytes=2500)
    score = evaluate(model, tokens, max_tokens=200)
    assert 150 <= score.tokens <= 217
    assert score.bytes == pytest.approx(2.5 * score.tokens)
    assert score == evaluate(model, tokens, max_tokens=200)
    assert score.loss == pytest.approx(evaluate(model, tokens).loss, rel=0.05)


def test_evaluate_refuses_windows_that_do_not_fit():
    model = Transformer(MODEL)
    for context, stride in ((17, 1), (8, 9), (8, 0)):
        with pytest.raises(ValueError, match="must be in order"):
            evaluate(model, some_tokens(50), context_length=context, stride=stride)


@pytest.mark.filterwarnings("ignore")  # the compiler's own, of several kinds
def test_compiled_blocks_give_the_same_hidden_states():
    if shutil.which(os.environ.get("CXX", "g++")) is None:
        pytest.skip("torch.compile needs a C++ compiler, and there is none")
    torch.manual_seed(0)
    model = Transformer(MODEL)
    ids = torch.from_numpy(some_tokens(32).reshape(2, 16))
    want = model.hidden(ids)
    got = training.compiled(model)(ids)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
