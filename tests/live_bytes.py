"""Bytes of the tensors alive on this machine: what a GPU's allocator would be asked for, seen without a GPU."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint


class Live(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Bytes of all storages that operations made and that are still alive, and the most there ever were.

    block: what each storage is rounded up to a multiple of, 512 on CUDA. known: tensors from before.
    """

    def __init__(self, block: int = 1, known: Iterable[torch.Tensor] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.block = block
        self.now = self.most = 0
        self.known: set[int] = set()
        for tensor in known:
            self.add(tensor)

    def add(self, tensor: torch.Tensor) -> None:
        storage = tensor.untyped_storage()
        key, size = storage._cdata, -(-storage.nbytes() // self.block) * self.block
        if key not in self.known:
            self.known.add(key)
            self.now += size
            self.made(key, size)
            weakref.finalize(storage, self.gone, key, size)

    def made(self, key: int, size: int) -> None:
        """A storage was allocated; for those that want the order of events."""

    def gone(self, key: int, size: int) -> None:
        self.known.discard(key)
        self.now -= size

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), keywords: Any = None) -> Any:
        result = function(*arguments, **(keywords or {}))
        for leaf in tree_leaves(result):
            if isinstance(leaf, torch.Tensor):
                self.add(leaf)
        self.most = max(self.most, self.now)
        return result


def recomputed(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, of which nothing but its arguments is kept for the backward pass."""

    def again(*arguments: Any, **keywords: Any) -> Any:
        return checkpoint(function, *arguments, use_reentrant=False, preserve_rng_state=False, **keywords)

    return again


def kept_by_autograd(forward: Callable[[], Any], parameters: Iterable[torch.Tensor]) -> int:
    """Bytes of the storages that autograd keeps of a forward pass, the parameters' not among them."""
    known = {parameter.untyped_storage().data_ptr() for parameter in parameters}
    kept: dict[int, int] = {}
    alive = []  # a storage that was freed could lend its address to the next

    def pack(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in known:
            kept[storage.data_ptr()] = storage.nbytes()
        alive.append(tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        forward()
    return sum(kept.values())
