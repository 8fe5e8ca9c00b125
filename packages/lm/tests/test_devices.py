"""Faults that only a device would show, shown on a CPU by a stand-in: MPS without float64, the second of two GPUs."""

from __future__ import annotations

import warnings

import pytest
import torch
from models import SHAPES
from runs import CONFIG, MODEL, metrics, new_model, run, write_settings
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

import accounting
from lm.commands.cli import main
from lm.model import RMSNorm
from lm.training import measure, train
from lm.training import metrics as training_metrics
from lm.training.budget import ran_out
from lm.training.train import OutOfMemory
from lm.training.trainer import Trainer


class WithoutDoubles(TorchDispatchMode):
    """Refuses float64 on the device "meta", as MPS does."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        results = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(results):
            if (
                isinstance(tensor, torch.Tensor)
                and tensor.is_meta
                and tensor.dtype in (torch.float64, torch.complex128)
            ):
                raise TypeError(f"{func} makes {tensor.dtype} on a device that has none")
        return results


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("shape", SHAPES)
def test_no_float64_reaches_a_device(shape, packed):
    model = new_model(shape, torch.float32).to("meta")
    ids = torch.zeros(2, 16, dtype=torch.long, device="meta")
    with WithoutDoubles():
        model.hidden(ids, ids if packed else None).sum().backward()
        assert torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).dtype == torch.float32


def test_narrow_numbers_take_the_fused_norm():
    before = torch.is_warn_always_enabled()
    torch.set_warn_always(True)  # torch says once that dtypes keep it from the fused norm
    try:
        norm, x = RMSNorm(8), torch.randn(3, 8)
        wide = norm(x)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            narrow = norm(x.bfloat16())
            assert narrow.dtype == torch.bfloat16
            torch.testing.assert_close(narrow.float(), wide, rtol=0.02, atol=0.02)
            assert norm.bfloat16()(x.bfloat16()).dtype == torch.bfloat16
    finally:
        torch.set_warn_always(before)


def test_the_seed_of_the_weights_is_not_that_of_the_gpus(data, tmp_path, monkeypatch):
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda *_: pytest.fail("the generators of GPUs are not used"))
    before = torch.random.get_rng_state()
    run(data, tmp_path)
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError(
            "MPS backend out of memory (MPS allocated: 8.00 GB, other allocations: 1.00 GB, max allowed: 9.07 GB)"
        ),
        RuntimeError("[enforce fail at alloc_cpu.cpp] DefaultCPUAllocator: can't allocate memory"),
    ],
)
@pytest.mark.parametrize("where", ["measured", "moved", "trained"])
def test_memory_that_runs_out_anywhere_is_one_sentence(data, tmp_path, monkeypatch, capsys, where, error):
    def full(*_, **__):
        raise error

    assert ran_out(error)
    places = {"measured": (measure, "Trainer"), "moved": (train, "Trainer"), "trained": (Trainer, "forward_backward")}
    monkeypatch.setattr(*places[where], full)
    write_settings(tmp_path / "small.toml", steps=20, warmup_steps=0)
    if where == "measured":
        assert main(["plan", str(tmp_path / "small.toml")]) == 0
        assert "out of memory on CPU" in capsys.readouterr().out
        return
    command = ["train", str(tmp_path / "small.toml"), "--data", str(data), "--out", str(tmp_path / "run"), "--quiet"]
    assert main(command) == 1
    assert "out of memory on CPU" in capsys.readouterr().err
    with pytest.raises(OutOfMemory, match="write --train"):
        run(data, tmp_path / "called")


def test_the_use_of_a_device_whose_peak_is_known_is_said_of_each_step(data, tmp_path, monkeypatch):
    monkeypatch.setattr("lm.training.metrics.peak_flops", lambda device, precision: 1e9)
    run(data, tmp_path)
    a_token = accounting.training_flops(MODEL.shape(), pairs="causal").total / MODEL.context_length
    lines = [line for line in metrics(tmp_path) if "loss" in line]
    assert len(lines) == CONFIG.steps
    for line in lines[1:]:  # the first step is not counted
        assert line["mfu"] == pytest.approx(line["tokens_per_second"] * a_token / 1e9, abs=1e-3)
    assert f"MFU {lines[-1]['mfu']:.0%}" in training_metrics.in_short(
        {"loss": None, "bits_per_byte": None, **lines[-1]}
    )
