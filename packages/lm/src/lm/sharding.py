"""One call for whole tensors and for those sharded over the processes of a run (torch's DTensor)."""

from __future__ import annotations

from typing import Any, cast

from torch import Tensor


def full_tensor(value: Tensor) -> Tensor:
    """A tensor that was computed from sharded ones, in full."""
    return cast(Any, value).full_tensor() if is_sharded(value) else value


def is_sharded(value: object) -> bool:
    """True for a DTensor."""
    return isinstance(value, Tensor) and hasattr(value, "full_tensor")


def own_memory(value: Tensor) -> Tensor:
    """The part of a tensor that lies in this process; the tensor itself if it is not sharded."""
    return cast(Any, value).to_local() if is_sharded(value) else value


def own_part(full: Tensor, like: Tensor) -> Tensor:
    """This process's part of a whole tensor, sharded as another is; the tensor itself if that is not."""
    if not is_sharded(like):
        return full
    from torch.distributed.tensor import distribute_tensor

    sharded: Any = like
    return distribute_tensor(full.to(like.device), sharded.device_mesh, sharded.placements, src_data_rank=None)
