"""Files that an attacker wrote: nothing in them is run, nothing is written elsewhere, no memory beyond their size."""

from __future__ import annotations

import dataclasses
import io
import json
import os
import resource
import shutil
import zipfile

import pytest
import torch
from models import needs_compiler
from runs import CONFIG, MODEL, run
from safetensors.torch import load_file, save_file

import lm
from lm.families import family
from lm.ops.cpu import build
from lm.training import checkpoint
from lm.training.checkpoint import Damaged, from_weights
from lm.training.resume import RunConfig
from lm.training.run import read as read_run
from lm.training.run import write

STEPS = 3


@pytest.fixture(scope="module")
def whole(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    run(data, folder, dataclasses.replace(CONFIG, steps=STEPS))
    return folder


@pytest.fixture
def evil(whole, tmp_path):
    """A copy of a run to put things into, as an archive may bring it."""
    return shutil.copytree(whole, tmp_path / "download" / "pack" / "evil")


def newest(folder):
    return folder / "checkpoints" / f"{STEPS:08d}"


def sign(step, **more):
    """Hash the files of a checkpoint anew, as whoever makes it can."""
    state = json.loads((step / "state.json").read_text())
    state.pop("sha256")
    files = [path for path in step.rglob("*") if path.is_file() and path.name != "state.json"]
    hashes = {path.relative_to(step).as_posix(): checkpoint.sha256(path) for path in files}
    hashes |= {**more, "state.json": checkpoint.hash_json(state)}
    (step / "state.json").write_text(json.dumps({**state, "sha256": hashes}))


class Command:
    """Unpickled, it makes a folder."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def squeezed(value):
    """A file as torch.save writes it, compressed: zeros take a thousandth of their size."""
    plain, small = io.BytesIO(), io.BytesIO()
    torch.save(value, plain)
    with zipfile.ZipFile(plain) as source, zipfile.ZipFile(small, "w", zipfile.ZIP_DEFLATED) as target:
        for name in source.namelist():
            target.writestr(name, source.read(name))
    return small.getvalue()


def repeated(value):
    file = io.BytesIO()
    torch.save({"state": {0: {"exp_avg": torch.zeros(1).expand(10**6, 10**6)}}}, file)
    return file.getvalue()


def runs_a_command(value):
    file = io.BytesIO()
    torch.save(Command("ran"), file)
    return file.getvalue()


@pytest.mark.parametrize("how", [squeezed, repeated, runs_a_command])
def test_what_is_pickled_runs_nothing_and_takes_no_more_memory_than_its_file(data, evil, tmp_path, how, monkeypatch):
    monkeypatch.chdir(tmp_path)
    content = how({"state": {0: {"exp_avg": torch.zeros(10**6)}}})
    (newest(evil) / "optimizer.pt").write_bytes(content)
    sign(newest(evil))
    with pytest.raises(Damaged, match=r"optimizer\.pt (is compressed|is damaged)"):
        run(data, evil, dataclasses.replace(CONFIG, steps=STEPS + 1))
    assert not (tmp_path / "ran").exists()


def test_the_optimizer_of_another_model_is_refused(data, evil):
    torch.save({"state": {0: {"exp_avg": torch.zeros(10**5)}}}, newest(evil) / "optimizer.pt")
    sign(newest(evil))
    with pytest.raises(ValueError, match="exp_avg of shape"):
        run(data, evil, dataclasses.replace(CONFIG, steps=STEPS + 1))


@pytest.mark.parametrize("name", ["../../../../planted", "/tmp/planted", "config.toml", "a/b"])
def test_a_branch_writes_nothing_outside_its_folder(data, evil, tmp_path, name):
    step = newest(evil)
    outside = os.path.normpath(step / name)
    os.makedirs(os.path.dirname(outside), exist_ok=True) if "tmp/planted" not in name else None
    if not name.startswith("/"):
        with open(outside, "w") as file:
            file.write("#!/bin/sh\n")
    sign(step, **{name: "0" if name.startswith("/") else checkpoint.sha256(outside)})
    with pytest.raises(Damaged, match=r"state\.json"):
        lm.train(MODEL, CONFIG, data, tmp_path / "home" / "runs" / "new", branch=evil, step=STEPS, progress=False)
    assert sorted(path.name for path in (tmp_path / "home").rglob("*") if path.is_file()) in ([], [".lock"])


SIZES = ["num_layers", "vocab_size", "d_model", "d_ff", "context_length", "num_heads", "head_dim", "vocab_multiple"]


@pytest.mark.parametrize("name", SIZES)
def test_a_runs_sizes_are_held_against_its_weights(data, evil, name):
    config = read_run(evil)
    change = {"head_dim": config.model.head_width, name: 10**8 * config.model.num_heads}
    model = dataclasses.replace(config.model, **change)
    write(evil, RunConfig(model, config.train, config.data))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(ValueError, match=rf"config\.toml: {name} is|was edited"):
        lm.load(evil)
    with pytest.raises((ValueError, lm.training.train.OutOfMemory), match=r"config\.toml|another|memory|not enough"):
        lm.train(model, dataclasses.replace(CONFIG, steps=9), data, evil, progress=False)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes


def test_experts_that_are_not_there_are_refused():
    model = family("mixtral")
    experts = {"num_kv_heads": 2, "num_local_experts": 2}
    rope = lm.config.FrozenTable(rope_type="default", rope_theta=10000.0)
    config = model.config_type(50, 16, 1, 16, 2, 24, family="mixtral", rope_parameters=rope, **experts)
    weights = model(config).state_dict()
    from_weights(config, weights)
    with pytest.raises(ValueError, match="num_local_experts is"):
        from_weights(dataclasses.replace(config, num_local_experts=10**9), weights)


def test_an_adapter_is_as_large_as_its_matrix(data, evil):
    step, config = newest(evil), read_run(evil)
    train = dataclasses.replace(config.train, lora_rank=1, lora_targets=("down",), init_from="x")
    write(evil, RunConfig(config.model, train, config.data))
    weights = load_file(step / "model.safetensors")
    for layer in ("blocks.0.ffn.down.", "blocks.1.ffn.down."):
        weights |= {f"{layer}lora_a": torch.zeros(1, 10**6), f"{layer}lora_b": torch.zeros(10**6, 1)}
    save_file(weights, step / "model.safetensors")
    sign(step)
    with pytest.raises(
        ValueError, match=r"'blocks\.0\.ffn\.down\.lora_a' to have the shape \(1, 24\), got \(1, 1000000\)"
    ):
        lm.load(evil)


@needs_compiler
@pytest.mark.parametrize("home", [None, "/proc/none", "noexec"])
def test_compiled_code_without_a_home_is_refused_with_a_remedy(monkeypatch, tmp_path, home):
    monkeypatch.delenv("XDG_CACHE_HOME")
    if home is None:
        monkeypatch.delenv("HOME", raising=False)
        monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)  # a number without a name
    elif home == "noexec":
        monkeypatch.setenv("HOME", str(tmp_path))

        def refuse(path):
            raise OSError(f"{path}: failed to map segment from shared object")

        monkeypatch.setattr(build.ctypes, "CDLL", refuse)
    else:
        monkeypatch.setenv("HOME", home)
    reason = build.built.__wrapped__("passes", torch.float32)
    assert isinstance(reason, build.Unavailable)
    assert "XDG_CACHE_HOME" in str(reason)
