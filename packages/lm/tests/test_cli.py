"""The command `lm`, as a person at a terminal meets it."""

from __future__ import annotations

import dataclasses
import errno
import importlib.util
import io
import json
import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from runs import environment, metrics
from talks import tokenizer

import lm
from lm import progress
from lm.commands.cli import main
from lm.commands.configuration import configuration
from lm.data import open_tokens, write_tokens
from lm.model import Transformer
from lm.training import checkpoint
from lm.training.run import Run, best_step, read
from lm.training.trainer import Trainer
from lm.training.validation import evaluate

SMALL = """
[model]
vocab_size = 300
context_length = 16
num_layers = 1
d_model = 16
num_heads = 2
d_ff = 24
[train]
steps = 6
warmup_steps = 1
batch_size = 2
threads = 1
"""


@pytest.fixture
def work(tmp_path):
    ids = np.random.default_rng(0).integers(0, 256, 2000)
    write_tokens(tmp_path / "train.npy", ids, text_bytes=2000)
    write_tokens(tmp_path / "heldout.npy", ids[:200], text_bytes=200)
    (tmp_path / "small.toml").write_text(SMALL)
    return tmp_path


def train(work, *more):
    return main(["train", str(work / "small.toml"), "--data", str(work), "--out", str(work / "run"), *more])


def scored(work, capsys, *more):
    assert main(["eval", str(work / "run"), "--data", str(work), "--json", *more]) == 0
    return json.loads(capsys.readouterr().out)["loss"]


def test_a_checkpoint_is_chosen_by_its_step(work, capsys):
    settings = ("--train.eval_every", "2", "--train.checkpoint_every", "2", "--train.learning_rate", "0.5")
    assert train(work, *settings, "--train.precision", "fp32") == 0
    capsys.readouterr()
    heldout = open_tokens(work / "heldout.npy")
    losses = {step: evaluate(Run.load(work / "run", step), heldout).loss for step in (4, 6)}
    lines = metrics(work / "run")
    val_losses = {line["step"]: line["val_loss"] for line in lines if "val_loss" in line}
    assert len(set(val_losses.values())) == 3
    best = min(val_losses, key=val_losses.__getitem__)
    assert scored(work, capsys) == pytest.approx(losses[6])
    assert scored(work, capsys, "--step", "4") == pytest.approx(losses[4])
    assert scored(work, capsys, "--step", "best") == pytest.approx(val_losses[best])
    for wrong, named in (("3", "those that it has are of 4, 6"), ("worst", "'worst'")):
        assert main(["eval", str(work / "run"), "--data", str(work), "--step", wrong]) == 2
        assert named in capsys.readouterr().err


def test_a_run_without_evaluations_has_no_best_checkpoint(work, capsys):
    (work / "heldout.npy").rename(work / "later.npy")
    (work / "heldout.json").rename(work / "later.json")
    assert train(work) == 0
    capsys.readouterr()
    assert main(["eval", str(work / "run"), "--data", str(work / "later.npy"), "--step", "best"]) == 2
    assert "was evaluated" in capsys.readouterr().err


def test_train_and_eval(work, capsys):
    assert train(work, "--train.seed", "3", "--quiet") == 0
    output = capsys.readouterr()
    assert output.out.startswith("trained 6 steps in ")
    assert "bits per byte, over 200 tokens" in output.out
    assert output.err == ""
    assert read(work / "run").train.seed == 3
    assert main(["eval", str(work / "run"), "--data", str(work / "heldout.npy"), "--stride", "4"]) == 0
    score = evaluate(Run.load(work / "run"), open_tokens(work / "heldout.npy"), stride=4)
    assert f"{score.bits_per_byte:.4f} bits per byte, over 200 tokens" in capsys.readouterr().out


def test_eval_of_a_folder_is_of_what_is_held_out_in_it(work, capsys):
    assert train(work, "--quiet") == 0
    capsys.readouterr()
    for data in (work / "heldout.npy", work):
        assert main(["eval", str(work / "run"), "--data", str(data)]) == 0
    one, other = capsys.readouterr().out.splitlines()
    assert one == other
    (work / "heldout.npy").unlink()
    assert main(["eval", str(work / "run"), "--data", str(work)]) == 2
    assert "nothing is held out" in capsys.readouterr().err


def test_train_on_a_mixture_from_the_command_line_or_the_configuration(work, capsys):
    write_tokens(work / "more.npy", np.arange(200), text_bytes=800)
    sets = ["--data", f"web={work}@0.75", "--data", f"more={work / 'more.npy'}@0.25"]
    assert main(["train", str(work / "small.toml"), *sets, "--out", str(work / "a"), "--quiet"]) == 0
    table = f"[data.web]\npath = '{work}'\nweight = 3\n[data.more]\npath = '{work / 'more.npy'}'\n"
    (work / "mixed.toml").write_text(SMALL + table)
    assert main(["train", str(work / "mixed.toml"), "--out", str(work / "b"), "--quiet"]) == 0
    a, b = capsys.readouterr().out.splitlines()
    assert a.partition(": ")[2] == b.partition(": ")[2]  # the same losses
    assert read(work / "a").data["web"]["weight"] == 0.75
    assert '"val_loss/web"' in (work / "a" / "metrics.jsonl").read_text()
    assert (
        main(["train", str(work / "small.toml"), *sets[:3], f"more={work / 'more.npy'}", "--out", str(work / "a")]) == 2
    )
    assert "data.more" in capsys.readouterr().err


def test_the_live_line_shows_what_matters(work, capsys, monkeypatch):
    monkeypatch.setattr("lm.progress.LOG_INTERVAL", 0.0)
    assert train(work) == 0
    line = capsys.readouterr().err
    for part in ("6/6", "loss ", " bits/byte", " tokens/s"):
        assert part in line


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["train", "small.toml", "--data", ".", "--out", "run", "--model.layers", "3"], "did you mean 'num_layers'"),
        (["train", "small.tml", "--data", ".", "--out", "run"], "neither a file nor a preset"),
        (["train", "--steps", "3", "--data", ".", "--out", "run"], "did you mean --train.steps?"),
        (["train", "small.toml", "--data", "nowhere", "--out", "run"], "there is no folder nowhere"),
        (["train", "small.toml", "--data", ".", "--out", "run", "--model.vocab_size", "100"], "token id 255"),
        (["train", "small.toml", "--out", "run"], "says nothing of the data"),
        (["train", "small.toml", "--data", "a=.", "--data", ".", "--out", "run"], "write --data NAME=."),
        (["train", "small.toml", "--data", "a=.", "--data", "a=.", "--out", "run"], "names 'a' twice"),
        (
            ["train", "small.toml", "--data", "a=.@1e", "--out", "run"],
            "the weight of the set 'a' must be a number, got '1e'",
        ),
        (["train", "small.toml", "--data", "a=.@-1", "--data", "b=.", "--out", "run"], "must be more than 0"),
        (["train", "small.toml", "--data", ".", "--out", "small.toml/run", "--quiet"], "cannot be written"),
        (["eval", "nowhere", "--data", "train.npy"], "there is no nowhere"),
        (["generate", "nowhere", "--prompt", "a"], "there is no nowhere"),
        (["chat", "nowhere"], "there is no nowhere"),
        (["serve", "nowhere"], "there is no nowhere"),
        (["plan", "small.toml", "--data", "nowhere"], "there is no folder nowhere"),
        (["report", "nowhere"], "nowhere"),
        (["report", ".", "--out", "nowhere/page.html"], "nowhere/page.html: No such file or directory"),
        (["report", ".", "--out", "."], ".: a folder: name the file"),
    ],
)
def test_a_mistake_is_one_sentence(work, monkeypatch, capsys, arguments, says):
    monkeypatch.chdir(work)
    (work / "config.toml").write_text(SMALL)
    assert main(arguments) == 2
    output = capsys.readouterr()
    assert output.out == ""
    assert says in output.err
    assert output.err.startswith("lm: ")
    assert output.err.count("\n") == 1
    assert not (work / "run").exists()


@pytest.mark.parametrize("full", ["tokenizer", "lock", "page"])
def test_a_full_disk_is_one_sentence(work, capsys, monkeypatch, full):
    """The system's error names no file, or the one that was read."""
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def fail(*_, **__):
        raise error

    (work / "tok.json").write_text("{}")
    if full == "tokenizer":
        error.filename = str(work / "tok.json")
        monkeypatch.setattr("lm.training.train.check_tokenizer", lambda *_: None)
        monkeypatch.setattr("lm.tokenizer.atomic_write", fail)
        assert train(work, "--tokenizer", str(work / "tok.json"), "--quiet") == 2
        assert not list((work / "run").glob(".tokenizer*"))
    elif full == "lock":
        monkeypatch.setattr("lm.files.filelock.FileLock.acquire", fail)
        assert train(work, "--quiet") == 2
    else:
        assert train(work, "--quiet") == 0
        monkeypatch.setattr("lm.reporting.report.atomic_write", fail)
        capsys.readouterr()
        assert main(["report", str(work / "run")]) == 2
    stderr = capsys.readouterr().err
    assert stderr.startswith(
        f"lm: the run in {work / 'run'} cannot be written: " if full != "page" else "lm: the disk is full"
    )
    assert stderr.endswith("the disk is full: free some space and run the same command again\n")
    assert stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["train"], "required"),
        (["experiment"], "required"),
        (["trian"], "'train'"),
        # the usage of the sub-command, not of lm
        (["eval", "run", "--data", "a.npy", "--model.num_layers", "3"], "unknown argument '--model.num_layers'"),
        (["generate", "run", "--promt", "a"], "there is no option --promt: did you mean --prompt?"),
        (["train", "--dept", "1", "--data", ".", "--out", "run"], "there is no option --dept: did you mean --depth?"),
        (["train", "small.toml", "--dat=.", "--out", "run"], "there is no option --dat: did you mean --data?"),
    ],
)
def test_a_wrong_call_is_said_below_the_usage(capsys, arguments, says):
    """The nearest option also where the required one that it was meant to be is missing for it."""
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    stderr = capsys.readouterr().err
    assert says in stderr
    assert stderr.startswith("usage: lm " + arguments[0].replace("trian", ""))
    assert "--train.learning_rate" not in stderr


def test_ctrl_c_while_the_commands_are_imported_is_no_traceback(monkeypatch, capsys):
    def interrupt(names):
        raise KeyboardInterrupt

    monkeypatch.setattr("lm.commands.cli.make_parser", interrupt)
    monkeypatch.setattr("sys.argv", ["lm", "presets"])
    before = signal.getsignal(signal.SIGINT)
    try:
        assert main() == 130
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN, "the second Ctrl-C meets the interpreter's end"
    finally:
        signal.signal(signal.SIGINT, before)
    assert capsys.readouterr().err == ""


def test_the_best_checkpoint_is_exported_and_reported(work):
    """lm export and lm.load take --step best; the weights are those of the best evaluation."""
    # A rate so high at the end that the best evaluation is not the last.
    settings = {"steps": 12, "warmup_steps": 11, "learning_rate": 3.0, "eval_every": 2, "checkpoint_every": 2}
    assert train(work, "--quiet", *(f"--train.{key}={value}" for key, value in settings.items())) == 0
    run = work / "run"
    best = best_step(run)
    assert best != 12
    saved = checkpoint.load(run / "checkpoints", best, weights_only=True).model
    assert main(["export", str(run), "--out", str(work / "best-export"), "--step", "best"]) == 0
    assert main(["export", str(run), "--out", str(work / "step-export"), "--step", str(best)]) == 0
    for model in (lm.load(run, "best"), lm.load(work / "best-export"), lm.load(work / "step-export")):
        for name, weight in model.state_dict().items():
            assert torch.equal(weight, saved[name]), name
    with pytest.raises(ValueError, match="best"):
        lm.to_huggingface(lm.load(run), work / "memory", step="best")


def test_ctrl_c_is_told_from_a_mistake_and_the_same_command_continues(work, capsys, monkeypatch):
    real = Trainer.train_step

    def train_step(self, batches, **more):
        if self.step == 2:
            monkeypatch.undo()
            signal.raise_signal(signal.SIGINT)
        return real(self, batches, **more)

    monkeypatch.setattr(Trainer, "train_step", train_step)
    assert train(work, "--quiet") == 130
    assert "stopped after step 3 of 6: the same command continues it" in capsys.readouterr().err
    assert train(work, "--quiet") == 0
    lines = metrics(work / "run")
    assert [line["step"] for line in lines if "loss" in line] == [1, 2, 3, 4, 5, 6]


def test_a_damaged_checkpoint_is_said_in_a_line(work):
    assert train(work, "--quiet", "--train.checkpoint_every", "3") == 0
    newest = work / "run" / "checkpoints" / "00000006"
    (newest / "optimizer.pt").write_bytes(b"")
    arguments = ["train", str(work / "small.toml"), "--data", str(work), "--out", str(work / "run"), "--quiet"]
    ended = subprocess.run([sys.executable, "-m", "lm", *arguments], env=environment(), capture_output=True, text=True)
    assert ended.returncode == 0
    message = f"checkpoint {newest} is damaged: optimizer.pt is not what was saved; the one before it is used"
    assert ended.stderr == f"lm: {message}\n"


def test_a_run_whose_configuration_is_lost_is_named(work, capsys):
    assert train(work, "--quiet") == 0
    for content, says in ((b"", "there is no [model] in it"), (b"\xff", "is not TOML")):
        (work / "run" / "config.toml").write_bytes(content)
        assert train(work, "--quiet") == 2
        stderr = capsys.readouterr().err
        assert stderr.startswith(f"lm: {work / 'run' / 'config.toml'}")
        assert says in stderr


def test_a_depth_in_place_of_a_configuration(work, capsys):
    command = ["train", "--depth", "1", "--model.d_ff", "32", "--train.steps", "2", "--data", str(work), "--quiet"]
    assert main([*command, "--out", str(work / "run")]) == 0
    model, training = lm.depth.configuration_of(1, 256)  # the ids of the data end at 255
    config = read(work / "run")
    assert config.model == dataclasses.replace(model, d_ff=32)
    assert config.train.steps == 2
    assert config.train.learning_rate == training.learning_rate
    assert main([*command, "--out", str(work / "other"), str(work / "small.toml")]) == 2
    assert main(["train", "--depth", "1", "--out", str(work / "other")]) == 2
    assert main(["train", "--depth", "0", "--data", str(work), "--out", str(work / "other")]) == 2
    assert "expected a depth of at least 1, got 0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "name", "says"),
    [
        (["--resume"], "--resume", "the same command continues"),
        (["--resume", "runs/first"], "--resume", "the same command continues"),
        (["--resume=runs/first"], "--resume", "the same command continues"),
        (["--verbose"], "--verbose", "--section.key"),
    ],
)
def test_an_option_that_is_unknown_is_not_said_to_lack_a_value(work, capsys, arguments, name, says):
    assert train(work, "--quiet", *arguments) == 2
    error = capsys.readouterr().err
    assert name in error
    assert says in error
    assert "lacks" not in error
    assert not (work / "run" / "config.toml").exists()


def test_a_call_that_is_refused_leaves_the_run_its_tokenizer(work, capsys):
    pytest.importorskip("bpe", reason="the package bpe is not installed")
    tokenizer(["<|a|>"]).save(work / "one.json")
    tokenizer(["<|a|>", "<|b|>"]).save(work / "other.json")
    assert train(work, "--quiet", "--tokenizer", str(work / "one.json"), "--model.vocab_size", "257") == 0
    tokenizer_bytes = (work / "run" / "tokenizer.json").read_bytes()
    assert train(work, "--quiet", "--tokenizer", str(work / "other.json"), "--model.vocab_size", "258") == 2
    assert "model.vocab_size = 257" in capsys.readouterr().err
    assert (work / "run" / "tokenizer.json").read_bytes() == tokenizer_bytes == (work / "one.json").read_bytes()
    more = ["--model.vocab_size", "257", "--out", str(work / "new"), "--model.context_length", "5000"]
    assert train(work, "--quiet", "--tokenizer", str(work / "one.json"), *more) == 2
    assert not (work / "new").exists()


def test_report_watches_until_the_run_is_done(work, capsys, monkeypatch):
    assert train(work, "--quiet") == 0
    capsys.readouterr()
    assert main(["report", str(work / "run")]) == 0
    assert capsys.readouterr().out.strip() == str(work / "run" / "report.html")
    assert "<html" in (work / "run" / "report.html").read_text()
    metrics = work / "run" / "metrics.jsonl"
    whole = metrics.read_text()
    metrics.write_text("".join(whole.splitlines(keepends=True)[:2]))
    seen = []

    def sleep(seconds):
        seen.append((seconds, 'http-equiv="refresh" content="3"' in (work / "run" / "report.html").read_text()))
        metrics.write_text(whole)

    monkeypatch.setattr("lm.commands.report.time.sleep", sleep)
    assert main(["report", str(work / "run"), "--watch", "3"]) == 0
    assert seen == [(3.0, True)]
    assert 'http-equiv="refresh"' not in (work / "run" / "report.html").read_text()
    assert main(["report", str(work / "run"), "--watch", "0"]) == 2
    assert "--watch" in capsys.readouterr().err


def test_plan_says_what_a_run_costs(work, capsys):
    assert main(["plan", str(work / "small.toml")]) == 0
    stdout = capsys.readouterr().out
    config = configuration(str(work / "small.toml"), [])[0]
    count = sum(p.numel() for p in Transformer(config).parameters())
    assert f"{count:,}" in stdout.splitlines()[0]
    assert "tokens/s" in stdout
    for line in ("largest micro-batch", "compute-optimal size", "training memory", "the whole run"):
        assert line in stdout
    assert main(["plan", str(work / "small.toml"), "--train.lora_rank", "2"]) == 0
    stdout = capsys.readouterr().out
    adapted = sum(p.numel() for p in lm.lora.add(Transformer(config), 2).parameters())
    assert f"{adapted:,}" in stdout.splitlines()[0]
    assert f"{adapted - count:,}" in next(line for line in stdout.splitlines() if line.startswith("  adapters "))
    assert re.search("^training memory +not counted  of adapters$", stdout, re.MULTILINE)
    assert (
        main(["plan", str(work / "small.toml"), "--data", f"a={work}@3", "--data", f"b={work / 'heldout.npy'}@1"]) == 0
    )
    stdout = capsys.readouterr().out
    tokens = 6 * 2 * 16  # steps, rows, context
    for name, share, size in (("a", 0.75, 2000), ("b", 0.25, 200)):
        assert re.search(rf"^epochs of {name} +{share * tokens / size:.2f}$", stdout, re.MULTILINE)


@pytest.mark.skipif(importlib.util.find_spec("bpe") is None, reason="the package bpe is not installed")
def test_generate_continues_a_text(work, capsys):
    tokenizer(["<|endoftext|>"]).save(work / "tokenizer.json")
    arguments = ["--quiet", "--tokenizer", str(work / "tokenizer.json")]
    assert train(work, *arguments) == 2
    assert "has 257 tokens, and vocab_size is 300: set model.vocab_size to 257" in capsys.readouterr().err
    assert not (work / "run").exists()
    assert train(work, *arguments, "--model.vocab_size", "257") == 0
    capsys.readouterr()
    outs = []
    for _ in range(2):
        assert main(["generate", str(work / "run"), "--prompt", "def é", "--max-new-tokens", "9", "--seed", "1"]) == 0
        written = capsys.readouterr()
        outs.append(written.out)
        assert "decoded in " in written.err, "it says if C or PyTorch computed the steps, and why"
    assert outs[0] == outs[1]
    assert outs[0].startswith("def é")
    assert len(outs[0]) > len("def é\n")


def test_a_terminal_that_is_not_utf_8_gets_a_mark_for_what_it_lacks(tmp_path):
    """An answer goes on behind a character that the encoding does not have."""
    script = "import lm.commands.cli as cli\n"
    script += "import types; cli.parsed = lambda _: types.SimpleNamespace(command=lambda _: print('a é b'))\n"
    script += "raise SystemExit(cli.main([]))"
    process = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, env={**os.environ, "PYTHONIOENCODING": "ascii"}
    )
    assert (process.returncode, process.stdout) == (0, "a ? b\n")


# progress of long work: a bar on a terminal, whole lines in a log


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("interval", [0.0, 1000.0])
def test_a_log_has_whole_lines_and_nothing_that_moves_the_cursor(monkeypatch, interval):
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    monkeypatch.setattr(progress, "LOG_INTERVAL", interval)
    with progress.progress_bar("train", 5, "step") as bar:
        for _ in range(5):
            bar.last_print_t -= 10  # as if ten seconds had passed
            bar.set_postfix_str("loss 1.0", refresh=False)
            bar.update()
    lines = log.getvalue().splitlines()
    assert "\r" not in log.getvalue()
    assert "\x1b" not in log.getvalue()
    if interval:
        assert lines == []
    else:
        assert "5/5" in lines[-1]
        assert "loss 1.0" in lines[-1]
        assert all(line.startswith("train:") for line in lines)


def test_a_terminal_has_a_bar(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with progress.progress_bar("train", 5, "step") as bar:
        bar.update(5)
    assert "\r" in terminal.getvalue()


def test_a_disabled_bar_writes_nothing(monkeypatch):
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    monkeypatch.setattr(progress, "LOG_INTERVAL", 0.0)
    with progress.progress_bar("train", 5, "step", disable=True) as bar:
        bar.update(4)
    assert log.getvalue() == ""
