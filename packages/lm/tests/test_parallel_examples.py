"""DDP, the sharded optimizer and FSDP as written out in examples/, each in two processes beside torch's own."""

from __future__ import annotations

import copy
import itertools

import ddp
import fsdp
import pytest
import torch
import torch.distributed as dist
from processes import processes
from sharded_optimizer import ShardedOptimizer
from torch import nn

from lm.config import ModelConfig
from lm.loss import cross_entropy
from lm.model import Transformer
from lm.training.distributed import join

CONFIG = ModelConfig(50, 16, 2, 24, 2, 40)
STEPS = 4


def model(seed):
    torch.manual_seed(seed)
    return Transformer(CONFIG)


def batch(step, rank):
    """Each process has its own half."""
    generator = torch.Generator().manual_seed(100 + step)
    ids = torch.randint(0, 50, (4, 17), generator=generator)[2 * rank : 2 * rank + 2]
    return ids[:, :-1], ids[:, 1:]


def loss_of(module, step, rank):
    inputs, targets = batch(step, rank)
    return cross_entropy(module(inputs), targets)


def trained(module, optimizer, rank, synchronise=lambda: None):
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(module, step, rank).backward()
        synchronise()
        optimizer.step()
    return module


def by_torch(rank):
    """The weights that torch's own data parallelism comes to."""
    wrapped = nn.parallel.DistributedDataParallel(model(0))
    trained(wrapped, torch.optim.AdamW(wrapped.parameters(), lr=1e-2), rank)
    return wrapped.module.state_dict()


def assert_equal(actual, expected, tolerance=1e-5):
    assert actual.keys() == expected.keys()
    for name, weight in expected.items():
        torch.testing.assert_close(
            actual[name], weight, rtol=tolerance, atol=tolerance, msg=lambda message, n=name: f"{n}: {message}"
        )


def in_group(rank, work, *arguments):
    """Runs work(rank, …) as one process of a group."""
    with join(torch.device("cpu"), timeout=60):
        work(rank, *arguments)


def as_ddp(rank, bucket_mb):
    expected = by_torch(rank)
    module = ddp.DDP(model(rank), bucket_mb)  # other weights in each process, until 0's are everyone's
    trained(module, torch.optim.AdamW(module.parameters(), lr=1e-2), rank, module.finish_gradient_synchronization)
    assert_equal(module.module.state_dict(), expected)


def ddp_overlaps(rank):
    """All buckets but the first layer's own are on their way when its gradient comes."""
    module = ddp.DDP(model(0), 0)
    assert len(module.buckets) == len(list(module.parameters()))
    sent = []
    module.module.embedding.weight.register_post_accumulate_grad_hook(lambda _: sent.append(module.sent))
    loss_of(module, 0, rank).backward()
    assert sent == [len(module.buckets)]  # its own too: it was the last, and is sent at once
    gradients = {name: p.grad.clone() for name, p in module.module.named_parameters()}
    module.finish_gradient_synchronization()
    assert all(bucket.message is None for bucket in module.buckets)
    for name, p in module.module.named_parameters():  # what was this process's own is the mean of both
        both = [torch.empty_like(p) for _ in range(2)]
        dist.all_gather(both, gradients[name])
        torch.testing.assert_close(p.grad, (both[0] + both[1]) / 2)


def ddp_of_what_is_not_used(rank):
    """A part that only process 1 uses has the mean of its gradient and zeros."""
    torch.manual_seed(0)
    both = nn.ModuleDict({"always": nn.Linear(3, 3), "seldom": nn.Linear(3, 3), "frozen": nn.Linear(2, 2)})
    both["frozen"].requires_grad_(False)
    module = ddp.DDP(both, 1e-5)
    for _ in range(2):
        module.zero_grad()
        y = both["always"](torch.ones(1, 3))
        (both["seldom"](y) if rank else y).sum().backward()
        module.finish_gradient_synchronization()
        expected = torch.full((3,), 0.5)
        torch.testing.assert_close(both["seldom"].bias.grad, expected)
        assert both["frozen"].weight.grad is None


def sharded_optimizer(rank, kind):
    settings = {"lr": 1e-2} if kind == "AdamW" else {"lr": 0.1, "momentum": 0.9}
    make = getattr(torch.optim, kind)
    expected = model(0)
    with_torch = nn.parallel.DistributedDataParallel(expected)
    trained(with_torch, make(with_torch.parameters(), **settings), rank)

    wrapped = nn.parallel.DistributedDataParallel(model(0))
    matrices = [p for p in wrapped.parameters() if p.ndim > 1]
    rest = [p for p in wrapped.parameters() if p.ndim < 2]
    groups = [{"params": matrices}, {"params": rest, "lr": settings["lr"]}]
    optimizer = ShardedOptimizer(params=[dict(group) for group in groups], optimizer_cls=make, **settings)
    trained(wrapped, optimizer, rank)
    assert_equal(wrapped.module.state_dict(), expected.state_dict())
    elements = sum(value.numel() for state in optimizer.inner.state.values() for value in state.values() if value.ndim)
    each = 2 if kind == "AdamW" else 1
    whole = each * sum(p.numel() for p in wrapped.parameters())
    assert elements == each * optimizer.elements[rank]
    assert 0.4 < elements / whole < 0.6
    assert sum(optimizer.elements) * each == whole

    # a schedule's rate, and state that is written and taken up, step as before
    for group in optimizer.param_groups:
        group["lr"] *= 0.5
    again = ShardedOptimizer(groups, make, **settings)
    again.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    before = [p.detach().clone() for p in wrapped.parameters()]
    loss_of(wrapped, 9, rank).backward()
    for group in again.param_groups:
        group["lr"] = optimizer.param_groups[0]["lr"]
    optimizer.step()
    one = [p.detach().clone() for p in wrapped.parameters()]
    with torch.no_grad():
        for p, value in zip(wrapped.parameters(), before, strict=True):
            p.copy_(value)
    again.step()
    for p, value in zip(wrapped.parameters(), one, strict=True):
        torch.testing.assert_close(p.detach(), value)


def as_fsdp(rank, dtype):
    module = fsdp.FSDP(model(rank), dtype)
    expected = sum(p.numel() if "norm" in name else -(-p.numel() // 2) for name, p in model(0).named_parameters())
    assert sum(p.numel() for p in module.parameters()) == expected  # norms are whole in both processes
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
    if dtype is None:
        expected = by_torch(rank)
        trained(module, optimizer, rank, module.finish_gradient_synchronization)
        assert_equal(module.gather_full_params(), expected)
    else:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        other = model(0)
        policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=dtype)
        for part in [*other.blocks, other]:
            fully_shard(part, mesh=init_device_mesh("cpu", (2,)), mp_policy=policy)
        trained(other, torch.optim.AdamW(other.parameters(), lr=1e-2), rank)
        trained(module, optimizer, rank, module.finish_gradient_synchronization)
        expected = {name: value.full_tensor() for name, value in other.state_dict().items()}
        weights = module.gather_full_params()
        assert all(value.dtype == torch.float32 for value in weights.values())
        assert_equal(weights, expected, 0.05)  # both round each gradient to eight bits


def fsdp_frees(rank):
    """Of whole weights there are those of the module that computes and of the next one, and after the step none."""
    module = fsdp.FSDP(model(0))
    ones = [one for unit in module.units.values() for one in unit]

    def here():
        return [one for one in ones if one.is_here]

    most = []
    for submodule in module.units:
        submodule.register_forward_hook(lambda *_: most.append(len(here())))
    for step in range(2):
        loss = loss_of(module, step, rank)
        assert not here()
        loss.backward()
        module.finish_gradient_synchronization()
        assert not here()
        assert all(one.shard.grad is not None and one.whole.grad is None for one in ones)
        module.zero_grad()
    # the module's own are gone by then, and from the second step on the next one's are gathered ahead
    assert most[: len(most) // 2] == [0] * len(module.units)
    assert most[len(most) // 2 :] == [1] * (len(module.units) - 1) + [0]
    # two backward passes add up
    for _ in range(2):
        loss_of(module, 0, rank).backward()
        module.finish_gradient_synchronization()
    twice = [one.shard.grad.clone() for one in ones]
    module.zero_grad()
    loss_of(module, 0, rank).backward()
    module.finish_gradient_synchronization()
    for one, both in zip(ones, twice, strict=True):
        torch.testing.assert_close(2 * one.shard.grad, both)


@pytest.mark.parametrize(
    ("work", "arguments"),
    [
        (as_ddp, (25.0,)),
        (as_ddp, (0.005,)),
        (ddp_overlaps, ()),
        (ddp_of_what_is_not_used, ()),
        (sharded_optimizer, ("AdamW",)),
        (sharded_optimizer, ("SGD",)),
        (as_fsdp, (None,)),
        (as_fsdp, (torch.bfloat16,)),
        (fsdp_frees, ()),
    ],
    ids=lambda value: value.__name__ if callable(value) else "-".join(map(str, value)),
)
def test_beside_torch(work, arguments):
    ends = processes(2, in_group, work, *arguments)
    assert [how for how, _ in ends] == ["done", "done"], "\n".join(words for _, words in ends)


def test_buckets_hold_as_much_as_they_may():
    parameters = [nn.Parameter(torch.zeros(n)) for n in (10, 10, 5, 100, 1, 1)]
    sizes = [[p.numel() for p in part] for part in ddp.parts(parameters, 100)]
    assert sizes == [[10, 10, 5], [100], [1, 1]]
    assert [len(part) for part in ddp.parts(parameters, 0)] == [1] * 6
    mixed = [nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(1, dtype=torch.bfloat16))]
    assert len(ddp.parts(mixed, 100)) == 2
    assert list(itertools.chain(*ddp.parts(parameters, 44))) == parameters
