import base64
import json
import math
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from importlib import resources

import pytest

from lm.config import ModelConfig
from lm.extras import MissingExtra
from lm.interop.card import card
from lm.reporting import report
from lm.reporting.charts import table

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """A page as a browser would build it; fails where tags do not nest."""

    def __init__(self, source):
        super().__init__()
        self.open, self.attributes, self.words, self.data = [], [], "", {}
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
        if self.open and self.open[-1] in ("script", "style"):
            self.data.setdefault(self.open[-1], []).append(data)
        else:
            self.words += data


def metrics(steps=200, heldout_every=50, offset=0.0):
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
        folder.mkdir()
        (folder / "config.toml").write_text(config, "utf-8")
        if lines is not None:
            (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + tail, "utf-8")
        return folder

    return make


def page(path):
    return Page(path.read_text("utf-8"))


def drawings(path):
    """The charts of a page as SVG."""
    sources = re.findall(r"base64,([^\"]*)", path.read_text("utf-8"))
    return [base64.b64decode(source).decode() for source in sources]


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
    assert "a-run" in built.words
    assert "200 steps" in built.words
    assert "gzip -9 1.84" in drawings(path)[0]
    assert sorted(os.listdir(folder)) == ["config.toml", "metrics.jsonl", "report.html"]


def test_the_headline_says_how_it_compares(run):
    folder = run(lines=metrics())
    words = page(report.write(folder, reference_lines={"gzip": 2.0, "xz": 1.25}, bits_per_byte=1.5)).words
    assert "1.500 bits per byte: 20.0 % more than xz and 25.0 % less than gzip." in words
    assert "held-out text, 3 s" in page(report.write(folder, headline="held-out text, 3 s")).words
    assert "The training loss ends at 2.424" in page(report.write(run("b", metrics(heldout_every=999)))).words


def test_what_the_caller_gives_stands_in_its_place_and_is_escaped(run):
    bad = "<script>alert('&')</script>"
    folder = run(name="a&b", lines=metrics(), config='[model]\nname = "<i>&"\n"<key>" = [1, true]\n')
    path = report.write(
        folder,
        title=bad,
        headline=bad,
        figures=[(bad, bad, bad)],
        sections=[report.Section(bad, table([bad], [[bad]]), bad), report.Section("Second", "<p>raw</p>")],
        reference_lines={bad: 1.5},
        environment={bad: bad},
    )
    built = page(path)
    assert bad not in path.read_text("utf-8")
    assert built.words.count(bad) >= 12
    assert "<i>&" in built.words
    assert "<key>" in built.words
    assert "1, true" in built.words
    order = [built.words.index(name) for name in ("Curves", "Second", "Configuration", "Environment")]
    assert order == sorted(order)
    assert "<p>raw</p>" in path.read_text("utf-8")


def test_a_line_cut_off_at_the_end_is_passed_over(run):
    whole = report.read(run("whole", metrics()))
    cut = report.read(run("cut", metrics(), tail='{"step": 201, "loss": 1.'))
    assert cut.records == whole.records
    assert cut.damaged == 0


def test_a_line_that_a_killed_run_left_is_counted(run):
    folder = run(lines=metrics(10), tail='{"step": 11, "lo{"step": 12, "loss": 2}\n{"step": 13, "loss": 2.5}\n')
    read = report.read(folder)
    assert [record["step"] for record in read.records] == [*range(1, 11), 13]
    assert read.damaged == 1
    assert "1 unreadable line left out" in page(report.write(folder)).words


def test_a_resumed_run_counts_its_later_lines(run):
    read = report.read(run(lines=[*metrics(20), {"step": 15, "loss": 9.0}, {"step": 21, "loss": 1.0}]))
    assert [x for x, _ in read.points("loss")] == list(range(1, 22))
    assert dict(read.points("loss"))[15] == 9.0
    assert read.last("loss") == 1.0


@pytest.mark.parametrize("lines", [None, []])
def test_a_run_without_steps_has_a_page(run, lines):
    assert "No step has been logged yet" in page(report.write(run(lines=lines))).words


def test_what_is_no_number_is_left_out_and_told(run):
    lines = list(metrics(50))
    for line in lines[10:13]:
        line["loss"] = line["bits_per_byte"] = math.nan
    lines[20]["gradient_norm"] = math.inf
    source = report.write(run(lines=lines)).read_text("utf-8")
    assert "not a finite number in 3 steps" in Page(source).words
    assert not re.search(r"\bNaN\b|\bInfinity\b|\bnan\b", source)


def test_nothing_but_bad_numbers_still_has_a_page(run):
    lines = [{"step": i, "loss": math.nan, "gradient_norm": math.inf, "tokens_per_second": 0} for i in range(3)]
    assert "nothing logged" in page(report.write(run(lines=lines))).words


def test_a_run_without_bytes_shows_its_loss_large(run):
    lines = [{k: v for k, v in line.items() if "bits_per_byte" not in k} for line in metrics()]
    source = report.write(run(lines=lines)).read_text("utf-8")
    assert "Bits per byte" not in source
    assert source.count('class="chart wide') == 1


def test_many_runs_are_overlaid_by_tokens(run, tmp_path):
    folders = [run(f"run{i}", metrics(100 + 20 * i, 20, i / 10), f"[train]\nseed = {i}\nsteps = 5\n") for i in range(3)]
    path = report.write(folders, tmp_path / "all.html")
    built = page(path)
    assert path == tmp_path / "all.html"
    assert "3 training runs" in built.words
    assert "run0 ends lowest of 3" in built.words
    first = drawings(path)[0]
    assert "tokens read" in first
    assert {"#2a5b8c", "#b1521f", "#47794a"} <= set(re.findall("#[0-9a-f]{6}", first))
    configuration = path.read_text("utf-8").rpartition("<h2>Configuration</h2>")[2]
    assert "<th>train.seed</th>" in configuration or ">train.seed</th>" in configuration
    assert "<dt>train.steps</dt>" in configuration


@pytest.mark.parametrize(("by", "axis"), [("step", "step"), ("tokens", "tokens read"), ("time", "seconds of training")])
def test_curves_are_over_what_is_asked_for(run, by, axis):
    path = report.write([run(f"r{i}", metrics()) for i in range(2)], by=by)
    assert all(f">{axis}</text>" in drawing for drawing in drawings(path))
    with pytest.raises(ValueError, match="use one of step, tokens, time"):
        report.write(run("r9", metrics()), by="weather")


def test_more_runs_than_colours_are_told_apart(run, tmp_path):
    folders = [run(f"run{i:02}", metrics(40, 20, i / 10), f"[train]\nseed = {i}\nsteps = 5\n") for i in range(20)]
    path = report.write(folders, tmp_path / "all.html")
    source = path.read_text("utf-8")
    assert len(set(re.findall(r'<i class="swatch ([^"]*)"', source))) == 20
    for kind in ("d1", "d2"):
        assert f".swatch.{kind}" in source
    configuration = source.rpartition("<h2>Configuration</h2>")[2]
    assert (
        configuration.count("<th>") + configuration.count("<th ") == 2
        # A row for each run: the table is as wide as the settings that differ.
    )
    assert configuration.count("<tr>") == 21


def test_runs_of_one_name_are_told_apart_by_their_folders(run, tmp_path):
    for parent in ("x", "y"):
        (tmp_path / parent).mkdir()
    folders = [run("x/run", metrics()), run("y/run", metrics())]
    words = page(report.write(folders)).words
    assert str(folders[0]) in words
    assert str(folders[1]) in words


def test_a_folder_that_is_no_run_is_named(tmp_path, run):
    with pytest.raises(FileNotFoundError, match="nowhere is not a run folder"):
        report.write(tmp_path / "nowhere")
    with pytest.raises(FileNotFoundError, match="is not a run folder"):
        report.write([run(lines=metrics()), tmp_path])
    with pytest.raises(ValueError, match="at least one"):
        report.write([])


def test_files_that_cannot_be_read_are_named(run):
    with pytest.raises(ValueError, match=r"config\.toml"):
        report.read(run("a", config="= nothing"))
    with pytest.raises(ValueError, match=r"metrics\.jsonl: not one of its 2 lines"):
        report.read(run("b", [], tail="[1]\nnothing\n"))
    with pytest.raises(ValueError, match="'xz' is 0"):
        report.write(run("c"), reference_lines={"xz": 0})


def test_a_page_that_cannot_be_written_leaves_the_old_one(run, monkeypatch):
    folder = run(lines=metrics())
    path = report.write(folder)
    before = path.read_bytes()

    def full(source, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        report.write(folder, title="another")
    assert path.read_bytes() == before
    assert sorted(os.listdir(folder)) == ["config.toml", "metrics.jsonl", "report.html"]


def test_a_section_with_broken_text_is_still_written(run):
    assert report.write(run(), sections=[report.Section("Half", "\ud83d")]).exists()


def test_drawing_needs_no_torch():
    code = "import sys, lm.reporting.report; sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    paths = os.pathsep.join(sys.path)
    assert subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": paths}).returncode == 0


def test_what_a_run_was_made_with_is_told(run):
    folder = run(lines=metrics())
    assert "Of the machine that drew this page" in page(report.write(folder)).words
    (folder / "environment.json").write_text(json.dumps({"torch": "9.8.7", "processors": 12345}))
    words = page(report.write(folder, environment={"corpus": "plays"})).words
    for part in ("9.8.7", "12,345", "plays"):
        assert part in words
    assert "that drew this page" not in words
    other = run("other", metrics())
    source = report.write([folder, other]).read_text("utf-8")
    assert "<td>9.8.7</td>" in source
    (folder / "environment.json").write_text("{")
    with pytest.raises(ValueError, match=r"environment\.json"):
        report.write(folder)


def test_settings_that_differ_between_runs_come_first(run):
    folders = [run(f"r{i}", metrics(), f"[train]\nsteps = 5\nseed = {i}\n") for i in range(2)]
    words = page(report.write(folders)).words
    assert words.index("train.seed") < words.index("train.steps")


def test_runs_by_other_names_and_sections_before_the_curves(run):
    folders = [run(f"folder-{i}", metrics()) for i in range(2)]
    words = page(report.write(folders, names=["low", "high"], leading=[report.Section("Found", "<p>it</p>")])).words
    assert words.index("Found") < words.index("Runs")
    attributes = page(report.write(folders, names=["low", "high"])).attributes
    assert any(name == "alt" and "low, train ends at" in value for name, value in attributes)
    assert "folder-" not in words


def test_a_page_of_a_run_that_goes_on_loads_itself_again(run):
    folder = run(lines=metrics(), config="[train]\nsteps = 300\n")
    assert not report.read(folder).finished
    assert ("content", "7") in page(report.write(folder, refresh=7.2)).attributes
    assert "refresh" not in report.write(folder).read_text("utf-8").partition("<style>")[0]
    assert report.read(run("done", metrics(), config="[train]\nsteps = 200\n")).finished


def test_the_sets_of_a_mixture_and_the_use_of_the_device_have_charts(run):
    lines = [{"step": i, "loss": 2.0, "mfu": 0.4, "val_loss/web": 3 - i / 9, "val_loss/code": 2.0} for i in range(1, 9)]
    path = report.write(run(lines=lines))
    assert "Use of the device" in page(path).words
    assert ">web 2.111</text>" in drawings(path)[-1]
    assert ">code 2</text>" in drawings(path)[-1]


def test_a_run_that_goes_through_the_roof_does_not_press_the_others_flat(run):
    wild = [
        {**line, "loss": 8 + line["step"], "bits_per_byte": 9 + line["step"]} for line in metrics(heldout_every=999)
    ]
    drawing = drawings(report.write([run("tame", metrics()), run("wild", wild)]))[0]
    axis = drawing[drawing.index('id="matplotlib.axis_2"') : drawing.index('id="legend')]
    labels = [float(label) for label in re.findall(r">([.\d]+)</text>", axis)]
    assert max(labels) < 13


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_colour_of_letters_can_be_read(scheme):
    css = (resources.files("lm.reporting") / "assets" / "report.css").read_text("utf-8").partition("@media print")[0]
    blocks = [dict(re.findall(r"--([\w]+): (#[0-9a-f]{6})", block)) for block in re.findall(r":root \{([^}]*)\}", css)]
    colours = blocks[0] if scheme == "light" else {**blocks[0], **blocks[1]}

    def light(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    for name in ("ink", "soft", "own", *(f"c{i}" for i in range(8))):
        dark, bright = sorted((light(colours["paper"]), light(colours[name])))
        assert (bright + 0.05) / (dark + 0.05) >= 4.5, name  # as WCAG AA asks of small letters


def test_without_matplotlib_a_report_names_the_extra_and_a_card_has_no_curves(run, monkeypatch):
    folder, model = run(lines=metrics()), ModelConfig(64, 16, 1, 16, 1, 32)
    assert "curves.svg" in card(model, folder, "LlamaForCausalLM", has_tokenizer=False)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    assert list(card(model, folder, "LlamaForCausalLM", has_tokenizer=False)) == ["README.md"]
    with pytest.raises(MissingExtra, match=re.escape("groundup-lm[report]")):
        report.write([folder])


def test_a_run_that_diverged_says_so_first(run):
    lines = [*metrics(), *({"step": step, "skipped": "the loss is nan"} for step in range(201, 211))]
    folder = run(lines=lines, config="[train]\nsteps = 300\n")
    words = page(report.write(folder)).words
    assert "The run diverged: it stopped at step 210, where the loss is nan." in words
    assert "10 steps changed no weight; the last, 210: the loss is nan." in words
    assert "bits per byte of held-out text, at step 200" in words
    finished = run("finished", lines=metrics(), config="[train]\nsteps = 200\n")
    assert "diverged" not in page(report.write(finished)).words
    beside = page(report.write([folder, finished])).words
    assert "is so far lowest of 2" in beside
    assert "a-run diverged" in beside


def test_a_skipped_step_that_a_resumed_run_repeated_is_forgotten(run):
    lines = [{"step": 1, "skipped": "the loss is inf"}, {"step": 1, "loss": 2.0}, {"step": 2, "loss": 1.0}]
    assert report.read(run(lines=lines)).skipped == {}


def test_a_name_does_not_turn_what_stands_beside_it(run, tmp_path):
    marks = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    written = report.write([run(f"a{mark}b", lines=metrics()) for mark in marks], tmp_path / "page.html")
    source = written.read_text("utf-8")
    assert not set(marks) & set(source)
    assert not any(set(marks) & set(drawing) for drawing in drawings(written))
