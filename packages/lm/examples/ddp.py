"""Data parallelism written out: gradients in buckets, averaged while the backward pass is still running.

    model = DDP(model, bucket_mb=25)
    loss(model(batch)).backward()            # each process with its own batch
    model.finish_gradient_synchronization()  # before optimizer.step()

Every process has the whole model and a part of the batch. What they have to share are gradients, and those come one
after the other, the last layer's first. So parameters are put into buckets from the last to the first, and when the
last gradient of a bucket is there, its sum over the processes is begun, in the background:

    backward  | block 3 | block 2 | block 1 | block 0 |
    network             | bucket 0 ···| bucket 1 ···| bucket 2 | ← only this is waited for

Small buckets begin early and pay for many messages, large ones the other way round. (Li et al. 2020, arXiv:2006.15704;
torch.nn.parallel.DistributedDataParallel does this in C++.)
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn


class Bucket:
    """Parameters whose gradients travel as one message."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self.parameters = parameters
        self.waiting = len(parameters)  # gradients that are still to come
        self.flat: Tensor | None = None  # all of the gradients, one after another, while they travel
        self.message: dist.Work | None = None

    def send(self) -> None:
        """Begins the sum over all processes. A parameter that was not used has a gradient of zeros."""
        self.flat = torch.cat(
            [(p.grad if p.grad is not None else torch.zeros_like(p)).flatten() for p in self.parameters]
        )
        self.message = dist.all_reduce(self.flat, async_op=True)

    def receive(self) -> None:
        """Waits for the sum, and gives each parameter its mean."""
        assert self.message is not None
        assert self.flat is not None
        self.message.wait()
        means = self.flat.div_(dist.get_world_size()).split([p.numel() for p in self.parameters])
        for parameter, mean in zip(self.parameters, means, strict=True):
            parameter.grad = mean.view_as(parameter)
        self.waiting, self.flat, self.message = len(self.parameters), None, None


class DDP(nn.Module):
    """A module whose gradients are averaged over all processes; it is called as the module itself.

    Args:
        module: the model, on its device; all processes take the weights of process 0.
        bucket_mb: megabytes (2^20 bytes) of a bucket at the most; 0 for a message for each parameter.
    """

    def __init__(self, module: nn.Module, bucket_mb: float = 25.0) -> None:
        super().__init__()
        self.module = module
        for tensor in (*module.parameters(), *module.buffers()):
            dist.broadcast(tensor.data, src=0)
        trained = [p for p in module.parameters() if p.requires_grad]
        self.buckets = [Bucket(part) for part in parts(reversed(trained), bucket_mb * 2**20)]
        self.sent = 0  # buckets that are on their way: the same order in every process, or messages would mix
        for bucket in self.buckets:
            for parameter in bucket.parameters:
                parameter.register_post_accumulate_grad_hook(lambda _, bucket=bucket: self.arrived(bucket))

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        return self.module(*arguments, **keywords)

    def arrived(self, bucket: Bucket) -> None:
        """A gradient of the bucket is there: sends all buckets that are full, in order."""
        bucket.waiting -= 1
        while self.sent < len(self.buckets) and self.buckets[self.sent].waiting == 0:
            self.buckets[self.sent].send()
            self.sent += 1

    def finish_gradient_synchronization(self) -> None:
        """Sends what no gradient has come for, and waits for all messages: the gradients are those of the whole
        batch."""
        for bucket in self.buckets[self.sent :]:
            bucket.send()
        for bucket in self.buckets:
            bucket.receive()
        self.sent = 0


def parts(parameters: Iterable[nn.Parameter], most: float) -> list[list[nn.Parameter]]:
    """Parameters in runs of at most so many bytes, and at least one; a run has one dtype."""
    buckets: list[list[nn.Parameter]] = []
    size = 0
    for parameter in parameters:
        own = parameter.numel() * parameter.element_size()
        if not buckets or size + own > most or buckets[-1][0].dtype != parameter.dtype:
            buckets.append([])
            size = 0
        buckets[-1].append(parameter)
        size += own
    return buckets
