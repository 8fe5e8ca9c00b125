"""Several processes that train one model, each on its part of every batch, started by torchrun.

    torchrun --nproc-per-node 2 -m lm train …

Each process reads the same data and takes its own rows; gradients are summed over them, so that a step is that of one process
with the whole batch, but for rounding. What must be done once (writing, printing, deciding) is done by rank 0.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

# The modules that shard are imported where they are used: they take longer to load than one process's first step.

Result = TypeVar("Result")


class Lost(RuntimeError):
    """Another process of the run has ended, and this one cannot go on without it."""


@dataclass(frozen=True)
class World:
    """The processes of a run: how many there are, and which of them this is."""

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))

    @property
    def first(self) -> bool:
        """Whether this process does what is done once."""
        return self.rank == 0

    def sum(self, *values: float) -> list[float]:
        """Each value, added up over the processes: the same on all of them."""
        if self.size == 1:
            return list(values)
        dtype = torch.float32 if self.device.type == "mps" else torch.float64
        tensor = torch.tensor(values, dtype=dtype, device=self.device)
        dist.all_reduce(tensor)
        return cast("list[float]", tensor.tolist())

    def once(self, what: Callable[[], Result]) -> Result:
        """What rank 0 makes of it, on every process; an exception of rank 0's too, so that none is left waiting."""
        if self.size == 1:
            return what()
        said: list[Any] = [None, None]
        if self.first:
            try:
                said = [what(), None]
            except Exception as error:
                error.__cause__ = error.__context__ = None  # what may not be sent, and says nothing to the others
                said = [None, error]
        dist.broadcast_object_list(said, src=0, device=self.device if self.device.type == "cuda" else None)
        if said[1] is not None:
            raise said[1]
        return cast(Result, said[0])

    def check(self, batch_size: int, micro_batch_size: int | None) -> None:
        """ValueError: a batch that the processes cannot share evenly, or a part of it that micro-batches do not fill."""
        if batch_size % self.size:
            raise ValueError(
                f"batch_size {batch_size} is for the whole run, and {self.size} processes cannot share it evenly: "
                f"make it a multiple of {self.size}"
            )
        own = batch_size // self.size
        if micro_batch_size is not None and own % micro_batch_size:
            raise ValueError(
                f"micro_batch_size {micro_batch_size} does not divide the {own} sequences of each of {self.size} processes: "
                f"choose a divisor"
            )


def launched() -> bool:
    """Whether torchrun, or what speaks as it does, started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ


def local_rank() -> int:
    """Which of this machine's processes this is."""
    return int(os.environ.get("LOCAL_RANK", "0")) if launched() else 0


@contextlib.contextmanager
def joined(device: torch.device) -> Iterator[World]:
    """The processes that torchrun started, or this one alone. Lost: one of them ended before its work was done."""
    if not launched():
        yield World(device=device)
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    own = not dist.is_initialized()
    if own:
        if device.type == "cuda":
            dist.init_process_group("nccl", device_id=device)  # or it guesses which, and says so at each barrier
        else:
            dist.init_process_group("gloo")
    world = World(dist.get_rank(), dist.get_world_size(), device)
    try:
        yield world
        if own:
            # None leaves while another still talks to it: the one that closes the connection first may leave the other waiting.
            with contextlib.suppress(RuntimeError):
                dist.barrier()
    except RuntimeError as error:
        if not broken(error):
            raise
        why = str(error).strip().splitlines()[0]
        raise Lost(
            f"process {world.rank} of {world.size} stops because another ended: look at what that one said; "
            f"the same command continues from the last checkpoint ({why[:160]})"
        ) from error
    finally:
        if own:
            # Gloo's thread frees the tensors of what it last did under Python's lock. Whoever frees the group joins that
            # thread, and holds the lock: it would wait forever for one that was not given the time.
            time.sleep(0.1)
            with contextlib.suppress(RuntimeError):
                dist.destroy_process_group()


def broken(error: BaseException) -> bool:
    """Whether an error is that of a connection to another process rather than this one's own."""
    if isinstance(error, dist.DistBackendError | dist.DistNetworkError):
        return True
    words = str(error).lower()
    return "gloo" in words or "nccl" in words or "connection closed by peer" in words or "connection reset" in words


def spread(learner: nn.Module, blocks: nn.ModuleList, world: World, parallel: str) -> nn.Module:
    """The module to call instead: its gradients are the mean over the processes, once its backward is through.

    "ddp" (Li et al. 2020, arXiv:2006.15704) keeps the whole of it everywhere; "fsdp" (Zhao et al. 2023, arXiv:2304.11277),
    here torch's fully_shard, a part of each weight, gathered block by block. The learner itself then is sharded in place.
    """
    if world.size == 1:
        return learner
    if parallel == "ddp":
        from torch.nn.parallel import DistributedDataParallel

        ids = [world.device] if world.device.type == "cuda" else None
        return DistributedDataParallel(learner, device_ids=ids, gradient_as_bucket_view=True)
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(world.device.type, (world.size,))
    for block in blocks:
        fully_shard(block, mesh=mesh)
    fully_shard(learner, mesh=mesh)
    return learner


@contextlib.contextmanager
def held_back(module: nn.Module, hold: bool) -> Iterator[None]:
    """Keeps gradients to this process while `hold`: the passes of a step but its last need not exchange them."""
    wrapped: Any = module
    if hold and hasattr(module, "no_sync"):  # ddp
        with wrapped.no_sync():
            yield
        return
    if hasattr(module, "set_requires_gradient_sync"):  # fsdp
        wrapped.set_requires_gradient_sync(not hold)
    yield


def whole(value: Any) -> Any:
    """A state_dict with every tensor in full, on the CPU where it was sharded. Each process must ask for the same one."""
    if sharded(value):
        return value.full_tensor().cpu()
    if isinstance(value, dict):
        return {key: whole(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [whole(inner) for inner in value]
    return value


def load_optimizer(optimizer: torch.optim.Optimizer, saved: dict[str, Any]) -> None:
    """optimizer.load_state_dict of a whole state, sharded as its parameters are."""
    from torch.distributed.tensor import distribute_tensor

    parameters: list[Any] = [p for group in optimizer.param_groups for p in group["params"]]
    state = {index: dict(values) for index, values in saved["state"].items()}
    for index, parameter in enumerate(parameters):
        if sharded(parameter):
            for key, value in state[index].items():
                if isinstance(value, Tensor) and value.shape == parameter.shape:
                    value = value.to(parameter.device)
                    state[index][key] = distribute_tensor(value, parameter.device_mesh, parameter.placements)
    optimizer.load_state_dict({**saved, "state": state})


def gathered(scalar: Tensor) -> Tensor:
    """A scalar that was computed from sharded tensors, as every process sees it."""
    return cast(Any, scalar).full_tensor() if sharded(scalar) else scalar


def sharded(value: object) -> bool:
    """Whether it is a DTensor."""
    return isinstance(value, Tensor) and hasattr(value, "full_tensor")
