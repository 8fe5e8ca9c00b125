"""Exercises of chapter 9: many devices, little memory. Fill in the bodies, then run `python grade.py 9`.

The grader runs your code in three processes that are joined by torch.distributed (gloo). In each, dist.get_rank() is 0,
1 or 2 and dist.get_world_size() 3; your code should work for any number.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


def all_reduce_bytes(size: int, devices: int) -> float:
    """Bytes that each device of a ring sends in an all-reduce of size bytes: a reduce-scatter, then an all-gather."""


def step_bytes(parameters: int, devices: int, kind: str) -> float:
    """Bytes that each device sends in a training step, with weights and gradients of 4 bytes.

    kind: "ddp" sums all gradients. "sharded optimizer" does so too, then every device gets the parameters that it has
    not stepped from their owners, in a ring (an all-gather). "fsdp" gathers the weights for the forward pass, gathers
    them again for the backward pass, and reduces gradients to shards.
    """


def average_gradients(module: nn.Module) -> None:
    """Replace every gradient by its mean over all processes. A parameter without a gradient is left alone."""


def average_gradients_flat(module: nn.Module) -> None:
    """The same with one message: all gradients in one flat tensor."""


class DDP(nn.Module):
    """A module whose gradients are averaged while the backward pass is still running.

    All processes begin with the weights of process 0. When the gradient of a parameter is there
    (register_post_accumulate_grad_hook), its all-reduce is begun with async_op=True.
    """

    def __init__(self, module: nn.Module) -> None:
        super().__init__()

    def forward(self, *arguments: Any) -> Any:
        pass

    def finish_gradient_synchronization(self) -> None:
        """Wait for all messages; then each gradient is the mean."""


class ShardedOptimizer(torch.optim.Optimizer):
    """Steps as optimizer_cls(params, **settings) would, but each process keeps the state of its own parameters only.

    Each parameter has one owner, and all processes own about as many elements. A learning rate that is changed in
    self.param_groups, as schedules do, counts from the next step on.
    """

    def __init__(self, params: Iterable[nn.Parameter], optimizer_cls: Callable[..., Any], **settings: Any) -> None:
        super().__init__(params, settings)

    def step(self, closure: Any = None) -> None:
        """Step the parameters of this process; then every process gets every parameter from its owner."""


class FSDP(nn.Module):
    """A module whose nn.Linear and nn.Embedding weights are shared out; all other parameters are in every process.

    All processes begin with the weights of process 0. `parameters()` gives shards of these weights (flat, padded with
    zeros to equal length), and the other parameters whole. A weight is gathered for its module's forward pass, and its
    gradient is the shard of the mean over processes.

    With a compute_dtype, a weight is cast to it before it is sent, and its module computes in it: what an nn.Linear
    reads is cast too (none has a bias then). Shards, their gradients, and gather_full_params stay in float32.
    """

    def __init__(self, module: nn.Module, compute_dtype: torch.dtype | None = None) -> None:
        super().__init__()

    def forward(self, *arguments: Any) -> Any:
        pass

    def finish_gradient_synchronization(self) -> None:
        """Average the gradients of the parameters that are whole."""

    def gather_full_params(self) -> dict[str, Tensor]:
        """Every whole parameter, by its name in the module."""


class FlashAttention(torch.autograd.Function):
    """softmax(Q Kᵀ / √d) V in tiles of TILE keys, without a matrix of all scores. Q, K, V: (batch, seq, d).

    The forward pass saves Q, K, V, the output O and L = log Σ exp(scores), (batch, queries). The backward pass computes
    the scores S of a tile again: P = exp(S - L), dV = Pᵀ dO, dP = dO Vᵀ, dS = P · (dP - rowsum(dO · O)), dQ = dS K / √d
    and dK = dSᵀ Q / √d.
    """

    TILE = 16

    @staticmethod
    def forward(ctx: Any, Q: Tensor, K: Tensor, V: Tensor, is_causal: bool = False) -> Tensor:
        pass

    @staticmethod
    def backward(ctx: Any, dO: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:
        pass


def best_segment(layers: int, boundary: int, inside: int) -> int:
    """Layers of a checkpointed segment for which the memory is least; the smallest of several.

    Each segment keeps its input (boundary bytes). While its backward pass runs, one segment has what its layers save
    (inside bytes each). The last segment may be shorter.
    """


def run_blocks(blocks: list[nn.Module], x: Tensor, size: int) -> Tensor:
    """The blocks one after another, in segments of `size` that are computed again in the backward pass (checkpoint)."""
