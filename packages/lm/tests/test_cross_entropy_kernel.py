"""The fused cross-entropy kernel against float64: in Triton's interpreter, or on a GPU (`nox -s gpu`)."""

import contextlib
import dataclasses
import sys

import interpreter
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from interpreter import DEVICE, DTYPES, MARKS, PHASES, needs_cuda
from runs import CONFIG, MODEL

import lm.loss
from lm.loss import chunked_cross_entropy, kernel_on, refusal
from lm.ops import triton as kernels
from lm.training import budget

if kernels.lacking() is not None:
    pytest.skip(kernels.lacking(), allow_module_level=True)
if interpreter.LATE:
    raise ImportError("triton was imported before its interpreter was asked for: import tests/interpreter.py earlier")

from lm.ops.triton import cross_entropy as kernel

# Of a gradient, which is at most 1, rounded once.
ROUNDING = {torch.float32: 1e-6, torch.float16: 5e-4, torch.bfloat16: 4e-3}

pytestmark = MARKS


def randoms(*shape, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed + 1000 * sum(shape))
    return scale * torch.randn(*shape, generator=generator, dtype=torch.float64)


def definition(logits, targets, vocab_size):
    """Nats and their gradient in float64, 0 where the target is -100."""
    x = logits.double()[:, :vocab_size]
    counts = targets != -100
    place = targets.where(counts, 0)[:, None]
    log_p = x.log_softmax(-1)
    nats, gradient = -log_p.gather(1, place)[:, 0], torch.zeros_like(logits, dtype=torch.float64)
    gradient[:, :vocab_size] = log_p.exp().scatter_add(1, place, torch.full(place.shape, -1.0, dtype=torch.float64))
    return nats.where(counts, 0.0), gradient.where(counts[:, None], 0.0)


def computed(logits, targets, vocab_size, gradient=True):
    """Nats by the kernel of a copy of the logits, and the copy, which it writes the gradient to."""
    buffer = logits.to(DEVICE, copy=True)
    nats = kernel.cross_entropy(buffer, targets.to(DEVICE), vocab_size=vocab_size, ignore_index=-100, gradient=gradient)
    return nats.cpu(), buffer.cpu()


def check(logits, targets, vocab_size):
    nats, gradient = computed(logits, targets, vocab_size)
    wanted_nats, wanted_gradient = definition(logits, targets, vocab_size)
    assert nats.dtype == torch.float32
    torch.testing.assert_close(nats.double(), wanted_nats, rtol=1e-6, atol=1e-5, equal_nan=True)
    bound = ROUNDING[logits.dtype]
    torch.testing.assert_close(gradient.double(), wanted_gradient, rtol=bound, atol=bound, equal_nan=True)
    assert (gradient[:, vocab_size:] == 0).all()
    assert (gradient[targets == -100] == 0).all()
    alone, untouched = computed(logits, targets, vocab_size, gradient=False)
    torch.testing.assert_close(alone, nats, equal_nan=True)
    torch.testing.assert_close(untouched, logits, rtol=0, atol=0, equal_nan=True)


@contextlib.contextmanager
def blocks_of(columns):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernel, "BLOCK", columns)
        yield


@st.composite
def cases(draw):
    rows, columns = draw(st.integers(1, 5)), draw(st.integers(1, 70))
    vocab_size = draw(st.integers(1, columns))
    scale = draw(st.sampled_from([0.0, 1.0, 30.0, 1e4]))  # at 0 all logits are equal
    targets = draw(st.lists(st.one_of(st.just(-100), st.integers(0, vocab_size - 1)), min_size=rows, max_size=rows))
    return randoms(rows, columns, scale=scale).clamp(-6e4, 6e4), torch.tensor(targets), vocab_size


@settings(max_examples=60, deadline=None, phases=PHASES)
@example((randoms(1, 1), torch.tensor([0]), 1), torch.float32, 8192)
@example((randoms(2, 64), torch.tensor([0, 63]), 64), torch.float16, 16)
@given(cases(), st.sampled_from(DTYPES), st.sampled_from([16, 32, 8192]))
def test_nats_and_gradient_are_those_of_float64(case, dtype, block):
    logits, targets, vocab_size = case
    with blocks_of(block):
        check(logits.to(dtype), targets, vocab_size)


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_vocabulary_of_several_blocks(dtype):
    check(randoms(3, 20_032, scale=5.0).to(dtype), torch.tensor([20_000, -100, 8192]), 20_001)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_cannot_be_has_no_chance_and_no_gradient(dtype):
    logits = randoms(4, 40).to(dtype)
    logits[0, :39] = -torch.inf  # all but the target
    logits[1, 1:] = -torch.inf  # the target as well: its nats are without end
    logits[2] = -torch.inf  # a row of nothing has no softmax: NaN, as torch's
    logits[3, ::2] = -torch.inf
    with blocks_of(16):
        nats, gradient = computed(logits, torch.tensor([39, 5, 3, 7]), 40)
        check(logits[[0, 1, 3]], torch.tensor([39, 5, 7]), 40)
    assert nats[0] == 0
    assert nats[1] == torch.inf
    assert nats[2].isnan()
    assert gradient[2].isnan().all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_a_row_with_what_is_no_number_has_no_nats(value, dtype):
    for place in range(3):
        logits = torch.zeros(2, 3, dtype=dtype)
        logits[0, place] = value
        nats, gradient = computed(logits, torch.tensor([1, 1]), 3)
        assert nats[0].isnan()
        assert gradient[0].isnan().any()
        assert nats[1].isfinite()
        assert gradient[1].isfinite().all()


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_stands_beyond_the_vocabulary_does_not_count(dtype):
    logits = randoms(2, 12).to(dtype)
    logits[:, 9] = torch.nan
    logits[:, 10] = torch.inf
    check(logits, torch.tensor([0, 8]), 9)


@pytest.mark.parametrize("target", [-1, -101, 9, 11, 12, 2**40, -(2**40)])
def test_a_target_outside_the_vocabulary_has_no_nats_and_nothing_is_written_there(target):
    around = randoms(4, 12).float()
    targets = torch.tensor([3, target, 3])
    buffer = around.to(DEVICE, copy=True)
    nats = kernel.cross_entropy(buffer[:3], targets.to(DEVICE), vocab_size=9, ignore_index=-100).cpu()
    assert nats[1].isnan()
    wanted_nats, expected = definition(around[:3], torch.full((3,), 3), 9)
    torch.testing.assert_close(nats[[0, 2]].double(), wanted_nats[[0, 2]], rtol=1e-6, atol=1e-5)
    torch.testing.assert_close(buffer.cpu()[[0, 2]].double(), expected[[0, 2]], rtol=1e-6, atol=1e-6)
    assert torch.equal(buffer[3].cpu(), around[3])


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_may_lie_apart_and_targets_too(dtype):
    logits = randoms(3, 50).to(dtype)
    targets = torch.tensor([4, -100, 29])
    buffer = logits.to(DEVICE, copy=True)
    apart = torch.stack([targets, targets], 1)[:, 0].to(DEVICE)
    nats = kernel.cross_entropy(buffer[:, :32], apart, vocab_size=30, ignore_index=-100).cpu()
    wanted_nats, expected = definition(logits[:, :32], targets, 30)
    torch.testing.assert_close(nats.double(), wanted_nats, rtol=1e-6, atol=1e-5)
    torch.testing.assert_close(buffer.cpu()[:, :32].double(), expected, rtol=ROUNDING[dtype], atol=ROUNDING[dtype])
    assert torch.equal(buffer[:, 32:].cpu(), logits[:, 32:])


def losses(device, dtype=None, way=None, targets=None, hidden_dtype=torch.float32):
    """Loss and gradients of chunked_cross_entropy, on a device, under autocast where a dtype is given."""
    hidden, weight = randoms(23, 16).to(device, hidden_dtype), randoms(70, 16, seed=1).to(device, hidden_dtype)
    leaves = [hidden.requires_grad_(), weight.requires_grad_()]
    if targets is None:
        targets = torch.arange(23) % 65
        targets[::5] = -100
    numbers = contextlib.nullcontext() if dtype is None else torch.autocast(device, dtype)
    with pytest.MonkeyPatch.context() as patch, numbers:
        if way is not None:
            patch.setattr(lm.loss, "kernel_on", lambda *_: way)
        loss = chunked_cross_entropy(*leaves, targets.to(device), vocab_size=65, chunk_bytes=4 * 70 * 9)
        loss.backward()
    return [x.detach().cpu().double() for x in (loss, *(leaf.grad for leaf in leaves))]


BOUND = {torch.float32: 1e-5, torch.float16: 3e-3, torch.bfloat16: 2e-2}


@pytest.mark.parametrize("hidden_dtype", [torch.float32, *DTYPES[1:]])
@pytest.mark.parametrize("dtype", [None, *DTYPES[1:]])
def test_the_loss_by_the_kernel_is_that_by_operators(dtype, hidden_dtype):
    bound = max(BOUND[dtype or hidden_dtype], BOUND[hidden_dtype])
    exact = losses("cpu", hidden_dtype=torch.float64)
    fused, operators = (losses(DEVICE, dtype, way, hidden_dtype=hidden_dtype) for way in ("fused", "operators"))
    for expected in (exact, operators):
        for actual, want in zip(fused, expected, strict=True):
            torch.testing.assert_close(actual, want, rtol=bound, atol=bound * float(want.abs().max()))


def test_a_loss_of_targets_that_do_not_count_is_0():
    loss, *gradients = losses(DEVICE, way="fused", targets=torch.full((23,), -100))
    assert loss == 0
    assert all((x == 0).all() for x in gradients)


def test_a_target_outside_the_vocabulary_makes_the_loss_nan():
    for target in (65, 70, -1):
        assert losses(DEVICE, way="fused", targets=torch.full((23,), target))[0].isnan()


def test_which_kernel_computes_the_loss(monkeypatch):
    monkeypatch.setattr(lm.loss, "refusal", lambda *_: None)
    cuda = torch.device("cuda")
    for dtype in (torch.float16, torch.bfloat16, torch.float32):
        assert kernel_on(cuda, dtype) == "fused"
        assert kernel_on(cuda, dtype, 30.0) == kernel_on(torch.device("cpu"), dtype) == "operators"
    assert kernel_on(cuda, torch.float64) == kernel_on(torch.device("mps"), torch.float16) == "operators"
    monkeypatch.setattr(lm.loss, "refusal", lambda *_: "it is absent")
    assert kernel_on(cuda, torch.float16) == "operators"


@pytest.mark.parametrize("precision", ["fp32", "tf32", "bf16", "fp16"])
def test_the_budget_counts_the_kernel_that_runs(precision, monkeypatch):
    monkeypatch.setattr(lm.loss, "refusal", lambda device, dtype: None if device == "cuda" else "it is absent")
    config = dataclasses.replace(CONFIG, precision=precision)
    capped = dataclasses.replace(MODEL, logit_softcap=30.0)
    for model, device, kernel_of_it in (
        (MODEL, "cuda", "fused"),
        (capped, "cuda", "operators"),
        (MODEL, "cpu", "operators"),
    ):
        assert budget.policy(model, config, torch.device(device)).loss_kernel == kernel_of_it


def test_a_kernel_that_cannot_be_had_is_refused_with_a_reason(monkeypatch):
    refusal.cache_clear()
    try:
        assert refusal(DEVICE, torch.float32) is None
        monkeypatch.setattr(lm.loss, "fused", lambda logits, *_: logits.sum(-1))
        assert refusal(DEVICE, torch.float16) == "its results are wrong"
        refusal.cache_clear()
        monkeypatch.undo()
        monkeypatch.setitem(sys.modules, "lm.ops.triton.cross_entropy", None)
        assert "lm.ops.triton.cross_entropy" in refusal(DEVICE, torch.float16)
        monkeypatch.setattr(kernels, "lacking", lambda: "the package triton is not installed")
        assert "not installed" in refusal(DEVICE, torch.float32)
    finally:
        refusal.cache_clear()


@needs_cuda
@pytest.mark.parametrize("dtype", [torch.bfloat16, None], ids=["autocast", "float32"])
def test_cuda_takes_the_kernel(dtype, monkeypatch):
    ran = []
    run = lm.loss.fused
    monkeypatch.setattr(lm.loss, "fused", lambda *a, **k: ran.append(a[0].dtype) or run(*a, **k))
    refusal(DEVICE, dtype or torch.float32)
    refusal("cuda:0", dtype or torch.float32)
    ran.clear()
    actual, exact = losses("cuda", dtype), losses("cpu", hidden_dtype=torch.float64)
    assert ran == [dtype or torch.float32] * 3
    bound = BOUND[dtype or torch.float32]
    for x, want in zip(actual, exact, strict=True):
        torch.testing.assert_close(x, want, rtol=bound, atol=bound * float(want.abs().max()))


@needs_cuda
def test_logits_beyond_two_to_the_31_on_cuda():
    if torch.cuda.mem_get_info()[0] < 12 << 30:
        pytest.skip("needs 12 GiB of memory")
    columns, rows = 50_304, 43_000  # 2.16e9 numbers
    logits = torch.zeros(rows, columns, dtype=torch.bfloat16, device="cuda")
    targets = torch.full((rows,), 7, device="cuda")
    nats = kernel.cross_entropy(logits, targets, vocab_size=50_257, ignore_index=-100)
    torch.testing.assert_close(nats, torch.full_like(nats, torch.tensor(50_257.0).log().item()), rtol=1e-5, atol=1e-5)
    assert (logits[:, 7] < -0.99).all()
    assert (logits[:, 50_257:] == 0).all()
