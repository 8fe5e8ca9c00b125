"""Checkpoints: whole or not at all, and passed over when damaged."""

from __future__ import annotations

import errno
import os

import pytest
import torch
from runs import MODEL

from lm.model import Transformer
from lm.optimizer import adamw
from lm.training import checkpoint
from lm.training.checkpoint import Damaged, NotSaved


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
@pytest.mark.parametrize("how", ["altered", "altered in the middle", "zeros", "no text", "cut", "missing"])
def test_a_damaged_checkpoint_is_named_and_passed_over(saved, name, how):
    folder, _, _ = saved
    path = folder / "00000003" / name
    content = path.read_bytes()
    if how == "altered":
        path.write_bytes(content[:-9] + bytes([content[-9] ^ 1]) + content[-8:])
    elif how == "altered in the middle":
        middle = content.index(b'"note": 3') + 8 if name == "state.json" else len(content) // 2
        path.write_bytes(content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :])
    elif how == "zeros":
        path.write_bytes(bytes(len(content)))
    elif how == "no text":
        path.write_bytes(b"\xff" + content[1:])
    elif how == "cut":
        path.write_bytes(content[: len(content) // 2])
    else:
        path.unlink()
    with pytest.raises(Damaged, match=f"00000003 is damaged: {name}"):
        checkpoint.load(folder, 3)
    with pytest.warns(UserWarning, match=rf"00000003 is damaged: {name}.*the one before it is used"):
        assert checkpoint.load(folder).step == 2


def test_weights_of_an_earlier_format_are_refused(saved, monkeypatch):
    """Those whose heads were rotated in neighbouring pairs would be read without an error, and answer nonsense."""
    folder, model, _ = saved
    monkeypatch.setattr(checkpoint, "FORMAT", 1)
    checkpoint.save(folder, 4, model, None, {})
    monkeypatch.undo()
    for step in (4, None):
        with pytest.raises(ValueError, match=r"got format 1 in .*00000004: .*neighbouring pairs"):
            checkpoint.load(folder, step)


def test_what_is_saved_after_going_back_is_the_newest(saved):
    folder, model, optimizer = saved
    (folder / "00000003" / "state.json").unlink()
    with pytest.warns(UserWarning, match="00000003 is damaged"):
        assert checkpoint.load(folder).step == 2
    checkpoint.save(folder, 2, model, optimizer, {"note": "again"}, keep=1, best=3)
    assert checkpoint.steps(folder) == [2]
    assert checkpoint.load(folder).state == {"note": "again"}


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


@pytest.mark.parametrize("failing", ["model", "optimizer"])
def test_a_file_that_may_not_grow_is_said(saved, failing):
    resource = pytest.importorskip("resource", reason="only Unix limits how large a file may become")
    folder, _, optimizer = saved
    large = {"x": torch.zeros(100_000)}
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, before[1]))
    try:
        with pytest.raises(NotSaved, match="a file may not become that large here: raise the limit"):
            checkpoint.save(folder, 4, *((large, optimizer) if failing == "model" else ({}, large)), {}, keep=9)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(folder.glob(".*"))
    assert checkpoint.load(folder).step == 3
