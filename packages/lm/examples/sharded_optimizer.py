"""An optimizer whose state is shared out over the processes (ZeRO, stage 1), around any optimizer of torch.

    optimizer = ShardedOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-3)

AdamW keeps two moments of every parameter: twice the weights, in each of the processes, and all the same. Here a
process keeps them for its own parameters only, steps those, and sends them to the others:

    step      process 0:  a, d        process 1:  b, c         each with gradients of the whole batch
    broadcast a → all, b → all, c → all, d → all

Whole parameters are given to processes, the largest first, each to the one that has least so far: as even as whole
parameters can be. (Rajbhandari et al. 2020, arXiv:1910.02054; torch.distributed.optim.ZeroRedundancyOptimizer.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor


class ShardedOptimizer(torch.optim.Optimizer):
    """Steps as `optimizer_cls(params, **kwargs)` would, with a part of its state in each process.

    Args:
        params: all of them, as tensors or as groups; the same in every process.
        optimizer_cls: the optimizer, such as torch.optim.AdamW.
        kwargs: its settings.
    """

    def __init__(
        self, params: Iterable[Any], optimizer_cls: Callable[..., torch.optim.Optimizer], **kwargs: Any
    ) -> None:
        self.optimizer_cls, self.kwargs = optimizer_cls, kwargs
        self.elements = [0] * dist.get_world_size()  # that each process steps
        self.owner: dict[Tensor, int] = {}
        self.own: list[int] = []  # which of our groups each group of the inner optimizer is of
        self.inner: torch.optim.Optimizer | None = None  # none where a process has no parameter
        super().__init__(params, kwargs)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Shares out the parameters of a group; also called by torch for those of the constructor."""
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        for parameter in sorted(group["params"], key=lambda p: -p.numel()):
            least = self.elements.index(min(self.elements))
            self.owner[parameter] = least
            self.elements[least] += parameter.numel()
        mine = [p for p in group["params"] if self.owner[p] == dist.get_rank()]
        if not mine:
            return
        own = {**{name: value for name, value in group.items() if name != "params"}, "params": mine}
        if self.inner is None:
            self.inner = self.optimizer_cls([own], **self.kwargs)
        else:
            self.inner.add_param_group(own)
        self.own.append(len(self.param_groups) - 1)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Steps the parameters of this process, and gives each parameter to all of them.

        The gradients have to be the same everywhere: those of DDP after its synchronisation.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        if self.inner is not None:
            for ours, inner in zip(self.own, self.inner.param_groups, strict=True):  # rates that a schedule has changed
                inner.update({name: value for name, value in self.param_groups[ours].items() if name != "params"})
            self.inner.step()
        messages = [dist.broadcast(p.data, src=owner, async_op=True) for p, owner in self.owner.items()]
        for message in messages:
            message.wait()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """The state of this process's parameters: each process writes its own."""
        return {} if self.inner is None else self.inner.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes up what state_dict() gave in the same process of as many."""
        if self.inner is not None:
            self.inner.load_state_dict(state_dict)
            for ours, inner in zip(self.own, self.inner.param_groups, strict=True):
                self.param_groups[ours].update({name: value for name, value in inner.items() if name != "params"})
