"""Which tiles a kernel takes on which device: those of the table for devices it knows, else the fastest of a few,
measured once.

What `tune` measures, on a device that the table does not know or when it is asked to, is kept in a file and goes before
the table: the same tiles, and so the same bits, from then on. triton.autotune would choose again in each process.
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
from lm.ops.triton.tile_table import FAMILIES, MORE, TABLE, table

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
