"""Several processes, started by torchrun, whose step is that of one with the whole batch, but for rounding."""

from __future__ import annotations

import contextlib
import dataclasses
import platform
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import Tensor, nn

from lm.config import TrainConfig
from lm.device import AUTOCAST, Processes, Result, stacked
from lm.training.checkpoint import CHECKPOINTS
from lm.training.run import CONFIG, Run

# The modules that shard are imported where they are used: they take longer to load than one process's first step.

# Every group that was made here, so that each lives as long as this process. A module of DistributedDataParallel that
# is freed as the last owner of a gloo group waits, while it holds the GIL, for a thread that may be waiting for it.
own_groups: list[Any] = []


class Lost(RuntimeError):
    """Another process of the run has ended, or is silent, and this one cannot go on without it."""


class ProcessesDiffer(ValueError):
    """The processes of a run were not given the same, or one of them failed where it alone can."""


@dataclass(frozen=True)
class DistributedContext(Processes):
    """Several processes of a run, started by torchrun, each with one device."""

    def sum(self, *values: float | Tensor) -> list[float]:
        tensor = stacked(values, self.device)
        dist.all_reduce(tensor)
        return cast("list[float]", tensor.tolist())

    def on_main(self, function: Callable[[], Result]) -> Result:
        sent: list[Any] = [None, None]  # result, exception
        if self.is_main:
            try:
                sent = [function(), None]
            except Exception as error:
                error.__cause__ = error.__context__ = None  # which may not be picklable
                sent = [None, error]
        dist.broadcast_object_list(sent, src=0, device=self.device if self.device.type == "cuda" else None)
        if sent[1] is not None:
            raise sent[1]
        return cast(Result, sent[0])

    def on_all(
        self, function: Callable[[], Result], facts: Callable[[Result], Mapping[str, Any]] = lambda result: {}
    ) -> Result:
        result, failed, own = None, None, dict[str, Any]()
        try:
            result = function()
            own = dict(facts(result))
        except Exception as error:
            failed = error
        ends: list[Any] = [None] * self.size  # of each process: its host, its error, and its facts
        message = None if failed is None else f"{type(failed).__name__}: {failed}"
        dist.all_gather_object(ends, (platform.node(), message, own))
        if failed is not None:
            raise failed
        main_host, _, main = ends[0]
        for rank, (host, message, _) in enumerate(ends):
            if message is not None:
                raise ProcessesDiffer(f"process {rank} on {host} failed: {message}")
        for rank, (host, _, other) in enumerate(ends):
            for name in sorted(main.keys() | other.keys()):
                if main.get(name) != other.get(name):
                    own_value = f"process {rank} on {host} has {name} {other.get(name)!r}"
                    expected = f"process 0 on {main_host} has {main.get(name)!r}"
                    raise ProcessesDiffer(f"{own_value}, and {expected}: give all processes of a run the same")
        return cast(Result, result)

    def parallelize(self, module: nn.Module, blocks: nn.ModuleList, config: TrainConfig) -> nn.Module:
        """By DDP (Li et al. 2020, arXiv:2006.15704) or FSDP (Zhao et al. 2023, arXiv:2304.11277), in place."""
        if config.parallel == "ddp":
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
def join(device: torch.device, timeout: float) -> Iterator[DistributedContext]:
    """The processes that torchrun started. Lost: one of them ended, or did not answer within timeout seconds."""
    if device.type == "cuda":
        torch.cuda.set_device(device)
    own, context = not dist.is_initialized(), None
    try:
        if own:
            # Without its device NCCL guesses which it is, and says so at each barrier.
            kind, index = ("nccl", device) if device.type == "cuda" else ("gloo", None)
            dist.init_process_group(kind, device_id=index, timeout=timedelta(seconds=timeout))
            own_groups.append(dist.group.WORLD)
            dist.barrier()  # none leaves, whatever it refuses, while another still connects to it
        yield (context := DistributedContext(dist.get_rank(), dist.get_world_size(), device))
        if own:
            # The one that closes the connection first may leave another waiting that still talks to it.
            with contextlib.suppress(RuntimeError):
                dist.barrier()
    except RuntimeError as error:
        if not broken(error):
            raise
        why = str(error).strip().splitlines()[0]
        silent = "timed out" in str(error).lower() or "timeout" in str(error).lower()
        other = f"did not answer within {timeout:g} s (train.collective_timeout)" if silent else "ended"
        if context is None:
            raise Lost(f"this process cannot join the others of the run: {why[:160]}") from error
        here = f"process {context.rank} of {context.size} stops because another {other}: look at what that one said"
        raise Lost(f"{here}; the same command continues from the last checkpoint ({why[:160]})") from error
    finally:
        if own and dist.is_initialized():
            with contextlib.suppress(RuntimeError):
                dist.destroy_process_group()


SHARED_WITHIN = 30.0  # seconds until all processes see a file that one of them wrote: a network's disk takes some


def wait_until_visible(run: Run, folder: Path, processes: DistributedContext) -> Run:
    """Wait until every process sees the run's configuration and checkpoint in its folder, as process 0 wrote them."""
    text = processes.on_main(lambda: (folder / CONFIG).read_text())
    saved = run.saved
    if saved is not None:
        saved = dataclasses.replace(saved, path=folder / CHECKPOINTS / saved.path.name)

    def see() -> Run:
        deadline = time.monotonic() + SHARED_WITHIN
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError, ValueError):
                if (folder / CONFIG).read_text() == text and (saved is None or saved.path.is_dir()):
                    return dataclasses.replace(run, folder=folder, saved=saved)
            time.sleep(0.2)
        raise ValueError(f"{folder} does not hold {CONFIG} as process 0 sees it: use a disk that all share")

    return processes.on_all(see)


def broken(error: BaseException) -> bool:
    """True if an error is of a connection to another process rather than this one's own."""
    signs = ("gloo", "nccl", "connection closed by peer", "connection reset", "pair closure")  # the last is Gloo's too
    is_network = isinstance(error, dist.DistBackendError | dist.DistNetworkError)
    return is_network or any(sign in str(error).lower() for sign in signs)
