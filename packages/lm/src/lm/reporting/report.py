"""One HTML page for a run, or for several side by side, that needs nothing but itself."""

import json
import math
import os
import statistics
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import Any

from lm.files import atomic_write, read_json
from lm.reporting.charts import Line, Point, chart, number, quantity, smooth, table, text

Record = dict[str, float]

BY_SET = "val_loss/"  # before the name of a set of a mixture, in the metrics
MOST_LABELS = 8  # runs that have a label in a chart; the table above it names them all
# The charts: key, title, note, and True for a logarithmic axis.
CHARTS = (
    ("bits_per_byte", "Bits per byte", "less is better", False),
    ("loss", "Loss", "nats per token", False),
    ("learning_rate", "Learning rate", "", False),
    ("gradient_norm", "Gradient norm", "log scale", True),
    ("tokens_per_second", "Speed", "tokens per second", False),
    ("mfu", "Use of the device", "share of its peak FLOPs", False),
)


@dataclass(frozen=True)
class Section:
    """A part of the page: its title, its HTML and a note below it."""

    title: str
    html: str
    note: str = ""


@dataclass(frozen=True)
class Run:
    """A run folder as read."""

    name: str
    folder: Path
    config: Mapping[str, Any]
    records: Sequence[Record]  # metrics, one a step and in order
    damaged: int = 0  # lines that are not in records
    environment: Mapping[str, Any] = field(default_factory=dict)
    skipped: Mapping[int, str] = field(default_factory=dict)  # the reason of each step that changed no weight

    @property
    def diverged(self) -> str | None:
        """The reason why a run stopped, if its last step changed no weight or its loss is not finite; else None."""
        if self.finished or not self.records:
            return None
        last = self.records[-1]
        if not math.isfinite(last.get("loss", 0.0)):
            return "the loss is not a finite number"
        return self.skipped.get(int(last["step"]))

    @property
    def finished(self) -> bool:
        """True after the steps of its configuration."""
        steps = self.config.get("train", {}).get("steps")
        return bool(self.records) and isinstance(steps, int) and self.records[-1]["step"] >= steps

    def points(self, key: str, x: str = "step") -> list[Point]:
        """(x, value) wherever `key` was logged. x is a step, or what had been counted by that step."""
        points, reached = [], 0.0
        for record in self.records:
            reached = record.get(x, reached)
            if key in record:
                points.append((reached, record[key]))
        return points

    def last(self, key: str) -> float | None:
        """The last finite value of `key`, or None."""
        step = self.last_step(key)
        return next((record[key] for record in self.records if record["step"] == step), None)

    def last_step(self, key: str) -> int | None:
        """The step of the last finite value of `key`, or None."""
        steps = (int(r["step"]) for r in reversed(self.records) if math.isfinite(r.get(key, math.nan)))
        return next(steps, None)

    @property
    def speed(self) -> float | None:
        """The median of tokens per second."""
        speeds = [y for _, y in self.points("tokens_per_second") if math.isfinite(y)]
        return statistics.median(speeds) if speeds else None


def write(
    run_dirs: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    path: str | os.PathLike[str] | None = None,
    *,
    title: str | None = None,
    names: Sequence[str] | None = None,
    headline: str | None = None,
    leading: Iterable[Section] = (),
    sections: Iterable[Section] = (),
    reference_lines: Mapping[str, float] | None = None,
    curves_note: str = "",
    environment: Mapping[str, object] | None = None,
    refresh: float | None = None,
) -> Path:
    """Write the page of one run folder, or of several overlaid, and return its path.

    Args:
        path: Of the page; report.html in the first run by default.
        headline: A sentence under the title; computed from the metrics by default.
        names: Of the runs; the names of their folders by default.
        leading, sections: Before and after the curves.
        reference_lines: Bits per byte of other compressors on the same text, by name.
        environment: Added to the run's environment.json.
        refresh: Seconds after which a browser loads the page again.
    """
    folders = [run_dirs] if isinstance(run_dirs, str | os.PathLike) else list(run_dirs)
    if not folders:
        raise ValueError("no run folders given: name at least one")
    runs = [read(folder) for folder in folders]
    folder_names = [run.name for run in runs]
    for i, run in enumerate(runs):
        name = names[i] if names else str(run.folder) if folder_names.count(run.name) > 1 else run.name
        runs[i] = replace(run, name=name)
    environments = [{**run.environment, **(environment or {})} for run in runs]
    page_sections = [
        *leading,
        Section("Curves", _curves(runs, reference_lines or {}), f"{_curves_note(runs)} {curves_note}"),
        *sections,
        Section("Configuration", _settings(runs, [_flat(run.config) for run in runs])),
        Section("Environment", _settings(runs, environments)),
    ]
    shell, style = (
        resources.files("lm.reporting").joinpath(f"assets/report.{kind}").read_text("utf-8") for kind in ("html", "css")
    )
    page = shell.format(
        refresh=f'<meta http-equiv="refresh" content="{max(1, round(refresh))}">\n' if refresh else "",
        title=text(title or ", ".join(run.name for run in runs)),
        style=style,
        headline=text(_headline(runs) if headline is None else headline),
        body="".join(
            f"<section><h2>{text(one.title)}</h2>\n{one.html}<p>{text(one.note.strip())}</p></section>\n"
            for one in page_sections
        ),
        when=f"{datetime.now().astimezone():%d %B %Y, %H:%M}",
    )
    target = Path(path) if path is not None else runs[0].folder / "report.html"
    atomic_write(target, page.encode("utf-8", "xmlcharrefreplace"))
    return target


def read(folder: str | os.PathLike[str]) -> Run:
    """Read a run folder's configuration and metrics: the later line of a repeated step, and none that is unfinished."""
    folder = Path(folder)
    try:
        config = tomllib.loads((folder / "config.toml").read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"{folder} is not a run folder: there is no config.toml in it") from None
    except ValueError as error:
        raise ValueError(f"{folder / 'config.toml'}: {error}") from error
    metrics = folder / "metrics.jsonl"
    lines = metrics.read_bytes().splitlines(keepends=True) if metrics.exists() else []
    steps, skipped, damaged = dict[int, Record](), dict[int, str](), 0
    for line in filter(bytes.strip, lines):
        try:
            values = json.loads(line)
            record = {k: float(v) for k, v in values.items() if isinstance(v, int | float)}
            step = int(record["step"])
        except (ValueError, KeyError, AttributeError, OverflowError):
            damaged += line.endswith(b"\n")  # without it, the line is the last and still being written
            continue
        steps.setdefault(step, {}).update(record)
        if isinstance(reason := values.get("skipped"), str):
            skipped[step] = reason
        elif "loss" in record:  # a resumed run repeated the step
            skipped.pop(step, None)
    if damaged and not steps:
        raise ValueError(f"{metrics}: not one of its {damaged} lines is a JSON object with a step")
    environment = read_json(folder / "environment.json", missing_ok=True)
    records = [steps[step] for step in sorted(steps)]
    return Run(folder.resolve().name, folder, config, records, damaged, environment, skipped)


def _headline(runs: Sequence[Run]) -> str:
    """The best held-out result of the runs, after those that diverged."""
    sentences = [
        f"{run.name} diverged: it stopped at step {number(run.records[-1]['step'])}, where {reason}."
        for run in runs
        if (reason := run.diverged)
    ]
    bits = [(value, run) for run in runs if (value := run.last("val_bits_per_byte")) is not None]
    if bits:
        best, run = min(bits, key=lambda pair: pair[0])
        verb = "ends" if all(one.finished for one in runs) else "is so far"
        lowest = f"lowest of {len(bits)}, at " if len(bits) > 1 else "at "
        at = f"at step {run.last_step('val_bits_per_byte')}"
        sentences.append(f"{run.name} {verb} {lowest}{best:.3f} bits per byte of held-out text, {at}.")
    elif len(runs) == 1 and (loss := runs[0].last("loss")) is not None:
        sentences.append(f"The training loss ends at {number(loss)}.")
    return " ".join(sentences)


def _curves(runs: Sequence[Run], references: Mapping[str, float]) -> str:
    """The table of the runs, and below it their charts: by steps, and for several runs by tokens."""
    keys = dict.fromkeys(key for run in runs for record in run.records for key in record)
    if not keys:
        return "<p>No step has been logged yet.</p>"
    alone = len(runs) == 1
    x = "step" if alone or not all(run.points("tokens") for run in runs) else "tokens"
    charts, drawn = [_legend(runs)], [row for row in CHARTS if row[0] in keys or f"val_{row[0]}" in keys]
    for key, title, note, is_log in drawn:
        # The first chart is wide, and names its lines.
        wide, lines, options = key == drawn[0][0], list[Line](), dict[str, Any]()
        for i, run in enumerate(runs):
            points, heldout = run.points(key, x), run.points(f"val_{key}", x)
            train, dots = ("train", "held-out") if alone else ("" if heldout else run.name, run.name)
            if not wide or len(runs) > MOST_LABELS:
                train = dots = ""
            lines += [Line("each step", points, i, "thin")] if alone else []
            lines.append(Line(f"{run.name}, train", smooth(points), i, "soft" if heldout else "line", train))
            lines.append(Line(f"{run.name}, held-out", heldout, i + alone, "marks", dots))
        if key in ("loss", "bits_per_byte"):
            options["ceiling"] = _ceiling([run.points(one, x) for run in runs for one in (key, f"val_{key}")])
            options["references"] = references if key != "loss" else {}
        charts.append(chart(title, lines, note=note, x_name=x, wide=wide, log=is_log, **options))
    sets = list[Line]()
    for run in runs:
        for key in keys:
            if key.startswith(BY_SET) and (points := run.points(key, x)):
                name = ("" if alone else f"{run.name}, ") + key.removeprefix(BY_SET)
                sets.append(Line(name, points, len(sets), "marks", name))
    if sets:
        charts.append(chart("Held-out loss by set", sets, note="nats per token", wide=True, x_name=x))
    return f'<div class="charts">{"".join(charts)}</div>\n'


def _ceiling(curves: Iterable[Sequence[Point]]) -> float:
    """Return the top of a chart of losses: curves come in from above it, and one that diverges does not flatten it."""
    finite = [[y for _, y in points if math.isfinite(y)] for points in curves]
    later = max((y for ys in finite for y in ys[len(ys) // 20 :]), default=math.inf)
    return 1.05 * min(later, max((ys[0] for ys in finite if ys), default=math.inf))


def _curves_note(runs: Sequence[Run]) -> str:
    notes = ["Light lines are the text in training, averaged over neighbouring steps; dots are held-out text."]
    if len(runs) == 1:
        notes = ["Light lines are single steps, strong lines the average of neighbouring ones, dots held-out text."]
    for run in runs:
        if bad := sum(not math.isfinite(y) for _, y in run.points("loss")):
            notes.append(f"{run.name}: the loss was not a finite number in {bad} steps.")
        if run.skipped:
            last, why = max(run.skipped.items())
            notes.append(f"{run.name}: {len(run.skipped)} steps changed no weight; the last, {last}: {why}.")
        if run.damaged:
            notes.append(f"{run.name}: {run.damaged} unreadable lines left out.")
    return " ".join(notes)


def _legend(runs: Sequence[Run]) -> str:
    has_bits = any(run.last("val_bits_per_byte") for run in runs)
    heldout = "val_bits_per_byte" if has_bits else "val_loss"
    keys = ("step", "tokens", "loss", heldout)
    rows = [
        [run.name, *map(run.last, keys), run.last_step(heldout), run.speed, quantity(run.last("seconds"), "s")]
        for run in runs
    ]
    name = "held-out bits/byte" if has_bits else "held-out loss"
    return table(["run", "steps", "tokens", "loss", name, "of step", "tokens/s", "time"], rows)


def _settings(runs: Sequence[Run], settings: Sequence[Mapping[str, Any]]) -> str:
    """A table of the settings in which runs differ, a row for each run, and below it those they share."""
    keys = dict.fromkeys(key for one in settings for key in one)
    values = {key: [_toml(one[key]) if key in one else "—" for one in settings] for key in keys}
    differ = [key for key, row in values.items() if len(set(row)) > 1]
    rows = [[run.name, *(values[key][i] for key in differ)] for i, run in enumerate(runs)]
    shared = [(key, row[0]) for key, row in values.items() if key not in differ]
    return (table(["", *differ], rows) if differ else "") + table(("", ""), shared)


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in config.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def _toml(value: object) -> str:
    if isinstance(value, int):
        return str(value).lower() if isinstance(value, bool) else f"{value:,}"
    return ", ".join(map(_toml, value)) if isinstance(value, list | tuple) else str(value)
