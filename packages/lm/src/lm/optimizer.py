"""AdamW over two groups of parameters, the learning rate of each step, and clipping by the global norm."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from lm.training.distributed import gathered


def adamw(
    model: nn.Module,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.95),
    eps: float = 1e-8,
    weight_decay: float = 0.1,
) -> torch.optim.AdamW:
    """torch's fused AdamW, with weight decay on matrices only: neither norms nor biases nor embeddings.

    (Loshchilov and Hutter 2017, arXiv:1711.05101) Decay pulls weights towards zero against a gradient that pulls them back;
    an embedding row gets a gradient only when its token occurs, and a norm rests at one, so both would only shrink.
    A head that is no embedding decays like any matrix.
    """
    embeddings = {id(p) for module in model.modules() if isinstance(module, nn.Embedding) for p in module.parameters()}
    trained = [p for p in model.parameters() if p.requires_grad]
    decayed = [p for p in trained if p.ndim >= 2 and id(p) not in embeddings]
    others = [p for p in trained if p.ndim < 2 or id(p) in embeddings]
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=lr, betas=betas, eps=eps, fused=True)


def clip_gradients(parameters: Iterable[nn.Parameter], max_norm: float) -> Tensor:
    """Scales all gradients, in place, so that their joint L2 norm is at most max_norm (0: no limit); gives the norm before.

    The norm is a scalar tensor and may be infinite or NaN: the caller decides. Nothing is scaled up.
    """
    norm = gradient_norm(gradients := [p.grad for p in parameters if p.grad is not None])
    if max_norm > 0:
        torch._foreach_mul_(gradients, (max_norm / (norm + 1e-6)).clamp(max=1.0))
    return norm


def gradient_norm(gradients: list[Tensor]) -> Tensor:
    """The L2 norm of all of them together: a scalar tensor."""
    if not gradients:
        return torch.zeros(())
    total: Tensor = gathered(torch.linalg.vector_norm(torch.stack(torch._foreach_norm(gradients))))
    return total
