"""Files that change under a run, links, weights that are no numbers, a full disk: one sentence each, nothing lost."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import os
import shutil
import signal
import subprocess
import threading
import time

import pytest
import torch
from models import random_model
from runs import CONFIG, MODEL, some_tokens
from runs import metrics as lines_of

import lm
from lm.data.token_file import write_tokens
from lm.interop.importing import import_run
from lm.interop.loading import load
from lm.training import checkpoint
from lm.training import train as train_module
from lm.training.train import train


@pytest.fixture
def data(tmp_path):
    for name in ("train", "heldout"):
        write_tokens(tmp_path / f"{name}.npy", some_tokens(3000))
    return {name: tmp_path / f"{name}.npy" for name in ("train", "heldout")}


def test_a_file_that_is_shortened_under_a_run_ends_it_in_one_sentence(data, tmp_path):
    """Reading what a memory map no longer has would end the process by a signal."""

    def shorten(line):
        if line["step"] == 2:
            os.truncate(data["train"], 300)

    with pytest.raises(ValueError, match=r"train\.npy has 300 bytes, and had [\d,]+ when it was opened: put it back"):
        train(MODEL, CONFIG, data, tmp_path / "run", progress=False, on_step=shorten)


class Full:
    """A file on a disk that is full for some writes, and takes a part of the others."""

    def __init__(self, *failures):
        self.failures, self.written_bytes = list(failures), b""

    def write(self, data):
        if self.failures and self.failures.pop(0):
            raise OSError(errno.ENOSPC, "No space left on device")
        self.written_bytes += bytes(data[:5])
        return len(data[:5])


def test_a_line_of_metrics_waits_for_space(tmp_path, capsys, monkeypatch):
    stop = threading.Event()
    monkeypatch.setattr(stop, "wait", lambda seconds: False)
    file, waiting = Full(True, True, False, True), bytearray(b"a line of metrics\n")
    train_module.write_all(file, waiting, tmp_path / "metrics.jsonl", stop)
    assert (file.written_bytes, waiting) == (b"a line of metrics\n", b"")
    stderr = capsys.readouterr().err
    assert stderr == f"the disk of {tmp_path / 'metrics.jsonl'} is full: the run waits for space\n"
    monkeypatch.setattr(stop, "wait", lambda seconds: stop.set())  # who makes space may stop the run at once
    waiting.extend(b"more\n")
    train_module.write_all(Full(True), waiting, tmp_path / "metrics.jsonl", stop)
    assert not waiting


def test_a_line_that_cannot_wait_longer_is_written_with_the_next(tmp_path, capsys):
    stop = threading.Event()
    stop.set()
    file, waiting = Full(False, True), bytearray(b"first line\n")
    train_module.write_all(file, waiting, tmp_path / "metrics.jsonl", stop)
    assert (file.written_bytes, waiting) == (b"first", b" line\n")
    waiting.extend(b"second\n")
    train_module.write_all(file, waiting, tmp_path / "metrics.jsonl", threading.Event())
    assert file.written_bytes == b"first line\nsecond\n"
    capsys.readouterr()


@pytest.fixture
def small_disk(tmp_path):
    """A file system of three megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", str(disk)], capture_output=True)
    if mount.returncode:
        pytest.skip("no file system can be mounted here, which takes root")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill(disk):
    with open(disk / "other", "wb", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))


@pytest.mark.skipif(shutil.which("mount") is None, reason="no mount here")
@pytest.mark.parametrize("space", [True, False])
def test_a_run_on_a_disk_that_gets_full(data, tmp_path, small_disk, capfd, space):
    """It waits for space; or, asked to stop, ends with what was saved before, and goes on from it to the same steps."""
    config = dataclasses.replace(CONFIG, steps=300, eval_every=0, checkpoint_every=100)
    train(MODEL, config, data, tmp_path / "whole", progress=False)
    run, seen = small_disk / "run", []

    def watch(line):
        seen.append(line["step"])
        if line["step"] == 105 and len(seen) == 105:
            fill(small_disk)

    def once_full():
        while "is full: the run waits for space" not in capfd.readouterr().err:
            time.sleep(0.01)
        if space:
            os.remove(small_disk / "other")
        else:
            os.kill(os.getpid(), signal.SIGTERM)

    waits = threading.Thread(target=once_full)
    waits.start()
    if space:
        train(MODEL, config, data, run, progress=False, on_step=watch)
    else:
        with pytest.raises(checkpoint.NotSaved, match="the disk is full"):
            train(MODEL, config, data, run, progress=False, on_step=watch)
        assert checkpoint.load(run / "checkpoints").step == 100
        os.remove(small_disk / "other")
        train(MODEL, config, data, run, progress=False)
    waits.join()
    actual, want = ([(one["step"], one.get("loss")) for one in lines_of(path)] for path in (run, tmp_path / "whole"))
    assert actual == want


def test_an_error_of_the_disk_that_does_not_pass_is_raised(tmp_path):
    class Broken:
        def write(self, data):
            raise OSError(errno.EIO, "Input/output error")

    with pytest.raises(OSError, match="Input/output"):
        train_module.write_all(Broken(), bytearray(b"x"), tmp_path / "metrics.jsonl", threading.Event())


@pytest.fixture
def exported(tmp_path):
    model = random_model(50, 16, 1, 16, 2, 24)
    lm.to_huggingface(model, tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_link_that_leaves_a_models_folder_is_refused(exported, tmp_path, name):
    load(exported)
    os.rename(exported / name, tmp_path / "elsewhere")
    os.symlink(tmp_path / "elsewhere", exported / name)
    with pytest.raises(ValueError, match=rf"{name} is a link to .*elsewhere, outside its folder: put the file itself"):
        load(exported)


def test_the_links_of_the_hubs_cache_are_followed(exported, tmp_path):
    cache = tmp_path / "models--owner--name"
    (cache / "blobs").mkdir(parents=True)
    (cache / "snapshots").mkdir()
    for file in exported.iterdir():
        os.rename(file, cache / "blobs" / f"hash-of-{file.name}")
        os.symlink(f"../../blobs/hash-of-{file.name}", file)
    os.rename(exported, cache / "snapshots" / "abc")
    assert load(cache / "snapshots" / "abc").config.vocab_size == 50


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_weights_that_are_no_numbers_are_refused_by_name(exported, tmp_path, bad):
    model = load(exported)
    with torch.no_grad():
        model.blocks[0].ffn.down.weight[1, 1] = bad
    lm.to_huggingface(model, tmp_path / "bad")
    for refused in (load, lambda path: import_run(path, tmp_path / "run")):
        with pytest.raises(ValueError, match=r"bad: the weight blocks\.0\.ffn\.down\.weight holds NaN"):
            refused(tmp_path / "bad")
    assert not (tmp_path / "run").exists()
