"""The checks of chapter 6."""

from __future__ import annotations

import copy
import io
import itertools
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from grading import NOT_WRITTEN, Wrong, close, compare_speed, equal, mistake, near, same, seconds
from torch import Tensor, nn

import lm
from lm import reference

torch.set_num_threads(1)  # so that the figures are of the code, and not of what else the machine does


def some(*shape: int, seed: int = 0) -> Tensor:
    """Normal numbers, the same every time."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def cross_entropy(yours: Callable[..., Any]) -> str:
    ids = torch.tensor([[3, 0, 6], [1, 5, 2]])
    for what, logits in (("usual", some(2, 3, 7)), ("large", some(2, 3, 7) * 1000), ("equal", torch.zeros(2, 3, 7))):
        hint = "Take the largest logit off first, and let log and exp cancel: log softmax(x) = x - log Σ exp(x)."
        close(f"cross_entropy of {what} logits", yours(logits, ids), reference.cross_entropy(logits, ids), hint)
    logits, ids = some(512, 8192).requires_grad_(), torch.randint(8192, (512,))
    slow = seconds(lambda: yours(logits, ids).backward(), 3)
    fast = seconds(lambda: lm.loss.cross_entropy(logits, ids).backward(), 3)
    return compare_speed("512 tokens of 8,192, with gradients", slow, fast)


class Adam(torch.optim.Optimizer):
    """AdamW in every form that is called so, and in those of the usual mistakes.

    decay: "after" or "before" the step, in the "gradient", or "none".
    eps_at: "corrected" √v + eps as in torch, "plain" √v + eps as in the paper's faster form, or inside of the "root".
    """

    decay, eps_at, corrects, group_rate = "after", "corrected", True, True

    def __init__(
        self,
        params: Any,
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            lr, decay = group["lr"] if self.group_rate else self.defaults["lr"], group["weight_decay"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                g = p.grad + decay * p if self.decay == "gradient" else p.grad
                t = state["t"] = state.get("t", 0) + 1
                m = state["m"] = beta1 * state.get("m", 0.0) + (1 - beta1) * g
                v = state["v"] = beta2 * state.get("v", 0.0) + (1 - beta2) * g * g
                if self.decay == "before":
                    p *= 1 - lr * decay
                first, second = (1 - beta1**t, 1 - beta2**t) if self.corrects else (1.0, 1.0)
                if self.eps_at == "corrected":
                    root = (v / second).sqrt() + group["eps"]
                elif self.eps_at == "plain":
                    root = (v.sqrt() + group["eps"]) / second**0.5
                else:
                    root = (v / second + group["eps"]).sqrt()
                p -= lr / first * m / root
                if self.decay == "after":
                    p *= 1 - lr * decay


def variant(**changes: Any) -> type[Adam]:
    """Adam with other settings of its class."""
    return type("Variant", (Adam,), changes)


RIGHT = [variant(decay=decay, eps_at=eps_at) for decay in ("after", "before") for eps_at in ("corrected", "plain")]
MISTAKES = {
    "It does not decay the weights.": {"decay": "none"},
    "It does not correct the moments for having begun at zero: 1 - beta1^t and 1 - beta2^t.": {"corrects": False},
    "Weight decay stands in the gradient, and so in the moments: that is Adam with L2, not AdamW.": {
        "decay": "gradient"
    },
    "eps stands inside of the root; it is added to the root.": {"eps_at": "root"},
    "lr comes from the optimizer, and should come from each group: take lr from its group.": {"group_rate": False},
}


def train(make: Callable[..., Any], steps: int, scale: float = 1.0, **settings: Any) -> list[Tensor]:
    """The weights after some steps of a small problem, one of them without a gradient; the loss is scaled."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2))
    unused = nn.Parameter(torch.ones(3))
    optimizer = make(
        [{"params": model[0].parameters()}, {"params": [*model[2].parameters(), unused], "lr": 0.02}], **settings
    )
    x, y = some(16, 5), some(16, 2, seed=1)
    for _ in range(steps):
        optimizer.zero_grad()
        ((model(x) - y).square().mean() * scale).backward()
        optimizer.step()
    return [p.detach() for p in [*model.parameters(), unused]]


def adamw(yours: Callable[..., Any]) -> str:
    set_all: dict[str, Any] = {"lr": 0.1, "betas": (0.8, 0.9), "weight_decay": 0.5, "eps": 1e-3}
    for scale, settings in ((1.0, {}), (1.0, {"lr": 0.01}), (1.0, set_all), (1e-7, {"lr": 1e-4})):
        before, mine = train(Adam, 0, **settings), train(yours, 10, scale, **settings)
        if all(map(torch.equal, mine, before)):
            raise Wrong("AdamW changes no parameter: its body is not written yet.")
        ours = [train(make, 10, scale, **settings) for make in RIGHT]
        if any(equal(mine, right, 2e-6) for right in ours):
            continue
        mistakes = [
            (words, train(variant(**{"decay": right.decay, "eps_at": right.eps_at} | change), 10, scale, **settings))
            for words, change in MISTAKES.items()
            for right in RIGHT
        ]
        for name in settings:
            others = {key: value for key, value in settings.items() if key != name}
            words = f"It computes as if {name} had not been passed, with its default."
            mistakes += [(words, train(right, 10, scale, **others)) for right in RIGHT]
        hint = "Count t from 1, for each parameter; take lr from its group; leave out parameters without a gradient."
        hint = mistake(mine, mistakes, hint, 2e-6)
        for number, (answer, right) in enumerate(zip(mine, ours[0], strict=True)):
            close(f"Parameter {number} after 10 steps of AdamW({settings})", answer, right, hint, 2e-6)

    def model_and(make: Callable[..., Any]) -> Callable[[], object]:
        weights = [nn.Parameter(some(256, 256, seed=seed)) for seed in range(8)]
        for weight in weights:
            weight.grad = some(256, 256)
        optimizer = make(weights, lr=1e-3)
        optimizer.step()
        return lambda: optimizer.step()

    slow, fast = (
        seconds(model_and(yours), 3),
        seconds(model_and(lambda w, lr: lm.optimizer.adamw(nn.ParameterList(w), lr)), 3),
    )
    return compare_speed("a step of 524,288 parameters", slow, fast)


def schedule(yours: Callable[..., Any]) -> None:
    hint = "Warm-up is it / warmup_iters; the cosine goes from 0 to π between warmup_iters and cosine_cycle_iters."
    for it in (0, 1, 6, 7, 8, 14, 20, 21, 22, 100):
        right = reference.cosine_schedule(it, 0.8, 0.1, 7, 21)
        near(f"get_lr_cosine_schedule({it}, 0.8, 0.1, 7, 21)", yours(it, 0.8, 0.1, 7, 21), right, hint)
    near("get_lr_cosine_schedule(0, 1.0, 0.1, 0, 10)", yours(0, 1.0, 0.1, 0, 10), 1.0, "There may be no warm-up.")


def gradient_clipping(yours: Callable[..., Any]) -> None:
    for scale, most in ((1.0, 1.0), (0.01, 1.0), (100.0, 0.5), (1e-6, 5e-7)):
        weights = [nn.Parameter(torch.zeros(4, 3)), nn.Parameter(torch.zeros(5)), nn.Parameter(torch.zeros(2))]
        for seed, weight in enumerate(weights[:2]):  # the third has no gradient
            weight.grad = some(*weight.shape, seed=seed) * scale
        ours = copy.deepcopy(weights)
        for left, right in zip(ours, weights, strict=True):
            left.grad = None if right.grad is None else right.grad.clone()
        before = [p.grad.clone() for p in ours if p.grad is not None]
        reference.clip_gradients(ours, most)
        yours(iter(weights), most)
        for left, right, was in zip(weights, ours, before, strict=False):
            if not torch.equal(right.grad, was) and torch.equal(left.grad, was):  # type: ignore[arg-type]
                raise Wrong(f"gradient_clipping leaves a norm beyond {most} as it was: its body is not written yet.")
        for left, right in zip(weights[:2], ours[:2], strict=True):
            hint = (
                "The norm is of all gradients together. What you are given may be an iterator, which can be read once."
            )
            if scale == 1e-6:
                hint = "The divisor is norm + 1e-6."
            assert right.grad is not None
            mine = None if left.grad is None else left.grad / scale
            close(f"A gradient after gradient_clipping(…, {most}) by {scale:g}", mine, right.grad / scale, hint)


def get_batch(yours: Callable[..., Any]) -> str:
    ids = np.arange(50, 60, dtype=np.uint16)
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002 (what a student may use)
    starts = set()
    for _ in range(100):
        answer = yours(ids, 4, 7, "cpu")
        if answer is None:
            raise Wrong(f"get_batch returns None: {NOT_WRITTEN}.")
        inputs, targets = answer
        same("The shapes that get_batch gives", (tuple(inputs.shape), tuple(targets.shape)), ((4, 7), (4, 7)))
        same("The dtypes that get_batch gives", (inputs.dtype, targets.dtype), (torch.int64, torch.int64))
        for row, after in zip(inputs.tolist(), targets.tolist(), strict=True):
            same("A row of inputs", row, list(range(row[0], row[0] + 7)), "It is a window of neighbouring ids.")
            same(f"The targets of {row}", after, [number + 1 for number in row], "They are the inputs one further.")
            starts.add(row[0] - 50)
    hint = "A window of inputs may begin at 0 and at len(dataset) - context_length - 1."
    same("The places where windows of 7 begin in 10 ids", sorted(starts), [0, 1, 2], hint)
    ids = np.arange(10_000, dtype=np.uint16)
    first, second = (yours(ids, 64, 16, "cpu")[0][:, 0].tolist() for _ in range(2))
    if first == second:
        raise Wrong("get_batch gives the same windows at the second call: they should begin at random.")
    if len(set(first)) < 32:
        raise Wrong(f"64 windows of get_batch begin at {len(set(first))} places: draw one for each row.")
    if len({after - before for before, after in itertools.pairwise(first)}) < 8:
        raise Wrong("The windows of get_batch follow one another at equal distances: they should begin at random.")
    if not 3500 < sum(first + second) / 128 < 6500:
        raise Wrong("The windows of get_batch begin in one part of the dataset: every window should be as likely.")
    if yours(ids, 2, 4, "meta")[0].device.type != "meta":
        raise Wrong("get_batch leaves its tensors on the CPU: they belong on the device that is named.")
    ids = np.zeros(1_000_000, dtype=np.uint16)
    slow = seconds(lambda: yours(ids, 64, 256, "cpu"), 5)
    return compare_speed("64 windows of 256", slow, seconds(lambda: lm.data.get_batch(ids, 64, 256), 5))


def checkpoint(save: Callable[..., Any], load: Callable[..., Any]) -> None:
    def fresh(seed: int) -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(seed)
        model = nn.Linear(4, 4)
        return model, torch.optim.AdamW(model.parameters(), lr=0.1)

    def steps(model: nn.Module, optimizer: torch.optim.Optimizer, count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad()
            model(some(3, 4)).square().sum().backward()
            optimizer.step()

    whole = fresh(0)
    steps(*whole, 3)
    with tempfile.TemporaryDirectory() as folder:
        for out in (Path(folder, "checkpoint.pt"), io.BytesIO()):
            save(*whole, 3, out)
            if (isinstance(out, Path) and not out.exists()) or (isinstance(out, io.BytesIO) and not out.getvalue()):
                raise Wrong(f"save_checkpoint writes nothing to {type(out).__name__}: its body is not written yet.")
            if isinstance(out, io.BytesIO):
                out.seek(0)
            again = fresh(1)
            same("load_checkpoint", load(out, *again), 3, "It returns the iteration that was saved.")
            onward = copy.deepcopy(whole)
            steps(*again, 2)
            steps(*onward, 2)
            if not torch.equal(again[0].weight, onward[0].weight):  # type: ignore[arg-type]
                raise Wrong(
                    "Two steps after load_checkpoint the weights are not those of a run that never stopped: "
                    "the optimizer's moments and its count of steps belong to the checkpoint."
                )


CHAPTERS: dict[int, dict[str, Callable[..., str | None]]] = {
    6: {
        "cross_entropy": cross_entropy,
        "AdamW": adamw,
        "get_lr_cosine_schedule": schedule,
        "gradient_clipping": gradient_clipping,
        "get_batch": get_batch,
        "save_checkpoint and load_checkpoint": checkpoint,
    }
}
