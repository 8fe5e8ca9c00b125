"""Whole numbers that remember how they were computed: `Symbol("batch", 4) * Symbol("seq", 1024)` is the int 4,096, and
has the texts `batch·seq` and `4·1,024`. Every figure is such a number, so that its formula is the one evaluated."""

from __future__ import annotations

from collections.abc import Iterable

# How tightly a text binds; a looser one inside a tighter one needs brackets. A product with a quotient in it is a
# quotient: a·(b//c·d) is not a·b//c·d.
_SUM, _QUOTIENT, _PRODUCT, _ATOM = 1, 2, 3, 4


class Term(int):
    """An int with its expression; + - * // % by ints give a Term, and a float raises TypeError."""

    _operation: str
    _operands: tuple[int, ...]

    def __new__(cls, value: int, operation: str = "", operands: tuple[int, ...] = ()) -> Term:
        term = int.__new__(cls, value)
        term._operation = operation
        term._operands = operands
        return term

    # adding nothing and multiplying by one would only lengthen a formula

    def __add__(self, other: int) -> Term:
        if type(other) is int and other == 0:
            return self
        return Term(int.__add__(self, _whole(other)), "+", (self, other))

    def __radd__(self, other: int) -> Term:
        if type(other) is int and other == 0:
            return self
        return Term(int.__add__(self, _whole(other)), "+", (other, self))

    def __sub__(self, other: int) -> Term:
        if type(other) is int and other == 0:
            return self
        return Term(int.__sub__(self, _whole(other)), "-", (self, other))

    def __rsub__(self, other: int) -> Term:
        return Term(_whole(other) - int(self), "-", (other, self))

    def __mul__(self, other: int) -> Term:
        if type(other) is int and other == 1:
            return self
        return Term(int.__mul__(self, _whole(other)), "·", (self, other))

    def __rmul__(self, other: int) -> Term:
        if type(other) is int and other == 1:
            return self
        return Term(int.__mul__(self, _whole(other)), "·", (other, self))

    def __floordiv__(self, other: int) -> Term:
        if type(other) is int and other == 1:
            return self
        return Term(int.__floordiv__(self, _whole(other)), "//", (self, other))

    def __mod__(self, other: int) -> Term:
        return Term(int.__mod__(self, _whole(other)), "%", (self, other))

    def text(self, *, values: bool = False) -> str:
        """The expression in symbols, or with values=True with every symbol replaced by its number."""
        return self._render(values)[0]

    def _render(self, values: bool) -> tuple[str, int]:
        if not self._operands:
            return (f"{int(self):,}", _ATOM) if values or not self._operation else (self._operation, _ATOM)
        if self._operation == "+":
            return " + ".join(_render(term, values)[0] for term in self._addends()), _SUM
        left, right = (_render(operand, values) for operand in self._operands)
        if self._operation == "-":
            return f"{left[0]} - {_bracket(right, _QUOTIENT)}", _SUM
        if self._operation in ("//", "%"):
            return f"{_bracket(left, _QUOTIENT)}{self._operation}{_bracket(right, _ATOM)}", _QUOTIENT
        binding = _QUOTIENT if left[1] == _QUOTIENT else _PRODUCT
        return f"{_bracket(left, _QUOTIENT)}·{_bracket(right, _PRODUCT)}", binding

    def _addends(self) -> list[int]:
        """The terms of a sum: there may be thousands, more than calls may be nested."""
        terms: list[int] = []
        first: int = self
        while isinstance(first, Term) and first._operation == "+":
            first, last = first._operands
            terms.append(last)
        return [first, *reversed(terms)]


def Symbol(name: str, value: int) -> Term:
    """A named number, the leaf of a formula."""
    return Term(value, name)


def constant(value: int) -> Term:
    """A plain number as a Term, where a formula is nothing but that number."""
    return value if isinstance(value, Term) else Term(value)


def added(terms: Iterable[Term]) -> Term:
    """Their sum, written as one; a plain sum() would say int."""
    total = Term(0)
    for term in terms:
        if term._operands or term:  # a plain nothing would only lengthen the formula
            total = term if not total._operands and total == 0 else total + term
    return total


def linear_in(term: int, name: str) -> tuple[int, int]:
    """(slope, rest) of a term that is a straight line in the symbol of this name: term = slope · symbol + rest.

    ValueError: the symbol is multiplied by itself, or divided.

    >>> slope, rest = linear_in(2 * (Symbol("batch", 3) * Symbol("seq", 5)) + 7, "batch")
    >>> slope.text(), rest
    ('2·seq', 7)
    """
    if not isinstance(term, Term) or not term._operands:
        named = isinstance(term, Term) and term._operation == name
        return (1, 0) if named else (0, term)
    if term._operation == "+":
        slope, rest = linear_in(term._addends()[0], name)
        for addend in term._addends()[1:]:
            one, other = linear_in(addend, name)
            slope, rest = _sum(slope, one), _sum(rest, other)
        return slope, rest
    left, right = (linear_in(operand, name) for operand in term._operands)
    if term._operation == "-":
        return _sum(left[0], right[0], -1), _sum(left[1], right[1], -1)
    if _is(left[0], 0) and _is(right[0], 0):
        return 0, term
    if term._operation == "·" and _is(right[0], 0):
        return _product(left[0], right[1]), _product(left[1], right[1])
    if term._operation == "·" and _is(left[0], 0):
        return _product(left[1], right[0]), _product(left[1], right[1])
    raise ValueError(f"{term.text()} is no straight line in {name}")


def _product(left: int, right: int) -> int:
    """left · right, and a plain nothing where one of them is one."""
    return 0 if _is(left, 0) or _is(right, 0) else left * right


def _sum(left: int, right: int, sign: int = 1) -> int:
    """left + right or left - right, without a nothing in the formula."""
    if _is(right, 0):
        return left
    if _is(left, 0) and sign > 0:
        return right
    return left + right if sign > 0 else left - right


def _is(operand: int, number: int) -> bool:
    """True for a plain int that is this number; one with a name belongs into the formula."""
    return type(operand) is int and operand == number


def _whole(operand: object) -> int:
    """The operand as an int; TypeError for what is no whole number, which a formula would cut."""
    if not isinstance(operand, int):
        raise TypeError(f"a formula is of whole numbers, and {operand!r} is none: use // by an int, or float() first")
    return operand


def _render(operand: int, values: bool) -> tuple[str, int]:
    return operand._render(values) if isinstance(operand, Term) else (f"{int(operand):,}", _ATOM)


def _bracket(rendered: tuple[str, int], at_least: int) -> str:
    text, binding = rendered
    return text if binding >= at_least else f"({text})"
