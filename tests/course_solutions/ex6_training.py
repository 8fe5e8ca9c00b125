"""A solution of the exercises of chapter 6."""

import math
import os
from collections.abc import Callable, Iterable
from typing import IO, Any, BinaryIO

import numpy as np
import torch
from torch import Tensor, nn


def cross_entropy(inputs: Tensor, targets: Tensor) -> Tensor:
    shifted = inputs - inputs.amax(-1, keepdim=True)
    return (shifted.exp().sum(-1).log() - shifted.gather(-1, targets[..., None]).squeeze(-1)).mean()


class AdamW(torch.optim.Optimizer):
    def __init__(
        self,
        params: Iterable[nn.Parameter],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.01,
    ) -> None:
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                t = state["t"] = state.get("t", 0) + 1
                m = state["m"] = beta1 * state.get("m", 0.0) + (1 - beta1) * p.grad
                v = state["v"] = beta2 * state.get("v", 0.0) + (1 - beta2) * p.grad * p.grad
                corrected = v.sqrt() / math.sqrt(1 - beta2**t)
                p -= group["lr"] / (1 - beta1**t) * m / (corrected + group["eps"])
                p -= group["lr"] * group["weight_decay"] * p
        return None


def get_lr_cosine_schedule(
    it: int, max_learning_rate: float, min_learning_rate: float, warmup_iters: int, cosine_cycle_iters: int
) -> float:
    if it < warmup_iters:
        return it / warmup_iters * max_learning_rate
    if it > cosine_cycle_iters:
        return min_learning_rate
    done = (it - warmup_iters) / (cosine_cycle_iters - warmup_iters)
    return min_learning_rate + 0.5 * (1 + math.cos(math.pi * done)) * (max_learning_rate - min_learning_rate)


def gradient_clipping(parameters: Iterable[nn.Parameter], max_l2_norm: float) -> None:
    gradients = [p.grad for p in parameters if p.grad is not None]
    norm = math.sqrt(sum(float((g * g).sum()) for g in gradients))
    if norm > max_l2_norm:
        for g in gradients:
            g *= max_l2_norm / (norm + 1e-6)


def get_batch(dataset: np.ndarray, batch_size: int, context_length: int, device: str) -> tuple[Tensor, Tensor]:
    starts = torch.randint(len(dataset) - context_length, (batch_size,)).tolist()
    rows = np.stack([dataset[start : start + context_length + 1] for start in starts]).astype(np.int64)
    both = torch.from_numpy(rows).to(device)
    return both[:, :-1], both[:, 1:]


def save_checkpoint(
    model: nn.Module, optimizer: torch.optim.Optimizer, iteration: int, out: str | os.PathLike | BinaryIO | IO[bytes]
) -> None:
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), "iteration": iteration}, out)


def load_checkpoint(
    src: str | os.PathLike | BinaryIO | IO[bytes], model: nn.Module, optimizer: torch.optim.Optimizer
) -> Any:
    saved = torch.load(src)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    return saved["iteration"]
