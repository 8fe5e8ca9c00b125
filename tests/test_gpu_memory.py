"""The program that compares the budget with a GPU: what of it runs without one."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch", reason="the model needs torch, which is not installed")
pytest.importorskip("lm", reason="the model is in lm, which is not installed")
pytest.importorskip("accounting", reason="the budget is in accounting, which is not installed")

import gpu_memory  # noqa: E402


def test_without_cuda_it_stops(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu_memory.main([]) == 2
    assert "CUDA" in capsys.readouterr().err
    assert gpu_memory.main(["--shape", "nothing"]) == 2


def test_predictions_are_those_of_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """The peaks of docs/design/performance/accounting.md, in MB, one row each."""
    peaks = [11324.9, 9452.1, 5054.7, 12911.9, 18613.9, 3896.6, 15138.8, 10915.5, 21021.1, 13253.4, 6974.9]
    monkeypatch.setattr(gpu_memory, "kernel_on", lambda *_: "fused")  # as on CUDA
    for row, peak in zip(gpu_memory.ROWS, peaks, strict=True):
        memory = gpu_memory.predict(row, "cuda")
        assert max(gpu_memory.phases(memory)) == memory.total
        assert round(memory.total / 1e6, 1) == peak
