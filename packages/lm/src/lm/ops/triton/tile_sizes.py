"""Which tiles a kernel takes on which device: those of a table for devices it knows, else the fastest of a few,
measured once.

The table was reasoned, not measured: tools/compile_attention.py compiles every row, and those stand here whose
registers do not spill and whose shared memory fits. With windows or documents some spill 32 bytes at most, and the
keys' kernel more: on sm90 at 256 with documents 320, on sm100 at 64 and 128 up to 128. What `tune` measures, on a
device that the table does not know or when it is asked to, is kept in a file and goes before the table: the same tiles,
and so the same bits, from then on.
"""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import torch
import triton
from torch import Tensor

from lm.files import atomic_write
from lm.ops.triton.problem import Problem, Tiles, interpreted

# By family of devices, kernel, and the width that the head dimension is padded to; dtypes of 16 bits.
_AMPERE = {
    "forward": {
        16: Tiles(128, 64, 4, 3),
        32: Tiles(128, 64, 4, 3),
        64: Tiles(128, 64, 4, 3),
        128: Tiles(64, 64, 4, 2),
        256: Tiles(64, 32, 8, 2),
    },
    "keys": {
        16: Tiles(64, 128, 8, 2),
        32: Tiles(64, 128, 8, 2),
        64: Tiles(64, 128, 8, 2),
        128: Tiles(32, 64, 8, 2),
        256: Tiles(16, 64, 8, 2),
    },
    "queries": {
        16: Tiles(128, 64, 8, 2),
        32: Tiles(128, 64, 8, 2),
        64: Tiles(128, 64, 8, 2),
        128: Tiles(64, 64, 8, 2),
        256: Tiles(64, 64, 8, 2),
    },
    "decode": {
        16: Tiles(16, 128, 4, 3),
        32: Tiles(16, 128, 4, 3),
        64: Tiles(16, 64, 4, 3),
        128: Tiles(16, 64, 4, 2),
        256: Tiles(16, 32, 4, 2),
    },
}
_HOPPER = {
    "forward": {
        16: Tiles(128, 128, 8, 3, described=True),
        32: Tiles(128, 128, 8, 3, described=True),
        # Two programs a multiprocessor, one's exponentials beside the other's products: these take as long as those.
        64: Tiles(128, 128, 4, 2, described=True),
        128: Tiles(128, 64, 8, 3, described=True),
        256: Tiles(128, 64, 8, 2, described=True),
    },
    "keys": {
        16: Tiles(64, 128, 8, 3, described=True),
        32: Tiles(64, 128, 8, 3, described=True),
        64: Tiles(64, 128, 8, 3, described=True),
        128: Tiles(32, 128, 8, 2, described=True),
        256: Tiles(32, 64, 8, 2, described=True),
    },
    "queries": {
        16: Tiles(128, 64, 8, 3, described=True),
        32: Tiles(128, 64, 8, 3, described=True),
        64: Tiles(128, 64, 8, 3, described=True),
        128: Tiles(128, 64, 8, 3, described=True),
        256: Tiles(128, 32, 8, 2, described=True),
    },
    "decode": {
        16: Tiles(16, 128, 4, 3),
        32: Tiles(16, 128, 4, 3),
        64: Tiles(16, 128, 4, 3),
        128: Tiles(16, 64, 4, 3),
        256: Tiles(16, 32, 4, 3),
    },
}
TABLE: dict[str, dict[str, dict[int, Tiles]]] = {
    "sm80": _AMPERE,
    "sm89": _AMPERE
    | {
        "forward": _AMPERE["forward"] | {64: Tiles(128, 64, 8, 2)},
        "queries": _AMPERE["queries"] | {256: Tiles(32, 32, 4, 2)},
    },
    "sm90": _HOPPER,
    # 512 columns of tensor memory do not hold both sums of 256: there the older matrix instructions do.
    "sm100": _HOPPER
    | {
        "forward": _HOPPER["forward"]
        | {64: Tiles(128, 128, 8, 3, described=True), 128: Tiles(128, 128, 8, 2, described=True)},
        "keys": _HOPPER["keys"] | {256: Tiles(32, 32, 8, 2)},
    },
}

# What else is worth measuring where measuring is asked for.
MORE: dict[str, dict[int, list[Tiles]]] = {
    "forward": {
        64: [Tiles(128, 128, 8, 3, described=True), Tiles(128, 64, 4, 3, described=True)],
        128: [Tiles(128, 128, 8, 2, described=True), Tiles(64, 64, 4, 3, described=True)],
    },
    "keys": {
        64: [Tiles(64, 64, 4, 3, described=True), Tiles(32, 128, 8, 3, described=True)],
        128: [Tiles(64, 128, 8, 2, described=True), Tiles(32, 64, 4, 3, described=True)],
    },
    "queries": {
        64: [Tiles(128, 128, 8, 2, described=True), Tiles(64, 64, 4, 3, described=True)],
        128: [Tiles(128, 128, 8, 2, described=True), Tiles(64, 64, 4, 3, described=True)],
    },
}

# float32 is multiplied in full precision by ordinary units: what counts is that the tiles fit, and that compiling is
# not long.
_WIDE = {
    "forward": {
        16: Tiles(32, 32, 4, 2),
        32: Tiles(32, 32, 4, 2),
        64: Tiles(64, 32, 8, 2),
        128: Tiles(32, 16, 8, 2),
        256: Tiles(32, 16, 8, 1),
    },
    "keys": {
        16: Tiles(32, 32, 4, 2),
        32: Tiles(32, 32, 4, 2),
        64: Tiles(32, 32, 8, 2),
        128: Tiles(16, 32, 8, 1),
        256: Tiles(16, 16, 8, 1),
    },
    "queries": {
        16: Tiles(32, 32, 4, 2),
        32: Tiles(32, 32, 4, 2),
        64: Tiles(32, 32, 8, 2),
        128: Tiles(32, 16, 8, 2),
        256: Tiles(16, 16, 8, 2),
    },
    "decode": {
        16: Tiles(16, 32, 4, 2),
        32: Tiles(16, 32, 4, 2),
        64: Tiles(16, 32, 4, 2),
        128: Tiles(16, 16, 4, 2),
        256: Tiles(16, 16, 8, 1),
    },
}
WIDE_TABLE: dict[str, dict[str, dict[int, Tiles]]] = {
    "sm80": _WIDE,
    "sm89": _WIDE | {"forward": _WIDE["forward"] | {128: Tiles(32, 16, 8, 1)}},
    "sm90": _WIDE,
    "sm100": _WIDE,
}

# Devices by compute capability. Those with 99 KiB of shared memory for a program take the tiles of the smallest among
# them.
FAMILIES = {
    (8, 0): "sm80",
    (8, 6): "sm89",
    (8, 9): "sm89",
    (9, 0): "sm90",
    (10, 0): "sm100",
    (10, 3): "sm100",
    (12, 0): "sm89",
}

# Tiles so small that short sequences have borders, corners and full tiles.
INTERPRETED = {"forward": Tiles(16, 16), "keys": Tiles(16, 16), "queries": Tiles(16, 16), "decode": Tiles(16, 16)}

CHOSEN: dict[str, Tiles] = {}

Launch = Callable[[Tiles], tuple[Tensor, ...]]


def tiles_for(kind: str, problem: Problem, launch: Launch) -> Tiles:
    """The tiles for a kernel, "forward", "keys", "queries" or "decode", on the device of the problem.

    launch runs that kernel on the problem with given tiles, as often as one likes, and gives what it wrote: it is
    called only where there is something to measure.
    """
    if interpreted():
        return INTERPRETED[kind]
    capability = torch.cuda.get_device_capability(problem.q.device)
    key = key_of(kind, problem)
    if key not in CHOSEN:
        kept = kept_choices().get(key)
        if kept is not None:
            CHOSEN[key] = kept
        elif capability in FAMILIES:
            CHOSEN[key] = table(capability, kind, problem.width, problem.q.dtype)
        elif torch.cuda.is_current_stream_capturing():  # nothing can be measured into a graph
            return table(capability, kind, problem.width, problem.q.dtype)
        else:
            return tune(kind, problem, launch)
    return CHOSEN[key]


def table(capability: tuple[int, int], kind: str, width: int, dtype: torch.dtype) -> Tiles:
    """What the table says, of an unknown device what it says of the smallest that is known."""
    tables = TABLE if dtype in (torch.float16, torch.bfloat16) else WIDE_TABLE
    return tables[FAMILIES.get(capability, "sm89")][kind][width]


def candidates(kind: str, width: int, dtype: torch.dtype, capability: tuple[int, int]) -> list[Tiles]:
    """The few tiles that are worth measuring: those of every family and a few more, and on Blackwell specialised warps.

    Triton 3.7 is the first that specialises the warps of these loops; for Hopper it declines.
    """
    if dtype not in (torch.float16, torch.bfloat16):
        return [table(capability, kind, width, dtype)]
    found = [family[kind][width] for family in TABLE.values()] + MORE.get(kind, {}).get(width, [])
    version = tuple(int(part) for part in triton.__version__.split(".")[:2])
    if capability[0] == 10 and version >= (3, 7) and kind != "decode":
        found.append(replace(TABLE["sm100"][kind][width], stages=2, specialized=True))
    return list(dict.fromkeys(found))


def tune(
    kind: str,
    problem: Problem,
    launch: Launch,
    measure: Callable[[Callable[[], object]], float] | None = None,
) -> Tiles:
    """Measures the candidates, takes the fastest, and keeps the choice for later processes. measure gives seconds of a
    call.

    A candidate is passed over that the device has no room for, or whose results are not those of the first one.
    RuntimeError where none is left.
    """
    measure = measure or seconds
    capability = torch.cuda.get_device_capability(problem.q.device)
    key, times, refusals, first = key_of(kind, problem), {}, [], None
    for tiles in candidates(kind, problem.width, problem.q.dtype, capability):
        try:
            results = [x.float() for x in launch(tiles)]
            first = first or [x.clone() for x in results]
            if not all((x - y).abs().max() <= 0.02 * y.abs().max() for x, y in zip(results, first, strict=True)):
                refusals.append(f"{tiles}: other results than the first one's")
                continue
            times[tiles] = measure(functools.partial(launch, tiles))
        except Exception as refusal:  # no room, or a compiler that gives up: Triton has no one name for these
            refusals.append(f"{tiles}: {refusal}")
    if not times:
        raise RuntimeError(f"no tiles of the {kind} kernel run on this device: {'; '.join(refusals)}")
    CHOSEN[key] = min(times, key=times.__getitem__)
    keep(key, CHOSEN[key])
    return CHOSEN[key]


def seconds(call: Callable[[], object], repeats: int = 5) -> float:
    """The median of a few runs on the current CUDA stream, after one that compiles and warms up."""
    call()
    times = []
    for _ in range(repeats):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        call()
        end.record()
        end.synchronize()
        times.append(start.elapsed_time(end) / 1000)
    return float(sorted(times)[repeats // 2])


def key_of(kind: str, problem: Problem) -> str:
    """What a choice holds for: device, Triton, kernel, head_dim, dtype, causality, and the length up to a power of
    two."""
    q = problem.q
    name = torch.cuda.get_device_name(q.device) if q.is_cuda else q.device.type
    length = triton.next_power_of_2(max(problem.queries, problem.keys))
    causal = "causal" if problem.causal else "full"
    dtype = str(q.dtype).removeprefix("torch.")
    return f"{name}, triton {triton.__version__}, {kind}, {problem.head_dim}, {dtype}, {causal}, {length}"


def kept_file() -> Path:
    """Where measured choices are kept: groundup/attention.json in the user's cache folder."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "groundup", "attention.json")


@functools.cache
def kept_choices() -> dict[str, Tiles]:
    """The choices kept by earlier processes; none where the file is absent or no longer means anything."""
    try:
        return {key: Tiles(**fields) for key, fields in json.loads(kept_file().read_text()).items()}
    except (OSError, ValueError, TypeError, AttributeError):
        return {}


def keep(key: str, tiles: Tiles) -> None:
    """Adds a choice to the file, which appears whole or not at all; a cache that cannot be written is done without."""
    file = kept_file()
    kept_choices.cache_clear()
    choices = {**{name: asdict(kept) for name, kept in kept_choices().items()}, key: asdict(tiles)}
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(file, json.dumps(choices, indent=1))
    except OSError:
        return
    kept_choices.cache_clear()
