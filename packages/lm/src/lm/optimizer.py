"""AdamW over two groups of parameters."""

from __future__ import annotations

import torch
from torch import nn


def adamw(
    model: nn.Module,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.95),
    eps: float = 1e-8,
    weight_decay: float = 0.1,
) -> torch.optim.AdamW:
    """torch's fused AdamW, with weight decay on matrices only: neither norms nor biases nor embeddings.

    (Loshchilov and Hutter 2017, arXiv:1711.05101) Decay pulls weights towards zero against a gradient that pulls them
    back; an embedding row gets a gradient only when its token occurs, and a norm rests at one, so both would only
    shrink. A head that is no embedding decays like any matrix.
    """
    embeddings = {id(p) for module in model.modules() if isinstance(module, nn.Embedding) for p in module.parameters()}
    trained = [p for p in model.parameters() if p.requires_grad]
    decayed = [p for p in trained if p.ndim >= 2 and id(p) not in embeddings]
    others = [p for p in trained if p.ndim < 2 or id(p) in embeddings]
    groups = [{"params": decayed, "weight_decay": weight_decay}, {"params": others, "weight_decay": 0.0}]
    return torch.optim.AdamW([g for g in groups if g["params"]], lr=lr, betas=betas, eps=eps, fused=True)
