"""Optimizers: AdamW for everything, or Muon (NorMuon) for the matrices of the blocks and AdamW for the rest.

Both take their parameters in groups, each with its weight decay and with `lr_ratio`, the share of the schedule's rate
that it learns at. AdamW written out for reading is lm.reference.AdamW; here it is torch's fused one.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lm.config import TrainConfig
from lm.device import full_tensor, is_sharded, multiplies_bfloat16, own_part
from lm.model import Attention, SwiGLU

AVERAGE = "average"  # of a weight, in its state, so that checkpoints keep it
MUON = "row_splits"  # the key that marks a group of matrices that Muon updates
# Of x ← a x + (b x xᵀ + c (x xᵀ)²) x, which brings singular values in (0, 1] to 0.7 … 1.2 in five steps.
NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)
NEWTON_SCHULZ_STEPS = 5
GATHERED = 4  # sharded matrices that stand whole in a process at a time
UPDATE_RMS = 0.2  # of Muon's updates: that of AdamW's, as measured by Liu et al. 2025


def adamw(
    model: nn.Module,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.95),
    eps: float = 1e-8,
    weight_decay: float = 0.1,
    *,
    embedding_lr: float | None = None,
    head_lr: float | None = None,
) -> torch.optim.AdamW:
    """torch's fused AdamW, with weight decay on matrices only: neither norms nor biases nor embeddings.

    (Loshchilov and Hutter 2017, arXiv:1711.05101) Decay pulls weights towards zero against a gradient that pulls them
    back; an embedding row gets a gradient only when its token occurs, and a norm rests at one, so both would only
    shrink. A head that is no embedding decays like any matrix.

    Args:
        model: Its parameters that require gradients are trained.
        lr: The learning rate.
        betas: How much of the first and of the second moment stays from one step to the next.
        eps: Added to the root of the second moment.
        weight_decay: The share of a matrix that a step at a rate of 1 takes away.
        embedding_lr: The rate of embeddings; None: lr.
        head_lr: The rate of an untied head; None: lr.
    """
    groups = parameter_groups(model, lr, weight_decay, embedding_lr, head_lr)
    return torch.optim.AdamW(groups, lr=lr, betas=betas, eps=eps, fused=True)


def make_optimizer(model: nn.Module, config: TrainConfig, share: tuple[int, int] = (0, 1)) -> torch.optim.Optimizer:
    """The optimizer of a configuration, at the first step's rate; share: rank and number of the processes."""
    settings: Any = model, config.learning_rate, (config.beta1, config.beta2), config.eps, config.weight_decay
    rates: dict[str, Any] = {"embedding_lr": config.embedding_learning_rate, "head_lr": config.head_learning_rate}
    if config.optimizer == "adamw":
        return adamw(*settings, **rates)
    normalize_rows = config.optimizer == "normuon"
    return Muon(*settings, **rates, momentum=config.momentum, normalize_rows=normalize_rows, share=share)


def parameter_groups(
    model: nn.Module,
    lr: float,
    weight_decay: float,
    embedding_lr: float | None = None,
    head_lr: float | None = None,
    apart: dict[int, tuple[int, ...]] | None = None,
) -> list[dict[str, Any]]:
    """The parameters that are trained, in groups of one weight decay and rate. apart: row_splits by id."""
    embeddings, head = embeddings_and_head(model)
    grouped: dict[tuple[Any, ...], list[nn.Parameter]] = {}
    for p in model.parameters():
        if not p.requires_grad:
            continue
        decays = p.ndim >= 2 and id(p) not in embeddings
        own_lr = embedding_lr if id(p) in embeddings else head_lr if id(p) in head else None
        ratio = 1.0 if own_lr is None else own_lr / lr
        grouped.setdefault((decays, ratio, (apart or {}).get(id(p))), []).append(p)
    groups = []
    for (decays, ratio, splits), parameters in sorted(grouped.items(), key=lambda item: not item[0][0]):
        group: dict[str, Any] = {"params": parameters, "lr": lr * ratio, "lr_ratio": ratio}
        group |= {"weight_decay": weight_decay if decays else 0.0} | ({} if splits is None else {MUON: splits})
        groups.append(group)
    return groups


def embeddings_and_head(model: nn.Module) -> tuple[set[int], set[int]]:
    """The ids of the parameters of embeddings, and of the head."""
    embeddings = {id(p) for module in model.modules() if isinstance(module, nn.Embedding) for p in module.parameters()}
    return embeddings, {id(p) for name, p in model.named_parameters() if name == "head.weight"}


def row_splits(model: nn.Module) -> dict[int, tuple[int, ...]]:
    """The matrices of the blocks by id, each with the rows of the matrices in it: q, k and v, or SwiGLU's halves."""
    outside = set[int]().union(*embeddings_and_head(model))
    matrices = (p for p in model.parameters() if p.ndim == 2 and id(p) not in outside)
    splits: dict[int, tuple[int, ...]] = {id(p): (p.shape[0],) for p in matrices}
    for module in model.modules():
        if isinstance(module, Attention):
            kv_rows = module.num_kv_heads * module.head_dim
            splits[id(module.qkv.weight)] = (module.num_heads * module.head_dim, kv_rows, kv_rows)
        elif isinstance(module, SwiGLU):
            splits[id(module.gate_up.weight)] = (module.gate_up.out_features // 2,) * 2
    return splits


class Muon(torch.optim.AdamW):
    """Momentum whose every matrix is made orthogonal before it is subtracted; AdamW for all but the blocks' matrices.

    (Jordan et al. 2024, kellerjordan.github.io/posts/muon) Of the Nesterov momentum's singular value decomposition
    U S Vᵀ the step is along U Vᵀ, so that every direction of a matrix learns at one rate. An update is scaled to a
    root mean square of 0.2, which is AdamW's, and weights decay apart from it (Liu et al. 2025, arXiv:2502.16982).
    NorMuon (Li et al. 2025, arXiv:2510.05491) divides each row of U Vᵀ by the root of its mean square, averaged over
    the steps, before the scaling: neurons then learn at one rate too.

    Sharded weights are gathered a few at a time. Of several processes with the same gradients each makes a share of the
    matrices orthogonal, and they exchange the results.

    Args:
        model, lr, eps, weight_decay, embedding_lr, head_lr: See adamw. The matrices of the blocks are Muon's; those
            that are stored together, as q, k and v (see row_splits), are made orthogonal each alone.
        betas: AdamW's; the second is that of NorMuon's mean squares too.
        momentum: How much of the momentum stays from one step to the next.
        normalize_rows: NorMuon rather than Muon.
        share: Rank and number of the processes of torch.distributed that have the same gradients and share the work.
    """

    def __init__(
        self,
        model: nn.Module,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.95),
        eps: float = 1e-8,
        weight_decay: float = 0.1,
        *,
        momentum: float = 0.95,
        normalize_rows: bool = False,
        embedding_lr: float | None = None,
        head_lr: float | None = None,
        share: tuple[int, int] = (0, 1),
    ) -> None:
        groups = parameter_groups(model, lr, weight_decay, embedding_lr, head_lr, apart=row_splits(model))
        self.share, self.momentum, self.normalize_rows = share, momentum, normalize_rows
        super().__init__(groups, lr, betas, eps, weight_decay=0.0, fused=True)

    def __setstate__(self, state: dict[str, Any]) -> None:
        torch.optim.Optimizer.__setstate__(self, state)  # AdamW's expects a step of every parameter

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step of every parameter that has a gradient."""
        loss, groups = None, self.param_groups
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in groups:
            if MUON in group:
                self.muon_step(group, [p for p in group["params"] if p.grad is not None])
        self.param_groups = [group for group in groups if MUON not in group]
        try:
            super().step()
        finally:
            self.param_groups = groups
        return loss

    def muon_step(self, group: dict[str, Any], parameters: list[Tensor]) -> None:
        """W ← (1 - lr · decay) W - lr · update, for matrices that are split alike."""
        lr, momentum = group["lr"], self.momentum
        by_shape: dict[torch.Size, list[Tensor]] = {}
        for p in parameters:
            by_shape.setdefault(p.shape, []).append(p)
        # Matrices of one shape share each product. Of sharded ones only a few at a time are whole in each process.
        stacks = list[list[Tensor]]()
        for same in by_shape.values():
            size = max(GATHERED, self.share[1]) if is_sharded(same[0]) else len(same)
            stacks += [same[i : i + size] for i in range(0, len(same), size)]
        for alike in stacks:
            directions = []
            for p in alike:
                assert p.grad is not None
                state = self.state[p]
                if not state:
                    state["momentum"] = torch.zeros_like(p)
                state["momentum"].lerp_(p.grad, 1 - momentum)
                directions.append(full_tensor(p.grad.lerp(state["momentum"], momentum)))
            updates = self.updates(group, alike, torch.stack(directions))  # (matrices, rows, columns)
            for p, update in zip(alike, updates, strict=True):
                p.mul_(1 - lr * group["weight_decay"]).add_(own_part(update, p), alpha=-lr)

    def updates(self, group: dict[str, Any], parameters: list[Tensor], directions: Tensor) -> Tensor:
        """Updates at a learning rate of 1: directions (matrices, rows, columns) → the same shape."""
        parts = [self.orthogonalize(part) for part in directions.split_with_sizes(group[MUON], dim=1)]
        if not self.normalize_rows:
            return torch.cat([part * (UPDATE_RMS * math.sqrt(max(part.shape[1:]))) for part in parts], dim=1)
        mean_squares = torch.cat([part.square().mean(dim=2, keepdim=True) for part in parts], dim=1)
        averages = []
        for p, now in zip(parameters, mean_squares, strict=True):
            if "row_mean_square" not in (state := self.state[p]):
                state["row_mean_square"] = torch.zeros_like(now)
            averages.append(state["row_mean_square"].lerp_(now, 1 - group["betas"][1]))
        scales = torch.stack(averages).sqrt().add_(1e-10).split_with_sizes(group[MUON], dim=1)
        updates = []
        for part, scale in zip(parts, scales, strict=True):
            normal = part / scale
            # The norm is 0 where momentum and gradient are: of LoRA's A at first, or of experts without tokens.
            norm = normal.norm(dim=(1, 2), keepdim=True).clamp_min(1e-10)
            updates.append(normal * (UPDATE_RMS * math.sqrt(normal[0].numel()) / norm))
        return torch.cat(updates, dim=1)

    def orthogonalize(self, matrices: Tensor) -> Tensor:
        """orthogonalize() of (matrices, rows, columns); each process computes a share of the matrices."""
        rank, size = self.share
        if size == 1:
            return orthogonalize(matrices)
        count = -(-len(matrices) // size)
        own = matrices[rank * count : (rank + 1) * count]
        results = matrices.new_zeros((size * count, *matrices.shape[1:]))
        mine = results[rank * count : (rank + 1) * count]
        if len(own):
            mine[: len(own)] = orthogonalize(own)
        dist.all_gather(list(results.chunk(size)), mine.clone())
        return results[: len(matrices)]


def orthogonalize(matrices: Tensor) -> Tensor:
    """About U Vᵀ of each matrix U S Vᵀ, by Newton–Schulz: (…, rows, columns) → the same, in float32 at least."""
    a, b, c = NEWTON_SCHULZ
    wide = matrices.dtype if matrices.dtype == torch.float64 else torch.float32
    narrow = wide == torch.float32 and multiplies_bfloat16(matrices.device)
    x = matrices.reshape(-1, *matrices.shape[-2:]).to(torch.bfloat16 if narrow else wide)
    is_tall = matrices.shape[-2] > matrices.shape[-1]
    x = x.mT if is_tall else x  # the Gram matrix is then the smaller one
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(NEWTON_SCHULZ_STEPS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return (x.mT if is_tall else x).to(wide).reshape(matrices.shape)


@torch.no_grad()
def average_weights(optimizer: torch.optim.Optimizer, ema: float, step: int) -> None:
    """average ← d average + (1 - d) weights; d is ema, and at most (1 + step) / (10 + step) in the first steps."""
    decay = min(ema, (1 + step) / (10 + step))
    for weight, state in optimizer.state.items():
        state.setdefault(AVERAGE, weight.detach().clone()).lerp_(weight.detach(), 1 - decay)


@contextlib.contextmanager
def averaged(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Put the average in the place of the weights, if there is one, and the weights back."""
    both = [(weight.detach(), state[AVERAGE]) for weight, state in optimizer.state.items() if AVERAGE in state]

    def swap() -> None:
        for weight, average in both:
            before = weight.clone()
            weight.copy_(average)
            average.copy_(before)

    swap()
    try:
        yield
    finally:
        swap()
