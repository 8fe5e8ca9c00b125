"""A solution of the exercises of chapter 9."""

import math
from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


def all_reduce_bytes(size: int, devices: int) -> float:
    return 2 * size * (devices - 1) / devices


def step_bytes(parameters: int, devices: int, kind: str) -> float:
    size = 4 * parameters
    if kind != "ddp":
        return 3 * size * (devices - 1) / devices
    return all_reduce_bytes(size, devices)


def average_gradients(module: nn.Module) -> None:
    for p in module.parameters():
        if p.grad is not None:
            dist.all_reduce(p.grad)
            p.grad /= dist.get_world_size()


def average_gradients_flat(module: nn.Module) -> None:
    gradients = [p.grad for p in module.parameters() if p.grad is not None]
    flat = torch.cat([g.flatten() for g in gradients])
    dist.all_reduce(flat)
    flat /= dist.get_world_size()
    for g, mean in zip(gradients, flat.split([g.numel() for g in gradients]), strict=True):
        g.copy_(mean.view_as(g))


def same_weights(module: nn.Module) -> None:
    for p in module.parameters():
        dist.broadcast(p.data, src=0)


class DDP(nn.Module):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module
        self.messages: list[tuple[nn.Parameter, Any]] = []
        same_weights(module)
        for p in module.parameters():
            if p.requires_grad:
                p.register_post_accumulate_grad_hook(self.send)

    def send(self, p: Any) -> None:
        self.messages.append((p, dist.all_reduce(p.grad, async_op=True)))

    def forward(self, *arguments: Any) -> Any:
        return self.module(*arguments)

    def finish_gradient_synchronization(self) -> None:
        for p, message in self.messages:
            message.wait()
            p.grad /= dist.get_world_size()
        self.messages.clear()


class ShardedOptimizer(torch.optim.Optimizer):
    def __init__(self, params: Iterable[nn.Parameter], optimizer_cls: Callable[..., Any], **settings: Any) -> None:
        super().__init__(params, settings)
        self.owner: dict[nn.Parameter, int] = {}
        elements = [0] * dist.get_world_size()
        for p in sorted(self.param_groups[0]["params"], key=lambda p: -p.numel()):
            self.owner[p] = elements.index(min(elements))
            elements[self.owner[p]] += p.numel()
        own = [p for p, owner in self.owner.items() if owner == dist.get_rank()]
        self.inner = optimizer_cls(own, **settings)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        group = self.param_groups[0]
        self.inner.param_groups[0].update({name: value for name, value in group.items() if name != "params"})
        self.inner.step()
        for p, owner in self.owner.items():
            dist.broadcast(p.data, src=owner)


class Gather(torch.autograd.Function):
    """A shard becomes the whole, and the gradient of the whole the mean gradient of the shard."""

    @staticmethod
    def forward(ctx: Any, shard: Tensor, dtype: torch.dtype) -> Tensor:
        ctx.dtype = shard.dtype
        whole = shard.new_empty(dist.get_world_size() * shard.numel(), dtype=dtype)
        dist.all_gather_into_tensor(whole, shard.detach().to(dtype))
        return whole

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        size = dist.get_world_size()
        own = gradient.new_empty(gradient.numel() // size)
        dist.reduce_scatter_tensor(own, gradient.contiguous())
        return own.to(ctx.dtype) / size, None


class FSDP(nn.Module):
    def __init__(self, module: nn.Module, compute_dtype: torch.dtype | None = None) -> None:
        super().__init__()
        same_weights(module)
        self.compute_dtype = compute_dtype
        size, rank = dist.get_world_size(), dist.get_rank()
        self.shapes: dict[str, torch.Size] = {}
        for name, part in module.named_modules():
            if not isinstance(part, (nn.Linear, nn.Embedding)):
                continue
            weight = part.weight.data
            each = math.ceil(weight.numel() / size)
            padded = weight.new_zeros(size * each)
            padded[: weight.numel()] = weight.flatten()
            del part.weight
            part.register_parameter("shard", nn.Parameter(padded[rank * each : (rank + 1) * each].clone()))
            self.shapes[f"{name}.shard"] = weight.shape
            part.register_forward_pre_hook(lambda part, inputs, shape=weight.shape: self.gather(part, inputs, shape))
            part.register_forward_hook(lambda part, *_: delattr(part, "weight"))
        self.module = module

    def gather(self, part: Any, inputs: tuple[Tensor], shape: torch.Size) -> tuple[Tensor]:
        dtype = self.compute_dtype or part.shard.dtype
        part.weight = Gather.apply(part.shard, dtype)[: shape.numel()].view(shape)
        return inputs if isinstance(part, nn.Embedding) else (inputs[0].to(dtype),)

    def forward(self, *arguments: Any) -> Any:
        return self.module(*arguments)

    def finish_gradient_synchronization(self) -> None:
        for name, p in self.module.named_parameters():
            if name not in self.shapes and p.grad is not None:
                dist.all_reduce(p.grad)
                p.grad /= dist.get_world_size()

    def gather_full_params(self) -> dict[str, Tensor]:
        full = {}
        for name, p in self.module.named_parameters():
            if name in self.shapes:
                shape = self.shapes[name]
                full[name.removesuffix("shard") + "weight"] = Gather.apply(p.data, p.dtype)[: shape.numel()].view(shape)
            else:
                full[name] = p.data
        return full


class FlashAttention(torch.autograd.Function):
    TILE = 16

    @staticmethod
    def scores(Q: Tensor, K: Tensor, start: int, is_causal: bool) -> Tensor:
        """Of all queries and the keys from start on."""
        keys = K[:, start : start + FlashAttention.TILE]
        S = Q @ keys.transpose(1, 2) / math.sqrt(Q.shape[-1])  # (batch, queries, TILE)
        if is_causal:
            query, key = torch.arange(Q.shape[1])[:, None], start + torch.arange(keys.shape[1])
            S = S.masked_fill(key > query, -math.inf)
        return S

    @staticmethod
    def forward(ctx: Any, Q: Tensor, K: Tensor, V: Tensor, is_causal: bool = False) -> Tensor:
        m = torch.full(Q.shape[:2], -math.inf)
        l = torch.zeros(Q.shape[:2])  # noqa: E741 (the paper's name)
        O = torch.zeros(*Q.shape[:2], V.shape[-1])  # noqa: E741
        for start in range(0, K.shape[1], FlashAttention.TILE):
            S = FlashAttention.scores(Q, K, start, is_causal)
            higher = torch.maximum(m, S.amax(-1))
            P = (S - higher[..., None]).exp()
            shrink = (m - higher).exp()
            l = l * shrink + P.sum(-1)  # noqa: E741
            O = O * shrink[..., None] + P @ V[:, start : start + FlashAttention.TILE]  # noqa: E741
            m = higher
        O = O / l[..., None]  # noqa: E741
        ctx.save_for_backward(Q, K, V, O, m + l.log())
        ctx.is_causal = is_causal
        return O

    @staticmethod
    def backward(ctx: Any, dO: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:  # type: ignore[override]
        Q, K, V, O, L = ctx.saved_tensors  # noqa: E741
        D = (dO * O).sum(-1, keepdim=True)
        scale = 1 / math.sqrt(Q.shape[-1])
        dQ, dK, dV = torch.zeros_like(Q), torch.zeros_like(K), torch.zeros_like(V)
        for start in range(0, K.shape[1], FlashAttention.TILE):
            tile = slice(start, start + FlashAttention.TILE)
            P = (FlashAttention.scores(Q, K, start, ctx.is_causal) - L[..., None]).exp()
            dV[:, tile] = P.transpose(1, 2) @ dO
            dS = P * (dO @ V[:, tile].transpose(1, 2) - D)
            dQ += dS @ K[:, tile] * scale
            dK[:, tile] = dS.transpose(1, 2) @ Q * scale
        return dQ, dK, dV, None


def best_segment(layers: int, boundary: int, inside: int) -> int:
    return min(range(1, layers + 1), key=lambda size: math.ceil(layers / size) * boundary + size * inside)


def run_blocks(blocks: list[nn.Module], x: Tensor, size: int) -> Tensor:
    for start in range(0, len(blocks), size):
        x = checkpoint(nn.Sequential(*blocks[start : start + size]), x, use_reentrant=False)
    return x
