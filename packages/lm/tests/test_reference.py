"""lm.reference against its definitions in torch, and the model and its parts against lm.reference."""

import io
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from lm import loss, reference, schedule
from lm.attention import attention, rope_cache
from lm.config import ModelConfig, TrainConfig
from lm.data import get_batch
from lm.model import RMSNorm, Transformer, apply_rotary_emb
from lm.ops.cpu.fused import fuse

VOCAB, CONTEXT, WIDTH, LAYERS, HEADS, HIDDEN = 37, 24, 32, 3, 4, 44


def close(actual, want, **bounds):
    torch.testing.assert_close(actual, want, **({"rtol": 1e-9, "atol": 1e-11} | bounds))


def both(dtype=torch.float64):
    """The course's model, and ours with its weights."""
    torch.manual_seed(0)
    theirs = reference.TransformerLM(VOCAB, CONTEXT, WIDTH, LAYERS, HEADS, HIDDEN, dtype=dtype)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter += 0.05 * torch.randn_like(parameter)
    ours = Transformer(ModelConfig(VOCAB, CONTEXT, LAYERS, WIDTH, HEADS, HIDDEN)).to(dtype)
    ours.load_state_dict(reference.model_state_dict(theirs.state_dict(), HEADS))
    return theirs, ours


def test_the_state_dict_is_the_courses():
    names = {"token_embeddings.weight", "ln_final.weight", "lm_head.weight"}
    for n in range(LAYERS):
        names |= {f"layers.{n}.attn.{x}_proj.weight" for x in ("q", "k", "v", "output")}
        names |= {f"layers.{n}.ffn.w{i}.weight" for i in (1, 2, 3)} | {f"layers.{n}.ln{i}.weight" for i in (1, 2)}
    assert set(both()[0].state_dict()) == names


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_model_is_the_reference_forward_and_backward(dtype, fused):
    theirs, ours = both(dtype)
    ours = fuse(ours) if fused else ours
    ids = torch.randint(VOCAB, (2, CONTEXT))
    bounds = {} if dtype == torch.float64 else {"rtol": 1e-3, "atol": 1e-4}
    want, actual = theirs(ids), ours(ids)
    close(actual, want, **bounds)
    targets = torch.randint(VOCAB, (2, CONTEXT))
    reference.cross_entropy(want, targets).backward()
    loss.cross_entropy(actual, targets).backward()
    gradients = reference.model_state_dict({name: p.grad for name, p in theirs.named_parameters()}, HEADS)
    for name, parameter in ours.named_parameters():
        close(parameter.grad, gradients[name], **bounds)


def test_parts_are_torchs():
    torch.manual_seed(0)
    x = 5 * torch.randn(3, 7, 8, dtype=torch.float64)
    close(reference.softmax(x, 1), F.softmax(x, 1))
    close(reference.softmax(x + 1e4), F.softmax(x + 1e4, -1))
    close(reference.silu(x), F.silu(x))
    norm = reference.RMSNorm(8, 1e-3, dtype=torch.float64)
    close(norm(x), F.rms_norm(x, (8,), None, 1e-3))
    own = RMSNorm(8, 1e-3).double()
    close(own(x), norm(x))
    layer = reference.Linear(8, 5, dtype=torch.float64)
    close(layer(x), F.linear(x, layer.weight))
    table = reference.Embedding(9, 4)
    ids = torch.randint(9, (2, 3))
    close(table(ids), F.embedding(ids, table.weight))
    rope = reference.RoPE(1e4, 8, 7)
    table = rope_cache(7, 8, 1e4, dtype=torch.float64)
    pairs = apply_rotary_emb(torch.cat((x[..., 0::2], x[..., 1::2]), -1), table).chunk(2, -1)
    close(rope(x, torch.arange(7)), torch.stack(pairs, -1).flatten(-2))
    targets = torch.randint(8, (3, 7))
    close(reference.cross_entropy(x, targets), F.cross_entropy(x.flatten(0, 1), targets.flatten()))


@pytest.mark.parametrize("backend", ["auto", "sdpa", "matmul", "reference"])
def test_attention_with_a_mask_is_the_reference(backend):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, 3, n, 8, dtype=torch.float64, requires_grad=True) for n in (5, 9, 9))
    mask = torch.rand(2, 3, 5, 9) < 0.6
    mask[..., 0] = True
    outputs = [
        run(q, k, v)
        for run in (
            lambda *qkv: reference.attention(*qkv, mask),
            lambda *qkv: attention(*qkv, mask=mask, causal=False, backend=backend),
        )
    ]
    close(*outputs)
    upstream = torch.randn_like(outputs[0])
    for want, actual in zip(*(torch.autograd.grad(y, (q, k, v), upstream) for y in outputs), strict=True):
        close(actual, want)
    square = torch.ones(9, 9, dtype=torch.bool).tril()
    close(attention(k, k, v, mask=square, causal=False, backend=backend), reference.attention(k, k, v, square))
    three = attention(k[0], k[0], v[0], mask=square, causal=False, backend=backend)  # (heads, seq, head_dim)
    close(three, reference.attention(k[0], k[0], v[0], square))


@pytest.mark.parametrize("decay", [0.0, 0.3])
def test_adamw_is_torchs(decay):
    torch.manual_seed(0)
    start = torch.randn(5, 4, dtype=torch.float64)
    results = []
    for kind in (reference.AdamW, torch.optim.AdamW):
        p = torch.nn.Parameter(start.clone())
        optimizer = kind([p], lr=0.02, betas=(0.8, 0.95), eps=1e-6, weight_decay=decay)
        for _ in range(20):
            optimizer.zero_grad()
            (p.sin() * torch.arange(4)).sum().backward()
            optimizer.step()
        results.append(p.detach())
    close(*results, rtol=1e-10, atol=1e-12)


def test_schedules_agree_where_both_decay():
    assert reference.cosine_schedule(0, 1.0, 0.1, 10, 20) == 0
    assert reference.cosine_schedule(10, 1.0, 0.1, 10, 20) == 1
    assert reference.cosine_schedule(21, 1.0, 0.1, 10, 20) == 0.1
    for t in range(10, 30):
        want = reference.cosine_schedule(t, 1.0, 0.1, 10, 20)
        config = TrainConfig(20, learning_rate=1.0, min_learning_rate=0.1, warmup_steps=10)
        assert math.isclose(schedule.learning_rate(config, t), want)


def test_clipping_agrees():
    for limit in (0.1, 100.0):
        results = []
        for clip in (reference.clip_gradients, torch.nn.utils.clip_grad_norm_):
            torch.manual_seed(0)
            parameters = [torch.nn.Parameter(torch.randn(n, dtype=torch.float64)) for n in (3, 4)]
            for p in parameters:
                p.grad = torch.randn_like(p)
            clip(parameters, limit)
            results.append(torch.cat([p.grad for p in parameters]))
        close(*results)


@pytest.mark.parametrize("draw", [reference.get_batch, get_batch])
def test_random_starts_never_wrap(draw):
    tokens, starts = np.arange(40, dtype=np.uint16), set()
    for _ in range(200):
        inputs, targets = draw(tokens, 8, 7)
        assert inputs.shape == (8, 7)
        assert (targets == inputs + 1).all()
        starts |= set(inputs[:, 0].tolist())
    assert starts == set(range(33))


def test_saving_and_loading(tmp_path):
    def new_parts(seed):
        torch.manual_seed(seed)
        model = reference.SwiGLU(4, 6)
        return model, reference.AdamW(model.parameters())

    def step(model, optimizer):
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        return model.w1.weight.detach().clone()

    model, optimizer = new_parts(0)
    step(model, optimizer)
    for out in (tmp_path / "checkpoint.pt", io.BytesIO()):
        reference.save(model, optimizer, 17, out)
        if isinstance(out, io.BytesIO):
            out.seek(0)
        other = new_parts(1)
        assert reference.load(out, *other) == 17
        assert torch.equal(other[0].w1.weight, model.w1.weight)
    model.zero_grad()
    assert torch.equal(step(*other), step(model, optimizer))


@pytest.mark.parametrize(("queries", "keys", "is_causal"), [(1, 3, False), (20, 33, False), (33, 33, True)])
def test_attention_in_tiles_is_attention(queries, keys, is_causal):
    torch.manual_seed(0)
    q, k, v = (torch.randn(2, n, 8, dtype=torch.float64, requires_grad=True) for n in (queries, keys, keys))
    mask = torch.ones(queries, keys, dtype=torch.bool).tril() if is_causal else None
    gradient = torch.randn(2, queries, 8, dtype=torch.float64)
    for scale in (1.0, 100.0):  # exp of the larger scores does not fit
        right = reference.attention(scale * q, k, v, mask)
        out = reference.FlashAttention.apply(scale * q, k, v, is_causal)
        close(out, right)
        (scores,) = [t for t in out.grad_fn.saved_tensors if t.shape == (2, queries)]
        assert scores.isfinite().all()
        results = [torch.autograd.grad(each, (q, k, v), gradient) for each in (out, right)]
        for ours, theirs in zip(*results, strict=True):
            close(ours, theirs, atol=1e-9 * scale)


def test_entropy_and_masked_means():
    torch.manual_seed(0)
    for scale in (1.0, 300.0):
        logits = scale * torch.randn(2, 3, 9, dtype=torch.float64)
        close(reference.entropy(logits), torch.distributions.Categorical(logits=logits).entropy(), atol=1e-9)
    values, mask = torch.tensor([[1.0, 0.0, torch.nan], [4.0, 5.0, 6.0]]), torch.tensor([[1, 1, 0], [0, 1, 1]])
    close(reference.masked_mean(values, mask), torch.tensor(3.0))
    close(reference.masked_mean(values, mask, dim=1), torch.tensor([0.5, 5.5]))
    close(reference.masked_normalize(values, mask, 4.0), torch.tensor(3.0))
    close(reference.masked_normalize(values, mask.float(), 2.0, dim=0), torch.tensor([0.5, 2.5, 3.0]))
