"""The time that attention takes on an H100, from machine code alone: replay a loop, then fill the device.

A multiprocessor has four schedulers, each with a quarter of its warps and of its units. One of them is replayed: each
clock it issues the next instruction of one warp that may issue, by the stalls and barriers that the compiler wrote and
by when the instruction's unit is free. A tile takes no less than its clocks in the tensor units and its issue slots
together: accumulators pass through the registers that other instructions read, so that the two hardly overlap.

No constant is fitted. Widths of units are those of NVIDIA's programming guide (operations a clock and multiprocessor),
latencies those of published microbenchmarks (Luo et al. 2024, arXiv:2402.13499), clock and multiprocessors the
H100's (SXM) data sheet.
"""

from __future__ import annotations

import heapq
import re
from collections import defaultdict
from dataclasses import dataclass, field

from sass import Instruction, loops

MULTIPROCESSORS, CLOCK = 132, 1.83e9
REGISTERS, SHARED_BYTES, THREADS = 65_536, 228 << 10, 2048  # of a multiprocessor; 1 KiB of each program's is reserved
SHARED_WIDTH = 128  # bytes a clock
TENSOR_LATENCY, BARRIER_LATENCY, DEVICE_MEMORY_LATENCY = 20, 15, 750
LATENCIES = {"SYNCS": 24, "LDG": 300, "LDS": 30, "MUFU": 26, "SHFL": 28, "LDGSTS": 36, "UTMA": 24}  # by beginning


def unit(x: Instruction) -> tuple[str, float]:
    """The unit of a scheduler that an instruction occupies, and for how many clocks."""
    width = 16.0 if "128" in x.name else 8.0 if "64" in x.name else 4.0
    if x.kind == "tensor":
        return "tensor", tensor_clocks(x)
    if x.kind == "exponential":
        return "exponential", 8.0
    if x.kind in ("shuffle", "shared", "global", "local"):
        matrices = re.search(r"\.(\d)$", x.name) if x.name.startswith(("LDSM", "STSM")) else None
        return "memory", 4.0 * int(matrices.group(1)) if matrices else width if "DS" in x.name else 4.0
    if x.name.startswith(("FADD", "FMUL", "FFMA")):
        return "float", 1.0
    if x.name.startswith("IMAD"):
        return "float", 2.0
    if x.name.startswith(("U", "R2UR", "VOTEU")):
        return "uniform", 2.0
    return ("none", 1.0) if x.kind == "wait" or x.name.startswith("BRA") else ("integer", 2.0)


def tensor_clocks(x: Instruction) -> float:
    """Clocks of an HGMMA of 64 × N × 16: N / 2, or those in which shared memory gives its operands."""
    columns = int(re.match(r"HGMMA\.64x(\d+)x16", x.name).group(1))  # type: ignore[union-attr]
    first_is_register = re.match(r"\s*R\d", x.operands.split(",")[1])
    operands = columns * 16 * 2 + (0 if first_is_register else 64 * 16 * 2)  # bytes
    return max(columns / 2, operands / SHARED_WIDTH)


def latency(x: Instruction) -> float:
    """Clocks until what an instruction sets is free."""
    return next((float(clocks) for name, clocks in LATENCIES.items() if x.name.startswith(name)), 14.0)


@dataclass
class Warp:
    """Progress of one warp through a loop."""

    ready: float
    place: int = 0
    rounds: int = 0
    meetings: int = 0
    barriers: list[float] = field(default_factory=lambda: [0.0] * 6)
    products: list[float] = field(default_factory=list)  # the ends of its groups of matrix products
    ends: list[float] = field(default_factory=list)


def replay(body: list[Instruction], programs: int, warps: int, rounds: int = 10) -> float:
    """Clocks of one round of a loop in `programs` programs at once, each with `warps` warps on this scheduler."""
    units, latencies = [unit(x) for x in body], [latency(x) for x in body]
    states = [Warp(ready=7.0 * i) for i in range(programs * warps)]
    order = list(range(len(states)))  # the one that issued longest ago goes first
    free: dict[str, float] = defaultdict(float)
    arrived: dict[tuple[int, int], list[int]] = defaultdict(list)
    now = 0.0
    while any(warp.rounds < rounds for warp in states):
        now, _, chosen = min(
            (max(now, issues_at(body[states[i].place], states[i], *units[states[i].place], free)), rank, i)
            for rank, i in enumerate(order)
            if states[i].rounds < rounds
        )
        warp = states[chosen]
        x, (name, clocks) = body[warp.place], units[warp.place]
        done = now + max(clocks, 1.0) + latencies[warp.place]
        if name == "tensor":
            free[name] = max(now, free[name]) + clocks  # products queue, and the warp goes on
            done = free[name] + TENSOR_LATENCY
            if "gsb0" in x.operands:
                warp.products.append(done)
        elif name != "none":
            free[name] = now + clocks
        for barrier in x.sets:
            warp.barriers[barrier] = max(warp.barriers[barrier], done)
        warp.ready = now + max(1, x.stall)
        if x.name.startswith("BAR"):  # the warps of a program meet
            meeting = arrived[chosen // warps, warp.meetings]
            meeting.append(chosen)
            warp.meetings, warp.ready = warp.meetings + 1, float("inf")
            if len(meeting) == warps:
                for i in meeting:
                    states[i].ready = now + BARRIER_LATENCY
        warp.place = (warp.place + 1) % len(body)
        if warp.place == 0:
            warp.rounds += 1
            warp.ends.append(now)
        order.remove(chosen)
        order.append(chosen)
        now += 1
    warm = 3
    return sum((warp.ends[-1] - warp.ends[warm]) / (rounds - 1 - warm) for warp in states) / len(states)


def issues_at(x: Instruction, warp: Warp, name: str, _: float, free: dict[str, float]) -> float:
    """The first clock at which a warp's next instruction may issue."""
    clock = max(warp.ready, *(warp.barriers[barrier] for barrier in x.waits), 0.0)
    if x.name.startswith("WARPGROUP.DEPBAR"):
        pending = len(warp.products) - int(x.operands.split(",")[-1], 16)
        return max(clock, warp.products[pending - 1]) if pending > 0 else clock
    return clock if name in ("tensor", "none") else max(clock, free[name])


@dataclass(frozen=True)
class Clocks:
    """The clocks of one program.

    Attributes:
        resident: Programs that a multiprocessor holds at once.
        full: Clocks of a tile of each, with 1 … resident programs there.
        masked: Those of a tile with a mask, alone.
        outside: Those before and after its loops.
    """

    resident: int
    full: tuple[float, ...]
    masked: float
    outside: float


def residents(registers: int, shared: int, warps: int) -> int:
    """Programs that a multiprocessor holds at once. shared: in bytes."""
    of_registers = REGISTERS // (-(-registers // 8) * 8 * 32 * warps)
    return max(1, min(of_registers, SHARED_BYTES // (shared + 1024), THREADS // (32 * warps)))


def program_clocks(code: list[Instruction | str], registers: int, shared: int, warps: int) -> Clocks:
    """Clocks of a kernel's programs from its code."""
    hot, masked = sorted(loops(code), key=len)[:2]
    groups, resident = warps // 4, residents(registers, shared, warps)
    least = groups * (len(hot) + sum(tensor_clocks(x) for x in hot if x.kind == "tensor"))
    full = tuple(max(replay(hot, n, groups), n * least) for n in range(1, resident + 1))
    once = sum(isinstance(x, Instruction) for x in code) - sum(len(body) for body in loops(code))
    # an instruction outside the loops takes one and a half clocks on average; memory is waited for at either end
    return Clocks(resident, full, replay(masked, 1, groups), 1.5 * once + 2 * DEVICE_MEMORY_LATENCY)


def causal_programs(
    kind: str, queries: int, keys: int, length: int, heads: int, together: int = 1
) -> list[tuple[int, int]]:
    """Full and masked tiles of each program of a causal launch, in the order in which programs start.

    together: heads whose blocks of one place start side by side.
    """
    if kind == "keys":
        masked = max(1, keys // queries)
        blocks = [(length - first // queries * queries) // queries - masked for first in range(0, length, keys)]
    else:
        masked = max(1, queries // keys)
        blocks = [-(-last // keys) - masked for last in range(length, 0, -queries)]
    groups = [min(together, heads - first) for first in range(0, heads, together)]
    return [(full, masked) for group in groups for full in blocks for _ in range(group)]


def launch_clocks(clocks: Clocks, programs: list[tuple[int, int]]) -> float:
    """Clocks until the last program of a launch ends, where each starts as soon as a multiprocessor has room."""
    work = [full * clocks.full[0] + masked * clocks.masked + clocks.outside for full, masked in programs]
    waiting = iter(work)
    speeds = [clocks.full[0] / together for together in clocks.full]  # of each program, by how many share
    places: list[list[float]] = [[] for _ in range(MULTIPROCESSORS)]
    for _ in range(clocks.resident):
        for place in places:
            place.extend([x for x in (next(waiting, None),) if x is not None])
    seen = [0.0] * MULTIPROCESSORS
    events = [(min(place) / speeds[len(place) - 1], i) for i, place in enumerate(places) if place]
    heapq.heapify(events)
    now = 0.0
    while events:
        now, i = heapq.heappop(events)
        passed = (now - seen[i]) * speeds[len(places[i]) - 1]
        rest = [left - passed for left in places[i]]
        seen[i], places[i] = now, [left for left in rest if left > 1e-6 * clocks.full[0]]
        for _ in range(clocks.resident - len(places[i])):
            places[i].extend([x for x in (next(waiting, None),) if x is not None])
        if places[i]:
            heapq.heappush(events, (now + min(places[i]) / speeds[len(places[i]) - 1], i))
    return now
