"""The fused attention kernel: without a GPU in Triton's interpreter, with one on it (`nox -s gpu`)."""

import functools
import itertools
import math
import re
import sys
from pathlib import Path

import interpreter
import models
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from interpreter import CUDA, DEVICE, DTYPES, MARKS, PHASES, needs_cuda
from models import attend
from torch.utils.checkpoint import checkpoint

import lm
from lm.attention import attention, has_flash, probe
from lm.families import build
from lm.families.gemma import Gemma2Config
from lm.families.gpt_oss import GptOssConfig
from lm.families.parts import FrozenTable
from lm.generation.decoder import Decoder, RecordedStep
from lm.ops import triton as kernels

if kernels.lacking() is not None:
    pytest.skip(kernels.lacking(), allow_module_level=True)
if interpreter.LATE:
    raise ImportError("triton was imported before its interpreter was asked for: import tests/interpreter.py earlier")


import triton
import triton.language as tl

from lm.ops.triton import decode as decoding
from lm.ops.triton import tile_sizes
from lm.ops.triton.flash import flash_attention, paged_attention
from lm.ops.triton.problem import Problem, Tiles
from lm.ops.triton.tiles import block_and_head

# What rounding a result alone may cost: of the few numbers of a small case SDPA's may all be lucky.
ROUNDING = {torch.float32: 4e-7, torch.float16: 5e-4, torch.bfloat16: 4e-3}

pytestmark = MARKS


def randoms(*shape, dtype=torch.float64, seed=0):
    generator = torch.Generator().manual_seed(seed + 1000 * sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(DEVICE, dtype)


@st.composite
def cases(draw):
    """q, k, v in float64, rounded to a dtype; the masks; that dtype.

    Lengths go over the tiles of the interpreter, 16.
    """
    dtype = draw(st.sampled_from(DTYPES))
    heads = [(1, 1, 1), (2, 1, 1), (1, 2, 1), (1, 1, 2), (2, 1, 2), (1, 2, 2)]  # each has a program for every tile
    batch, kv_heads, group = draw(st.sampled_from(heads))
    queries, keys = draw(st.integers(1, 40)), draw(st.integers(1, 40))
    head_dim = draw(st.sampled_from([16, 20, 32, 64]))
    causal = draw(st.booleans())
    sliding_window = draw(st.none() | st.integers(1, 40)) if causal else None
    document_ids = None
    if draw(st.booleans()):
        rows = [draw(st.lists(st.integers(-1, 2), min_size=keys, max_size=keys)) for _ in range(batch)]
        if draw(st.booleans()):
            rows = [sorted(row) for row in rows]
        document_ids = torch.tensor(rows, device=DEVICE)
    q = randoms(batch, queries, kv_heads * group, head_dim, dtype=dtype).transpose(1, 2)
    k, v = (randoms(batch, kv_heads, keys, head_dim, dtype=dtype, seed=seed) for seed in (1, 2))
    return q, k, v, {"causal": causal, "sliding_window": sliding_window, "document_ids": document_ids}, dtype


def run(function, *tensors_upstream_dtype):
    """Output and gradients of the tensors q, k, v and possibly sinks, computed in dtype."""
    *tensors, upstream, dtype = tensors_upstream_dtype
    leaves = [x.to(dtype).detach().requires_grad_() for x in tensors]
    out = function(*leaves)
    return [out.detach(), *torch.autograd.grad(out, leaves, upstream.to(dtype))]


def three_ways(q, k, v, upstream, dtype, masks):
    """Our output and gradients, each beside SDPA's and the exact one."""
    exact = run(lambda *x: attend(*x, **masks)[0], q, k, v, upstream, torch.float64)
    ours = run(lambda *x: flash_attention(*x, **masks), q, k, v, upstream, dtype)
    sdpa = run(lambda *x: attention(*x, **masks, backend="sdpa"), q, k, v, upstream, dtype)
    return zip(ours, sdpa, exact, strict=True)


def one_key_each(heads, queries, head_dim):
    """A case in which every query sees one key at most."""
    q = randoms(2, queries, heads, head_dim, dtype=torch.float32).transpose(1, 2)
    k, v = (randoms(2, 1, 2, head_dim, dtype=torch.float32, seed=seed) for seed in (1, 2))
    document_ids = torch.tensor([[-1, 0], [-1, 2]], device=DEVICE)
    return q, k, v, {"causal": True, "sliding_window": 24, "document_ids": document_ids}, torch.float32


def keys_for_all(queries, keys, head_dim):
    """A case in which all queries see the same few keys."""
    q = randoms(1, queries, 1, head_dim, dtype=torch.float32).transpose(1, 2)
    k, v = (randoms(1, 1, keys, head_dim, dtype=torch.float32, seed=seed) for seed in (1, 2))
    return q, k, v, {"causal": False}, torch.float32


@settings(max_examples=16, deadline=None, phases=PHASES)
@given(case=cases())
@example(case=one_key_each(2, 2, 32))
@example(case=one_key_each(2, 20, 64))
@example(case=keys_for_all(7, 1, 64))
def test_output_and_gradients_are_off_by_at_most_twice_what_sdpa_is(case):
    q, k, v, masks, dtype = case
    upstream = randoms(*q.shape, dtype=dtype, seed=3)
    bounds = spares([q, k, v], upstream, torch.float32, masks)
    for (actual, peer, want), spare in zip(three_ways(q, k, v, upstream, dtype, masks), bounds, strict=True):
        check(actual, peer, want, spare)


def spares(leaves, upstream, dtype, masks):
    """Rounding errors of terms that cancel, however large they are, in the output and in each gradient of run().

    A gradient of scores is p (do·v - do·o), where o is rounded to `dtype`: its error is that part of p |do|·(P |v|),
    even where a query sees one key and the gradient is 0. A weight is the exponential of a score less the log-sum-exp,
    whose rounding in float32 is a part of the weight. A capped score, cap - 2 cap / (exp + 1), has a rounding of the
    cap as its error, and a weight twice as much, because the sum of its row has the same.
    """
    q, k, v, *sinks = (x.double() for x in leaves)
    masks = {"softcap": None, **masks, "sinks": sinks[0] if sinks else None}
    do, of_cap = upstream.double().abs(), 2 * torch.finfo(torch.float32).eps * (masks["softcap"] or 0.0)

    def summed(rows):
        """Pᵀ of rows (batch, heads, queries, head_dim), over the queries of a group."""
        return run(lambda v: attend(q, k, v, **masks)[0], v, rows, torch.float64)[1].max()

    weighted, lse = attend(q, k, v.abs(), **masks)
    lse = lse.masked_fill(lse.isinf(), 0.0)
    terms = (do * weighted).sum(-1, keepdim=True) / math.sqrt(q.shape[-1])
    of_scores = ROUNDING[dtype] + of_cap
    of_sinks = [(sinks[0][:, None] - lse).exp() * terms[..., 0] * math.sqrt(q.shape[-1])] if sinks else []
    return [
        of_cap * weighted.max(),
        of_scores * (terms * attend(q, k, k.abs(), **masks)[0]).max(),
        of_scores * summed(terms * q.abs()),
        summed((ROUNDING[torch.float32] * lse.abs()[..., None] + of_cap) * do),
        *(of_scores * each.sum((0, 2)).max() for each in of_sinks),
    ]


def check(actual, peer, want, spare=0.0):
    """The dtype is the peer's, and the error at most twice the peer's but for rounding the result, and spare."""
    assert actual.dtype == peer.dtype
    error, allowed = ((x.double() - want).abs().max() for x in (actual, peer))
    assert error <= 2 * allowed + ROUNDING[actual.dtype] * want.abs().max().clamp_min(1.0) + spare


@pytest.mark.parametrize(
    ("dtype", "masks"),
    [(torch.float32, {}), (torch.float16, {"causal": False}), (torch.bfloat16, {"sliding_window": 9})],
)
def test_where_numbers_are_many_no_rounding_is_allowed_for(dtype, masks):
    q, k, v, upstream = (randoms(2, 2, 40, 32, dtype=dtype, seed=seed) for seed in range(4))
    for actual, peer, want in three_ways(q, k, v, upstream, dtype, masks):
        assert (actual.double() - want).norm() <= 2 * (peer.double() - want).norm()


def with_sinks(function, changes):
    """The function of q, k, v and sinks, which may be absent."""
    return lambda q, k, v, *sinks, **masks: function(q, k, v, **masks, **changes, sinks=sinks[0] if sinks else None)


@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=3, deadline=None, phases=PHASES)
@given(
    case=cases(), softcap=st.none() | st.sampled_from([0.1, 3.0, 50.0]), sink=st.none() | st.sampled_from([-90, 0, 8])
)
@example(case=keys_for_all(5, 3, 32), softcap=50.0, sink=None)
def test_soft_caps_and_sinks_are_off_by_at_most_twice_what_whole_scores_are(dtype, case, softcap, sink):
    *qkv, masks, _ = case
    leaves = [x.to(dtype) for x in qkv]
    if sink is not None:
        leaves.append((randoms(qkv[0].shape[1], seed=4) + sink).to(dtype))
    upstream = randoms(*qkv[0].shape, dtype=dtype, seed=3)
    exact, ours, whole = (
        run(functools.partial(with_sinks(function, {"softcap": softcap}), **masks), *leaves, upstream, kind)
        for function, kind in (
            (lambda *x, **more: attend(*x, **more)[0], torch.float64),
            (flash_attention, dtype),
            (functools.partial(attention, backend="matmul"), dtype),
        )
    )
    bounds = spares(leaves, upstream, dtype, {**masks, "softcap": softcap})
    for actual, peer, want, spare in zip(ours, whole, exact, bounds, strict=True):
        check(actual, peer, want, spare)


@pytest.mark.skipif(CUDA, reason="float64 is for the interpreter")
@pytest.mark.parametrize(
    "masks",
    [
        {},
        {"causal": False, "softcap": 0.7},
        {"sliding_window": 2, "document_ids": torch.tensor([[0, 0, 1, 1, 1]]), "sinks": torch.tensor([0.3, -1.0])},
    ],
)
def test_gradients_in_float64_are_those_of_autograd_and_of_finite_differences(masks):
    q, k, v = (randoms(1, heads, length, 3, seed=heads).requires_grad_() for heads, length in ((2, 4), (1, 5), (1, 5)))
    assert torch.autograd.gradcheck(functools.partial(flash_attention, **masks), (q, k, v), atol=1e-4, fast_mode=True)
    ours, exact = (
        run(lambda *x: function(*x, **masks), q, k, v, torch.ones_like(q), torch.float64)  # noqa: B023
        for function in (flash_attention, lambda *x, **more: attend(*x, **more)[0])
    )
    for actual, expected in zip(ours, exact, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("batch", "queries", "keys"), [(0, 3, 3), (1, 0, 3), (2, 3, 0)])
def test_nothing_at_all(batch, queries, keys):
    q, k = randoms(batch, 2, queries, 16).float().requires_grad_(), randoms(batch, 2, keys, 16).float().requires_grad_()
    out = flash_attention(q, k, k)
    assert out.shape == q.shape
    assert (out == 0).all()
    out.sum().backward()
    assert (q.grad == 0).all()
    assert (k.grad == 0).all()


def test_any_strides():
    q = randoms(2, 2, 20, 16, dtype=torch.float32)
    views = {
        "as a projection leaves it": q.permute(0, 2, 1, 3).contiguous().permute(0, 2, 1, 3),
        "head_dim not contiguous": q.transpose(2, 3).contiguous().transpose(2, 3),
        "every second number": torch.stack((q, q), -1)[..., 0],
    }
    want = run(flash_attention, q, q, q, q, torch.float32)
    # On a device each layout is read by threads in another order, and float32 is added up as they hold it.
    bounds = {"atol": 3e-6, "rtol": 1e-5} if CUDA else {"atol": 0, "rtol": 0}
    for name, view in views.items():
        assert view.stride() != q.stride()
        for actual, expected in zip(run(flash_attention, view, view, view, view, torch.float32), want, strict=True):
            torch.testing.assert_close(actual, expected, **bounds, msg=lambda message, name=name: f"{name}: {message}")
    projected = views["as a projection leaves it"]
    assert flash_attention(projected, q, q).stride() == projected.stride()
    one = q[:1].expand(2, 2, 20, 16)  # a batch of one, twice, without a copy
    assert torch.equal(flash_attention(one, one, one)[1], flash_attention(q[:1], q[:1], q[:1])[0])


def test_offsets_past_two_to_the_31(tmp_path):
    # A file with a hole in it: two rows of keys, 2³¹ numbers and more apart, and nothing on the disk between them.
    apart = 2**31 + 8
    store = torch.from_file(str(tmp_path / "hole"), shared=True, size=apart + 16, dtype=torch.float16)
    far = store.as_strided((1, 1, 2, 16), (0, 0, apart, 1))
    near = randoms(1, 1, 2, 16, dtype=torch.float16).cpu()
    far.copy_(near)
    q = randoms(1, 1, 2, 16, dtype=torch.float16, seed=1)
    if CUDA:
        store = torch.empty(apart + 16, dtype=torch.float16, device=DEVICE)
        far, near = store.as_strided(far.shape, far.stride()).copy_(near), near.to(DEVICE)
    actual, want = (run(lambda *x: flash_attention(*x), q, k, k, q, torch.float16) for k in (far, near))
    assert all(torch.equal(x, y) for x, y in zip(actual, want, strict=True))


@pytest.mark.parametrize(("blocks", "heads", "together"), [(5, 6, 1), (5, 7, 3), (4, 6, 2), (3, 4, 9), (1, 5, 2)])
def test_every_block_of_every_head_has_one_program_the_long_ones_first(blocks, heads, together):
    out = torch.full((blocks * heads, 2), -1, dtype=torch.int32, device=DEVICE)
    place_kernel[(blocks * heads,)](out, blocks, together)
    places = [tuple(row) for row in out.tolist()]
    groups = [range(first, min(first + together, heads)) for first in range(0, heads, together)]
    assert places == [(block, head) for group in groups for block in range(blocks) for head in group]


@triton.jit
def place_kernel(out, blocks, together):
    block, head = block_and_head(blocks, together)
    tl.store(out + 2 * tl.program_id(0), block)
    tl.store(out + 2 * tl.program_id(0) + 1, head)


def test_heads_start_side_by_side_as_far_as_the_cache_has_room(monkeypatch):
    monkeypatch.setattr("lm.ops.triton.problem.second_cache", lambda _: 50 << 20)

    def together(batch, heads, kv_heads, length, head_dim, side="queries", **masks):
        q, k = (torch.empty(batch, n, length, head_dim, dtype=torch.bfloat16, device="meta") for n in (heads, kv_heads))
        return Problem(q, k, k, None, masks.get("causal", True), masks.get("sliding_window")).heads_together(side)

    assert together(8, 12, 12, 1024, 64) == 96
    assert together(1, 16, 16, 16384, 128) == 4
    assert together(1, 32, 8, 16384, 128) == 16  # four query heads read the same keys
    assert together(1, 32, 8, 16384, 128, "keys") == 1
    assert together(1, 1, 1, 2**20, 256) == together(8, 12, 12, 1024, 64, causal=False) == 1
    assert together(8, 12, 12, 1024, 64, sliding_window=128) == 1


def test_the_same_bits_every_time():
    q, k, v = small(1, 4, 40, 32), *(small(1, 2, 40, 32, seed=s) for s in (1, 2))
    first, second = (run(flash_attention, q, k, v, q, torch.float32) for _ in range(2))
    assert all(torch.equal(x, y) for x, y in zip(first, second, strict=True))


@pytest.mark.skipif(CUDA, reason="on a device the tiles are the table's")
@pytest.mark.parametrize("head_dim", [16, 24])
def test_tiles_of_other_shapes_and_tensor_descriptors(monkeypatch, head_dim):
    q, k, v = randoms(1, 2, 40, head_dim).float(), *(randoms(1, 1, 70, head_dim, seed=s).float() for s in (1, 2))
    document_ids = torch.tensor([[0] * 37 + [5] * 33])
    for masks in ({}, {"sliding_window": 19, "document_ids": document_ids}, {"causal": False}):
        want = run(lambda *x: attend(*x, **masks)[0], q, k, v, q, torch.float64)  # noqa: B023
        for described in (False, True):
            tiles = {"forward": (16, 32), "keys": (32, 16), "queries": (32, 32)}
            for kind, (rows, columns) in tiles.items():
                monkeypatch.setitem(tile_sizes.INTERPRETED, kind, Tiles(rows, columns, described=described))
            actual = run(lambda *x: flash_attention(*x, **masks), q, k, v, q, torch.float32)  # noqa: B023
            for x, y in zip(actual, want, strict=True):
                torch.testing.assert_close(x.double(), y, atol=3e-6, rtol=1e-5)


small = functools.partial(randoms, dtype=torch.float32)


@pytest.mark.parametrize(
    ("change", "error", "says"),
    [
        ({"q": small(4, 4, 8)}, ValueError, r"q \(4, 4, 8\), k \(1, 2, 4, 8\)"),
        ({"k": small(1, 3, 4, 8), "v": small(1, 3, 4, 8)}, ValueError, "3 key heads do not divide 4"),
        ({"v": small(1, 2, 5, 8)}, ValueError, "do not fit"),
        ({"q": small(1, 4, 4, 8).half()}, TypeError, "give them one dtype"),
        ({"q": small(1, 4, 4, 300), "k": small(1, 2, 4, 300), "v": small(1, 2, 4, 300)}, ValueError, "head_dim 300"),
        ({"sliding_window": 0}, ValueError, "window 0"),
        ({"sliding_window": 2, "causal": False}, ValueError, "causal=True"),
        ({"document_ids": torch.zeros(1, 3)}, ValueError, "a document for each key"),
        ({"document_ids": torch.zeros(1, 4, device=DEVICE)}, ValueError, "int32 or int64"),
    ],
)
def test_what_is_refused(change, error, says):
    arguments = {"q": small(1, 4, 4, 8), "k": small(1, 2, 4, 8), "v": small(1, 2, 4, 8)} | change
    with pytest.raises(error, match=says):
        flash_attention(**arguments)


def test_other_devices_are_refused():
    q = torch.empty(1, 1, 2, 16, device="meta")
    with pytest.raises(ValueError, match="runs on CUDA devices, and q is on meta"):
        flash_attention(q, q, q)


# ---- a citizen of PyTorch


def test_the_operator_keeps_pytorchs_rules():
    q, k, v = (randoms(1, heads, 3, 16, seed=heads).float().requires_grad_() for heads in (2, 1, 1))
    torch.library.opcheck(torch.ops.groundup.flash_attention, (q, k, v, None, True, None))


def test_one_graph_without_a_break():
    q, k, v = (randoms(1, heads, 18, 16, seed=heads).float().requires_grad_() for heads in (2, 1, 1))
    document_ids = torch.tensor([[0] * 7 + [1] * 11], device=DEVICE)

    def loss(q, k, v):
        return (attention(2 * q, k, v, sliding_window=9, document_ids=document_ids, backend="flash") ** 2).sum()

    for dynamic in (False, True):
        compiled = torch.compile(loss, backend="aot_eager", fullgraph=True, dynamic=dynamic)
        actual, want = (torch.autograd.grad(function(q, k, v), (q, k, v)) for function in (compiled, loss))
        for x, y in zip(actual, want, strict=True):
            torch.testing.assert_close(x, y)


def test_a_compiled_caller_has_the_choice_made_once():
    q = randoms(1, 2, 20, 16).float().requires_grad_()

    def loss(q):
        assert has_flash(DEVICE, q.dtype, q.shape[3])
        return (2 * q).sum()

    torch.testing.assert_close(torch.compile(loss, backend="aot_eager", fullgraph=True)(q), loss(q))


def test_second_gradients_are_refused():
    q = randoms(1, 1, 3, 16).float().requires_grad_()
    (gradient,) = torch.autograd.grad(flash_attention(q, q, q).square().sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="no autograd formula"):
        gradient.sum().backward()


def test_autocast_casts_as_for_torchs_own():
    q = randoms(1, 1, 20, 16).float()
    with torch.autocast(DEVICE, dtype=torch.float16):
        out = flash_attention(q, q.half(), q)
        assert out.dtype == torch.nn.functional.scaled_dot_product_attention(q, q.half(), q).dtype == torch.float16
    assert torch.equal(out, flash_attention(q.half(), q.half(), q.half()))


def test_the_model_learns_through_it(monkeypatch):
    config = lm.ModelConfig(11, 24, 2, 32, 2, 40, num_kv_heads=1, sliding_window=7)
    model = lm.Transformer(config).to(DEVICE)
    ids = torch.arange(48, device=DEVICE).view(2, 24) % 11
    document_ids = torch.arange(48, device=DEVICE).view(2, 24) // 9
    results = []
    for backend in ("flash", "sdpa"):
        monkeypatch.setattr("lm.model.attention", functools.partial(attention, backend=backend))
        model.zero_grad()
        logits = model(ids, document_ids)
        logits.square().mean().backward()
        results.append([logits.detach(), *(x.grad.clone() for x in model.parameters())])
    for x, y in zip(*results, strict=True):
        torch.testing.assert_close(x, y, atol=1e-5, rtol=1e-4)


# ---- decoding

SCORE_CHANGES = [
    {},
    {},
    {"softcap": 3.0},
    {"sinks": [1.0, -9.0, 4.0, 0.0, 2.0, 3.0]},
    {"softcap": 40.0, "sinks": [9.0] * 6},
]


def changes_of(changes, heads, dtype):
    """The same, with the sinks of these heads as a tensor."""
    return {
        name: torch.tensor(value[:heads], device=DEVICE, dtype=dtype) if name == "sinks" else value
        for name, value in changes.items()
    }


@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=6, deadline=None, phases=PHASES)
@given(
    heads=st.sampled_from([(1, 1), (2, 1), (6, 2)]),
    queries=st.integers(1, 4),
    keys=st.integers(1, 90),
    sliding_window=st.none() | st.integers(1, 50),
    causal=st.booleans(),
    lengths=st.booleans(),
    changes=st.sampled_from(SCORE_CHANGES),
    data=st.data(),
)
def test_decoding_is_attention_however_the_keys_are_shared_out(
    dtype, heads, queries, keys, sliding_window, causal, lengths, changes, data
):
    (heads, kv_heads), sliding_window = heads, sliding_window if causal else None
    q = randoms(2, heads, queries, 20, dtype=dtype)
    k, v = (randoms(2, kv_heads, keys, 20, dtype=dtype, seed=seed) for seed in (1, 2))
    has = [data.draw(st.integers(0, keys)) if lengths else keys for _ in range(2)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "KEYS_A_SPLIT", 16)
        patch.setattr(decoding, "processors", lambda _: 6)
        given_lengths = torch.tensor(has, device=DEVICE) if lengths else None
        masks = {"causal": causal, "sliding_window": sliding_window, **changes_of(changes, heads, dtype)}
        out = decoding.decode(Problem(q, k, v, **masks), given_lengths)
    for b, length in enumerate(has):
        own = [q[b : b + 1], *(x[b : b + 1, :, :length] for x in (k, v))]
        want, _ = attend(*(x.double() for x in own), **masks)
        backend = "matmul" if changes else "sdpa"
        check(out[b : b + 1], attention(*own, **masks, backend=backend) if length else torch.zeros_like(own[0]), want)


@pytest.mark.parametrize("dtype", DTYPES)
@settings(max_examples=4, deadline=None, phases=PHASES)
@given(
    heads=st.sampled_from([(1, 1), (6, 2)]),
    queries=st.integers(1, 3),
    lengths=st.lists(st.integers(1, 90), min_size=1, max_size=3),
    page=st.sampled_from([16, 32]),
    sliding_window=st.none() | st.integers(1, 50),
    splits=st.integers(1, 5),
    changes=st.sampled_from(SCORE_CHANGES),
    seed=st.integers(0, 9),
)
def test_decoding_from_pages_is_decoding(dtype, heads, queries, lengths, page, sliding_window, splits, changes, seed):
    (heads, kv_heads), of_text = heads, 90 // page + 1
    order = torch.randperm(len(lengths) * of_text, generator=torch.Generator().manual_seed(seed))
    table = order.view(len(lengths), of_text).to(DEVICE)
    slots = table.numel() * page
    keys, values = (randoms(kv_heads, slots, 20, dtype=dtype, seed=s) for s in (1, 2))
    q = randoms(len(lengths), heads, queries, 20, dtype=dtype)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decoding, "KEYS_A_SPLIT", 16)
        patch.setattr(decoding, "processors", lambda _: splits)
        masks = {"sliding_window": sliding_window, **changes_of(changes, heads, dtype)}
        out = paged_attention(q, keys, values, table, torch.tensor(lengths, device=DEVICE), page=page, **masks)
    for b, length in enumerate(lengths):
        at = (table[b, :, None] * page + torch.arange(page, device=DEVICE)).flatten()[:length]
        own = [q[b : b + 1], *(x[None, :, at] for x in (keys, values))]
        want, _ = attend(*(x.double() for x in own), **masks)
        check(out[b : b + 1], attention(*own, **masks, backend="matmul" if changes else "sdpa"), want)


SMALL = {"vocab_size": 11, "context_length": 40, "num_layers": 2, "d_model": 32, "num_heads": 4, "num_kv_heads": 2}
SMALL |= {"d_ff": 40, "head_dim": 8}
ROPE = {"rope_parameters": FrozenTable({"rope_type": "default", "rope_theta": 1e4})}


@pytest.mark.parametrize(
    "config",
    [
        lm.ModelConfig(**SMALL),
        lm.ModelConfig(**SMALL, sliding_window=9),
        Gemma2Config(**SMALL, **ROPE, family="gemma2", attn_logit_softcapping=0.5, query_pre_attn_scalar=4),
        GptOssConfig(**SMALL, **ROPE, family="gpt_oss", num_local_experts=2, num_experts_per_tok=1, sliding_window=9),
    ],
    ids=["plain", "windowed", "soft cap", "sinks"],
)
def test_generation_decodes_through_it(monkeypatch, config):
    model = build(config).to(DEVICE).eval()
    for block in model.blocks:
        if hasattr(block.attention, "sinks"):
            torch.nn.init.normal_(block.attention.sinks)
    texts = [[1, 2, 3], [4] * 20, [5, 6, 7, 8]]
    calls = []
    real = paged_attention
    monkeypatch.setattr(
        "lm.ops.triton.flash.paged_attention", lambda *x, **more: calls.append(more) or real(*x, **more)
    )
    logits = {}
    for shares_keys in (True, False):
        monkeypatch.setattr("lm.generation.decoder.decodes", lambda *_: shares_keys)  # noqa: B023
        decoder = Decoder(model, rows=3, native=False)
        for row, text in enumerate(texts):
            decoder.read(row, text)
        steps = [decoder.step(tokens).clone() for tokens in ([9, 8, 7], [6, 5, 4], [3], [2])]
        logits[shares_keys] = torch.cat(steps)
    assert len(calls) == 2 * 4  # layers and steps
    torch.testing.assert_close(logits[True], logits[False], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("shape", ["llama", "grouped", "windowed", "gpt2"])
def test_the_step_that_a_graph_records_is_a_step(shape):
    model = models.make(dtype=torch.float32, context_length=200, d_model=32, **models.SHAPES[shape]).to(DEVICE)
    texts = [[1, 2, 3], [4] * 150, [5, 6, 7, 8]]
    steps = []
    for recorded in (False, True):
        decoder = Decoder(model, rows=4, native=False)
        for row, text in enumerate(texts):
            decoder.read(row, text)
        tokens, rows = [9, 8, 7], [2, 1, 0]
        if recorded:
            step = RecordedStep(decoder.cache, decoder.device, decoder.logits, 4)  # one more than there are texts
            step.fill(tokens, rows, [decoder.cache.lengths[row] for row in rows])
            logits, likeliest = step.run()
            torch.testing.assert_close(logits[3], logits[0])
            assert likeliest.tolist() == logits.argmax(-1).tolist()
            steps.append(logits[:3])
        else:
            steps.append(decoder.step(tokens, rows))
    torch.testing.assert_close(*steps, atol=1e-5, rtol=1e-4)


@needs_cuda
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_graphs_give_the_tokens_of_single_operations(dtype):
    model = lm.Transformer(lm.ModelConfig(97, 300, 3, 64, 4, 96, num_kv_heads=2, sliding_window=70))
    model = model.to(DEVICE, dtype).eval()
    texts = [[1, 2, 3], [4] * 150, list(range(90)), [5], [6, 7]]
    steps = {}
    for native in (None, False):
        decoder = Decoder(model, rows=5, native=native)
        assert decoder.how == ("as a CUDA graph" if native is None else "in PyTorch")
        for row, text in enumerate(texts):
            decoder.read(row, text)
        logits = [decoder.step([9, 8, 7, 6, 5]).clone() for _ in range(70)]  # over the ends of pages
        logits += [decoder.step([3], [1]).clone(), decoder.step([1, 2, 3], [4, 4, 2]).clone()]
        steps[native] = torch.cat(logits)
    bound = 1e-4 if dtype == torch.float32 else 0.1
    torch.testing.assert_close(steps[None], steps[False], atol=bound, rtol=bound)


# ---- choosing


def test_a_probe_launches_compares_and_says_what_it_found(monkeypatch, caplog):
    caplog.set_level("INFO", logger="lm.attention")
    assert has_flash(DEVICE, torch.float16, 20)
    assert probe.__wrapped__(DEVICE, torch.float32, 16) is None
    assert f"{DEVICE}, torch.float32, head_dim 16: attention by flash" in caplog.text
    assert not has_flash(DEVICE, torch.float32, 300)
    assert "head_dim 300" in probe(DEVICE, torch.float32, 300)
    monkeypatch.setattr("lm.attention._flash", lambda q, k, v, *masks: q + k + v)
    assert "its results are off by" in probe.__wrapped__(DEVICE, torch.float32, 20)


def test_a_probe_does_not_count_as_what_a_checkpoint_has_to_compute_again():
    probed = []

    def sine(x):
        if not probed:  # as where the first attention of a run is in a block that is computed again
            probed.append(probe.__wrapped__(DEVICE, torch.float32, 16))
        return x.sin()

    x = randoms(5).requires_grad_()
    checkpoint(sine, x, use_reentrant=False).sum().backward()
    assert probed == [None]
    torch.testing.assert_close(x.grad, x.detach().cos())


def test_flash_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "triton", None)
    q = randoms(1, 1, 2, 16)
    with pytest.raises(ValueError, match=r"backend 'flash' is not available: .* triton is not installed"):
        attention(q, q, q, backend="flash")
    assert "triton is not installed" in probe.__wrapped__(DEVICE, torch.float32, 16)


# ---- settings


def test_every_kernel_has_tiles_for_every_width():
    for capability, dtype in itertools.product(((8, 0), (9, 0), (17, 3)), (torch.bfloat16, torch.float32)):
        for kind, width in itertools.product(("forward", "keys", "queries", "decode"), (16, 32, 64, 128, 256)):
            tiles = tile_sizes.tiles_on(capability, kind, width, dtype)
            assert tiles.described <= (capability == (9, 0) and dtype == torch.bfloat16)


# ---- the page that explains it


def test_the_pages_own_attention_is_right():
    page = (Path(__file__).parents[3] / "docs/design/attention.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names = {}
    exec(code, names)
    q, k, v = (randoms(1, 1, length, 16, seed=length).cpu() for length in (5, 37, 37))
    out, lse = names["attend"](q[0, 0].float(), k[0, 0].float(), v[0, 0].float())
    want, want_lse = attend(q, k, v, causal=False)
    torch.testing.assert_close(out.double(), want[0, 0], atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(lse[:, 0].double(), want_lse[0, 0], atol=1e-6, rtol=1e-5)


# ---- with a GPU


@needs_cuda
def test_cuda_graphs():
    q, k, v = (randoms(1, 2, 300, 64, dtype=torch.bfloat16, seed=s) for s in range(3))
    want = flash_attention(q, k, v)  # compiles
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        flash_attention(q, k, v)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = flash_attention(q, k, v)
    out.zero_()
    graph.replay()
    assert torch.equal(out, want)


@needs_cuda
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("head_dim", [16, 32, 40, 64, 96, 128, 192, 256])
def test_every_width_over_many_tiles(head_dim, dtype):
    q, k, v = (randoms(2, heads, n, head_dim, dtype=dtype) for heads, n in ((4, 700), (2, 1000), (2, 1000)))
    upstream = randoms(*q.shape, dtype=dtype, seed=3)
    document_ids = torch.arange(1000, device=DEVICE).div(170, rounding_mode="floor").expand(2, 1000)
    for masks in ({}, {"causal": False}, {"sliding_window": 300}, {"document_ids": document_ids}):
        for actual, peer, want in three_ways(q, k, v, upstream, dtype, masks):
            assert (actual.double() - want).norm() <= 2 * (peer.double() - want).norm()


@needs_cuda
@pytest.mark.parametrize("head_dim", [64, 128])
def test_65536_positions(head_dim):
    q, k, v = (randoms(1, 2, 65536, head_dim, dtype=torch.bfloat16, seed=s) for s in range(3))
    upstream = randoms(*q.shape, dtype=torch.bfloat16, seed=4)
    ours = run(flash_attention, q, k, v, upstream, torch.bfloat16)
    sdpa = run(lambda *x: attention(*x, backend="sdpa"), q, k, v, upstream, torch.bfloat16)
    for x, y in zip(ours, sdpa, strict=True):
        torch.testing.assert_close(x, y, atol=2e-2, rtol=2e-2)


@needs_cuda
def test_more_than_two_to_the_31_numbers():
    heads, length, head_dim = 40, 2**20, 64  # 2.7 thousand million numbers in q, 5.4 GB
    q = torch.randn(1, heads, length, head_dim, dtype=torch.bfloat16, device=DEVICE)
    k = torch.randn(1, 1, length, head_dim, dtype=torch.bfloat16, device=DEVICE)
    out = flash_attention(q, k, k, sliding_window=100)
    last = slice(length - 64, length)
    near = slice(length - 200, length)
    want = attention(
        q[:, -1:, last].double(), k[:, :, near].double(), k[:, :, near].double(), sliding_window=100, backend="sdpa"
    )
    torch.testing.assert_close(out[:, -1:, last].double(), want, atol=2e-2, rtol=2e-2)
