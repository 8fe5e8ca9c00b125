"""Products by oneDNN against the plain ones: values, gradients, a model's loss, and when they step aside.

The machine that runs this need not be one that chooses oneDNN: here all are told to.
"""

import copy
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from lm import device
from lm.config import ModelConfig
from lm.loss import chunked_cross_entropy
from lm.model import Transformer
from lm.ops.cpu import products
from lm.ops.cpu.fused import fuse
from lm.ops.cpu.products import FusedLinear

pytestmark = pytest.mark.skipif(not torch.backends.mkldnn.is_available(), reason="this torch has no oneDNN")


@pytest.fixture
def onednn(monkeypatch):
    """Every machine chooses oneDNN; the products that it is asked for."""
    calls = []
    plain = products.product

    def counted(x, weight, bias=None):
        calls.append((tuple(x.shape), tuple(weight.shape)))
        return plain(x, weight, bias)

    monkeypatch.setattr(products, "has_fast_onednn", lambda: True)
    monkeypatch.setattr(products, "product", counted)
    return calls


def linear(inputs, outputs, bias):
    return fuse(nn.ModuleList([nn.Linear(inputs, outputs, bias=bias)]))[0]


sizes = st.integers(1, 70)


@settings(max_examples=30, deadline=None)
@given(rows=sizes, inputs=sizes, outputs=sizes, bias=st.booleans(), seed=st.integers(0, 99))
def test_a_layer_is_the_plain_layer_forward_and_backward(rows, inputs, outputs, bias, seed):
    torch.manual_seed(seed)
    layer, x = linear(inputs, outputs, bias), torch.randn(2, rows, inputs, requires_grad=True)
    leaves = [x, *layer.parameters()]
    grad = torch.randn(2, rows, outputs)
    expected = [y := nn.Linear.forward(layer, x), *torch.autograd.grad(y, leaves, grad)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "has_fast_onednn", lambda: True)
        actual = [y := layer(x), *torch.autograd.grad(y, leaves, grad)]
        # as gradients come that are no tensor of their own
        alike = torch.autograd.grad(layer(x), leaves, grad[:, :1].expand(2, rows, outputs))
        single = torch.autograd.grad(layer(x), leaves, grad[:, :1].repeat(1, rows, 1))
    for one, other in zip([*expected, *single], [*actual, *alike], strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_a_model_and_its_loss_are_the_plain_ones(onednn):
    torch.manual_seed(0)
    model = Transformer(ModelConfig(50, 40, 2, 32, 4, 48, bias=True))
    twin = fuse(copy.deepcopy(model))
    ids, targets = torch.randint(50, (2, 3, 40))
    targets[0, :5] = -100

    def results(of):
        loss = chunked_cross_entropy(of.hidden(ids), of.head_weight, targets, chunk_bytes=4 * 50 * 32)
        return [loss.detach(), *torch.autograd.grad(loss, list(of.parameters()))]

    actual = results(twin)
    assert ((2 * 32, 32), (50, 32)) not in onednn
    assert any(weight == (50, 32) for _, weight in onednn)  # the head
    assert any(weight == (32 * 3, 32) for _, weight in onednn)  # queries, keys and values
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "has_fast_onednn", lambda: False)
        expected = results(model)
    for one, other in zip(expected, actual, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", ["float64", "empty", "autocast", "inference", "not chosen"])
def test_what_is_not_for_onednn_is_computed_by_torch(onednn, monkeypatch, case):
    layer = linear(3, 4, True)
    layer = layer.double() if case == "float64" else layer
    x = torch.randn(0 if case == "empty" else 2, 3, dtype=layer.weight.dtype)
    if case == "not chosen":
        monkeypatch.setattr(products, "has_fast_onednn", lambda: False)
    with torch.autocast("cpu", enabled=case == "autocast"), torch.inference_mode(case == "inference"):
        y = layer(x)
        torch.testing.assert_close(y, nn.Linear.forward(layer, x), rtol=1e-4, atol=1e-4)
    assert bool(onednn) == (case == "inference")


AMD = "processor\t: 0\nvendor_id\t: AuthenticAMD\nflags\t\t: fpu avx2 avx512f avx512bw\n\nprocessor\t: 1\n"


@pytest.fixture
def processor(monkeypatch, tmp_path):
    """Sets what Linux says of the processor, None for nothing."""

    def put(about):
        if about is not None:
            (tmp_path / "cpuinfo").write_text(about)

    monkeypatch.setattr(device, "CPUINFO", tmp_path / "cpuinfo")
    for cached in (device.cpuinfo, products.is_amd_with_avx512):
        cached.cache_clear()
    yield put
    for cached in (device.cpuinfo, products.is_amd_with_avx512):
        cached.cache_clear()


def test_a_compiled_layer_is_the_plain_layer(processor):
    processor(AMD)
    torch.manual_seed(0)
    layer, x = linear(24, 40, True), torch.randn(6, 24, requires_grad=True)
    leaves = [x, *layer.parameters()]
    compiled = torch.compile(layer, backend="aot_eager", fullgraph=True)  # without a compiler's minute
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        y = compiled(x)
    expected = nn.Linear.forward(layer, x)
    torch.testing.assert_close(y, expected, rtol=1e-4, atol=1e-4)
    gradients = torch.autograd.grad(y.sin().sum(), leaves)
    for one, other in zip(gradients, torch.autograd.grad(expected.sin().sum(), leaves), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("about", "uses_onednn"),
    [
        (AMD, True),
        (AMD.replace("AuthenticAMD", "GenuineIntel"), False),
        (AMD.replace(" avx512f avx512bw", ""), False),
        ("Features\t: fp asimd\n", False),
        (None, False),
    ],
)
def test_the_choice_depends_on_maker_and_features_alone(processor, about, uses_onednn):
    processor(about)
    assert products.has_fast_onednn() is uses_onednn
    assert type(linear(3, 4, False)) is FusedLinear
