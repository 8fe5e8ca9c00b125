"""Quantities that know their unit, so that FLOPs and bytes cannot be added by mistake.

Counts (`Parameters`, `Tokens`, `FLOPs`, `Bytes`) are ints and stay exact; measures (`Seconds`, `FLOPRate`, `ByteRate`,
`TokenRate`) are floats. Plain numbers carry no unit and mix with anything they do not cut; two different units do not
add, subtract, compare or equal. Dividing gives what physics says: FLOPs / FLOPRate is Seconds, Bytes / Bytes is a plain
number.
"""

from __future__ import annotations

TYPE_CHECKING = False  # typing costs a tenth of the time budget of an import and is only wanted by mypy
if TYPE_CHECKING:
    from typing import Any, Self


def _refuse(left: object, right: object, verb: str) -> None:
    """TypeError if both have a unit and it is not the same."""
    if isinstance(left, Count | Measure) and isinstance(right, Count | Measure) and type(left) is not type(right):
        raise TypeError(
            f"cannot {verb} {type(left).__name__} and {type(right).__name__}: they are different units; "
            f"convert one of them with int() or float() if this is meant"
        )


def _whole(left: Count, right: object, verb: str) -> int:
    """The other operand as an int; TypeError for another unit, and for what is no whole number and would be cut."""
    _refuse(left, right, verb)
    if not isinstance(right, int):
        raise TypeError(
            f"cannot {verb} {type(left).__name__} and {right!r}: {type(left).__name__} are whole numbers; "
            f"round it with int(), or convert the other with float()"
        )
    return int(right)


class Count(int):
    """An exact whole number of something.

    Adding, comparing or dividing it with another unit raises TypeError, and so does adding a float, which would be cut.
    Times or divided by a float it is a plain float.

    >>> Bytes(10) // 4, Bytes(10) / Bytes(4), Bytes(10) * 0.5
    (Bytes(2), 2.5, 5.0)
    """

    unit = ""

    def __add__(self, other: int) -> Self:
        return type(self)(int(self) + _whole(self, other, "add"))

    __radd__ = __add__

    def __sub__(self, other: int) -> Self:
        return type(self)(int(self) - _whole(self, other, "subtract"))

    def __rsub__(self, other: int) -> Self:
        return type(self)(_whole(self, other, "subtract") - int(self))

    def __mul__(self, other: int) -> Self:
        if isinstance(other, Count | Measure):
            raise TypeError(f"{type(self).__name__} times {type(other).__name__} has no meaning here")
        if not isinstance(other, int):
            return NotImplemented
        return type(self)(int(self) * other)

    __rmul__ = __mul__

    def __truediv__(self, other: float) -> float:
        result = _QUOTIENTS.get((type(self), type(other)))
        if result is not None:
            return result(int(self) / float(other))
        _refuse(self, other, "divide")
        return int(self) / other

    def __floordiv__(self, other: int) -> Any:
        quotient = int(self) // _whole(self, other, "divide")
        return quotient if isinstance(other, Count) else type(self)(quotient)

    def __mod__(self, other: int) -> Self:
        return type(self)(int(self) % _whole(self, other, "divide"))

    def __eq__(self, other: object) -> bool:
        _refuse(self, other, "compare")
        return int(self) == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = int.__hash__

    def __lt__(self, other: float) -> bool:
        _refuse(self, other, "compare")
        return int(self) < other

    def __le__(self, other: float) -> bool:
        _refuse(self, other, "compare")
        return int(self) <= other

    def __gt__(self, other: float) -> bool:
        _refuse(self, other, "compare")
        return int(self) > other

    def __ge__(self, other: float) -> bool:
        _refuse(self, other, "compare")
        return int(self) >= other

    def __repr__(self) -> str:
        return f"{type(self).__name__}({int(self):_})"

    def __str__(self) -> str:
        return f"{int(self):,}"


class Measure(float):
    """A measured or derived quantity; adding, comparing or dividing it with another unit raises TypeError.

    >>> Seconds(3.0) / Seconds(2.0), Seconds(3.0) / 2
    (1.5, Seconds(1.5))
    """

    unit = ""

    def __add__(self, other: float) -> Self:
        _refuse(self, other, "add")
        return type(self)(float(self) + float(other))

    __radd__ = __add__

    def __sub__(self, other: float) -> Self:
        _refuse(self, other, "subtract")
        return type(self)(float(self) - float(other))

    def __rsub__(self, other: float) -> Self:
        _refuse(self, other, "subtract")
        return type(self)(float(other) - float(self))

    def __mul__(self, other: float) -> Self:
        if isinstance(other, Count | Measure):
            raise TypeError(f"{type(self).__name__} times {type(other).__name__} has no meaning here")
        return type(self)(float(self) * other)

    __rmul__ = __mul__

    def __truediv__(self, other: float) -> Any:
        _refuse(self, other, "divide")
        quotient = float(self) / float(other)
        return quotient if isinstance(other, Measure) else type(self)(quotient)

    def __eq__(self, other: object) -> bool:
        _refuse(self, other, "compare")
        return float(self) == other

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = float.__hash__

    def __lt__(self, other: float) -> bool:
        _refuse(self, other, "compare")
        return float(self) < float(other)

    def __le__(self, other: float) -> bool:
        _refuse(self, other, "compare")
        return float(self) <= float(other)

    def __gt__(self, other: float) -> bool:
        _refuse(self, other, "compare")
        return float(self) > float(other)

    def __ge__(self, other: float) -> bool:
        _refuse(self, other, "compare")
        return float(self) >= float(other)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({float(self)!r})"


class Parameters(Count):
    """Trainable numbers."""

    unit = "parameters"


class Tokens(Count):
    """Positions the model reads."""

    unit = "tokens"


class FLOPs(Count):
    """Floating-point operations: one multiplication and one addition are two."""

    unit = "FLOP"


class Bytes(Count):
    """Bytes; printed as GB (10^9) or GiB (2^30), never one for the other."""

    unit = "B"


class Seconds(Measure):
    """Wall-clock time."""

    unit = "s"


class FLOPRate(Measure):
    """Floating-point operations per second."""

    unit = "FLOP/s"


class ByteRate(Measure):
    """Bytes per second."""

    unit = "B/s"


class TokenRate(Measure):
    """Tokens per second."""

    unit = "tokens/s"


_QUOTIENTS: dict[tuple[type, type], type[Measure]] = {
    (FLOPs, FLOPRate): Seconds,
    (FLOPs, Seconds): FLOPRate,
    (Bytes, ByteRate): Seconds,
    (Bytes, Seconds): ByteRate,
    (Tokens, TokenRate): Seconds,
    (Tokens, Seconds): TokenRate,
}

_DECIMAL = ("", "k", "M", "G", "T", "P", "E", "Z", "Y")
_BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi")


def human(quantity: float, *, binary: bool = False) -> str:
    """A quantity with a prefix: `34.03 GB`, with binary=True (bytes only) `31.70 GiB`; seconds as µs, ms, s, min, h,
    days, years of 365.25 days."""
    unit = getattr(quantity, "unit", "")
    if isinstance(quantity, Seconds):
        return _clock(float(quantity))
    base, prefixes = (1024.0, _BINARY) if binary else (1000.0, _DECIMAL)
    if binary and not isinstance(quantity, Bytes):
        raise ValueError(
            f"binary prefixes are for bytes only, and this is {unit or 'a plain number'}; use binary=False"
        )
    value, power = float(quantity), 0
    # 999.995 would print as 1000.00: such a value belongs to the next prefix
    while abs(value) >= base - 0.005 and power < len(prefixes) - 1:
        value /= base
        power += 1
    digits = f"{value:.0f}" if power == 0 and value == int(value) else f"{value:.2f}"
    gap = " " if len(unit) > 6 and power else ""  # 1.56 G parameters, but 1.56 GFLOP/s
    return f"{digits} {prefixes[power]}{gap}{unit}".rstrip()


def _clock(seconds: float) -> str:
    for size, name in ((365.25 * 86_400, "years"), (86_400, "days"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:,.2f} {name}"
    if seconds >= 0.1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1e3:.3f} ms" if seconds >= 1e-5 or not seconds else f"{seconds * 1e6:.3f} µs"
