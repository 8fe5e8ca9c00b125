"""Small models of every shape, with weights that hide no mistake, and ids to give them."""

from __future__ import annotations

import contextlib
import math
import platform
import shutil
from typing import Any

import pytest
import torch
from torch import nn

from lm.config import ModelConfig
from lm.interop.tensors import to_halves
from lm.model import Transformer
from lm.ops.cpu import build as building
from lm.ops.cpu import forward, passes
from lm.ops.cpu.int8 import Int8Linear, quantized

COMPILER = shutil.which(building.compiler())
needs_compiler = pytest.mark.skipif(COMPILER is None, reason="there is no C compiler on this machine")

# Processors without AVX-512 and without AVX2, where vectors have half the width and int8 are multiplied otherwise.
LEVELS = ["x86-64", "x86-64-v3"] if platform.machine() == "x86_64" else []


@contextlib.contextmanager
def compiled_for(level, tmp_path_factory):
    """Compute by C for an older processor (None: for this one), which is compiled once for all tests."""
    with pytest.MonkeyPatch.context() as patch:
        if level is not None:
            flags = ("-O1", "-fno-trapping-math", f"-march={level}", "-fopenmp", "-shared", "-fPIC")
            patch.setattr(building, "FLAGS", flags)
            patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.getbasetemp() / "levels"))
        forget_libraries()
        yield
    forget_libraries()


def forget_libraries():
    """Have the libraries in C compiled, or read from the cache, again."""
    for cached in (building.built, forward.checked, passes.checked):
        cached.cache_clear()


SHAPES: dict[str, dict[str, Any]] = {
    "llama": {},
    "grouped": {"num_kv_heads": 1, "head_dim": 6, "qk_norm": True},
    "windowed": {"sliding_window": 3},
    "gpt2": {"ffn": "gelu", "norm": "layernorm", "position": "learned", "tied_embeddings": True, "bias": True},
    "post": {"norm_placement": "post", "ffn": "relu2"},
    "post, layernorm": {"norm_placement": "post", "norm": "layernorm", "position": "learned", "ffn": "silu"},
    "bare": {"norm": "none", "position": "none", "ffn": "silu", "vocab_multiple": 16},
    "valued": {"value_embeddings": True, "logit_softcap": 2.0, "num_kv_heads": 1, "qk_norm": True, "ffn": "relu2"},
}


def make(seed=0, dtype=torch.float64, vocab_size=19, context_length=10, **change):
    torch.manual_seed(seed)
    size = {"num_layers": 2, "d_model": 8, "num_heads": 2, "d_ff": 12} | change
    model = Transformer(ModelConfig(vocab_size, context_length, **size)).to(dtype).eval()
    with torch.no_grad():  # away from zero biases and weights of one, which hide what multiplies or adds them
        for p in model.parameters():
            p.add_(0.2 * torch.randn_like(p))
    return model


def random_model(*sizes, seed=0, **more):
    """A model of the sizes of a ModelConfig: the same weights each time, and as many numbers left to draw."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Transformer(ModelConfig(*sizes, **more)).eval()


def rounded_to_int8(model):
    """The plain model with the weights that int8 stand for."""
    result = quantized(model)
    for module in list(result.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, Int8Linear):
                linear = nn.Linear(child.inputs, child.outputs, bias=child.bias is not None)
                linear.weight.data = child.weight
                if child.bias is not None:
                    linear.bias.data = child.bias
                setattr(module, name, linear)
    return result


def some_ids(batch=2, seq=10, vocab=19, seed=1):
    return torch.randint(vocab, (batch, seq), generator=torch.Generator().manual_seed(seed))


def attend(q, k, v, causal=True, sliding_window=None, document_ids=None, softcap=None, sinks=None):
    """Output and log-sum-exp of softmax(q kᵀ / √head_dim) v, in q's dtype; zeros and -inf where nothing is seen."""
    group, queries, keys = q.shape[1] // k.shape[1], q.shape[2], k.shape[2]
    k, v = k.repeat_interleave(group, 1), v.repeat_interleave(group, 1)
    i = torch.arange(keys - queries, keys, device=q.device)[:, None]
    j = torch.arange(keys, device=q.device)
    visible = j <= i if causal else torch.ones(queries, keys, dtype=torch.bool, device=q.device)
    if sliding_window is not None:
        visible = visible & (j > i - sliding_window)
    if document_ids is not None:
        own = document_ids[:, i[:, 0].clamp(min=0), None]  # (batch, queries, 1)
        visible = (visible & (i >= 0) & (own == document_ids[:, None]))[:, None]
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if softcap is not None:
        scores = (scores / softcap).tanh() * softcap
    scores = scores.masked_fill(~visible, -math.inf)
    lse = scores.logsumexp(-1)
    if sinks is not None:
        lse = lse.logaddexp(sinks.to(lse.dtype)[:, None])
    weights = (scores - lse.masked_fill(lse.isinf(), 0.0)[..., None]).exp()
    return weights @ v, lse


@torch.no_grad()
def rotate_neighbours_as_halves(model):
    """Reorder the rows of queries and keys, for values that were computed with neighbouring pairs rotated together."""
    for block in model.blocks:
        part = block.attention
        widths = [heads * part.head_dim for heads in (part.num_heads, part.num_kv_heads, part.num_kv_heads)]
        q, k, v = part.qkv.weight.split(widths)
        part.qkv.weight.copy_(torch.cat([to_halves(q, part.head_dim), to_halves(k, part.head_dim), v]))
