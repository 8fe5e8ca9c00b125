"""The machine under a run: its device, its processes, its number formats, its threads and its memory."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import platform
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from lm import __version__
from lm.config import Precision, TrainConfig

if TYPE_CHECKING:
    from accounting.hardware.devices import Device

Result = TypeVar("Result")
CPU = torch.device("cpu")
# Files with the memory limit of a control group, of version 2 and of version 1.
GROUP_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
CPUINFO = Path("/proc/cpuinfo")
CACHE_LINE = 64  # bytes
AUTOCAST = {"bf16": torch.bfloat16, "fp16": torch.float16}
# Words that make a name another card's: "4070 Ti" is not a "4070".
CARD_SUFFIXES = frozenset({"ti", "super", "laptop", "max", "mobile", "d", "nvl", "ultra", "mig", "sxm3"})


def choose_device(name: str, index: int = 0) -> torch.device:
    """ "auto": CUDA, else MPS, else the CPU. ValueError: one that is not here. index: of the CUDA devices."""
    here: dict[str, Callable[[], bool]] = {"cuda": torch.cuda.is_available, "mps": torch.backends.mps.is_available}
    if name == "auto":
        name = next((kind for kind, there in here.items() if there()), "cpu")
    elif name in here and not here[name]():
        raise ValueError(f"device {name!r} is not on this machine, or this torch is not built for it: use 'auto'")
    try:
        return torch.device(name, index) if name == "cuda" else torch.device(name)
    except RuntimeError:
        raise ValueError(f"device {name!r} is unknown: use 'auto', 'cpu', 'cuda' or 'mps'") from None


def choose_precision(name: Precision, device: torch.device) -> Precision:
    """Resolve auto: bf16 where the hardware has it, else fp16 on CUDA, fp32 elsewhere. ValueError: not here."""
    cuda = device.type == "cuda"
    if name == "auto":
        if not cuda:
            return "bf16" if multiplies_bfloat16(device) else "fp32"
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp16"
    if name == "tf32" and not cuda:
        raise ValueError(f"precision 'tf32' is CUDA's, and the device is {device.type}: use 'fp32'")
    return name


def multiplies_bfloat16(device: torch.device) -> bool:
    """True on CUDA, and on a CPU with instructions for it, by what Linux says of the processor."""
    has = {"avx512_bf16", "amx_bf16"} & set(cpuinfo().get("flags", "").split())
    return device.type == "cuda" or (device.type == "cpu" and bool(has))


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Runs products in bf16 or fp16 where that is the precision; else changes nothing."""
    dtype = AUTOCAST.get(precision)
    return torch.autocast(device.type, dtype=dtype, enabled=dtype is not None)


def launched() -> bool:
    """True if torchrun, or a program that sets its variables, started this process as one of several."""
    return int(os.environ.get("WORLD_SIZE", "1")) > 1 and "RANK" in os.environ


def local_rank() -> int:
    """Return the number of this process on this machine."""
    return int(os.environ.get("LOCAL_RANK", "0")) if launched() else 0


@dataclass(frozen=True)
class Processes:
    """The processes that train a model together: here this one alone; distributed.DistributedContext is several."""

    rank: int = 0
    size: int = 1
    device: torch.device = CPU  # of this process

    @property
    def is_main(self) -> bool:
        """True in the process that writes, prints and decides."""
        return self.rank == 0

    def sum(self, *values: float | Tensor) -> list[float]:
        """Add up each value over the processes: the same on all of them. Tensors of one device are waited for once."""
        return cast("list[float]", stacked(values).tolist())

    def on_main(self, function: Callable[[], Result]) -> Result:
        """Call function in process 0, and return its result, or raise its exception, in every process."""
        return function()

    def on_all(
        self, function: Callable[[], Result], facts: Callable[[Result], Mapping[str, Any]] = lambda result: {}
    ) -> Result:
        """Call function in every process; an exception in one of them is raised in all.

        facts: of the result, by name; ProcessesDiffer: one of them is not the same in all processes.
        """
        return function()

    def parallelize(self, module: nn.Module, blocks: nn.ModuleList, config: TrainConfig) -> nn.Module:
        """Return the module to call instead, whose gradients are the mean over the processes."""
        return module

    def micro_batches(self, config: TrainConfig) -> int:
        """Return the number of micro-batches of this process in a step. ValueError: they do not divide it evenly."""
        own, rest = divmod(config.batch_size, self.size)
        if rest:
            raise ValueError(f"batch_size {config.batch_size} on {self.size} processes: make it a multiple of that")
        count, rest = divmod(own, config.micro_batch_size or own)
        if rest:
            micro = config.micro_batch_size
            raise ValueError(f"micro_batch_size {micro} does not divide the {own} sequences of a process")
        return count


def stacked(values: Sequence[float | Tensor], device: torch.device | None = None) -> Tensor:
    """The values as one tensor of float64 on a device, None for the one where they are."""
    device = device or next((value.device for value in values if isinstance(value, Tensor)), CPU)
    dtype = torch.float32 if device.type == "mps" else torch.float64
    return torch.stack([torch.as_tensor(value, dtype=dtype, device=device) for value in values])


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


def describe_machine(device: torch.device | str = "cpu") -> dict[str, str | int]:
    """Return versions, system, processor and device in words, for a run's report."""
    machine: dict[str, str | int] = {
        "Python": platform.python_version(),
        "torch": torch.__version__,
        "system": platform.platform(terse=True),
        "processor": cpuinfo().get("model name") or platform.processor() or platform.machine(),
        "processors": os.cpu_count() or 1,
        "groundup-lm": __version__,
    }
    if torch.device(device).type == "cuda":
        machine["device"] = torch.cuda.get_device_name(device)
        machine["CUDA"] = torch.version.cuda or "unknown"
    return machine


@functools.cache
def cpuinfo() -> dict[str, str]:
    """Return what Linux says of the first processor, by the names of /proc/cpuinfo; empty on other systems."""
    try:
        lines = CPUINFO.read_text().split("\n\n")[0].splitlines()
    except OSError:
        return {}
    return {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}


def device_name(device: torch.device) -> str:
    """Name of a device."""
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type.upper()


def memory_of(device: torch.device) -> int:
    """Bytes of the device, or of the machine if the device has none of its own."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).total_memory)
    sizes = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in GROUP_LIMITS:  # of this process's control groups, as in a container
        with contextlib.suppress(OSError, ValueError):  # not there, or "max"
            sizes.append(int(Path(path).read_text()))
    return min(sizes)


def known_device(name: str) -> Device | None:
    """The published figures of the card of this name; None if it is unknown or ambiguous."""
    from accounting.hardware.devices import DEVICES  # here, because nothing but a rate of arithmetic needs it

    words = set(re.split(r"[^a-z0-9]+", name.lower()))
    fitting = [card for card in DEVICES if set(card.split("-")) <= words]
    best = max(fitting, key=len, default=None)
    if best is None or (words - set(best.split("-"))) & CARD_SUFFIXES:
        return None
    return DEVICES[best]


def peak_flops(device: torch.device, precision: str) -> float | None:
    """The published dense FLOP/s of the device in this precision, if known."""
    card = known_device(device_name(device)) if device.type == "cuda" else None
    return float(card.peaks[precision]) if card is not None and precision in card.peaks else None


@contextlib.contextmanager
def threads(count: int, precision: str = "fp32") -> Iterator[None]:
    """Run torch, in the block, on this number of threads (0: unchanged), in TF32 if that is the precision."""
    before, products = torch.get_num_threads(), torch.get_float32_matmul_precision()
    torch.set_num_threads(count or before)
    torch.set_float32_matmul_precision("high" if precision == "tf32" else "highest")
    try:
        yield
    finally:
        torch.set_num_threads(before)
        torch.set_float32_matmul_precision(products)


@functools.cache
def keep_freed_memory() -> None:
    """Tell glibc, until the process ends, to reuse freed memory rather than return large blocks to the kernel."""
    with contextlib.suppress(OSError, AttributeError):  # no C library by that name, or one without mallopt
        libc = ctypes.CDLL("libc.so.6")
        libc.mallopt(ctypes.c_int(-3), ctypes.c_int((1 << 31) - 1))  # M_MMAP_THRESHOLD
        libc.mallopt(ctypes.c_int(-1), ctypes.c_int(-1))  # M_TRIM_THRESHOLD: never


def use_huge_pages(model: nn.Module) -> None:
    """Move the weights of a model on the CPU into one block of memory, which NumPy asks Linux to hold in huge pages."""
    # Decoding reads all of them for each token, and finding 4 kB pages takes a fifth of its time.
    tensors = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}.values()
    sizes = [-(-tensor.nbytes // CACHE_LINE) * CACHE_LINE for tensor in tensors]
    block, begin = lines(np.empty, sum(sizes)), 0
    for tensor, size in zip(tensors, sizes, strict=True):
        place = torch.from_numpy(block[begin : begin + tensor.nbytes]).view(tensor.dtype).view(tensor.shape)
        tensor.data = place.copy_(tensor.data)
        begin += size


def lines(make: Callable[..., NDArray[np.uint8]], size: int) -> NDArray[np.uint8]:
    """Bytes of np.empty or np.zeros that begin a cache line: a vector that lies in two takes twice as long to load."""
    block = make(size + CACHE_LINE, dtype=np.uint8)
    begin = -int(block.ctypes.data) % CACHE_LINE
    return block[begin : begin + size]
