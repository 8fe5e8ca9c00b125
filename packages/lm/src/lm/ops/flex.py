"""Attention by torch's FlexAttention: a kernel that torch compiles for what each query may see. On a CPU torch has its
forward pass only, which computes whole score matrices."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, create_block_mask, flex_attention

MaskMod = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool,
    sliding_window: int | None,
    document_ids: Tensor | None,
    mask: Tensor | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """As lm.attention.attention; mask is (batch, heads, queries, keys). ValueError: gradients are needed on a CPU."""
    if q.device.type == "cpu":
        if torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v)):
            raise ValueError("backend 'flex' has no gradients on a CPU, where torch lacks them: use 'auto' or 'sdpa'")
        q, k, v = q.detach(), k.detach(), v.detach()  # torch refuses what could have gradients
    queries, keys = q.shape[2], k.shape[2]
    if document_ids is None and mask is None:
        blocks = kept_blocks(queries, keys, causal, sliding_window, q.device)
    else:
        own = visible(queries, keys, causal, sliding_window, document_ids, mask)
        heads = None if mask is None else q.shape[1]
        blocks = create_block_mask(own, q.shape[0], heads, queries, keys, q.device)
    # a caller that is being compiled takes the operator into its own graph
    direct = q.device.type == "cpu" or torch.compiler.is_compiling()
    compute: Any = flex_attention if direct else compiled()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
        score_mod = None if softcap is None else lambda score, *_: softcap * torch.tanh(score / softcap)
        masks = {"block_mask": blocks, "enable_gqa": q.shape[1] != k.shape[1]}
        if sinks is None:
            return cast(Tensor, compute(q, k, v, score_mod, **masks))
        out, aux = compute(q, k, v, score_mod, **masks, return_aux=AuxRequest(lse=True))
    share = torch.sigmoid(aux.lse - sinks.to(aux.lse.dtype)[:, None])  # of the keys, beside the sink
    return cast(Tensor, (out * share[..., None]).to(out.dtype))


@functools.cache
def compiled() -> Any:
    """The operator, compiled; torch compiles it again for other masks and shapes."""
    return torch.compile(flex_attention)


@functools.lru_cache(maxsize=8)
def kept_blocks(queries: int, keys: int, causal: bool, sliding_window: int | None, device: torch.device) -> BlockMask:
    """Blocks of a mask that all texts share, made once for all layers and steps."""
    with torch.inference_mode(False):
        seen = visible(queries, keys, causal, sliding_window, None, None)
        return create_block_mask(seen, None, None, queries, keys, device)


def visible(
    queries: int, keys: int, causal: bool, sliding_window: int | None, document_ids: Tensor | None, mask: Tensor | None
) -> MaskMod:
    """FlexAttention's mask: True if query i of head h of row b sees key j."""
    first = keys - queries  # the position of the first query

    def sees(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        seen = j <= i + first if causal else j >= 0
        if sliding_window is not None:
            seen = seen & (j > i + first - sliding_window)
        if document_ids is not None:
            position = i + first
            seen = seen & (position >= 0) & (document_ids[b, position.clamp(min=0)] == document_ids[b, j])
        return seen if mask is None else seen & mask[b, h, i, j]

    return sees
