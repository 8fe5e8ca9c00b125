"""Several processes that train one model, each on its part of every batch, started by torchrun.

    torchrun --nproc-per-node 2 -m lm train …

Each process reads the same data and takes its own rows; gradients are summed over them, so that a step is that of one
process with the whole batch, but for rounding. What must be done once (writing, printing, deciding) is done by process
0.
"""

from __future__ import annotations

import contextlib
import os
import platform
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar, cast

import torch
import torch.distributed as dist
from torch import nn

from lm.config import TrainConfig
from lm.device import AUTOCAST

# The modules that shard are imported where they are used: they take longer to load than one process's first step.

Result = TypeVar("Result")

# Every group that was made here, so that each lives as long as this process. A module of DistributedDataParallel that
# is freed as the last owner of a gloo group waits, while it holds the GIL, for a thread that may be waiting for it.
_own_groups: list[Any] = []


class Lost(RuntimeError):
    """Another process of the run has ended, or is silent, and this one cannot go on without it."""


class ProcessesDiffer(ValueError):
    """The processes of a run were not given the same."""


@dataclass(frozen=True)
class DistributedContext:
    """The processes of a run: how many there are, and which of them this is."""

    rank: int = 0
    size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    keepers: tuple[int, ...] = (0,)  # that write a run's folder: one for each that there is (see folders.py)

    @property
    def is_main(self) -> bool:
        """Whether this process does what is done once."""
        return self.rank == 0

    @property
    def is_keeper(self) -> bool:
        """Whether this process does what is done once for each folder of the run."""
        return self.rank in self.keepers

    def sum(self, *values: float) -> list[float]:
        """Each value, added up over the processes: the same on all of them."""
        if self.size == 1:
            return list(values)
        dtype = torch.float32 if self.device.type == "mps" else torch.float64
        tensor = torch.tensor(values, dtype=dtype, device=self.device)
        dist.all_reduce(tensor)
        return cast("list[float]", tensor.tolist())

    def on_main(self, function: Callable[[], Result]) -> Result:
        """What function gives in process 0, in every process; its exception too, so that none is left waiting."""
        return self.on_rank(0, function)

    def on_rank(self, rank: int, function: Callable[[], Result]) -> Result:
        """As on_main, in another process."""
        if self.size == 1:
            return function()
        sent: list[Any] = [None, None]
        if self.rank == rank:
            try:
                sent = [function(), None]
            except Exception as error:
                error.__cause__ = error.__context__ = None  # what may not be sent, and says nothing to the others
                sent = [None, error]
        dist.broadcast_object_list(sent, src=rank, device=self.device if self.device.type == "cuda" else None)
        if sent[1] is not None:
            raise sent[1]
        return cast(Result, sent[0])

    def on_keepers(self, function: Callable[[], object]) -> None:
        """Runs function in each keeper; the exception of the first that failed is raised in every process."""
        if len(self.keepers) == 1:
            self.on_main(function)
            return
        failed: Exception | None = None
        if self.is_keeper:
            try:
                function()
            except Exception as error:
                error.__cause__ = error.__context__ = None
                failed = error
        for _, problem in self.gather(failed):
            if problem is not None:
                raise problem

    def on_all(self, function: Callable[[], Result]) -> Result:
        """What function gives in this process, once it has ended in all of them.

        Raises:
            Exception: The function's own, in the process where it failed.
            ProcessesDiffer: In the others; with the first process that failed, its host, and its error.
        """
        if self.size == 1:
            return function()
        result, failed = None, None
        try:
            result = function()
        except Exception as error:
            failed = error
        said = self.gather(None if failed is None else f"{type(failed).__name__}: {failed}")
        if failed is not None:
            raise failed
        for rank, (host, words) in enumerate(said):
            if words is not None:
                raise ProcessesDiffer(f"process {rank} on {host} cannot begin: {words}")
        return cast(Result, result)

    def gather(self, value: Any) -> list[tuple[str, Any]]:
        """Each process's host and value, by its rank."""
        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, (platform.node(), value))
        return found

    def agree(self, facts: Mapping[str, Any]) -> None:
        """Compares what every process knows by these names.

        Raises:
            ProcessesDiffer: In every process, with the first name whose value is not that of process 0.
        """
        if self.size == 1:
            return
        (host, main), *others = self.gather(dict(facts))
        for rank, (other_host, other) in enumerate(others, 1):
            for name in sorted(main.keys() | other.keys()):
                if main.get(name) != other.get(name):
                    raise ProcessesDiffer(
                        f"process {rank} on {other_host} has {name} {other.get(name)!r}, and process 0 on {host} has "
                        f"{main.get(name)!r}: give all processes of a run the same"
                    )

    def another_group(self, timeout: float) -> Any:
        """A group of the same processes over gloo, for a thread's own collectives. All processes call it."""
        group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout))
        _own_groups.append(group)
        return group

    def barrier(self) -> None:
        """Waits until every process is here."""
        if self.size > 1:
            self.sum(0.0)

    def micro_batches(self, config: TrainConfig) -> int:
        """How many micro-batches this process has in a step.

        Raises:
            ValueError: The processes cannot share a batch evenly, or micro-batches do not fill the part of one.
        """
        if config.batch_size % self.size:
            raise ValueError(
                f"batch_size {config.batch_size} is for the whole run, and {self.size} processes cannot share it "
                f"evenly: make it a multiple of {self.size}"
            )
        own = config.batch_size // self.size
        micro = config.micro_batch_size or own
        if own % micro:
            raise ValueError(
                f"micro_batch_size {micro} does not divide the {own} sequences of each of {self.size} processes: "
                f"choose a divisor"
            )
        return own // micro

    def shards(self, config: TrainConfig) -> bool:
        """Whether each process has a part of the weights only."""
        return self.size > 1 and config.parallel == "fsdp"

    def parallelize(self, module: nn.Module, blocks: nn.ModuleList, config: TrainConfig) -> nn.Module:
        """The module to call instead, whose gradients are the mean over the processes once its backward pass is
        through.

        "ddp" (Li et al. 2020, arXiv:2006.15704) keeps the whole of it everywhere. "fsdp" (Zhao et al. 2023,
        arXiv:2304.11277), torch's fully_shard, keeps a part of each weight in each process and gathers them block by
        block, in the precision of the products; gradients are summed in fp32. The module itself is then sharded in
        place.
        """
        if self.size == 1:
            return module
        if not self.shards(config):
            from torch.nn.parallel import DistributedDataParallel

            ids = [self.device] if self.device.type == "cuda" else None
            return DistributedDataParallel(module, device_ids=ids, gradient_as_bucket_view=True)
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        mesh = init_device_mesh(self.device.type, (self.size,))
        precision = AUTOCAST.get(config.precision)
        policy = MixedPrecisionPolicy(param_dtype=precision, reduce_dtype=None if precision is None else torch.float32)
        for block in blocks:
            fully_shard(block, mesh=mesh, mp_policy=policy)
        fully_shard(module, mesh=mesh, mp_policy=policy)
        return module

    @contextlib.contextmanager
    def gradient_sync(self, module: nn.Module, sync: bool) -> Iterator[None]:
        """Exchanges gradients in the backward passes within, or not: those of a step but the last need not."""
        wrapped: Any = module
        if not sync and hasattr(module, "no_sync"):  # ddp
            with wrapped.no_sync():
                yield
            return
        if hasattr(module, "set_requires_gradient_sync"):  # fsdp
            wrapped.set_requires_gradient_sync(sync)
        yield


def launched() -> bool:
    """Whether torchrun, or what speaks as it does, started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ


def local_rank() -> int:
    """Which of this machine's processes this is."""
    return int(os.environ.get("LOCAL_RANK", "0")) if launched() else 0


@contextlib.contextmanager
def join(device: torch.device, timeout: float) -> Iterator[DistributedContext]:
    """The processes that torchrun started, or this one alone.

    Args:
        device: This process's.
        timeout: Seconds after which a process that does not answer counts as lost.

    Raises:
        Lost: One of them ended before its work was done, or did not answer in time.
    """
    if not launched():
        yield DistributedContext(device=device)
        return
    if device.type == "cuda":
        torch.cuda.set_device(device)
    own = not dist.is_initialized()
    if own:
        patience = timedelta(seconds=timeout)
        if device.type == "cuda":
            # or it guesses which device, and says so at each barrier
            dist.init_process_group("nccl", device_id=device, timeout=patience)
        else:
            dist.init_process_group("gloo", timeout=patience)
        _own_groups.append(dist.group.WORLD)
    context = DistributedContext(dist.get_rank(), dist.get_world_size(), device)
    try:
        yield context
        if own:
            # None leaves while another still talks to it: the one that closes the connection first may leave the other
            # waiting.
            with contextlib.suppress(RuntimeError):
                dist.barrier()
    except RuntimeError as error:
        if not broken(error):
            raise
        why = str(error).strip().splitlines()[0]
        silent = "timed out" in str(error).lower() or "timeout" in str(error).lower()
        other = f"did not answer within {timeout:g} s (train.collective_timeout)" if silent else "ended"
        raise Lost(
            f"process {context.rank} of {context.size} stops because another {other}: look at what that one said; "
            f"the same command continues from the last checkpoint ({why[:160]})"
        ) from error
    finally:
        if own:
            with contextlib.suppress(RuntimeError):
                dist.destroy_process_group()


def broken(error: BaseException) -> bool:
    """Whether an error is that of a connection to another process rather than this one's own."""
    if isinstance(error, dist.DistBackendError | dist.DistNetworkError):
        return True
    words = str(error).lower()
    return "gloo" in words or "nccl" in words or "connection closed by peer" in words or "connection reset" in words
