"""One call of attention: its tensors, sizes and masks, from which kernels are launched with tiles of any size."""

from __future__ import annotations

import contextlib
import functools
import math
from dataclasses import dataclass
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from lm.attention import check_shapes
from lm.ops.triton.tiles import document_runs_kernel

LOG2E = 1.4426950408889634
# Kernels run on the CPU where TRITON_INTERPRET=1 was set before Triton was imported. Its interpreter multiplies
# bfloat16 as integers, so that it is refused there.
INTERPRETING = bool(triton.knobs.runtime.interpret)
DTYPES = {torch.float16, torch.float32, torch.float64, *(() if INTERPRETING else (torch.bfloat16,))}


@dataclass(frozen=True)
class Tiles:
    """Size of the tiles of one kernel: `queries` × `keys` scores."""

    queries: int
    keys: int
    warps: int = 4
    stages: int = 2  # tiles loaded ahead
    described: bool = False  # loaded by tensor descriptors (TMA) if the tensors allow it


class Problem:
    """q (batch, heads, queries, head_dim); k, v (batch, heads / group, keys, head_dim); document_ids (batch, keys) or
    None; sinks (heads,) or None. ValueError, TypeError: the kernels cannot take such tensors, with what they can."""

    def __init__(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        document_ids: Tensor | None = None,
        causal: bool = True,
        sliding_window: int | None = None,
        softcap: float | None = None,
        sinks: Tensor | None = None,
    ) -> None:
        check_shapes(q, k, v, causal, sliding_window, document_ids, softcap, sinks)
        for name, x in {"k": k, "v": v, "document_ids": document_ids, "sinks": sinks}.items():
            if x is not None and x.device != q.device:
                raise ValueError(f"q is on {q.device} and {name} on {x.device}: put them on one device")
        if q.dtype not in DTYPES or not q.dtype == k.dtype == v.dtype:
            kinds = f"{q.dtype}, {k.dtype}, {v.dtype}"
            raise TypeError(f"q, k and v are {kinds}: give them one dtype of {', '.join(sorted(map(str, DTYPES)))}")
        if not 1 <= q.shape[3] <= 256:
            raise ValueError(f"head_dim {q.shape[3]} is outside 1 to 256, which is what tiles hold: use backend='sdpa'")
        if document_ids is not None and document_ids.dtype not in (torch.int32, torch.int64):
            raise ValueError(f"document_ids is {document_ids.dtype}: cast it to int32 or int64")
        self.q, self.k, self.v, self.document_ids = q, k, v, document_ids
        self.causal, self.sliding_window, self.softcap, self.sinks = causal, sliding_window, softcap, sinks
        self.batch, self.heads, self.queries, self.head_dim = q.shape
        self.kv_heads, self.keys = k.shape[1:3]
        self.scale = 1.0 / math.sqrt(self.head_dim)
        # The power of two that head_dim is padded to, at least the 16 that matrix units work on.
        self.width = max(16, int(triton.next_power_of_2(self.head_dim)))
        # The dtype of sums, as torch and as Triton name it.
        self.wide, self.wide_name = torch.float32, tl.float32
        if q.dtype == torch.float64:
            self.wide, self.wide_name = torch.float64, tl.float64

    @property
    def empty(self) -> bool:
        """Nothing to compute: no query, or none that has a key."""
        return self.q.numel() == 0 or self.k.numel() == 0

    def device(self) -> contextlib.AbstractContextManager[Any]:
        """Launches go to the current device, which need not be that of the tensors."""
        return torch.cuda.device(self.q.device) if self.q.is_cuda else contextlib.nullcontext()

    def arguments(self, tiles: Tiles, blocks_of: str) -> dict[str, Any]:
        """Arguments of all kernels, by name; a program takes a block of the side blocks_of, "queries" or "keys"."""
        sliding_window = self.sliding_window or 0
        if sliding_window >= self.keys:
            sliding_window = 0
        runs = None if self.document_ids is None else self._document_runs(self.document_ids, tiles, blocks_of)
        return {
            "document_ids": self.document_ids,
            "runs": runs,
            "document_strides": (0, 0) if self.document_ids is None else self.document_ids.stride(),
            "heads": self.heads,
            "group": self.heads // self.kv_heads,
            "queries": self.queries,
            "keys": self.keys,
            "sliding_window": sliding_window,
            "factor": self.scale * LOG2E,
            "cap": (self.softcap or 0.0) / self.scale,  # in the units of q·k
            "together": self.heads_together(blocks_of),
            "HEAD": self.head_dim,
            "WIDTH": self.width,
            "QUERIES": tiles.queries,
            "KEYS": tiles.keys,
            "CAUSAL": self.causal,
            "WINDOWED": sliding_window > 0,
            "DOCUMENTS": self.document_ids is not None,
            "CAPPED": self.softcap is not None,
            "WIDE": self.wide_name,
            "num_warps": tiles.warps,
            "num_stages": tiles.stages,
        }

    def launch(
        self, kernel: Any, tiles: Tiles, blocks_of: str, reads: dict[str, Tensor], out: dict[str, Tensor], **more: Any
    ) -> None:
        """Launch a kernel for all blocks of all heads: it reads q, k, v and `reads`, and writes `out`."""
        length, size, heads = self.queries, tiles.queries, self.heads
        if blocks_of == "keys":
            length, size, heads = self.keys, tiles.keys, self.kv_heads
        kernel[(triton.cdiv(length, size) * heads * self.batch,)](
            **self.arguments(tiles, blocks_of),
            **sources(tiles, self.width, q=self.q, k=self.k, v=self.v, **reads),
            **out,
            **{f"{name}_strides": x.stride() for name, x in out.items()},
            **more,
        )

    def heads_together(self, blocks_of: str) -> int:
        """Number of heads whose blocks start side by side (see block_and_head). What they read takes about half of the
        device's L2 cache, and all groups have about one size: a small last group would end late. Where all blocks take
        equally long it is 1."""
        if not self.causal or self.sliding_window is not None:
            return 1
        group = self.heads // self.kv_heads
        heads, rows = (
            (self.heads, self.keys / group) if blocks_of == "queries" else (self.kv_heads, self.queries * group)
        )
        of_head = 2 * rows * self.head_dim * self.q.element_size()
        fitting = max(1, int(second_cache(self.q.device) / 2 / of_head))
        groups = max(1, self.batch * heads // fitting)
        return -(-self.batch * heads // groups)

    def _document_runs(self, document_ids: Tensor, tiles: Tiles, blocks_of: str) -> Tensor:
        """Runs of tiles that each block shares a document with: int32 (batch, blocks, 4), see document_runs_kernel."""
        queries = (self.queries, self.keys - self.queries, tiles.queries)
        keys = (self.keys, 0, tiles.keys)
        sides = (queries, keys) if blocks_of == "queries" else (keys, queries)
        (rows, row_shift, row_tile), (columns, column_shift, column_tile) = sides
        blocks = triton.cdiv(rows, row_tile)
        runs = torch.empty(self.batch, blocks, 4, dtype=torch.int32, device=self.q.device)
        document_runs_kernel[(blocks, self.batch)](
            document_ids, document_ids.stride(), runs, rows, columns, row_shift, column_shift, self.keys,
            ROWS=row_tile, COLUMNS=column_tile, CHUNK=16,
        )  # fmt: skip
        return runs


def sources(tiles: Tiles, width: int, **tensors: Tensor) -> dict[str, Any]:
    """The tensors that a kernel reads tiles of, by name, with their strides; as descriptors if tiles ask for them."""
    named: dict[str, Any] = {f"{name}_strides": x.stride() for name, x in tensors.items()}
    rows = {name: tiles.keys if name in ("k", "v") else tiles.queries for name in tensors}
    described = tiles.described and has_descriptors(tensors["k"].device) and all(map(describable, tensors.values()))
    if described:  # (batch, heads, length, head_dim) in tiles (rows, width), with zeros past the end
        from triton.tools.tensor_descriptor import TensorDescriptor
    for name, x in tensors.items():
        tile = [1, 1, rows[name], width]
        named[name] = TensorDescriptor(x, list(x.shape), list(x.stride()), tile) if described else x
    reach = max(rows[name] * x.stride(2) + width * x.stride(3) for name, x in tensors.items())
    return named | {"COPY": "described" if described else "near" if reach < 2**31 else "far"}


def describable(x: Tensor) -> bool:
    """True if tensor descriptors can copy tiles: rows without gaps, every other stride and the start on 16 bytes."""
    on_16_bytes = all(stride > 0 and stride * x.element_size() % 16 == 0 for stride in x.stride()[:3])
    return x.stride(3) == 1 and x.data_ptr() % 16 == 0 and on_16_bytes and max(x.shape) < 2**31


@functools.cache
def second_cache(device: torch.device) -> int:
    """Bytes of a CUDA device's L2 cache; so few elsewhere that the interpreter has groups of heads."""
    return torch.cuda.get_device_properties(device).L2_cache_size if device.type == "cuda" else 40_000


@functools.cache
def has_descriptors(device: torch.device) -> bool:
    """Tensor descriptors want a Hopper device or a later one."""
    return device.type != "cuda" or torch.cuda.get_device_capability(device) >= (9, 0)
