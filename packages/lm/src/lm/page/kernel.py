"""Matrix by vector in WebAssembly SIMD: the two inner loops of a model in a page, assembled here.

y[row] = Σ weight[row, column] · x[column], for float32 weights and for int8 weights with a float32 scale for each row.
The number of columns is a multiple of 16, rows lie one after another, and all addresses are in the page's one memory.
`binary()` is the module; the source is WebAssembly's text format without parentheses, an instruction a line.
"""

from __future__ import annotations

from collections.abc import Sequence

COLUMNS = 16  # that one turn of the inner loop takes, in four vectors

# Opcodes; those of SIMD follow the prefix 0xFD. Memory instructions take an offset, local.* a name.
PLAIN = {
    "end": 0x0B, "br_if": 0x0D, "local.get": 0x20, "local.set": 0x21, "f32.load": 0x2A, "f32.store": 0x38,
    "i32.const": 0x41, "i32.lt_u": 0x49, "i32.add": 0x6A, "i32.sub": 0x6B, "i32.shl": 0x74, "f32.add": 0x92,
    "f32.mul": 0x94, "loop": 0x03,
}  # fmt: skip
SIMD = {
    "v128.load": 0, "v128.const": 12, "f32x4.extract_lane": 31, "i16x8.extend_low_i8x16_s": 135,
    "i16x8.extend_high_i8x16_s": 136, "i32x4.extend_low_i16x8_s": 167, "i32x4.extend_high_i16x8_s": 168,
    "f32x4.add": 228, "f32x4.mul": 230, "f32x4.convert_i32x4_s": 250,
}  # fmt: skip
I32, V128, EMPTY = 0x7F, 0x7B, 0x40  # types
SUMS = ("sum0", "sum1", "sum2", "sum3")


def rows_of_float32() -> list[str]:
    """The loop over rows of float32: weight, x, y, rows, columns."""
    turn = []
    for n, total in enumerate(SUMS):
        turn += [f"local.get {total}", "local.get weight", f"v128.load {16 * n}", "local.get at"]
        turn += [f"v128.load {16 * n}", "f32x4.mul", "f32x4.add", f"local.set {total}"]
    return over_rows(turn, bytes_of_weights=4 * COLUMNS, scale=[])


def rows_of_int8() -> list[str]:
    """The loop over rows of int8: weight, scale, x, y, rows, columns."""
    turn = ["local.get weight", "v128.load 0", "local.set bytes"]
    for n, total in enumerate(SUMS):
        high, part = ("low", "high")[n // 2], ("low", "high")[n % 2]
        turn += [f"local.get {total}", "local.get bytes", f"i16x8.extend_{high}_i8x16_s"]
        turn += [f"i32x4.extend_{part}_i16x8_s", "f32x4.convert_i32x4_s", "local.get at", f"v128.load {16 * n}"]
        turn += ["f32x4.mul", "f32x4.add", f"local.set {total}"]
    scale = ["local.get scale", "f32.load 0", "f32.mul"]
    return over_rows(turn, bytes_of_weights=COLUMNS, scale=scale)


def over_rows(turn: Sequence[str], *, bytes_of_weights: int, scale: Sequence[str]) -> list[str]:
    """For each row: the sums from 0, `turn` for every 16 columns, and the sum of the sums stored in y."""
    lanes = [line for n in range(4) for line in ("local.get sum0", f"f32x4.extract_lane {n}")]
    return [
        "loop",
        *(line for total in SUMS for line in ("v128.const 0", f"local.set {total}")),
        *("local.get x", "local.set at"),
        *("local.get x", "local.get columns", "i32.const 2", "i32.shl", "i32.add", "local.set end"),
        "loop",
        *turn,
        *("local.get weight", f"i32.const {bytes_of_weights}", "i32.add", "local.set weight"),
        *("local.get at", f"i32.const {4 * COLUMNS}", "i32.add", "local.set at"),
        *("local.get at", "local.get end", "i32.lt_u", "br_if 0"),
        "end",
        *("local.get sum0", "local.get sum1", "f32x4.add"),
        *("local.get sum2", "local.get sum3", "f32x4.add", "f32x4.add", "local.set sum0"),
        "local.get y",
        *(*lanes, "f32.add", "f32.add", "f32.add"),
        *scale,
        "f32.store 0",
        *("local.get y", "i32.const 4", "i32.add", "local.set y"),
        *(("local.get scale", "i32.const 4", "i32.add", "local.set scale") if scale else ()),
        *("local.get rows", "i32.const 1", "i32.sub", "local.set rows"),
        *("local.get rows", "br_if 0"),
        "end",
    ]


FUNCTIONS = {
    "multiply_float32": (("weight", "x", "y", "rows", "columns"), rows_of_float32()),
    "multiply_int8": (("weight", "scale", "x", "y", "rows", "columns"), rows_of_int8()),
}
LOCALS = {"at": I32, "end": I32, **dict.fromkeys((*SUMS, "bytes"), V128)}


def binary() -> bytes:
    """The module: it imports page.memory and exports FUNCTIONS."""
    types = [bytes([0x60]) + vector([bytes([I32])] * len(names)) + vector([]) for names, _ in FUNCTIONS.values()]
    exports = [text(name) + bytes([0, number]) for number, name in enumerate(FUNCTIONS)]
    codes = [code(names, lines) for names, lines in FUNCTIONS.values()]
    memory = text("page") + text("memory") + bytes([2, 0]) + unsigned(1)  # at least one page of 64 KiB
    return b"\0asm\1\0\0\0" + b"".join(
        bytes([number]) + sized(content)
        for number, content in (
            (1, vector(types)),
            (2, vector([memory])),
            (3, vector([bytes([number]) for number in range(len(types))])),
            (7, vector(exports)),
            (10, vector(codes)),
        )
    )


def code(parameters: Sequence[str], lines: Sequence[str]) -> bytes:
    """A function: its locals and its instructions."""
    index = {name: number for number, name in enumerate((*parameters, *LOCALS))}
    body = b"".join(instruction(line, index) for line in lines) + bytes([PLAIN["end"]])
    return sized(vector([unsigned(1) + bytes([kind]) for kind in LOCALS.values()]) + body)


def instruction(line: str, index: dict[str, int]) -> bytes:
    """One line: the opcode, then its argument."""
    name, _, argument = line.partition(" ")
    opcode = bytes([PLAIN[name]]) if name in PLAIN else b"\xfd" + unsigned(SIMD[name])
    if name == "loop":
        return opcode + bytes([EMPTY])
    if name.startswith("local."):
        return opcode + unsigned(index[argument])
    if name.endswith((".load", ".store")):
        return opcode + unsigned(2) + unsigned(int(argument))  # 2: addresses are multiples of 4
    if name == "v128.const":
        return opcode + bytes(16)
    if name == "i32.const":
        return opcode + unsigned(int(argument)) if int(argument) < 64 else opcode + bytes([int(argument) | 0x80, 0])
    return opcode + (unsigned(int(argument)) if argument else b"")


def unsigned(value: int) -> bytes:
    """LEB128: seven bits a byte, the lowest first."""
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + unsigned(rest) if rest else bytes([low])


def sized(content: bytes) -> bytes:
    return unsigned(len(content)) + content


def vector(parts: Sequence[bytes]) -> bytes:
    return unsigned(len(parts)) + b"".join(parts)


def text(name: str) -> bytes:
    return sized(name.encode())
