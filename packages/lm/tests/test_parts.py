"""Every part of the model against its definition, written out in float64."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from models import attend, needs_compiler

from lm.attention import attention, rope_cache
from lm.config import ModelConfig, TrainConfig
from lm.loss import chunked_cross_entropy, cross_entropy
from lm.model import MLP, SwiGLU, Transformer, apply_rotary_emb, norm, softcapped
from lm.ops.cpu import fused
from lm.optimizer import adamw
from lm.schedule import learning_rate

DTYPES = {torch.float32: 2e-5, torch.float64: 1e-12}
few = settings(max_examples=25, deadline=None)


def randn(*shape, dtype=torch.float64, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed)).to(dtype)


def close(actual, want, dtype):
    tolerance = DTYPES[dtype]
    torch.testing.assert_close(actual.double(), want.double(), rtol=tolerance, atol=tolerance)


@few
@given(
    batch=st.integers(1, 2),
    seq=st.integers(1, 6),
    pairs=st.integers(1, 8),
    theta=st.sampled_from([100.0, 10000.0]),
    start=st.integers(0, 5000),
    dtype=st.sampled_from(list(DTYPES)),
)
def test_rotary(batch, seq, pairs, theta, start, dtype):
    x = randn(batch, seq, 2 * pairs)
    rope = rope_cache(start + seq, 2 * pairs, theta, dtype=dtype)[start:]
    out = apply_rotary_emb(x.to(dtype), rope)
    want = torch.empty_like(x)
    for t in range(seq):
        for i in range(pairs):
            angle = (start + t) / theta ** (2 * i / (2 * pairs))
            c, s = math.cos(angle), math.sin(angle)
            a, b = x[:, t, i], x[:, t, pairs + i]
            want[:, t, i], want[:, t, pairs + i] = a * c - b * s, a * s + b * c
    close(out, want, dtype)


def test_rotary_refuses_an_odd_width():
    with pytest.raises(ValueError, match="head_dim 3 is odd"):
        rope_cache(1, 3, 1e4)


@st.composite
def attention_cases(draw):
    kv_heads, group = draw(st.integers(1, 2)), draw(st.integers(1, 3))
    batch, width = draw(st.integers(1, 2)), draw(st.sampled_from([1, 4, 8]))
    queries, keys = draw(st.integers(1, 9)), draw(st.integers(1, 9))
    causal = draw(st.booleans())
    sliding_window = draw(st.none() | st.integers(1, 10)) if causal else None
    document_ids = None
    if queries <= keys and draw(st.booleans()):
        document_ids = torch.tensor(
            [draw(st.lists(st.integers(0, 2), min_size=keys, max_size=keys)) for _ in range(batch)]
        )
    q = randn(batch, kv_heads * group, queries, width)
    k, v = randn(batch, kv_heads, keys, width, seed=1), randn(batch, kv_heads, keys, width, seed=2)
    return q, k, v, {"causal": causal, "sliding_window": sliding_window, "document_ids": document_ids}


SCORE_CHANGES = [{}, {"softcap": 0.7}, {"sinks": randn(6, seed=4)}, {"softcap": 2.0, "sinks": 9 * randn(6, seed=5)}]


def changes_of(changes, q):
    """The same, with as many sinks as q has heads."""
    return {name: value[: q.shape[1]] if name == "sinks" else value for name, value in changes.items()}


@settings(max_examples=150, deadline=None)
@given(
    case=attention_cases(),
    backend=st.sampled_from(["auto", "flex", "sdpa", "matmul", "reference"]),
    changes=st.sampled_from(SCORE_CHANGES),
)
def test_attention(case, backend, changes):
    q, k, v, masks = case
    changes = {} if backend == "sdpa" else changes_of(changes, q)
    want, _ = attend(q, k, v, **masks, **changes)
    for dtype in DTYPES if backend != "flex" else [torch.float64]:  # which takes a tenth of a second a call
        actual = attention(*(x.to(dtype) for x in (q, k, v)), **masks, **changes, backend=backend)
        close(actual, want, dtype)


@settings(max_examples=60, deadline=None)
@given(case=attention_cases(), backend=st.sampled_from(["sdpa", "matmul"]), changes=st.sampled_from(SCORE_CHANGES))
def test_attention_gradients(case, backend, changes):
    q, k, v, masks = case
    changes = {} if backend == "sdpa" else changes_of(changes, q)
    upstream = randn(*q.shape, seed=3)
    grads = []
    for chosen in (backend, "reference"):
        leaves = {
            name: x.clone().requires_grad_()
            for name, x in {"q": q, "k": k, "v": v, **changes}.items()
            if name != "softcap"
        }
        attention(**(masks | changes | leaves), backend=chosen).backward(upstream)
        grads.append([torch.zeros_like(t) if t.grad is None else t.grad for t in leaves.values()])
    for actual, want in zip(*grads, strict=True):
        close(actual, want, torch.float64)


def test_flex_takes_a_mask_and_refuses_gradients_on_a_cpu():
    q, k, v = randn(2, 4, 5, 8), randn(2, 2, 9, 8, seed=1), randn(2, 2, 9, 8, seed=2)
    mask = torch.rand(2, 1, 5, 9, generator=torch.Generator().manual_seed(0)) < 0.5
    for masks in ({"causal": False}, {"sliding_window": 4}, {"document_ids": torch.arange(18).view(2, 9) // 4}):
        actual, want = (attention(q, k, v, mask=mask, **masks, backend=backend) for backend in ("flex", "reference"))
        close(actual, want, torch.float64)
    with pytest.raises(ValueError, match="'flex' has no gradients on a CPU"):
        attention(q, k.requires_grad_(), v, backend="flex")
    with torch.no_grad():
        attention(q, k, v, backend="flex")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"backend": "fast"}, "'fast' is unknown"),
        ({"backend": "sdpa", "softcap": 1.0}, "neither softcap nor sinks"),
        ({"softcap": 0.0}, "softcap above 0, got 0"),
        ({"sinks": torch.zeros(3)}, r"sinks of \(4,\), one for each query head, got \(3,\)"),
        ({"k": randn(1, 3, 4, 8), "v": randn(1, 3, 4, 8)}, "3 key heads do not divide 4"),
        ({"k": randn(1, 2, 4, 6), "v": randn(1, 2, 4, 6)}, "do not fit"),
        ({"sliding_window": 0}, "window 0"),
        ({"sliding_window": 2, "causal": False}, "causal=True"),
        ({"document_ids": torch.zeros(1, 3)}, "a document for each key"),
    ],
)
def test_attention_refuses(change, says):
    arguments = {"q": randn(1, 4, 4, 8), "k": randn(1, 2, 4, 8), "v": randn(1, 2, 4, 8)} | change
    with pytest.raises(ValueError, match=says):
        attention(**arguments)


def of_both(f, leaves, upstream, dtype):
    """A function's value and its gradients, computed in dtype, or by autograd in float64 where that is None."""
    leaves = [leaf.detach().to(dtype or torch.float64, copy=True).requires_grad_() for leaf in leaves]
    out = f(*leaves)
    out.backward(upstream.to(out.dtype))
    return [out.detach(), *(leaf.grad for leaf in leaves)]


def assert_is_its_definition(module, definition, x, dtype, loose=1.0):
    """Value and gradients of a module in dtype beside those of a function of x and the weights by name."""
    names = [name for name, _ in module.named_parameters()]
    leaves = [x, *(randn(*p.shape, seed=i) for i, p in enumerate(module.parameters(), 1))]

    def by_name(function):
        return lambda x, *weights: function(x, dict(zip(names, weights, strict=True)))

    upstream = randn(*definition(x, dict(zip(names, leaves[1:], strict=True))).shape, seed=9)
    expected = of_both(by_name(definition), leaves, upstream, None)
    actual = of_both(by_name(lambda x, w: torch.func.functional_call(module, w, x)), leaves, upstream, dtype)
    for one, other in zip(actual, expected, strict=True):
        tolerance = loose * DTYPES[dtype]
        torch.testing.assert_close(one.double(), other, rtol=20 * tolerance if loose > 1 else tolerance, atol=tolerance)


ACTIVATIONS = {
    "gelu": lambda x: 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
    "silu": lambda x: x / (1 + torch.exp(-x)),
    "relu2": lambda x: torch.where(x > 0, x * x, 0.0),
}


@few
@given(
    d_model=st.integers(1, 12),
    d_ff=st.integers(1, 20),
    name=st.sampled_from(["swiglu", *ACTIVATIONS]),
    bias=st.booleans(),
    dtype=st.sampled_from(list(DTYPES)),
)
def test_feed_forward(d_model, d_ff, name, bias, dtype):
    ffn = SwiGLU(d_model, d_ff, bias) if name == "swiglu" else MLP(d_model, d_ff, name, bias)

    def definition(x, w):
        def linear(x, name):
            return x @ w[f"{name}.weight"].T + w.get(f"{name}.bias", 0)

        if name == "swiglu":
            gate, up = linear(x, "gate_up").split(d_ff, dim=-1)
            return linear(ACTIVATIONS["silu"](gate) * up, "down")
        return linear(ACTIVATIONS[name](linear(x, "up")), "down")

    assert_is_its_definition(ffn.to(dtype), definition, randn(3, d_model), dtype)


@few
@given(
    width=st.integers(2, 40),
    rows=st.integers(1, 5),
    kind=st.sampled_from(["rmsnorm", "layernorm"]),
    dtype=st.sampled_from(list(DTYPES)),
)
def test_norms(width, rows, kind, dtype):
    config = ModelConfig(5, 4, 1, width, 1, 4, norm=kind, position="none", bias=True)

    def definition(x, w):
        x = x - x.mean(-1, keepdim=True) if kind == "layernorm" else x
        return x / torch.sqrt((x * x).mean(-1, keepdim=True) + config.norm_eps) * w["weight"] + w.get("bias", 0)

    loose = 50.0 if kind == "layernorm" else 1.0  # two numbers that are nearly equal have a mean as near
    assert_is_its_definition(norm(config).to(dtype), definition, randn(rows, width), dtype, loose)


@few
@given(
    steps=st.integers(1, 400),
    warm=st.floats(0, 1),
    decay=st.floats(0, 1),
    peak=st.floats(1e-6, 10),
    floor=st.floats(0, 1),
)
def test_schedules_rise_in_a_line_and_fall_as_they_say(steps, warm, decay, peak, floor):
    warmup_steps, low = int(warm * (steps - 1)), floor * peak
    fall = max(1, int(decay * (steps - warmup_steps)))
    config = TrainConfig(steps, schedule="constant", learning_rate=peak, warmup_steps=warmup_steps)
    cosine = dataclasses.replace(config, schedule="cosine", min_learning_rate=low)
    linear = dataclasses.replace(cosine, schedule="linear", decay_steps=fall)
    for step in range(steps + 3):
        rising = peak * (step + 1) / (warmup_steps + 1)
        done = min(1.0, max(0, step - warmup_steps) / (steps - warmup_steps))
        curve = rising if step < warmup_steps else low + (peak - low) * (1 + math.cos(math.pi * done)) / 2
        share = min(1.0, max(0, steps - step) / fall)
        line = rising if step < warmup_steps else low + (peak - low) * share
        level = rising if step < warmup_steps else peak
        for schedule, value in ((cosine, curve), (linear, line), (config, level)):
            assert math.isclose(learning_rate(schedule, step), value, rel_tol=1e-9, abs_tol=1e-15)


def plain_loss(logits, targets, ignore):
    counted = targets != ignore
    logits, targets = logits.double()[counted], targets[counted]
    return -(logits - torch.logsumexp(logits, -1, keepdim=True)).gather(1, targets[:, None]).sum()


@st.composite
def loss_cases(draw):
    tokens, vocab = draw(st.integers(1, 12)), draw(st.integers(1, 30))
    scale = draw(st.sampled_from([1.0, 100.0, 1e4]))  # at the last, softmax of a target underflows in float32
    targets = torch.tensor(draw(st.lists(st.integers(-1, vocab - 1), min_size=tokens, max_size=tokens)))
    return tokens, vocab, scale, torch.where(targets < 0, -100, targets)


NO_TARGETS = (3, 5, 1.0, torch.full((3,), -100))  # such rows cost 0, and no gradient is NaN


@settings(max_examples=60, deadline=None)
@given(case=loss_cases(), dtype=st.sampled_from(list(DTYPES)))
@example(case=NO_TARGETS, dtype=torch.float32)
def test_cross_entropy(case, dtype):
    tokens, vocab, scale, targets = case
    logits = (randn(tokens, vocab) * scale).to(dtype)
    want = plain_loss(logits, targets, -100)
    counted = max(1, int((targets != -100).sum()))
    close(cross_entropy(logits, targets, reduction="sum") / scale, want / scale, dtype)
    close(cross_entropy(logits, targets) / scale, want / counted / scale, dtype)


@settings(max_examples=60, deadline=None)
@given(
    case=loss_cases(),
    padding=st.integers(0, 3),
    chunk=st.integers(1, 13),
    reduction=st.sampled_from(["mean", "sum"]),
    softcap=st.none() | st.just(2.0),
    dtype=st.sampled_from(list(DTYPES)),
)
@example(case=NO_TARGETS, padding=0, chunk=2, reduction="mean", softcap=None, dtype=torch.float32)
def test_chunked_cross_entropy_is_the_plain_one(case, padding, chunk, reduction, softcap, dtype):
    tokens, vocab, scale, targets = case
    hidden, weight = randn(tokens, 4) * scale, randn(vocab + padding, 4, seed=1)
    plain = [hidden.clone().requires_grad_(), weight.clone().requires_grad_()]
    want = cross_entropy(softcapped((plain[0] @ plain[1].T)[:, :vocab], softcap), targets, reduction=reduction)
    want.backward()
    given_ = [hidden.to(dtype).requires_grad_(), weight.to(dtype).requires_grad_()]
    actual = chunked_cross_entropy(
        *given_,
        targets,
        vocab_size=vocab,
        reduction=reduction,
        softcap=softcap,
        chunk_bytes=chunk * 4 * (vocab + padding),
    )
    actual.backward()
    close(actual / scale, want / scale, dtype)
    if dtype == torch.float64 or scale < 1000:  # beyond, float32 cannot tell which of two logits is the greater
        close(given_[0].grad, plain[0].grad, torch.float64 if dtype == torch.float64 else torch.float32)
        close(given_[1].grad / scale, plain[1].grad / scale, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_frozen_head_changes_no_gradient_and_has_none(dtype):
    targets = torch.tensor([0, 3, -100, 4])
    hidden, weight = (randn(*shape, dtype=dtype) for shape in ((4, 8), (5, 8)))
    grads = []
    for frozen in (False, True):
        inputs = hidden.clone().requires_grad_(), weight.clone().requires_grad_(not frozen)
        chunked_cross_entropy(*inputs, targets, chunk_bytes=2 * 4 * 5).backward()
        grads.append(inputs[0].grad)
    assert torch.equal(*grads)
    assert inputs[1].grad is None


def test_losses_refuse_an_unknown_reduction():
    with pytest.raises(ValueError, match="'none' is unknown"):
        cross_entropy(randn(1, 2), torch.zeros(1).long(), reduction="none")


def test_adamw_is_torchs_with_decay_on_matrices_that_are_no_embeddings():
    model = Transformer(ModelConfig(7, 4, 1, 4, 2, 6, norm="layernorm", bias=True))
    optimizer = adamw(model, 0.01, (0.8, 0.95), 1e-7, 0.3)
    assert type(optimizer) is torch.optim.AdamW
    assert {(group["lr"], group["betas"], group["eps"]) for group in optimizer.param_groups} == {
        (0.01, (0.8, 0.95), 1e-7)
    }
    decay = {id(p): group["weight_decay"] for group in optimizer.param_groups for p in group["params"]}
    for name, p in model.named_parameters():
        assert decay[id(p)] == 0.3 * (p.ndim == 2 and name != "embedding.weight"), name


@needs_compiler
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("sliding_window", [None, 5, 90])
@pytest.mark.parametrize(("heads", "kv_heads", "length"), [(4, 4, 150), (6, 2, 129), (3, 1, 64), (2, 2, 1)])
def test_attention_in_c_is_attention(heads, kv_heads, length, sliding_window, packed):
    torch.manual_seed(0)
    qkv = torch.randn(2, length, heads + 2 * kv_heads, 8, dtype=torch.float64, requires_grad=True)
    table = rope_cache(length, 8, 100.0, dtype=torch.float64).unsqueeze(1)
    document_ids = torch.randint(0, 4, (2, length)).sort(dim=1).values if packed else None
    for rope in (table, table.expand(2, -1, -1, -1, -1) + 0, None):
        qk = qkv[:, :, : heads + kv_heads]
        qk = qk if rope is None else apply_rotary_emb(qk, rope)
        q, k = qk.transpose(1, 2).split((heads, kv_heads), dim=1)
        v = qkv[:, :, heads + kv_heads :].transpose(1, 2)
        expected = attention(q, k, v, sliding_window=sliding_window, document_ids=document_ids, backend="matmul")
        actual = fused.attend(qkv, heads, rope, fused.first_keys(length, sliding_window, document_ids))
        torch.testing.assert_close(actual, expected.transpose(1, 2), rtol=1e-12, atol=1e-12)
        upstream = torch.randn_like(actual)
        pair = (torch.autograd.grad(y, qkv, upstream)[0] for y in (actual, expected.transpose(1, 2)))
        torch.testing.assert_close(*pair, rtol=1e-11, atol=1e-11)
