"""Quantities that know their unit, so that FLOPs and bytes cannot be added by mistake.

Counts (`Parameters`, `Tokens`, `FLOPs`, `Bytes`) are exact ints, measures (`Seconds`, `FLOPRate`, …) floats. Plain
numbers mix with anything they do not cut; two units do not add, subtract or order, and are never equal. Dividing gives
what physics says: FLOPs / FLOPRate is Seconds, Bytes / Bytes a plain number.
"""

from __future__ import annotations

TYPE_CHECKING = False  # with typing, dataclasses take a tenth more of the time of an import and one answer
if TYPE_CHECKING:
    from typing import Any, Self


class Quantity:
    """Arithmetic and comparison of numbers with a unit, over the plain int or float that a subclass is too."""

    unit = ""
    _plain: Any = float

    def _with_unit(self, value: float) -> Self:
        unit: Any = type(self)
        return unit(value)  # type: ignore[no-any-return]

    def _other(self, other: Any, verb: str) -> Any:
        """The other operand without its unit; TypeError for another unit, and for what a whole number would cut."""
        name = type(self).__name__
        if isinstance(other, Quantity) and type(other) is not type(self):
            words = f"cannot {verb} {name} and {type(other).__name__}: they are different units"
            raise TypeError(f"{words}; convert one of them with int() or float() if this is meant")
        if self._plain is int and not isinstance(other, int) and verb != "compare":
            words = f"cannot {verb} {name} and {other!r}: {name} are whole numbers"
            raise TypeError(f"{words}; round it with int(), or convert the other with float()")
        return self._plain(other) if isinstance(other, Quantity) else other

    def __add__(self, other: Any) -> Self:
        return self._with_unit(self._plain(self) + self._other(other, "add"))

    __radd__ = __add__

    def __sub__(self, other: Any) -> Self:
        return self._with_unit(self._plain(self) - self._other(other, "subtract"))

    def __rsub__(self, other: Any) -> Self:
        return self._with_unit(self._other(other, "subtract") - self._plain(self))

    def __neg__(self) -> Self:
        return self._with_unit(-self._plain(self))

    def __abs__(self) -> Self:
        return self._with_unit(abs(self._plain(self)))

    def __mul__(self, other: Any) -> Self:
        if isinstance(other, Quantity):
            raise TypeError(f"{type(self).__name__} times {type(other).__name__} has no meaning here")
        if self._plain is int and not isinstance(other, int):
            return NotImplemented
        return self._with_unit(self._plain(self) * other)

    __rmul__ = __mul__

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Quantity):
            return type(other) is type(self) and bool(self._plain(self) == self._plain(other))
        return bool(self._plain(self) == other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return hash(self._plain(self))

    def __lt__(self, other: Any) -> bool:
        return bool(self._plain(self) < self._other(other, "compare"))

    def __le__(self, other: Any) -> bool:
        return bool(self._plain(self) <= self._other(other, "compare"))

    def __gt__(self, other: Any) -> bool:
        return bool(self._plain(self) > self._other(other, "compare"))

    def __ge__(self, other: Any) -> bool:
        return bool(self._plain(self) >= self._other(other, "compare"))


class Count(Quantity, int):
    """An exact whole number of something. Times or divided by a float it is a plain float.

    >>> Bytes(10) // 4, Bytes(10) / Bytes(4), Bytes(10) * 0.5
    (Bytes(2), 2.5, 5.0)
    """

    _plain = int

    def __new__(cls, value: float = 0) -> Self:
        if isinstance(value, float) and value != int(value):
            raise TypeError(f"expected a whole number of {cls.unit}, got {value!r}: round it with int()")
        return int.__new__(cls, value)

    def __truediv__(self, other: float) -> float:
        result = _QUOTIENTS.get((type(self), type(other)))
        if result is not None:
            return result(int(self) / float(other))
        return int(self) / (self._other(other, "divide") if isinstance(other, Quantity) else other)

    def __floordiv__(self, other: int) -> Any:
        quotient = int(self) // self._other(other, "divide")
        return quotient if isinstance(other, Count) else type(self)(quotient)

    def __mod__(self, other: int) -> Self:
        return type(self)(int(self) % self._other(other, "divide"))

    def __divmod__(self, other: int) -> tuple[Any, Self]:
        return self // other, self % other

    def __repr__(self) -> str:
        return f"{type(self).__name__}({int(self):_})"

    def __str__(self) -> str:
        return f"{int(self):,}"


class Measure(Quantity, float):
    """A measured or derived quantity: Seconds(3.0) / Seconds(2.0) is 1.5, Seconds(3.0) / 2 Seconds(1.5)."""

    def __truediv__(self, other: float) -> Any:
        quotient = float(self) / self._other(other, "divide")
        return quotient if isinstance(other, Measure) else type(self)(quotient)

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

DECIMAL = ("", "k", "M", "G", "T", "P", "E", "Z", "Y")
BINARY = ("", "Ki", "Mi", "Gi", "Ti", "Pi")


def human(quantity: float, *, binary: bool = False) -> str:
    """A quantity with a prefix: `34.03 GB`, with binary=True (bytes only) `31.70 GiB`; seconds as µs, ms, s, min, h,
    days, years of 365.25 days."""
    unit = getattr(quantity, "unit", "")
    if isinstance(quantity, Seconds):
        return _clock(float(quantity))
    base, prefixes = (1024.0, BINARY) if binary else (1000.0, DECIMAL)
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
