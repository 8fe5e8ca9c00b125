import json
import math
import re
from html.parser import HTMLParser
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lm.reporting.charts import (
    BOX,
    Html,
    Line,
    Scale,
    bars,
    big,
    chart,
    clip,
    comparison,
    embed,
    finite,
    number,
    quantity,
    samples,
    smooth,
    spread,
    table,
    text,
    thin,
    tick_labels,
)

VALUES = st.floats(-1e12, 1e12) | st.sampled_from([math.nan, math.inf, -math.inf, 0.0])
CURVES = st.lists(VALUES, max_size=60).map(lambda ys: [(float(i), y) for i, y in enumerate(ys)])
FINITE = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=80).map(
    lambda ys: [(float(i), y) for i, y in enumerate(ys)]
)


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


def drawn(figure):
    """The points of every path but the grid and the references."""
    for d in re.findall(r'<path class="(?:line|soft|thin|halo|dots) ?c?\d?" d="([^"]*)"', figure):
        for piece in filter(None, d.split("M")):
            yield [tuple(map(float, point.split())) for point in piece.removesuffix("h0").split("L")]


@given(CURVES, CURVES, st.booleans(), st.booleans(), st.sampled_from([0.0, 0.05]))
def test_a_chart_stays_in_its_box_and_goes_from_left_to_right(train, heldout, log, zero, enter):
    lines = [Line("each", train, 0, "thin"), Line("train", smooth(train), 0, label="train")]
    lines.append(Line("held-out", heldout, 1, "marks", "held-out"))
    figure = chart("Loss", lines, log=log, zero=zero, enter=enter, references={"gzip": 1.84, "xz": 1.66})
    for piece in drawn(figure):
        assert all(-0.1 <= value <= BOX + 0.1 for point in piece for value in point)
        assert [x for x, _ in piece] == sorted(x for x, _ in piece)
    for share in re.findall(r'style="(?:top|left):([^%]*)%"', figure):
        assert -0.1 <= float(share) <= 100.1
    assert "nan" not in figure
    assert "Infinity" not in figure


def test_a_chart_of_nothing_says_so():
    assert "nothing logged" in chart("Loss", [])
    assert "nothing logged" in chart("Loss", [Line("train", [(1.0, math.nan)])])


def test_one_point_is_a_dot():
    assert list(drawn(chart("Loss", [Line("train", [(1.0, 2.0)])]))) == [[(500.0, 500.0)]]


def test_the_beginning_of_a_curve_may_run_off_the_top():
    points = [(float(i), 9.0 if i < 3 else 2.0 + 1 / i) for i in range(100)]
    figure = chart("Loss", [Line("train", points)], enter=0.05)
    assert max(json_lines(figure)["y"]) < 3
    assert max(json_lines(chart("Loss", [Line("train", points)]))["y"]) > 9


def json_lines(figure):
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', figure)[1])


def test_the_read_out_has_the_values_and_not_the_thin_line():
    figure = chart("Loss", [Line("each", [(1.0, 3.0)], 0, "thin"), Line("train", [(1.0, 3.0), (2.0, 2.5)], 4)])
    assert json_lines(figure)["lines"] == [{"name": "train", "colour": "c4", "x": [1.0, 2.0], "y": [3.0, 2.5]}]


@given(FINITE, st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_clip_keeps_what_is_inside_and_nothing_else(run, one, other):
    low, high = sorted((one, other))
    pieces = clip(run, low, high)
    assert all(low <= y <= high for piece in pieces for _, y in piece)
    kept = {point for piece in pieces for point in piece}
    assert {(x, y) for x, y in run if low <= y <= high} <= kept
    xs = [x for piece in pieces for x, _ in piece]
    assert xs == sorted(xs)


def test_clip_cuts_where_a_line_crosses():
    assert clip([(0, 0), (1, 10)], 2, 4) == [[(0.2, 2), (0.4, 4)]]
    assert clip([(0, 3), (1, 5), (2, 3)], 2, 4) == [[(0, 3), (0.5, 4)], [(1.5, 4), (2, 3)]]


@given(st.lists(st.floats(0, 1), max_size=20), st.floats(0, 0.2))
def test_labels_keep_their_order_and_their_distance(wanted, gap):
    places = spread(wanted, gap, 0, 1)
    assert all(-1e-9 <= place <= 1 + 1e-9 for place in places)
    order = sorted(range(len(wanted)), key=lambda i: wanted[i])
    possible = min(gap, 1 / (len(wanted) - 1)) if len(wanted) > 1 else gap
    for a, b in pairwise(order):
        assert places[b] - places[a] >= possible - 1e-9


def test_labels_that_have_room_stay_where_they_are():
    assert spread([0.9, 0.1, 0.5], 0.1, 0, 1) == pytest.approx([0.9, 0.1, 0.5])


@given(FINITE)
def test_smoothing_stays_within_the_values(points):
    smoothed = smooth(points)
    assert [x for x, _ in smoothed] == [x for x, _ in points]
    ys = [y for _, y in points]
    slack = 1e-6 * max(1, max(map(abs, ys))) * len(ys)
    assert all(min(ys) - slack <= y <= max(ys) + slack for _, y in smoothed)


def test_smoothing_steps_over_what_is_no_number():
    assert smooth([(0, 1.0), (1, math.nan), (2, 1.0)]) == [(0, 1.0), (2, 1.0)]
    assert finite([(0, 1.0), (1, math.nan), (2, 3.0)]) == [[(0, 1.0)], [(2, 3.0)]]


def test_thinning_loses_no_spike():
    run = [(float(i), math.sin(i / 500)) for i in range(100_000)]
    run[54_321] = (54_321.0, 7.0)
    thinned = thin(run, 300)
    assert len(thinned) <= 602
    assert (54_321.0, 7.0) in thinned
    assert thinned[0] == run[0]
    assert thinned[-1] == run[-1]
    assert thinned == sorted(thinned)


@given(st.floats(1e-9, 1e9), st.floats(1.001, 1e6), st.booleans(), st.integers(2, 10))
def test_ticks_are_round_and_inside(low, ratio, log, count):
    scale = Scale(low, low * ratio, log)
    ticks = scale.ticks(count)
    assert ticks == sorted(ticks)
    assert 1 <= len(ticks) <= 2 * count + 2
    assert all(-1e-9 <= scale(tick) <= 1 + 1e-9 for tick in ticks)


def test_tick_labels_share_their_precision():
    assert tick_labels([0, 0.5, 1]) == (["0", "0.5", "1.0"], "")
    assert tick_labels([0, 5000, 10000]) == (["0", "5 k", "10 k"], "")
    assert tick_labels([0, 2e6]) == (["0", "2 M"], "")
    assert tick_labels([0, 0.0005, 0.001]) == (["0", "0.5", "1"], "× 10⁻³")


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
    assert "<" not in embed({"a": bad})


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
