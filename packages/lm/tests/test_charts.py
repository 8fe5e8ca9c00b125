import base64
import math
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lm.reporting.charts import (
    Html,
    Line,
    bars,
    big,
    chart,
    comparison,
    number,
    picture,
    quantity,
    samples,
    smooth,
    table,
    text,
)

VALUES = st.floats(-1e12, 1e12) | st.sampled_from([math.nan, math.inf, -math.inf, 0.0])
CURVES = st.lists(VALUES, max_size=60).map(lambda ys: [(float(i), y) for i, y in enumerate(ys)])
FINITE = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=80).map(
    lambda ys: [(float(i), y) for i, y in enumerate(ys)]
)


def svg_of(figure):
    """The drawing in a figure."""
    return base64.b64decode(re.search(r"base64,([^\"]*)", figure)[1]).decode()


def y_labels(svg):
    """The numbers on the y axis of a drawing."""
    axis = svg[svg.index('id="matplotlib.axis_2"') :]
    axis = axis[: axis.index('<g id="legend') if '<g id="legend' in axis else None]
    return [
        float(label.replace(",", "").replace("\u2212", "-")) for label in re.findall(r">([-\u2212.,\d]+)</text>", axis)
    ]


class Words(HTMLParser):
    """The text of a page, without what stands in scripts."""

    def __init__(self, page):
        super().__init__()
        self.words, self.tags, self.script = "", [], False
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.script = tag == "script"

    def handle_endtag(self, tag):
        self.script = False

    def handle_data(self, data):
        self.words += "" if self.script else data


def three(train, heldout):
    lines = [Line("each", train, 0, "thin"), Line("train", smooth(train), 0, label="train")]
    return [*lines, Line("held-out", heldout, 1, "marks", "held-out")]


@settings(max_examples=10, deadline=None)
@given(CURVES, CURVES, st.booleans(), st.booleans(), st.booleans())
def test_any_curves_are_a_drawing(train, heldout, log, zero, wide):
    figure = chart("Loss", three(train, heldout), wide=wide, log=log, zero=zero, references={"gzip": 1.84})
    svg = svg_of(figure) if "<img" in figure else ""
    assert "nan" not in svg.lower()
    assert not svg or "gzip 1.84" in svg
    named = set(re.findall(r'(?:url\(|href=")#([^")]+)', svg))
    assert named <= set(re.findall(r'id="([^"]+)"', svg))
    Words(figure)


def test_a_drawing_has_letters_as_text_and_its_colours_in_turn():
    svg = svg_of(chart("Loss", [Line("a", [(1, 2.0), (2, 3.0)], 0, label="a"), Line("b", [(1, 3.0), (2, 2.0)], 11)]))
    assert {"#2a5b8c", "#86529a"} <= set(re.findall("#[0-9a-f]{6}", svg))
    assert "stroke-dasharray" in svg  # the twelfth line has the colour of the fourth
    assert ">a 3</text>" in svg
    assert picture([Line("a", [(1, 2.0)])], wide=False).count('width="434pt"') == 1


def test_the_same_chart_has_the_same_bytes():
    lines = three([(float(i), 1 / (i + 1)) for i in range(50)], [(0.0, 1.0), (40.0, 0.1)])
    assert chart("Loss", lines, wide=True) == chart("Loss", lines, wide=True)


def test_a_chart_of_nothing_says_so():
    assert "nothing logged" in chart("Loss", [])
    assert "nothing logged" in chart("Loss", [Line("train", [(1.0, math.nan)])])


def test_one_point_is_a_dot():
    line = [(1.0, 2.0), (2.0, 1.0)]
    alone, both = (svg_of(chart("Loss", [Line("train", line[:count])])) for count in (1, 2))
    lines = [svg[svg.index('id="line2d_') :] for svg in (alone, both)]
    assert lines[0].count("<use") > lines[1].count("<use")


def test_what_rises_above_the_ceiling_does_not_flatten_the_rest():
    points = [(float(i), 9.0 if i < 3 else 2.0 + 1 / i) for i in range(100)]
    assert max(y_labels(svg_of(chart("Loss", [Line("train", points)], ceiling=2.5)))) < 3
    assert max(y_labels(svg_of(chart("Loss", [Line("train", points)])))) > 7


def test_a_reader_of_screens_hears_the_ends_and_not_the_thin_line():
    figure = chart("Loss", [Line("each", [(1.0, 9.0)], 0, "thin"), Line("train", [(1.0, 3.0), (2.0, 2.5)], 4)])
    assert 'alt="Loss by step: train ends at 2.5"' in figure


@given(FINITE)
def test_smoothing_stays_within_the_values(points):
    smoothed = smooth(points)
    assert [x for x, _ in smoothed] == [x for x, _ in points]
    ys = [y for _, y in points]
    slack = 1e-6 * max(1, max(map(abs, ys))) * len(ys)
    assert all(min(ys) - slack <= y <= max(ys) + slack for _, y in smoothed)


def test_smoothing_steps_over_what_is_no_number():
    assert smooth([(0, 1.0), (1, math.nan), (2, 1.0)]) == [(0, 1.0), (2, 1.0)]


def test_a_long_curve_has_a_small_drawing_that_loses_no_spike():
    points = [(float(i), math.sin(i * i)) for i in range(100_000)]
    points[54_321] = (54_321.0, 7.0)
    figure = chart("Loss", [Line("train", points)])
    assert len(figure) < 400_000
    assert max(y_labels(svg_of(figure))) >= 5


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (12345, "12,345"),
        (1.6321, "1.632"),
        (0.00061, "6.1 × 10⁻⁴"),
        (0, "0"),
        (-2.5, "−2.5"),
        (math.nan, "not a number"),
    ],
)
def test_numbers_read_well(value, shown):
    assert number(value) == shown


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (None, "", "—"),
        (7_345_920, "", "7,345,920"),
        (7_345_920.0, "", "7.35 M"),
        (612 * 2**20, "B", "612 MiB"),
        (512, "B", "512 B"),
        (19_480.2, "tokens/s", "19.5 k tokens/s"),
        (1.12e12, "FLOP", "1.12 TFLOP"),
        (42.5, "s", "42.5 s"),
        (300, "s", "5 min 0 s"),
        (7260, "s", "2 h 1 min"),
    ],
)
def test_quantities_carry_their_unit(value, unit, shown):
    assert quantity(value, unit) == shown


def test_everything_given_is_escaped():
    bad = "</script><b>&\"'"
    shown = [
        table([bad], [[bad]]),
        bars([(bad, 1.0, bad)], highlight=bad),
        big([(bad, bad, bad)]),
        samples([(bad, bad)]),
        comparison([(bad, 1, 2)]),
        chart(bad, [Line(bad, [(1.0, 1.0)], label=bad)], note=bad, x_name=bad, references={bad: 1.0}),
    ]
    for fragment in shown:
        assert bad in Words(fragment).words
        assert bad not in fragment
        assert fragment.count("</script>") == fragment.count("<script")


def test_text_shows_what_a_page_cannot_carry():
    assert text("a\x00b\x1b\n\t\r") == "a␀b␛\n\t␍"
    assert text("\ud800") == "?"
    assert text(Html("<b>x</b>")) == "<b>x</b>"


def test_a_table_sets_numbers_right_with_the_same_decimals():
    shown = table(["name", "size", "loss"], [["a", 12345, 1.5], ["b", None, 1.625]])
    assert '<td class="n">12,345</td><td class="n">1.500</td>' in shown
    assert '<td class="n">—</td><td class="n">1.625</td>' in shown
    assert "<td>a</td>" in shown
    assert "<th>a</th>" in table(["a"], [])


def test_a_table_refuses_rows_of_another_length():
    with pytest.raises(ValueError, match="argument"):
        table(["a", "b"], [["only one"]])


def test_bars_are_in_proportion_and_one_may_stand_out():
    shown = bars([("this model", 1.0, "1.0"), ("xz", 2.0, "2.0"), ("odd", math.nan, "?")], highlight="this model")
    assert re.findall(r"width:([\d.]+)%", shown) == ["50.00", "100.00", "0.00"]
    assert shown.count("bar own") == 1


def test_a_comparison_says_by_how_much():
    words = Words(comparison([("memory", 100, 107, "B"), ("parameters", 5, 5), ("time", 3, None, "s")])).words
    assert "+7.0 %" in words
    assert "exact" in words
    assert words.rstrip().endswith("——")
