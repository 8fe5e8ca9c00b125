"""Machine code of NVIDIA's devices, as nvdisasm prints it: its loops, and the clocks that they take.

The compiler writes into each instruction after how many clocks the next may follow, and which barriers it sets and
waits for. With the width of each unit and the latency of what sets a barrier this is enough to run the code of several
warps against each other, clock by clock, as one of the four schedulers of a multiprocessor does. Nothing is fitted.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import triton

# The kinds that a certificate counts, by the beginning of an instruction's name; the first that fits.
KINDS = {
    "tensor": r"[HQOIB]G?MMA|UTC\w*MMA",
    "exponential": r"MUFU",
    "float": r"F(ADD|MUL|FMA|MNMX|SEL|SETP)|HADD2|HFMA2|HMUL2",
    "convert": r"F2F|F2I|I2F|HADD2\.F32|PRMT",
    "shuffle": r"SHFL|REDUX|CREDUX",
    "shared": r"LDS|STS|LDSM|STSM|MOVM|LDT|STT",
    "global": r"LDG|STG|LDGSTS|LDGDEPBAR|UTMA|UBLK|RED|ATOM|LD\b|ST\b",
    "wait": r"BAR|SYNCS|WARPGROUP|WARPSYNC|DEPBAR|MEMBAR|FENCE|BSYNC|BSSY|NOP|NANOSLEEP|UTCBAR|ELECT|ERRBAR",
    "local": r"LDL|STL",
}


@dataclass(frozen=True)
class Instruction:
    """One instruction, with what the compiler wrote into it for the scheduler.

    Attributes:
        name: With its modifiers, HGMMA.64x64x16.F32.BF16.
        operands: The text after the name.
        stall: Clocks until the warp's next instruction may issue.
        sets: Barriers, 0 to 5, that are set until its result is written or its operands are read.
        waits: Barriers that must be free before it issues.
    """

    name: str
    operands: str
    stall: int
    sets: tuple[int, ...]
    waits: tuple[int, ...]

    @property
    def kind(self) -> str:
        """One of KINDS; "integer" for the rest: addresses, predicates, moves."""
        if self.name.startswith("F2FP"):
            return "convert"
        return next((kind for kind, names in KINDS.items() if re.match(names, self.name)), "integer")


LINE = re.compile(
    r"^\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)\s*(.*?);\s*/\* 0x[0-9a-f]+ \*/\s*/\* (0x[0-9a-f]+) \*/",
    re.MULTILINE,
)


def disassemble(cubin: bytes) -> list[Instruction | str]:
    """The instructions of a kernel and, as strings, the labels between them."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "kernel.cubin")
        path.write_bytes(cubin)
        command = [triton.knobs.nvidia.nvdisasm.path, "-c", "-hex", path]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    lines = re.sub(r"\*/\s*\n\s+/\* 0x", "*/ /* 0x", text)  # the two words of an instruction stand on two lines
    code: list[Instruction | str] = []
    for line in lines.splitlines():
        if label := re.match(r"^(\.L_x_\d+):", line):
            code.append(label.group(1))
        elif match := LINE.match(line):
            control = int(match.group(3), 16) >> 41
            sets = tuple(barrier for barrier in (control >> 5 & 7, control >> 8 & 7) if barrier < 6)
            waits = tuple(barrier for barrier in range(6) if control >> 11 & 1 << barrier)
            code.append(Instruction(match.group(1), match.group(2), control & 15, sets, waits))
    return code


def loops(code: list[Instruction | str], kind: str = "tensor") -> list[list[Instruction]]:
    """The innermost loops with instructions of a kind: what stands between a label and a branch back to it."""
    places = {item: place for place, item in enumerate(code) if isinstance(item, str)}
    end = max((at for at, item in enumerate(code) if isinstance(item, Instruction) and item.name == "EXIT"), default=0)
    spans = []
    for place, item in enumerate(code[:end]):  # behind it are waits for data, which branch back into the middle
        if isinstance(item, Instruction) and item.name.startswith("BRA"):
            target = re.search(r"\.L_x_\d+", item.operands)
            start = places.get(target.group()) if target else None
            if start is not None and start < place:
                body = [x for x in code[start : place + 1] if isinstance(x, Instruction)]
                if any(x.kind == kind for x in body):
                    spans.append((start, place, body))
    inner = [
        (start, end, body)
        for start, end, body in spans
        if not any((s, e) != (start, end) and start <= s and e <= end for s, e, _ in spans)
    ]
    return [body for _, _, body in inner]


def mix(body: list[Instruction]) -> dict[str, int]:
    """Number of instructions of each kind."""
    counts = Counter(x.kind for x in body)
    return {kind: counts[kind] for kind in (*KINDS, "integer")}
