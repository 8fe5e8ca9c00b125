"""The checks of chapter 6."""

from __future__ import annotations

import copy
import io
import itertools
import random
import shutil
import tempfile
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from grading import (
    NOT_WRITTEN,
    Wrong,
    close,
    compare_speed,
    drawing,
    equal,
    mistake,
    near,
    normal,
    same,
    same_function,
    seconds,
)
from torch import Tensor, nn

import lm
from lm import reference

torch.set_num_threads(1)  # so that the figures are of the code, and not of what else the machine does


def cross_entropy(yours: Callable[..., Any]) -> Callable[[], str]:
    usual = normal(2, 3, 7)
    rows = usual * torch.tensor([1000.0, 1.0, 0.0])[:, None]  # one maximum for all would lose the small rows
    for what, logits in (
        ("usual", usual),
        ("large", 1000 * usual),
        ("small and large", rows),
        ("equal", torch.zeros(2, 3, 7)),
        ("(5, 9)", normal(5, 9)),
        ("(2, 3, 4, 6)", normal(2, 3, 4, 6)),
    ):
        ids = torch.tensor(drawing("cross_entropy").choices(range(6), k=logits[..., 0].numel()))
        ids = ids.view(logits.shape[:-1])
        hint = "Take the largest logit off first, and let log and exp cancel: log softmax(x) = x - log Σ exp(x)."
        hint = mistake(
            yours(logits, ids),
            [("It is the mean over all tokens, not their sum.", reference.cross_entropy(logits, ids) * ids.numel())],
            hint,
        )
        same_function(f"cross_entropy of {what} logits", yours, reference.cross_entropy, [logits, ids], hint)
    logits, ids = normal(512, 8192).requires_grad_(), torch.randint(8192, (512,))

    def speed() -> str:
        slow = seconds(lambda: yours(logits, ids).backward(), 3)
        fast = seconds(lambda: lm.loss.cross_entropy(logits, ids).backward(), 3)
        return compare_speed("512 tokens of 8,192, with gradients", slow, fast)

    return speed


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


def train(
    make: Callable[..., Any], steps: int, scale: float = 1.0, reload: bool = False, **settings: Any
) -> list[Tensor]:
    """The weights after some steps of a small problem.

    One parameter has a gradient in the third step only, and one never; the second group's rate changes on the way. The
    loss is scaled. With `reload` a new optimizer goes on after four steps, with the state of the first one.
    """
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 2))
    unused, late = nn.Parameter(torch.ones(3)), nn.Parameter(torch.ones(4))
    others = [*model[2].parameters(), unused, late]

    def optimizer_of() -> Any:
        groups = [{"params": [*model[0].parameters()]}, {"params": others, "lr": 0.02, "weight_decay": 0.3}]
        return make(groups, **settings)

    optimizer = optimizer_of()
    x, y = normal(16, 5), normal(16, 2, seed=1)
    for step in range(steps):
        if reload and step == 4:
            state = optimizer.state_dict()
            optimizer = optimizer_of()
            optimizer.load_state_dict(state)
        optimizer.param_groups[1]["lr"] = 0.02 / (1 + step)
        optimizer.zero_grad()
        loss = (model(x) - y).square().mean() * scale
        if step in (2, 5):
            loss = loss + late.sum() * scale
        loss.backward()
        before = [None if p.grad is None else p.grad.clone() for p in model.parameters()]
        optimizer.step()
        for p, gradient in zip(model.parameters(), before, strict=True):
            if gradient is not None and not torch.equal(p.grad, gradient):
                raise Wrong("AdamW changes p.grad, which others still read (the norm in a log): compute new tensors.")
    return [p.detach() for p in [*model.parameters(), unused, late]]


def adamw(yours: Callable[..., Any]) -> Callable[[], str]:
    set_all: dict[str, Any] = {"lr": 0.1, "betas": (0.8, 0.9), "weight_decay": 0.5, "eps": 1e-3}
    for scale, settings in ((1.0, {}), (1.0, {"lr": 0.01}), (1.0, set_all), (1e-7, {"lr": 1e-4}), (50.0, {})):
        mine = train(yours, 10, scale, **settings)
        if all(map(torch.equal, mine, train(Adam, 0, **settings))):
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
        hint = "Count t from 1, for each parameter; take lr from its group, and weight_decay too; "
        hint += "leave out parameters without a gradient."
        hint = mistake(mine, mistakes, hint, 2e-6)
        for number, (answer, right) in enumerate(zip(mine, ours[0], strict=True)):
            close(f"Parameter {number} after 10 steps of AdamW({settings})", answer, right, hint, 2e-6)
    if not equal(train(yours, 10, reload=True, **set_all), train(yours, 10, **set_all), 2e-6):
        raise Wrong(
            "After load_state_dict(state_dict()) AdamW goes on otherwise: moments and t belong into self.state[p]."
        )

    def model_and(make: Callable[..., Any]) -> Callable[[], object]:
        weights = [nn.Parameter(normal(256, 256, seed=seed)) for seed in range(8)]
        for weight in weights:
            weight.grad = normal(256, 256)
        optimizer = make(weights, lr=1e-3)
        optimizer.step()
        return lambda: optimizer.step()

    def speed() -> str:
        ours = model_and(lambda w, lr: lm.optimizer.adamw(nn.ParameterList(w), lr))
        return compare_speed("a step of 524,288 parameters", seconds(model_and(yours), 3), seconds(ours, 3))

    return speed


def schedule(yours: Callable[..., Any]) -> None:
    hint = "Warm-up is it / warmup_iters; the cosine goes from 0 to π between warmup_iters and cosine_cycle_iters."
    numbers = drawing("schedule")
    warmup, length, rate = numbers.randint(3, 40), numbers.randint(50, 400), numbers.uniform(0.01, 2)
    for most, least, first, last in ((0.8, 0.1, 7, 21), (rate, rate / 7, warmup, length)):
        for it in (0, 1, first - 1, first, first + 1, (first + last) // 2, last - 1, last, last + 1, 5 * last):
            right = reference.cosine_schedule(it, most, least, first, last)
            arguments = (it, most, least, first, last)
            near(f"get_lr_cosine_schedule{arguments}", yours(*arguments), right, hint)
    near("get_lr_cosine_schedule(0, 1.0, 0.1, 0, 10)", yours(0, 1.0, 0.1, 0, 10), 1.0, "There may be no warm-up.")


def gradient_clipping(yours: Callable[..., Any]) -> None:
    for scale, most in ((1.0, 1.0), (0.01, 1.0), (100.0, 0.5), (1e-6, 5e-7), (3.0, 100.0), (0.0, 1.0), (1.0, 0.0)):
        weights = [nn.Parameter(torch.zeros(4, 3)), nn.Parameter(torch.zeros(5)), nn.Parameter(torch.zeros(2))]
        for seed, weight in enumerate(weights[:2]):  # the third has no gradient
            weight.grad = normal(*weight.shape, seed=seed, scale=scale)
        before = [p.grad.clone() for p in weights if p.grad is not None]
        most = most or 1.3 * float(torch.cat([gradient.flatten() for gradient in before]).norm())  # just not exceeded
        ours = copy.deepcopy(weights)
        for left, gradient in zip(ours, before, strict=False):
            left.grad = gradient.clone()
        reference.clip_gradients(ours, most)
        yours(iter(weights), most)
        same("The gradient of a parameter that had none", weights[2].grad, None)
        clipped = not torch.equal(ours[0].grad, before[0])  # type: ignore[arg-type]
        if clipped and all(map(torch.equal, [p.grad for p in weights[:2]], before)):  # type: ignore[arg-type]
            raise Wrong(f"gradient_clipping leaves a norm beyond {most} as it was: its body is not written yet.")
        by_value = [gradient.clamp(-most, most) for gradient in before]
        if scale >= 1 and clipped and equal([p.grad for p in weights[:2]], by_value):
            raise Wrong("gradient_clipping cuts each number by itself; all are scaled by one factor.")
        for left, right in zip(weights[:2], ours[:2], strict=True):
            hint = (
                "The norm is of all gradients together. What you are given may be an iterator, which can be read once."
            )
            if scale == 1e-6:
                hint = "The divisor is norm + 1e-6."
            assert right.grad is not None
            unit = scale or 1.0
            mine = None if left.grad is None else left.grad / unit
            close(f"A gradient after gradient_clipping(…, {most}) by {scale:g}", mine, right.grad / unit, hint)


def seeded(number: int) -> None:
    """Seed every generator that a student may use."""
    torch.manual_seed(number)
    np.random.seed(number)  # noqa: NPY002
    random.seed(number)


def windows(yours: Callable[..., Any]) -> None:
    """Raise Wrong unless the rows of get_batch are windows, and each possible window comes."""
    ids = np.arange(50, 60, dtype=np.uint16)
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


def get_batch(yours: Callable[..., Any]) -> Callable[[], str]:
    seeded(0)
    windows(yours)
    after = []
    for number in (1, 2):
        seeded(number)
        yours(np.arange(100, dtype=np.uint16), 4, 7, "cpu")
        after.append((torch.rand(1).item(), np.random.rand(), random.random()))  # noqa: NPY002
    if any(map(float.__eq__, *after)):
        raise Wrong("get_batch sets the seed of a generator: so every run reads the same windows. Leave seeds alone.")
    for size in (10_000, 60_000):
        ids = np.arange(size, dtype=np.uint16)
        first, second = (yours(ids, 64, 16, "cpu")[0][:, 0].tolist() for _ in range(2))
        if first == second:
            raise Wrong("get_batch gives the same windows at the second call: they should begin at random.")
        if len(set(first)) < 32:
            raise Wrong(f"64 windows of get_batch begin at {len(set(first))} places: draw one for each row.")
        if first == sorted(first):
            raise Wrong("The windows of get_batch are sorted: each row should be as likely to begin anywhere.")
        if len({start % 16 for start in first}) < 8:
            raise Wrong("The windows of get_batch begin at multiples of a number: a window may begin anywhere.")
        if len({after - before for before, after in itertools.pairwise(first)}) < 8:
            raise Wrong("The windows of get_batch follow one another at equal distances: they should begin at random.")
        if not 0.35 * size < sum(first + second) / 128 < 0.65 * size:
            raise Wrong("The windows of get_batch begin in one part of the dataset: every window should be as likely.")
    if any(part.device.type != "meta" for part in yours(ids, 2, 4, "meta")):
        raise Wrong("get_batch leaves its tensors on the CPU: they belong on the device that is named.")
    ids = np.zeros(4_000_000, dtype=np.uint16)
    tracemalloc.start()
    yours.__wrapped__(ids, 2, 4, "cpu") if hasattr(yours, "__wrapped__") else yours(ids, 2, 4, "cpu")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    if peak > ids.nbytes:
        raise Wrong("get_batch copies the whole dataset in every call: cut the windows first, and convert only these.")
    ids = ids[:1_000_000]

    def speed() -> str:
        slow = seconds(lambda: yours(ids, 64, 256, "cpu"), 5)
        return compare_speed("64 windows of 256", slow, seconds(lambda: lm.data.get_batch(ids, 64, 256), 5))

    return speed


def checkpoint(save: Callable[..., Any], load: Callable[..., Any]) -> None:
    def fresh(seed: int, lr: float = 0.1) -> tuple[nn.Module, torch.optim.Optimizer]:
        torch.manual_seed(seed)
        model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))  # it has buffers, which no optimizer knows
        return model, torch.optim.AdamW(model.parameters(), lr=lr)

    def steps(model: nn.Module, optimizer: torch.optim.Optimizer, count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad()
            model(normal(3, 4)).square().sum().backward()
            optimizer.step()

    def at(place: str | Path | io.BytesIO) -> str | Path | io.BytesIO:
        """The file that was written, under another name."""
        if isinstance(place, io.BytesIO):
            return io.BytesIO(place.getvalue())
        other = f"{place}.copy"
        shutil.copy(place, other)
        return other if isinstance(place, str) else Path(other)

    whole = fresh(0, lr=0.07)
    count = drawing("checkpoint").randint(2, 5)
    steps(*whole, count)
    with tempfile.TemporaryDirectory() as folder:
        for out, iteration in (
            (Path(folder, "checkpoint.pt"), count),
            (io.BytesIO(), 0),
            (str(Path(folder, "other.pt")), count),
        ):
            unstopped = copy.deepcopy(whole)
            save(*whole, iteration, out)
            hint = "Whoever saves goes on training."
            same("model.training after save_checkpoint", whole[0].training, True, hint)
            is_empty = not out.getvalue() if isinstance(out, io.BytesIO) else not Path(out).exists()
            if is_empty:
                raise Wrong(f"save_checkpoint writes nothing to {type(out).__name__}: its body is not written yet.")
            other = fresh(3)
            save(*other, 1, io.BytesIO())  # what is loaded comes from the file, not from a global variable
            again = fresh(1)
            hint = "It returns the iteration that was saved."
            same("load_checkpoint", load(at(out), *again), iteration, hint)
            same("model.training after load_checkpoint", again[0].training, True, "Leave the mode alone.")
            for (name, mine), right in zip(again[0].named_buffers(), whole[0].buffers(), strict=True):
                close(f"{name} after load_checkpoint", mine, right, "Buffers belong to a model's state_dict too.")
            rates = [group["lr"] for group in again[1].param_groups]
            same("The learning rate after load_checkpoint", rates, [0.07], "param_groups belong to the checkpoint.")
            steps(*again, 2)
            steps(*unstopped, 2)
            pairs = [*zip(again[0].parameters(), unstopped[0].parameters(), strict=True)]
            difference = max((p - q).abs().max().item() for p, q in pairs)
            if 0 < difference < 1e-2 and not all(equal(p, q, 1e-6) for p, q in pairs):
                hint = "they are rounded somewhere, or the optimizer's moments and its count of steps are missing"
            else:
                hint = "the optimizer's moments and its count of steps belong to the checkpoint"
            if difference:
                raise Wrong(
                    f"Two steps after load_checkpoint the weights are not those of a run that never stopped: {hint}."
                )


CHAPTERS: dict[int, dict[str, Callable[..., Callable[[], str] | None]]] = {
    6: {
        "cross_entropy": cross_entropy,
        "AdamW": adamw,
        "get_lr_cosine_schedule": schedule,
        "gradient_clipping": gradient_clipping,
        "get_batch": get_batch,
        "save_checkpoint and load_checkpoint": checkpoint,
    }
}
