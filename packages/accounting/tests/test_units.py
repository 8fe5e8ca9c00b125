"""Quantities do not mix, formulas say what was computed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accounting import ByteRate, Bytes, FLOPRate, FLOPs, Parameters, Seconds, TokenRate, Tokens, human
from accounting.formula import Symbol, Term, added, constant, linear_in


def test_units_refuse_each_other() -> None:
    for wrong in (
        lambda: FLOPs(1) + Bytes(1),
        lambda: Bytes(1) - Parameters(1),
        lambda: FLOPs(1) < Bytes(2),
        lambda: sum([FLOPs(1), Bytes(1)]),
        lambda: Bytes(2) * Bytes(2),
        lambda: FLOPs(1) / ByteRate(1.0),
        lambda: Seconds(1.0) + FLOPRate(1.0),
        lambda: Seconds(1.0) > Bytes(1),
        lambda: max(Tokens(1), Parameters(2)),
        lambda: Bytes(6) // FLOPs(2),
        lambda: Bytes(6) % FLOPs(4),
        lambda: Seconds(3.0) / FLOPRate(2.0),
        lambda: ByteRate(3.0) / Bytes(2),
    ):
        with pytest.raises(TypeError, match=r"unit|no meaning"):
            wrong()


def test_different_units_are_never_equal() -> None:
    assert Bytes(3) != FLOPs(3)
    assert Seconds(3.0) != Bytes(3)
    assert FLOPs(3) not in [Bytes(3)]
    assert len({Bytes(1): 1, FLOPs(1): 2}) == 2
    assert Bytes(3) == 3 == 3.0 == Bytes(3)
    assert Bytes(3) != "3"


def test_units_do_what_physics_says() -> None:
    assert isinstance(FLOPs(10) / FLOPRate(5.0), Seconds)
    assert FLOPs(10) / FLOPRate(5.0) == 2.0
    assert isinstance(Tokens(10) / Seconds(5.0), TokenRate)
    assert type(Bytes(10) / Bytes(4)) is float
    assert isinstance(sum([Bytes(1), Bytes(2)]), Bytes)
    assert Bytes(3) == 3
    assert {Bytes(3): 1}[3] == 1  # type: ignore[index]
    assert isinstance(2 * Bytes(3), Bytes)
    assert isinstance(-Bytes(3), Bytes)
    assert repr(Bytes(1000)) == "Bytes(1_000)"
    assert str(Bytes(1000)) == "1,000"


def test_units_refuse_what_would_be_cut() -> None:
    for wrong in (
        lambda: Bytes(10) + 0.9,
        lambda: Bytes(10) - 0.5,
        lambda: Bytes(10) // 2.5,
        lambda: sum([Bytes(1), 0.5]),
    ):
        with pytest.raises(TypeError, match="are whole numbers"):
            wrong()
    assert 0.9 + Bytes(10) == 10.9  # a plain float, of which nothing is cut
    assert not Bytes(10) >= 10.5
    assert Bytes(10) < 10.5
    assert Bytes(10) == 10.0
    assert Bytes(10) != 10.5
    assert Bytes(10) * 0.55 == 5.5
    assert (
        repr((Bytes(10) // 4, Bytes(10) % 4, Bytes(10) // Bytes(4), 12 - Bytes(10)))
        == "(Bytes(2), Bytes(2), 2, Bytes(2))"
    )
    assert (
        repr((Seconds(3.0) / 2, Seconds(3.0) / Seconds(2.0), 4.0 - Seconds(3.0))) == "(Seconds(1.5), 1.5, Seconds(1.0))"
    )


def test_formulas_refuse_what_would_be_cut() -> None:
    four = Symbol("batch", 4)
    for wrong in (lambda: four * 0.5, lambda: four + 0.5, lambda: four // 1.5, lambda: four - 1.0):
        with pytest.raises(TypeError, match="a formula is of whole numbers"):
            wrong()
    assert (10 - four).text() == "10 - batch"


def test_human() -> None:
    assert human(Bytes(999)) == "999 B"
    assert human(Bytes(1000)) == "1.00 kB"
    assert human(Bytes(999_999)) == "1.00 MB"
    assert human(Bytes(1 << 30), binary=True) == "1.00 GiB"
    assert human(Bytes((1 << 30) - 1), binary=True) == "1.00 GiB"
    assert human(Seconds(86_400.0)) == "24.00 h"
    assert human(Seconds(0.001)) == "1.000 ms"
    assert human(Seconds(2.88e-7)) == "0.288 µs"
    assert human(Seconds(0.0)) == "0.000 ms"
    assert human(Parameters(1_557_611_200)) == "1.56 G parameters"
    assert human(FLOPRate(1e12)) == "1.00 TFLOP/s"
    with pytest.raises(ValueError, match="bytes only"):
        human(FLOPs(1), binary=True)


def test_formula_texts() -> None:
    a, b, c = Symbol("a", 2), Symbol("b", 3), Symbol("c", 1000)
    assert (a * (b + c)).text() == "a·(b + c)"
    assert (a * (b + c)).text(values=True) == "2·(3 + 1,000)"
    assert ((a + b) // c).text() == "(a + b)//c"
    assert (c - (a - b)).text() == "c - (a - b)"
    assert (c * (b // a)).text() == "c·(b//a)"
    assert (b * (c // a * b)).text() == "b·(c//a·b)"
    assert (c // a * b).text() == "c//a·b"
    assert (1 * a + 0).text() == "a"
    assert added([Term(0), a, b]).text() == "a + b"


def test_lines_of_sums_longer_than_calls_nest() -> None:
    batch = Symbol("batch", 2)
    slope, rest = linear_in(added([constant(7), *(batch * number for number in range(2, 3002))]), "batch")
    assert (slope, rest) == (sum(range(2, 3002)), 7)


@given(st.data())
def test_formulas_evaluate_to_their_value(data: st.DataObject) -> None:
    terms: list[Term] = [Symbol(name, data.draw(st.integers(1, 9999))) for name in "abc"]
    for _ in range(data.draw(st.integers(1, 8))):
        left, right = data.draw(st.sampled_from(terms)), data.draw(st.sampled_from([*terms, 2, 7]))
        operation = data.draw(st.sampled_from("+-*/"))
        if operation == "/" and right == 0:
            continue
        terms.append(
            {"+": Term.__add__, "-": Term.__sub__, "*": Term.__mul__, "/": Term.__floordiv__}[operation](left, right)
        )
    for term in terms:
        assert eval(term.text(values=True).replace(",", "").replace("·", "*")) == term
        assert eval(term.text().replace("·", "*"), dict(zip("abc", map(int, terms), strict=False))) == term
