"""The passes between products, in C and by torch's operators: against definitions, each other, and more threads."""

from __future__ import annotations

import contextlib
import ctypes

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from models import forget_libraries, needs_compiler
from runs import CONFIG, MODEL, run, stop_at

from lm.config import ModelConfig
from lm.device import threads
from lm.loss import chunked_cross_entropy
from lm.model import Transformer
from lm.ops.cpu import build as building
from lm.ops.cpu import passes
from lm.training.train import Stopped, train

WAYS = [pytest.param(True, id="C", marks=needs_compiler), pytest.param(False, id="torch")]


def using(native: bool, dtype: torch.dtype = torch.float64) -> ctypes.CDLL | None:
    """The library that computes, which must be there, or None."""
    library = passes.checked(dtype) if native else None
    assert isinstance(library, ctypes.CDLL | None), str(library)
    return library


def numbers(*shape: int, seed: int = 0, scale: float = 3.0) -> torch.Tensor:
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)


@pytest.fixture
def nothing_compiled(monkeypatch, tmp_path):
    """A context in which there is no C compiler, and nothing that one has made."""

    @contextlib.contextmanager
    def without():
        try:
            with monkeypatch.context() as here:
                here.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
                here.setenv("CC", "no-such-compiler")
                forget_libraries()
                yield
        finally:
            forget_libraries()

    return without


@pytest.mark.parametrize("native", WAYS)
@settings(max_examples=40, deadline=None)
@given(rows=st.integers(0, 9), width=st.integers(1, 70), count=st.integers(1, 3), seed=st.integers(0, 99))
def test_cross_entropy(native, rows, width, count, seed):
    logits = numbers(rows, width + 3, seed=seed, scale=20.0)
    generator = torch.Generator().manual_seed(seed)
    targets = torch.randint(width, (rows,), generator=generator)
    counts = torch.rand(rows, generator=generator) < 0.7
    leaf = logits[:, :width].clone().requires_grad_()
    expected = F.cross_entropy(leaf, targets, reduction="none")
    (slope,) = torch.autograd.grad(expected.sum(), leaf)
    with threads(count):
        nats = passes.cross_entropy(using(native), logits, width, targets.where(counts, -100), counts)
    close(nats, expected.detach() * counts)
    close(logits[:, :width][counts], slope[counts])
    close(logits[:, :width][~counts], leaf.detach().softmax(-1)[~counts])
    assert not logits[:, width:].any()


@needs_compiler
def test_float32_is_as_exact_as_torchs_own():
    logits, targets = numbers(64, 500, scale=10.0), torch.arange(64)
    counts = targets >= 0

    def results(native: bool, dtype: torch.dtype) -> list[torch.Tensor]:
        z = logits.to(dtype)
        nats = passes.cross_entropy(using(native, dtype), z, 500, targets, counts)
        return [nats.double(), z.double()]

    exact = results(False, torch.float64)
    for c, own, right in zip(results(True, torch.float32), results(False, torch.float32), exact, strict=True):
        assert float((c - right).abs().max()) <= 2 * float((own - right).abs().max()) + 1e-7


@needs_compiler
def test_the_bits_are_the_same_on_any_number_of_threads():
    x, by = numbers(37, 86).float(), using(True, torch.float32)

    def results(count: int) -> list[torch.Tensor]:
        with threads(count):
            logits, targets = x.clone(), torch.arange(37)
            nats = passes.cross_entropy(by, logits, 80, targets, targets != 3)
            heads = passes.Heads(x[:36, :80].reshape(3, 12, 8, 10), 4, None, torch.zeros(12, dtype=torch.int64))
            attended, *rest = passes.attend(by, heads)
            return [logits, nats, attended, passes.attend_back(by, attended, heads, *rest)]

    for count in (2, 3):
        assert all(torch.equal(a, b) for a, b in zip(results(1), results(count), strict=True))


@pytest.mark.parametrize("native", WAYS)
def test_what_is_no_number_stays_none_and_large_ones_do_not_overflow(native):
    by, dtype = using(native, torch.float32), torch.float32
    for place in range(3):
        logits = torch.zeros(1, 3, dtype=dtype)
        logits[0, place] = torch.nan
        assert passes.cross_entropy(by, logits, 3, torch.tensor([1]), torch.tensor([True])).isnan().all()
    logits = torch.tensor([[3e4, -3e4, 0.0]])
    nats = passes.cross_entropy(by, logits, 3, torch.tensor([1]), torch.tensor([True]))
    torch.testing.assert_close(nats, torch.tensor([6e4]))
    torch.testing.assert_close(logits, torch.tensor([[1.0, -1.0, 0.0]]))


@pytest.mark.parametrize("target", [7, -1])
def test_a_target_outside_the_logits_is_refused_and_not_written_to(target):
    with pytest.raises((IndexError, RuntimeError), match="out of bounds"):
        chunked_cross_entropy(torch.zeros(3, 4), torch.zeros(7, 4), torch.tensor([0, target, 1]))


def test_targets_of_another_type_are_not_read_as_if_of_this():
    """Newer versions of torch take int32 for an index; others refuse it."""
    hidden, weight, targets = numbers(3, 4), numbers(7, 4), torch.tensor([0, 6, 2])
    expected = chunked_cross_entropy(hidden, weight, targets)
    with contextlib.suppress(IndexError, RuntimeError):
        close(chunked_cross_entropy(hidden, weight, targets.int()), expected)


def test_without_a_compiler_a_step_is_torchs(nothing_compiled):
    def gradients() -> list[torch.Tensor]:
        torch.manual_seed(0)
        model = Transformer(ModelConfig(50, 8, 2, 16, 2, 24)).double()
        ids = torch.arange(16).view(2, 8)
        chunked_cross_entropy(model.hidden(ids), model.head_weight, ids).backward()
        return [p.grad for p in model.parameters()]

    before = gradients()
    with nothing_compiled():
        assert passes.compiled(torch.zeros(1)) is None
        for actual, expected in zip(gradients(), before, strict=True):
            close(actual, expected)


@needs_compiler
def test_a_run_that_goes_on_without_the_compiler_says_so(data, tmp_path, nothing_compiled, capfd):
    with pytest.raises(Stopped):
        run(data, tmp_path / "run", on_step=stop_at(5))
    capfd.readouterr()
    with nothing_compiled(), pytest.raises(Stopped):
        train(MODEL, CONFIG, data, tmp_path / "run", on_step=stop_at(9))
    assert "attention and fused passes C, now PyTorch: the run continues to rounding" in capfd.readouterr().err
    with nothing_compiled():
        train(MODEL, CONFIG, data, tmp_path / "run")
    assert "fused passes" not in capfd.readouterr().err


@needs_compiler
@pytest.mark.parametrize("change", [(b"(p[target]) - 1", b"(p[target]) - 0"), (b"sum *= share", b"sum *= 2")])
def test_a_library_that_computes_something_else_is_not_used(afresh, monkeypatch, change):
    source = building.source
    monkeypatch.setattr(building, "source", lambda name: source(name).replace(*change))
    assert str(passes.checked(torch.float32)) == "what was compiled does not compute what it should"
