"""Checks of the exercises of chapter 9. Functions that begin with `both_` run in each of two processes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pair
import torch
import torch.distributed as dist
from grading import NOT_WRITTEN, Wrong, close, mistake, near, same
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from lm import reference

KINDS = ("ddp", "sharded optimizer", "fsdp")


def all_reduce_bytes(yours: Callable[..., Any]) -> None:
    for size, devices in ((1000, 2), (4096, 8), (100, 1)):
        hint = "Both halves of the all-reduce send (devices - 1) / devices of the data."
        near(f"all_reduce_bytes({size}, {devices})", yours(size, devices), 2 * size * (devices - 1) / devices, hint)


def step_bytes(yours: Callable[..., Any]) -> None:
    for parameters, devices in ((1000, 2), (4096, 8)):
        share = 4 * parameters * (devices - 1) / devices
        for kind, right in zip(KINDS, (2 * share, 2 * share + 4 * parameters / devices, 3 * share), strict=True):
            hint = "An all-gather and a reduce-scatter each send (devices - 1) / devices of the data."
            near(f"step_bytes({parameters}, {devices}, {kind!r})", yours(parameters, devices, kind), right, hint)


def model(seed: int) -> nn.Module:
    """A small model with a frozen and an unused part."""
    torch.manual_seed(seed)
    return nn.ModuleDict(
        {
            "embedding": nn.Embedding(7, 5),
            "first": nn.Linear(5, 6, bias=False),
            "norm": reference.RMSNorm(6),
            "last": nn.Linear(6, 3),
            "frozen": nn.Linear(2, 2).requires_grad_(False),
        }
    )


class Run(nn.Module):
    """The model as a function of ids."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.parts = model(seed)

    def forward(self, ids: Tensor) -> Tensor:
        parts = self.parts
        return parts["last"](parts["norm"](parts["first"](parts["embedding"](ids))))  # type: ignore[index, no-any-return]


def loss_of(module: Any, step: int, rank: int) -> Tensor:
    """Of a process's own part of a batch."""
    generator = torch.Generator().manual_seed(10 * step + rank)
    ids = torch.randint(7, (4,), generator=generator)
    return (module(ids) * torch.randn(4, 3, generator=generator)).square().sum()  # type: ignore[no-any-return]


def mean_gradients(module: nn.Module, step: int) -> dict[str, Tensor]:
    """The mean over both processes, computed in one."""
    sums: dict[str, Tensor] = {}
    for rank in range(2):
        module.zero_grad()
        loss_of(module, step, rank).backward()
        for name, p in module.named_parameters():
            if p.grad is not None:
                sums[name] = sums.get(name, 0.0) + p.grad / 2
    module.zero_grad()
    return sums


def right_gradients(call: str, module: nn.Module, right: dict[str, Tensor], own: dict[str, Tensor]) -> None:
    """Raise Wrong unless a module's gradients are the mean of both processes' ones."""
    for name, p in module.named_parameters():
        if name in right:
            mistakes = {
                "It is the sum over processes: divide by their number.": 2 * right[name],
                "It is this process's own gradient: nothing was sent, or its body is not written yet.": own[name],
            }
            close(f"The gradient of {name} after {call}", p.grad, right[name], mistake(p.grad, mistakes.items(), ""))
        elif p.grad is not None:
            raise Wrong(f"{name}, which has no gradient, has one after {call}.")


class Messages:
    """Counts all_reduce calls of torch.distributed while it is used."""

    def __init__(self) -> None:
        self.count, self.waiting = 0, 0
        self.original = dist.all_reduce

    def __enter__(self) -> Messages:
        def all_reduce(tensor: Any, *arguments: Any, **settings: Any) -> Any:
            self.count += 1
            self.waiting += not settings.get("async_op", False)
            return self.original(tensor, *arguments, **settings)

        dist.all_reduce = all_reduce
        return self

    def __exit__(self, *_: object) -> None:
        dist.all_reduce = self.original


def both_average(student: Any, name: str, most_messages: int) -> None:
    module = Run(0)
    right = mean_gradients(module, 1)
    loss_of(module, 1, dist.get_rank()).backward()
    own = {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}
    with Messages() as messages:
        getattr(student, name)(module)
    right_gradients(f"{name}(module)", module, right, own)
    if messages.count > most_messages:
        raise Wrong(f"{name} sends {messages.count} messages: put all gradients into one tensor first.")


def both_average_naive(student: Any) -> None:
    both_average(student, "average_gradients", 100)


def both_average_flat(student: Any) -> None:
    both_average(student, "average_gradients_flat", 1)


def both_ddp(student: Any) -> None:
    module, right_module = Run(dist.get_rank()), Run(0)
    begun: list[int] = []
    with Messages() as messages:
        # it runs before the student's hook, which is registered later
        first = module.parts["embedding"].weight  # type: ignore[index]
        first.register_post_accumulate_grad_hook(lambda _: begun.append(messages.count))
        wrapped = student.DDP(module)
        if not list(wrapped.parameters()):
            raise Wrong("DDP has no parameters: its body is not written yet.")
        for (name, p), q in zip(module.named_parameters(), right_module.parameters(), strict=True):
            close(f"{name} in process {dist.get_rank()} of DDP", p, q, "All processes begin with the weights of 0.")
        for step in (1, 2):
            right = mean_gradients(right_module, step)
            own_model = Run(0)
            loss_of(own_model, step, dist.get_rank()).backward()
            own = {name: p.grad for name, p in own_model.named_parameters() if p.grad is not None}
            module.zero_grad()
            before, begun[:] = messages.count, []
            loss_of(wrapped, step, dist.get_rank()).backward()
            wrapped.finish_gradient_synchronization()
            right_gradients("finish_gradient_synchronization()", module, right, own)
            if begun[0] == before:
                raise Wrong("When the first layer's gradient comes, DDP has sent none of the others: nothing overlaps.")
        if messages.waiting:
            raise Wrong("An all-reduce of DDP has no async_op=True: the backward pass waits for it.")


def both_sharded_optimizer(student: Any) -> None:
    optimizers: list[torch.optim.Optimizer] = []

    class Recorded(torch.optim.AdamW):
        def __init__(self, *arguments: Any, **settings: Any) -> None:
            super().__init__(*arguments, **settings)
            optimizers.append(self)

    settings = {"lr": 0.1, "betas": (0.8, 0.9), "weight_decay": 0.2, "eps": 1e-3}
    module, right_module = Run(0), Run(0)
    trained = [p for p in module.parameters() if p.requires_grad]
    optimizer = student.ShardedOptimizer(iter(trained), Recorded, **settings)
    right = torch.optim.AdamW([p for p in right_module.parameters() if p.requires_grad], **settings)  # type: ignore[arg-type]
    for step in range(3):
        gradients = mean_gradients(right_module, step)
        for each in (module, right_module):
            for name, p in each.named_parameters():
                p.grad = gradients[name].clone() if name in gradients else None
        optimizer.step()
        right.step()
    if not optimizers:
        raise Wrong("ShardedOptimizer makes no optimizer_cls: its body is not written yet.")
    for (name, p), q in zip(module.named_parameters(), right_module.named_parameters(), strict=True):
        hint = "After a step every process needs the parameters that the others have stepped."
        close(f"{name} after 3 steps of ShardedOptimizer", p, q[1], hint, 1e-6)
    elements = sum(t.numel() for one in optimizers for state in one.state.values() for t in state.values() if t.dim())
    whole = 2 * sum(p.numel() for p in trained)
    if not 0.4 * whole <= elements <= 0.6 * whole:
        raise Wrong(f"A process keeps {elements} of {whole} elements of the moments, and should keep about half.")


def both_fsdp(student: Any) -> None:
    module, right_module = Run(dist.get_rank()), Run(0)
    names = [name for name, _ in module.named_parameters()]
    wrapped = student.FSDP(module)
    parameters = list(wrapped.parameters())
    if not parameters:
        raise Wrong("FSDP has no parameters: its body is not written yet.")
    whole = dict(right_module.named_parameters())
    sharded = {name for name in whole if name.endswith("weight") and "norm" not in name}
    each = sum(math.ceil(p.numel() / 2) if name in sharded else p.numel() for name, p in whole.items())
    elements = sum(p.numel() for p in parameters)
    if elements != each:
        raise Wrong(
            f"A process has {elements} elements of parameters, and should have {each}: half of each weight of "
            "nn.Linear and nn.Embedding (rounded up), and all of norms and biases."
        )

    if any(p.untyped_storage().nbytes() > p.numel() * p.element_size() for p in parameters):
        raise Wrong("A shard is a view of the whole weight, which so stays in memory: clone it.")

    def full() -> dict[str, Tensor]:
        gathered = wrapped.gather_full_params()
        same("The names that gather_full_params gives", sorted(gathered), sorted(names))
        return gathered  # type: ignore[no-any-return]

    for name, value in full().items():
        hint = "All processes begin with the weights of 0; the padding is cut off."
        close(f"{name} of gather_full_params() in process {dist.get_rank()}", value, whole[name], hint)
    # SGD: an error of scale in a gradient shows, which AdamW would hide
    optimizer = torch.optim.SGD([p for p in parameters if p.requires_grad], lr=0.01)
    right = torch.optim.SGD([p for p in right_module.parameters() if p.requires_grad], lr=0.01)
    for step in range(3):
        gradients = mean_gradients(right_module, step)
        for name, p in right_module.named_parameters():
            p.grad = gradients.get(name)
        right.step()
        optimizer.zero_grad()
        output = loss_of(wrapped, step, dist.get_rank())
        output.backward()
        wrapped.finish_gradient_synchronization()
        optimizer.step()
        for part in wrapped.modules():
            weight = vars(part).get("weight")
            if isinstance(weight, Tensor) and weight.numel() > 1:
                raise Wrong(
                    f"A {type(part).__name__} still has its whole weight after the step: drop it when it is used."
                )
        for name, value in full().items():
            hint = "The gradient of a shard is the mean over processes, and so is that of a norm or a bias."
            close(f"{name} after step {step + 1} of FSDP", value, whole[name], hint)


def in_pair(check: str) -> Callable[..., None]:
    """A check that runs in both processes."""

    def run(yours: Any) -> None:
        pair.run("checks_parallel", check)

    return run


class Largest(TorchDispatchMode):
    """Remembers the largest tensor that an operator gives."""

    elements = 0

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, Tensor):
                self.elements = max(self.elements, tensor.numel())
        return result


def flash_attention(yours: Any) -> None:
    generator = torch.Generator().manual_seed(0)
    for queries, keys, causal in ((16, 16, False), (50, 50, True), (24, 40, False), (128, 128, True)):
        shapes = ((2, queries, 8), (2, keys, 8), (2, keys, 8))
        q, k, v = ((2 * torch.randn(s, generator=generator)).requires_grad_() for s in shapes)
        mask = torch.ones(queries, keys, dtype=torch.bool).tril() if causal else None
        call = f"FlashAttention of {queries} queries and {keys} keys{', causal' if causal else ''}"
        with Largest() as largest:
            out = yours.apply(q, k, v, causal)
            if out is None:
                raise Wrong(f"FlashAttention.apply returns None: {NOT_WRITTEN}.")
            right = reference.attention(q.detach(), k.detach(), v.detach(), mask)
            largest.elements = 0
            out = yours.apply(q, k, v, causal)
            forward = largest.elements
        close(f"The output of {call}", out, right, "When the largest score grows, both sums shrink.")
        if not causal:
            close(f"{call}, without is_causal,", yours.apply(q, k, v), right, "is_causal is False unless it is passed.")
        scores = (q @ k.transpose(1, 2) / math.sqrt(8)).detach()
        if mask is not None:
            scores = scores.masked_fill(~mask, -math.inf)
        saved = out.grad_fn.saved_tensors
        logs = [t for t in saved if t.shape == (2, queries)]
        if not logs:
            raise Wrong(f"{call} saves no tensor of the shape (batch, queries): L is needed for the backward pass.")
        close(f"L of {call}", logs[0], scores.logsumexp(-1), "L = m + log l.")
        gradient = torch.randn(out.shape, generator=generator)
        with Largest() as largest:
            mine = torch.autograd.grad(out, (q, k, v), gradient)
        ours = torch.autograd.grad(reference.attention(q, k, v, mask), (q, k, v), gradient)
        for name, left, other in zip("QKV", mine, ours, strict=True):
            hint = "dS = P · (dP - rowsum(dO · O)); scores were divided by √d, and so are dQ and dK."
            close(f"The gradient of {name} of {call}", left, other, hint)
        if queries == 128 and max(forward, largest.elements) >= 2 * queries * keys:
            raise Wrong(f"{call} makes a tensor of all scores, {queries} × {keys}: go through the keys in tiles.")


def best_segment(yours: Callable[..., Any]) -> None:
    for layers, boundary, inside in ((48, 1, 16), (16, 1, 1), (7, 3, 2), (1, 5, 5), (12, 100, 1), (10, 1, 100)):
        memory = {s: -(-layers // s) * boundary + s * inside for s in range(1, layers + 1)}
        right = min(memory, key=memory.__getitem__)
        hint = f"With {right} layers it is {memory[right]} bytes."
        same(f"best_segment({layers}, {boundary}, {inside})", yours(layers, boundary, inside), right, hint)


class Block(nn.Module):
    """A block that notes when it computes and when its gradient comes."""

    def __init__(self, number: int, events: list[str]) -> None:
        super().__init__()
        self.number, self.events = number, events
        self.weight = nn.Parameter(torch.tensor(1.0 + number))

    def forward(self, x: Tensor) -> Tensor:
        self.events.append(f"forward {self.number}")
        if x.requires_grad:
            x.register_hook(lambda _: self.events.append(f"backward {self.number}"))
        return torch.tanh(x * self.weight)


def run_blocks(yours: Callable[..., Any]) -> None:
    for count, size in ((4, 2), (5, 2), (3, 1), (3, 3)):
        events: list[str] = []
        blocks = [Block(i, events) for i in range(count)]
        x = torch.tensor([0.1, -0.2], requires_grad=True)
        out = yours(blocks, x, size)
        if out is None:
            raise Wrong(f"run_blocks returns None: {NOT_WRITTEN}.")
        right = x
        for block in blocks:
            right = torch.tanh(right * block.weight)
        call = f"run_blocks({count} blocks, x, {size})"
        close(call, out, right)
        out.sum().backward()
        expected = [f"forward {i}" for i in range(count)]
        for start in reversed(range(0, count, size)):
            segment = range(start, min(count, start + size))
            expected += [f"forward {i}" for i in segment] + [f"backward {i}" for i in reversed(segment)]
        # a hook on a segment's input is registered in both forward passes, and runs twice
        seen = [event for i, event in enumerate(events) if event.startswith("forward") or event not in events[:i]]
        same(f"The order in {call}", seen, expected, "Each segment computes again just before its backward pass.")


CHAPTERS: dict[int, dict[str, Callable[..., str | None]]] = {
    9: {
        "all_reduce_bytes": all_reduce_bytes,
        "step_bytes": step_bytes,
        "average_gradients": in_pair("both_average_naive"),
        "average_gradients_flat": in_pair("both_average_flat"),
        "DDP": in_pair("both_ddp"),
        "ShardedOptimizer": in_pair("both_sharded_optimizer"),
        "FSDP": in_pair("both_fsdp"),
        "FlashAttention": flash_attention,
        "best_segment": best_segment,
        "run_blocks": run_blocks,
    }
}
