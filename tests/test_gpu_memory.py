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


def test_rows_can_be_predicted() -> None:
    for row in gpu_memory.ROWS:
        memory = gpu_memory.predict(row, "cuda")
        assert max(gpu_memory.phases(memory)) == memory.total
