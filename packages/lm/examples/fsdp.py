"""Fully sharded data parallelism written out (ZeRO, stage 3): every process keeps a shard of each matrix.

    model = FSDP(model)
    optimizer = AdamW(model.parameters())    # of the shards: weights, gradients and moments are shared out
    loss(model(batch)).backward()            # each process with its own batch
    model.finish_gradient_synchronization()  # before optimizer.step()

A module's whole weights are there only while it computes:

    forward     gather 0 | compute 0, gather 1 | free 0, compute 1, gather 2 | free 1, …
    backward    gather 2 | compute 2, gather 1 | reduce 2, free 2, compute 1, gather 0 | …

The next module's weights are gathered while one computes, and gradients are summed in the background: each process gets
the sum of its own shard (reduce-scatter). A shard is a run of the flattened weight, the last one padded. Autograd has
saved the whole weight by then, so it is not replaced: its storage is resized to nothing, and back for the backward.
Sharded are the parameters of Linear and Embedding; norms are small, stay whole, and have their gradients averaged as in
data parallelism, as CS336's second assignment has it. (Zhao et al. 2023, arXiv:2304.11277; torch.distributed.fsdp.)
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

SHARDED = ("Linear", "Embedding")  # classes by name: a student's own ones are sharded too


class Sharded:
    """One weight: this process's shard, which the optimizer steps, and the whole, whose storage comes and goes."""

    def __init__(self, module: nn.Module, name: str, compute_dtype: torch.dtype | None) -> None:
        weight = module._parameters[name]
        assert weight is not None
        size, rank = dist.get_world_size(), dist.get_rank()
        dist.broadcast(weight.data, src=0)
        self.module, self.name, self.shape = module, name, weight.shape
        self.each = -(-weight.numel() // size)  # elements of a shard
        padded = torch.zeros(size * self.each, dtype=weight.dtype, device=weight.device)
        padded[: weight.numel()] = weight.data.flatten()
        self.shard = nn.Parameter(padded[rank * self.each :][: self.each].clone(), weight.requires_grad)
        dtype = compute_dtype if compute_dtype is not None and weight.is_floating_point() else weight.dtype
        self.flat = torch.empty(size * self.each, dtype=dtype, device=weight.device)
        self.whole = self.flat[: weight.numel()].view(self.shape).detach().requires_grad_(weight.requires_grad)
        self.bytes = self.flat.untyped_storage().nbytes()
        self.message: dist.Work | None = None  # of the gather that is under way
        self.sums: list[tuple[dist.Work, Tensor]] = []  # of gradients that are under way
        if weight.requires_grad:
            self.whole.register_post_accumulate_grad_hook(lambda _: self.reduce())
        self.free()
        module._parameters[name] = self.shard

    @property
    def is_here(self) -> bool:
        return self.flat.untyped_storage().nbytes() > 0

    def gather(self) -> None:
        """Begins to collect the shards of all processes, unless they are here or on their way."""
        if self.is_here:
            return
        self.flat.untyped_storage().resize_(self.bytes)
        # .data: autograd must not take this for a change of what it saved
        mine = self.shard.data.to(self.flat.dtype)
        self.message = dist.all_gather_into_tensor(self.flat.data, mine, async_op=True)

    def wait(self) -> None:
        """Until the whole weight is here."""
        self.gather()
        if self.message is not None:
            self.message.wait()
            self.message = None

    def free(self) -> None:
        self.wait_for_gather()
        self.flat.untyped_storage().resize_(0)

    def wait_for_gather(self) -> None:
        if self.message is not None:
            self.message.wait()
            self.message = None

    def reduce(self) -> None:
        """The whole gradient is there: begins to sum it, of which this process gets its shard, and frees the rest."""
        gradient, self.whole.grad = self.whole.grad, None
        assert gradient is not None
        padded = torch.zeros_like(self.flat)
        padded[: gradient.numel()] = gradient.flatten()
        mine = torch.empty(self.each, dtype=padded.dtype, device=padded.device)
        self.sums.append((dist.reduce_scatter_tensor(mine, padded, async_op=True), mine))
        self.free()

    def finish(self) -> None:
        """The mean gradient of the shard, in the dtype of the weight that the optimizer steps."""
        for message, mine in self.sums:
            message.wait()
            mean = mine.to(self.shard.dtype) / dist.get_world_size()
            self.shard.grad = mean if self.shard.grad is None else self.shard.grad + mean
        self.sums = []
        self.free()

    def full(self) -> Tensor:
        """The whole weight, in the dtype of the shards."""
        whole = torch.empty(dist.get_world_size() * self.each, dtype=self.shard.dtype, device=self.shard.device)
        dist.all_gather_into_tensor(whole, self.shard.data)
        return whole[: self.shape.numel()].view(self.shape)


class Replicated:
    """A parameter that every process has whole: its gradient is averaged as soon as it is there."""

    def __init__(self, parameter: nn.Parameter) -> None:
        dist.broadcast(parameter.data, src=0)
        self.parameter = parameter
        self.sums: list[tuple[dist.Work, Tensor]] = []  # of gradients that are under way
        if parameter.requires_grad:
            parameter.register_post_accumulate_grad_hook(lambda _: self.reduce())

    def reduce(self) -> None:
        gradient, self.parameter.grad = self.parameter.grad, None
        assert gradient is not None
        self.sums.append((dist.all_reduce(gradient, async_op=True), gradient))

    def finish(self) -> None:
        for message, total in self.sums:
            message.wait()
            mean = total / dist.get_world_size()
            self.parameter.grad = mean if self.parameter.grad is None else self.parameter.grad + mean
        self.sums = []

    def full(self) -> Tensor:
        return self.parameter.data


class FSDP(nn.Module):
    """A module whose matrices are shared out over all processes; it is called as the module itself.

    Each submodule has to use its own parameters in its own forward, and no other's: a head that is tied to an embedding
    does not work.

    Args:
        module: the model; all processes take the weights of process 0.
        compute_dtype: what weights are sent and computed in, such as torch.bfloat16, while shards stay as they are.
    """

    def __init__(self, module: nn.Module, compute_dtype: torch.dtype | None = None) -> None:
        super().__init__()
        self.compute_dtype = compute_dtype
        named = {id(p): name for name, p in module.named_parameters()}
        self.units: dict[nn.Module, list[Sharded]] = {}  # what each submodule has of its own
        self.whole_names: dict[str, Sharded | Replicated] = {}
        for submodule in module.modules():
            for name, parameter in list(submodule._parameters.items()):
                if parameter is None:
                    continue
                if type(submodule).__name__ in SHARDED:
                    one = Sharded(submodule, name, compute_dtype)
                    self.units.setdefault(submodule, []).append(one)
                    self.whole_names[named[id(parameter)]] = one
                else:
                    self.whole_names[named[id(parameter)]] = Replicated(parameter)
        self.order: list[nn.Module] = []  # in which submodules computed last, for the one to gather next
        self.computing: list[nn.Module] = []
        for submodule in self.units:
            submodule.register_forward_pre_hook(self.before_forward)
            submodule.register_forward_hook(self.after_forward)
            submodule.register_full_backward_pre_hook(self.before_backward)
        self.module = module

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        if self.compute_dtype is not None:
            arguments = tuple(
                one.to(self.compute_dtype) if isinstance(one, Tensor) and one.is_floating_point() else one
                for one in arguments
            )
        self.computing = []
        result = self.module(*arguments, **keywords)
        self.order = self.computing
        return result

    def before_forward(self, submodule: nn.Module, _: Any) -> None:
        """Puts the whole weights where the module looks for its own, and begins to gather the next module's."""
        for one in self.units[submodule]:
            one.wait()
            submodule._parameters[one.name] = one.whole  # type: ignore[assignment]
        at = len(self.computing)
        self.computing.append(submodule)
        if at + 1 < len(self.order):
            self.prefetch(self.order[at + 1])

    def after_forward(self, submodule: nn.Module, *_: Any) -> None:
        for one in self.units[submodule]:
            submodule._parameters[one.name] = one.shard
            one.free()

    def before_backward(self, submodule: nn.Module, _: Any) -> None:
        for one in self.units[submodule]:
            one.wait()
        at = self.order.index(submodule) if submodule in self.order else 0
        if at:
            self.prefetch(self.order[at - 1])

    def prefetch(self, submodule: nn.Module) -> None:
        for one in self.units[submodule]:
            one.gather()

    def finish_gradient_synchronization(self) -> None:
        """Waits until every shard has its gradient."""
        for one in self.whole_names.values():
            one.finish()

    def gather_full_params(self) -> dict[str, Tensor]:
        """Every whole weight by the name that it has in the module, in the dtype of the shards."""
        return {name: one.full() for name, one in self.whole_names.items()}
