import base64
import json
import math
import os
import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from runs import environment

from lm.extras import MissingExtra
from lm.reporting import report
from lm.reporting.charts import Html, Line, chart, comparison, number, quantity, smooth, table, text

VALUES = st.floats(-1e12, 1e12) | st.sampled_from([math.nan, math.inf, -math.inf, 0.0])
CURVES = st.lists(VALUES, max_size=60).map(lambda ys: [(float(i), y) for i, y in enumerate(ys)])
FINITE = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=80).map(
    lambda ys: [(float(i), y) for i, y in enumerate(ys)]
)
VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """A page as a browser would build it; fails where tags do not nest."""

    def __init__(self, source):
        super().__init__()
        self.open, self.attributes, self.words = [], [], ""
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += "" if self.open and self.open[-1] == "style" else data


def drawings(source):
    """The charts of a page as SVG."""
    return [base64.b64decode(one).decode() for one in re.findall(r"base64,([^\"]*)", source)]


def y_labels(svg):
    """The numbers on the y axis of a drawing."""
    axis = svg[svg.index('id="matplotlib.axis_2"') :].partition('<g id="legend')[0]
    return [float(label.replace("\u2212", "-")) for label in re.findall(r">([-\u2212.\d]+)</text>", axis)]


def metrics(steps=40, heldout_every=10, offset=0.0):
    for step in range(1, steps + 1):
        loss = 2 + 6 / step**0.5 + offset
        yield {
            "step": step, "tokens": step * 1024, "loss": loss, "bits_per_byte": loss / 3, "learning_rate": 1e-3 / step,
            "gradient_norm": 1 / step, "tokens_per_second": 9000 + step, "seconds": step / 9,
        }  # fmt: skip
        if step % heldout_every == 0:
            yield {"step": step, "val_loss": loss + 0.1, "val_bits_per_byte": loss / 3 + 0.03}


@pytest.fixture
def run(tmp_path):
    def make(name="a-run", lines=None, config="[model]\nd_model = 256\n[train]\nlearning_rate = 0.001\n", tail=""):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        (folder / "config.toml").write_text(config, "utf-8")
        if lines is not None:
            (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + tail, "utf-8")
        return folder

    return make


def page(path):
    return Page(path.read_text("utf-8"))


# Charts and tables


@settings(max_examples=5, deadline=None)
@given(CURVES, CURVES, st.booleans())
def test_any_curves_are_a_drawing(train, heldout, log):
    lines = [Line("each", train, 0, "thin"), Line("train", smooth(train), 0, label="train")]
    figure = chart(
        "Loss", [*lines, Line("held-out", heldout, 1, "marks", "held-out")], log=log, references={"xz": 1.84}
    )
    Page(figure)
    for svg in drawings(figure):
        assert "xz 1.84" in svg
        assert set(re.findall(r'(?:url\(|href=")#([^")]+)', svg)) <= set(re.findall(r'id="([^"]+)"', svg))


def test_a_drawing_has_letters_as_text_and_its_colours_in_turn():
    lines = [Line("a", [(1, 2.0), (2, 3.0)], 0, label="a"), Line("b", [(1, 3.0), (2, 2.0)], 3), Line("c", [(1, 1.0)])]
    (svg,) = drawings(chart("Loss", lines))
    assert {"#1f77b4", "#d62728"} <= set(re.findall("#[0-9a-f]{6}", svg))
    assert ">a 3</text>" in svg
    assert [svg] == drawings(chart("Loss", lines))  # to the byte
    assert "<use" in svg.partition('id="matplotlib.axis_2"')[2]  # the third line's one point is a dot


def test_a_chart_is_described_to_readers_of_screens_and_may_be_of_nothing():
    figure = chart("Loss", [Line("each", [(1.0, 9.0)], 0, "thin"), Line("train", [(1.0, 3.0), (2.0, 2.5)], 4)])
    assert 'alt="Loss by step: train ends at 2.5"' in figure
    assert "nothing logged" in chart("Loss", [Line("train", [(1.0, math.nan)])])


def test_values_above_the_ceiling_do_not_flatten_the_rest():
    lines = [Line("train", [(float(i), 9.0 if i < 3 else 2.0 + 1 / i) for i in range(100)])]
    low, high = (max(y_labels(*drawings(chart("Loss", lines, ceiling=top)))) for top in (2.5, math.inf))
    assert low < 3 < 7 < high


@settings(max_examples=25)
@given(FINITE)
def test_smoothing_stays_within_the_values(points):
    smoothed = smooth([*points, (99.0, math.nan)])
    assert [x for x, _ in smoothed] == [x for x, _ in points]
    ys = [y for _, y in points]
    slack = 1e-6 * max(1, max(map(abs, ys))) * len(ys)
    assert all(min(ys) - slack <= y <= max(ys) + slack for _, y in smoothed)


@pytest.mark.parametrize(
    ("value", "shown"),
    [(12345, "12,345"), (1.6321, "1.632"), (0.00061, "0.00061"), (0, "0"), (-2.5, "-2.5"), (math.nan, "nan")],
)
def test_numbers_read_well(value, shown):
    assert number(value) == shown


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (None, "", "—"),
        (7_345_920.0, "", "7.35 M"),
        (612 * 2**20, "B", "612 MiB"),
        (512, "B", "512 B"),
        (19_480.2, "tokens/s", "19.5 ktokens/s"),
        (1.12e12, "FLOP", "1.12 TFLOP"),
        (42.5, "s", "42.5 s"),
        (300, "s", "5 min 0 s"),
    ],
)
def test_quantities_carry_their_unit(value, unit, shown):
    assert quantity(value, unit) == shown


def test_everything_given_is_escaped():
    bad = "</script><b>&\"'"
    shown = [
        table([bad], [[bad]]),
        comparison([(bad, 1, 2)]),
        chart(bad, [Line(bad, [(1.0, 1.0)], label=bad)], note=bad, x_name=bad, references={bad: 1.0}),
    ]
    for fragment in shown:
        assert bad in Page(fragment).words
        assert bad not in fragment
    assert text("a\x00b\x1b\n\t\r\ud800") == "a␀b␛\n\t␍?"
    assert text(Html("<b>x</b>")) == "<b>x</b>"


def test_tables_and_comparisons():
    assert '<td>a</td><td class="n">12,345</td><td>—</td>' in table(["", "", ""], [["a", 12345, None]])
    words = Page(comparison([("memory", 100, 107, "B"), ("time", 3, None, "s")])).words
    assert "+7.0 %" in words
    assert "3 s——" in words


# Pages of runs


def test_a_run_becomes_one_page_that_needs_nothing_else(run):
    folder = run(lines=metrics())
    path = report.write(folder, reference_lines={"gzip -9": 1.84, "xz -9e": 1.66})
    assert path == folder / "report.html"
    source = path.read_text("utf-8")
    built = Page(source)
    assert not re.search(r"https?:|url\((?!#)|@import|<link|<script|<iframe", source)
    links = [value for name, value in built.attributes if name in ("src", "href", "action", "onclick")]
    assert links
    assert all(link.startswith("data:image/svg+xml;base64,") for link in links)
    for heading in ("Bits per byte", "Loss", "Learning rate", "Gradient norm", "Speed", "Configuration", "Environment"):
        assert heading in built.words
    assert "a-run is so far at 1.013 bits per byte of held-out text, at step 40." in built.words
    assert "gzip -9 1.84" in drawings(source)[0]
    assert sorted(os.listdir(folder)) == ["config.toml", "metrics.jsonl", "report.html"]


def test_what_the_caller_gives_stands_in_its_place_and_is_escaped(run):
    bad = "<script>alert('&')</script>"
    folder = run(name="a&b", lines=metrics(3), config='[model]\nname = "<i>&"\n"<key>" = [1, true]\n')
    path = report.write(
        folder,
        title=bad,
        headline=bad,
        leading=[report.Section("Found", "<p>it</p>")],
        sections=[report.Section(bad, table([bad], [[bad]]), bad), report.Section("Half \ud83d", "<p>raw</p>")],
        reference_lines={bad: 1.5},
        environment={bad: bad},
    )
    built = page(path)
    assert bad not in path.read_text("utf-8")
    assert built.words.count(bad) >= 9
    assert "<i>&" in built.words
    assert "1, true" in built.words
    order = [built.words.index(name) for name in ("Found", "Curves", "Half", "Configuration", "Environment")]
    assert order == sorted(order)


def test_metrics_that_a_killed_run_left(run):
    whole = report.read(run("whole", metrics(5)))
    cut = report.read(run("cut", metrics(5), tail='{"step": 201, "loss": 1.'))
    assert (cut.records, cut.damaged) == (whole.records, 0)
    folder = run(lines=metrics(5), tail='{"step": 11, "lo{"step": 12, "loss": 2}\n{"step": 13, "loss": 2.5}\n')
    read = report.read(folder)
    assert [record["step"] for record in read.records] == [*range(1, 6), 13]
    assert read.damaged == 1
    assert "1 unreadable lines left out" in page(report.write(folder)).words


def test_a_resumed_run_counts_its_later_lines(run):
    read = report.read(run(lines=[*metrics(20), {"step": 15, "loss": 9.0}, {"step": 21, "loss": 1.0}]))
    assert [x for x, _ in read.points("loss")] == list(range(1, 22))
    assert dict(read.points("loss"))[15] == 9.0
    assert read.last("loss") == 1.0
    lines = [{"step": 1, "skipped": "the loss is inf"}, {"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}]
    assert report.read(run("b", lines)).skipped == {}


def test_runs_without_steps_or_numbers_have_a_page(run):
    assert "No step has been logged yet" in page(report.write(run(lines=[]))).words
    assert "No step has been logged yet" in page(report.write(run("none"))).words
    bad = [{"step": i, "loss": math.nan, "gradient_norm": math.inf} for i in range(3)]
    words = page(report.write(run("bad", bad))).words
    assert "nothing logged" in words
    assert "was not a finite number in 3 steps" in words


def test_a_run_without_bytes_shows_its_loss_large(run):
    lines = [{k: v for k, v in line.items() if "bits_per_byte" not in k} for line in metrics(5)]
    source = report.write(run(lines=lines)).read_text("utf-8")
    assert "Bits per byte" not in source
    assert source.count("<figure class=wide>") == 1
    assert "The training loss ends at 4.683." in source


def test_many_runs_are_overlaid_by_tokens(run, tmp_path):
    folders = [run(f"run{i:02}", metrics(12, 4, i / 10), f"[train]\nseed = {i}\nsteps = 5\n") for i in range(12)]
    path = report.write(folders, tmp_path / "all.html")
    source = path.read_text("utf-8")
    assert path == tmp_path / "all.html"
    assert "run00, run01, run02, run03" in source
    assert "run00 ends lowest of 12" in source
    first = drawings(source)[0]
    assert "tokens read" in first
    assert {"#1f77b4", "#ff7f0e", "#2ca02c"} <= set(re.findall("#[0-9a-f]{6}", first))
    configuration = source.rpartition("<h2>Configuration</h2>")[2].partition("<h2>")[0]
    assert "<th>train.seed</th>" in configuration  # a row for each run: as wide as the settings that differ
    assert "<td>train.steps</td><td>5</td>" in configuration
    assert configuration.count("<tr>") == 12 + 3


def test_runs_of_one_name_are_told_apart_by_their_folders_or_given_names(run):
    folders = [run("x/run", metrics(5)), run("y/run", metrics(5))]
    words = page(report.write(folders)).words
    assert str(folders[0]) in words
    assert str(folders[1]) in words
    attributes = page(report.write(folders, names=["low", "high"])).attributes
    assert any(name == "alt" and "low, train ends at" in value for name, value in attributes)


def test_what_cannot_be_read_is_named(tmp_path, run):
    with pytest.raises(FileNotFoundError, match="nowhere is not a run folder"):
        report.write(tmp_path / "nowhere")
    with pytest.raises(ValueError, match="at least one"):
        report.write([])
    with pytest.raises(ValueError, match=r"config\.toml"):
        report.read(run("a", config="= nothing"))
    with pytest.raises(ValueError, match=r"metrics\.jsonl: not one of its 2 lines"):
        report.read(run("b", [], tail="[1]\nnothing\n"))
    (run("e") / "environment.json").write_text("{")
    with pytest.raises(ValueError, match=r"environment\.json"):
        report.read(tmp_path / "e")


def test_drawing_needs_no_torch():
    code = "import sys, lm.reporting.report; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=environment()).returncode == 0


def test_the_environment_is_the_runs_own_and_what_is_added(run):
    folder = run(lines=metrics(3))
    (folder / "environment.json").write_text(json.dumps({"torch": "9.8.7", "processors": 12345}))
    words = page(report.write(folder, environment={"corpus": "plays"})).words
    for part in ("9.8.7", "12,345", "plays"):
        assert part in words


def test_a_page_of_a_run_that_goes_on_loads_itself_again(run):
    folder = run(lines=metrics(), config="[train]\nsteps = 300\n")
    assert not report.read(folder).finished
    assert ("content", "7") in page(report.write(folder, refresh=7.2)).attributes
    assert 'http-equiv="refresh"' not in report.write(folder).read_text("utf-8")
    assert report.read(run("done", metrics(), config="[train]\nsteps = 40\n")).finished


def test_the_sets_of_a_mixture_and_the_use_of_the_device_have_charts(run):
    lines = [{"step": i, "loss": 2.0, "mfu": 0.4, "val_loss/web": 3 - i / 9, "val_loss/code": 2.0} for i in range(1, 9)]
    source = report.write(run(lines=lines)).read_text("utf-8")
    assert "Use of the device" in source
    assert ">web 2.111</text>" in drawings(source)[-1]
    assert ">code 2</text>" in drawings(source)[-1]


def test_a_run_that_goes_through_the_roof_does_not_press_the_others_flat(run):
    wild = [{**line, "bits_per_byte": 9 + line["step"]} for line in metrics(heldout_every=999)]
    source = report.write([run("tame", metrics(200)), run("wild", wild)]).read_text("utf-8")
    assert max(y_labels(drawings(source)[0])) < 13


def test_without_matplotlib_a_report_names_the_extra(run, monkeypatch):
    folder = run(lines=metrics(3))
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtra, match=re.escape("groundup-lm[report]")):
        report.write([folder])


def test_a_run_that_diverged_says_so_first(run):
    lines = [*metrics(), *({"step": step, "skipped": "the loss is nan"} for step in range(41, 51))]
    folder = run(lines=lines, config="[train]\nsteps = 300\n")
    words = page(report.write(folder)).words
    assert "a-run diverged: it stopped at step 50, where the loss is nan." in words
    assert "10 steps changed no weight; the last, 50: the loss is nan." in words
    assert "bits per byte of held-out text, at step 40" in words
    finished = run("finished", lines=metrics(), config="[train]\nsteps = 40\n")
    beside = page(report.write([folder, finished])).words
    assert "is so far lowest of 2" in beside
    assert "finished diverged" not in beside


def test_a_name_does_not_turn_what_stands_beside_it(run, tmp_path):
    marks = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    written = report.write([run(f"a{marks}b", metrics(3)), run("c", metrics(3))], tmp_path / "page.html")
    source = written.read_text("utf-8")
    assert not set(marks) & set(source)
    assert not any(set(marks) & set(drawing) for drawing in drawings(source))
