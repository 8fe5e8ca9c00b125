"""Checks of the exercises of chapter 9. Functions that begin with `both_` run in each of several processes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pair
import torch
import torch.distributed as dist
from grading import NOT_WRITTEN, Wrong, close, drawing, mistake, near, normal, same
from pair import Messages
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from lm import reference

KINDS = ("ddp", "sharded optimizer", "fsdp")


def all_reduce_bytes(yours: Callable[..., Any]) -> None:
    numbers = drawing("all_reduce_bytes")
    for size, devices in (
        (1000, 2),
        (4096, 8),
        (100, 1),
        (7, 3),
        (numbers.randint(1, 10**9), numbers.randint(3, 2000)),
    ):
        hint = "Both halves of the all-reduce send (devices - 1) / devices of the data."
        near(f"all_reduce_bytes({size}, {devices})", yours(size, devices), 2 * size * (devices - 1) / devices, hint)


def step_bytes(yours: Callable[..., Any]) -> None:
    numbers = drawing("step_bytes")
    for parameters, devices in (
        (1000, 2),
        (4096, 8),
        (77, 1),
        (5, 3),
        (numbers.randint(1, 10**9), numbers.randint(3, 2000)),
    ):
        share = 4 * parameters * (devices - 1) / devices
        for kind, rounds in zip(KINDS, (2, 3, 3), strict=True):
            hint = "An all-gather and a reduce-scatter each send (devices - 1) / devices of the data."
            near(
                f"step_bytes({parameters}, {devices}, {kind!r})", yours(parameters, devices, kind), rounds * share, hint
            )


def model(seed: int, bias: bool = True) -> nn.Module:
    """A small model with a frozen and an unused part."""
    torch.manual_seed(seed)
    return nn.ModuleDict(
        {
            "embedding": nn.Embedding(7, 5),
            "frozen": nn.Linear(2, 2).requires_grad_(False),
            "first": nn.Linear(5, 6, bias=False),
            "norm": reference.RMSNorm(6),
            "last": nn.Linear(6, 3, bias=bias),
        }
    )


class Run(nn.Module):
    """The model as a function of ids, in two parts."""

    def __init__(self, seed: int, bias: bool = True) -> None:
        super().__init__()
        self.parts = model(seed, bias)

    def forward(self, some: Tensor, others: Tensor) -> Tensor:
        parts, ids = self.parts, torch.cat([some, others])
        return parts["last"](parts["norm"](parts["first"](parts["embedding"](ids))))  # type: ignore[index, no-any-return]


def loss_of(module: Any, step: int, rank: int) -> Tensor:
    """Of a process's own part of a batch."""
    generator = torch.Generator().manual_seed(10 * step + rank)
    ids = torch.randint(7, (4,), generator=generator)
    return (module(ids[:1], ids[1:]) * torch.randn(4, 3, generator=generator)).square().sum()  # type: ignore[no-any-return]


def mean_gradients(module: nn.Module, step: int) -> dict[str, Tensor]:
    """The mean over all processes, computed in one."""
    sums: dict[str, Tensor] = {}
    for rank in range(dist.get_world_size()):
        module.zero_grad()
        loss_of(module, step, rank).backward()
        for name, p in module.named_parameters():
            if p.grad is not None:
                sums[name] = sums.get(name, 0.0) + p.grad / dist.get_world_size()
    module.zero_grad()
    return sums


def right_gradients(call: str, module: nn.Module, right: dict[str, Tensor], own: dict[str, Tensor]) -> None:
    """Raise Wrong unless a module's gradients are the mean of those of all processes."""
    for name, p in module.named_parameters():
        if name in right:
            mistakes = {
                "It is the sum over processes: divide by their number.": dist.get_world_size() * right[name],
                "It is divided by 2, which is not the number of processes.": dist.get_world_size() / 2 * right[name],
                "It is this process's own gradient: nothing was sent, or its body is not written yet.": own[name],
            }
            close(f"The gradient of {name} after {call}", p.grad, right[name], mistake(p.grad, mistakes.items(), ""))
        elif p.grad is not None:
            raise Wrong(f"{name}, which has no gradient, has one after {call}.")


def both_average(student: Any, name: str, most_messages: int) -> None:
    module = Run(0)
    right = mean_gradients(module, 1)
    loss_of(module, 1, dist.get_rank()).backward()
    own = {name: p.grad.clone() for name, p in module.named_parameters() if p.grad is not None}
    before = Messages.count
    getattr(student, name)(module)
    count = Messages.count - before
    right_gradients(f"{name}(module)", module, right, own)
    wide = Run(0).double()
    loss_of(wide, 1, dist.get_rank()).backward()
    getattr(student, name)(wide)
    if any(t.dtype != torch.float64 for p in wide.parameters() for t in (p, p.grad) if t is not None):
        raise Wrong(f"{name} of a module in float64 changes its dtype.")
    if count > most_messages:
        raise Wrong(f"{name} sends {count} messages: put all gradients into one tensor first.")


def both_average_naive(student: Any) -> None:
    both_average(student, "average_gradients", 100)


def both_average_flat(student: Any) -> None:
    both_average(student, "average_gradients_flat", 1)


def both_ddp(student: Any) -> None:
    module, right_module = Run(dist.get_rank()), Run(0)
    begun: list[int] = []
    # it runs before the student's hook, which is registered later
    first = module.parts["embedding"].weight  # type: ignore[index]
    first.register_post_accumulate_grad_hook(lambda _: begun.append(Messages.count))
    wrapped = student.DDP(module)
    if not list(wrapped.parameters()):
        raise Wrong("DDP has no parameters: its body is not written yet.")
    for (name, p), q in zip(module.named_parameters(), right_module.parameters(), strict=True):
        close(f"{name} in process {dist.get_rank()} of DDP", p, q, "All processes begin with the weights of 0.")
    waiting = Messages.waiting
    for step in (1, 2):
        right = mean_gradients(right_module, step)
        own_model = Run(0)
        loss_of(own_model, step, dist.get_rank()).backward()
        own = {name: p.grad for name, p in own_model.named_parameters() if p.grad is not None}
        module.zero_grad()
        before, begun[:] = Messages.count, []
        loss_of(wrapped, step, dist.get_rank()).backward()
        wrapped.finish_gradient_synchronization()
        right_gradients("finish_gradient_synchronization()", module, right, own)
        if begun[0] == before:
            raise Wrong("When the first layer's gradient comes, DDP has sent none of the others: nothing overlaps.")
    if Messages.waiting > waiting:
        raise Wrong("An all-reduce of DDP has no async_op=True: the backward pass waits for it.")


def layers() -> nn.ParameterList:
    """Large ones and small ones: shared out in turn, all large ones would go to one process."""
    return nn.ParameterList(normal(*shape) for shape in ((6, 10), (6,), (3, 2)) * pair.PROCESSES)


def both_sharded_optimizer(student: Any) -> None:
    optimizers: list[torch.optim.Optimizer] = []

    class Recorded(torch.optim.AdamW):
        def __init__(self, *arguments: Any, **settings: Any) -> None:
            super().__init__(*arguments, **settings)
            optimizers.append(self)

    settings = {"lr": 0.1, "betas": (0.8, 0.9), "weight_decay": 0.2, "eps": 1e-3}
    module, right_module = layers(), layers()
    optimizer = student.ShardedOptimizer(module.parameters(), Recorded, **settings)
    right = torch.optim.AdamW(right_module.parameters(), **settings)  # type: ignore[arg-type]
    for step in range(4):
        for number, (p, q) in enumerate(zip(module.parameters(), right_module.parameters(), strict=True)):
            q.grad = normal(*q.shape, seed=20 * step + number)
            p.grad = q.grad.clone()
        optimizer.step()
        right.step()
        if not optimizers:
            raise Wrong("ShardedOptimizer makes no optimizer_cls: its body is not written yet.")
        for (name, p), q in zip(module.named_parameters(), right_module.parameters(), strict=True):
            hint = "After a step every process needs the parameters that the others have stepped."
            if step > 1:
                hint = (
                    "Its learning rate was changed in param_groups, as a schedule does: the inner optimizer needs it."
                )
            close(f"{name} after {step + 1} steps of ShardedOptimizer", p, q, hint, 1e-6)
        if step:
            for group in (*optimizer.param_groups, *right.param_groups):
                group["lr"] = 0.03 / step
    optimizer.zero_grad()
    if any(p.grad is not None and bool(p.grad.any()) for p in module.parameters()):
        raise Wrong("After zero_grad() of ShardedOptimizer a gradient is left: it is of all parameters.")
    elements = sum(t.numel() for one in optimizers for state in one.state.values() for t in state.values() if t.dim())
    share = 2 * sum(p.numel() for p in module.parameters()) // dist.get_world_size()
    if not 0.75 * share <= elements <= 1.25 * share:
        raise Wrong(f"A process keeps {elements} elements of the moments, and should keep about {share}.")


def both_fsdp(student: Any) -> None:
    module, right_module = Run(dist.get_rank()), Run(0)
    names = [name for name, _ in module.named_parameters()]
    wrapped = student.FSDP(module)
    parameters = list(wrapped.parameters())
    if not parameters:
        raise Wrong("FSDP has no parameters: its body is not written yet.")
    whole = dict(right_module.named_parameters())
    sharded = {name for name in whole if name.endswith("weight") and "norm" not in name}
    each = sum(
        math.ceil(p.numel() / dist.get_world_size()) if name in sharded else p.numel() for name, p in whole.items()
    )
    elements = sum(p.numel() for p in parameters)
    if elements != each:
        raise Wrong(
            f"A process has {elements} elements of parameters, and should have {each}: its share of each weight of "
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
    mixed_precision(student)


def mixed_precision(student: Any) -> None:
    """Raise Wrong unless FSDP with a compute_dtype sends and computes in it, and keeps its weights in float32."""
    right_module, call = Run(0, bias=False), "FSDP(module, torch.bfloat16)"
    wrapped = student.FSDP(Run(0, bias=False), torch.bfloat16)
    weights = {name: p.detach().clone() for name, p in right_module.named_parameters()}
    hint = "Shards are in float32, and what is sent is a copy."
    for name, value in wrapped.gather_full_params().items():
        close(f"{name} of gather_full_params() of {call}", value, weights[name], hint)
    for name, p in right_module.named_parameters():
        if name.endswith("weight") and "norm" not in name:
            p.data = p.data.bfloat16()
    Messages.gathered.clear()
    output = loss_of(wrapped, 1, dist.get_rank())
    if torch.float32 in Messages.gathered:
        raise Wrong(f"{call} sends weights in float32: cast shards before they are sent.")
    with torch.no_grad():
        right = loss_of(right_module, 1, dist.get_rank())
    near(f"The loss of {call}", output, float(right), "Modules compute in bfloat16.", 2e-2)
    output.backward()
    wrapped.finish_gradient_synchronization()
    shards = [p for p in wrapped.parameters() if p.grad is not None]
    if any(p.grad.dtype != torch.float32 for p in shards):
        raise Wrong(f"The gradient of a shard of {call} is not in float32.")
    linear = student.FSDP(nn.Sequential(nn.Linear(3, 2, bias=False)), torch.bfloat16)
    if linear(torch.ones(1, 3)).dtype != torch.bfloat16:
        raise Wrong(f"An nn.Linear of {call} that reads float32 does not compute in bfloat16: cast what it reads.")
    gradients = mean_gradients(right_module, 1)
    torch.optim.SGD(shards, lr=1.0).step()
    for name, value in wrapped.gather_full_params().items():
        if name in gradients:
            hint = "It is the mean over processes, in float32."
            close(f"The gradient of {name} of {call}", weights[name] - value, gradients[name].float(), hint, 3e-2)


def in_pair(check: str) -> Callable[..., None]:
    """A check that runs in every process."""

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
    for queries, keys, causal, size in (
        (16, 16, False, 4),
        (50, 50, True, 4),
        (24, 40, False, 4),
        (1, 3, False, 4),
        (128, 128, True, 4),
        (20, 20, True, 8),  # exp of these scores does not fit
    ):
        shapes = ((2, queries, 8), (2, keys, 8), (2, keys, 8))
        q, k, v = (normal(*shape, seed=i, scale=size).requires_grad_() for i, shape in enumerate(shapes))
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
        tolerance = 1e-5 if size == 4 else 1e-3  # large scores are rounded to coarser numbers
        close(f"The output of {call}", out, right, "When the largest score grows, both sums shrink.", tolerance)
        if not out.requires_grad:
            raise Wrong(f"{call} has no gradient: call apply, and write both passes.")
        if not causal:
            close(f"{call}, without is_causal,", yours.apply(q, k, v), right, "is_causal is False unless it is passed.")
        scores = (q @ k.transpose(1, 2) / math.sqrt(8)).detach()
        if mask is not None:
            scores = scores.masked_fill(~mask, -math.inf)
        saved = out.grad_fn.saved_tensors
        logs = [t for t in saved if t.shape == (2, queries)]
        if not logs:
            raise Wrong(f"{call} saves no tensor of the shape (batch, queries): L is needed for the backward pass.")
        close(f"L of {call}", logs[0], scores.logsumexp(-1), "L = m + log l.", tolerance)
        gradient = normal(*out.shape, seed=9)
        if queries == 24:  # as the sum of an output has it: one number, expanded
            gradient = torch.ones(()).expand(out.shape)
        with Largest() as largest:
            mine = torch.autograd.grad(out, (q, k, v), gradient)
        ours = torch.autograd.grad(reference.attention(q, k, v, mask), (q, k, v), gradient)
        for name, left, other in zip("QKV", mine, ours, strict=True):
            hint = "dS = P · (dP - rowsum(dO · O)); scores were divided by √d, and so are dQ and dK."
            # dP - rowsum(dO · O) cancels where one key gets nearly all
            close(f"The gradient of {name} of {call}", left, other, hint, 30 * tolerance)
        if queries == 128 and max(forward, largest.elements) >= 2 * queries * keys:
            raise Wrong(f"{call} makes a tensor of all scores, {queries} × {keys}: go through the keys in tiles.")
    q = torch.full((1, 4, 8), 8.0)
    k, v = normal(1, 4, 8, seed=1) - q, normal(1, 4, 8, seed=2)
    hint = "The largest score so far begins at -inf: all scores may be far below zero."
    close(
        "The output of FlashAttention of scores near -181",
        yours.apply(q, k, v),
        reference.attention(q, k, v),
        hint,
        1e-3,
    )


def best_segment(yours: Callable[..., Any]) -> None:
    numbers = drawing("best_segment")
    drawn = tuple(numbers.randint(1, 200) for _ in range(3))
    cases = ((48, 1, 16), (16, 1, 1), (7, 3, 2), (1, 5, 5), (12, 100, 1), (10, 1, 100), (6, 1, 1), (12, 4, 2), drawn)
    for layers, boundary, inside in cases:
        memory = {s: -(-layers // s) * boundary + s * inside for s in range(1, layers + 1)}
        right = min(memory, key=memory.__getitem__)
        hint = f"With {right} layers it is {memory[right]} bytes."
        same(f"best_segment({layers}, {boundary}, {inside})", yours(layers, boundary, inside), right, hint)


class Noisy(nn.Module):
    """Dropout, then a weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((64,), 2.0))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, 0.5) * self.weight


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
    for count, size in ((4, 2), (5, 2), (3, 1), (3, 3), (2, 5)):
        events: list[str] = []
        blocks = [Block(i, events) for i in range(count)]
        x = normal(2).requires_grad_()
        out = yours(blocks, x, size)
        if out is None:
            raise Wrong(f"run_blocks returns None: {NOT_WRITTEN}.")
        right = x
        for block in blocks:
            right = torch.tanh(right * block.weight)
        call = f"run_blocks({count} blocks, x, {size})"
        close(call, out, right)
        weights = [block.weight for block in blocks]
        gradients = torch.autograd.grad(right.sum(), [x, *weights])
        if not out.requires_grad:
            raise Wrong(f"{call} has no gradient: a segment is checkpointed, not run under no_grad().")
        events[:] = events[:count]
        out.sum().backward()
        for number, (tensor, gradient) in enumerate(zip((x, *weights), gradients, strict=True)):
            name = f"the weight of block {number - 1}" if number else "x"
            close(f"The gradient of {name} of {call}", tensor.grad, gradient)
        expected = [f"forward {i}" for i in range(count)]
        for start in reversed(range(0, count, size)):
            segment = range(start, min(count, start + size))
            expected += [f"forward {i}" for i in segment] + [f"backward {i}" for i in reversed(segment)]
        # a hook on a segment's input is registered in both forward passes, and runs twice
        seen = [event for i, event in enumerate(events) if event.startswith("forward") or event not in events[:i]]
        same(f"The order in {call}", seen, expected, "Each segment computes again just before its backward pass.")
    noisy: list[nn.Module] = [Noisy(), Noisy()]
    out = yours(noisy, torch.ones(64), 2)
    if not out.requires_grad:
        raise Wrong("run_blocks of an x without a gradient gives the weights none: pass use_reentrant=False.")
    out.sum().backward()
    hint = "Dropout draws the same again when a segment is computed again: leave preserve_rng_state alone."
    close("The gradient of a weight behind dropout", noisy[1].weight.grad, out.detach() / 2, hint)


CHAPTERS: dict[int, dict[str, Callable[..., None]]] = {
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
