"""One HTML page for a run, or for several side by side, that needs nothing but itself.

`write` draws what is in the run folders; everything else comes to it as sections, for which `table`, `bars`, `big`,
`comparison` and `samples` of charts make the HTML.
"""

import json
import math
import os
import platform
import statistics
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import Any

from lm.files import atomic_write, read_json
from lm.reporting import charts
from lm.reporting.charts import Html, Line, Point, chart, number, quantity, smooth, table, text

Record = dict[str, float]

FAR_APART = 20  # ratio of the peaks of learning rates from which on they are drawn on a log scale
BY = {"step": "step", "tokens": "tokens", "time": "seconds"}  # the x of curves, and the key it is logged by
BY_SET = "val_loss/"  # before the name of a set of a mixture, in the metrics
MOST_NAMES = 4  # names of runs in a title
MOST_LABELS = 8  # runs that have a label in a chart; the table above it names them all


@dataclass(frozen=True)
class Section:
    """A part of the page: its title and note in the margin, its HTML beside them."""

    title: str
    html: str
    note: str = ""


@dataclass(frozen=True)
class Run:
    """A run folder as read: `records` holds the metrics, one a step and in order; `damaged` lines are not in it.

    `skipped` has the reason of each step that changed no weight.
    """

    name: str
    folder: Path
    config: Mapping[str, Any]
    records: Sequence[Record]
    damaged: int = 0
    environment: Mapping[str, Any] = field(default_factory=dict)
    skipped: Mapping[int, str] = field(default_factory=dict)

    @property
    def diverged(self) -> str | None:
        """The reason of the last step if no weight was changed by it or its loss is not finite, in a run that ended
        before its last step; else None."""
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
    by: str | None = None,
    headline: str | None = None,
    figures: Iterable[tuple[str, str, str]] = (),
    leading: Iterable[Section] = (),
    sections: Iterable[Section] = (),
    reference_lines: Mapping[str, float] | None = None,
    bits_per_byte: float | None = None,
    curves_note: str = "",
    environment: Mapping[str, object] | None = None,
    refresh: float | None = None,
) -> Path:
    """Write the page of one run folder, or of several overlaid, and return its path.

    Args:
        path: Of the page; report.html in the first run by default.
        headline: A sentence under the title; computed from the metrics by default.
        figures: (value, unit, label), after those of the metrics.
        names: Of the runs; those of their folders by default.
        by: x of the curves, a key of BY; steps for one run and tokens for several by default.
        leading, sections: Before and after the curves.
        reference_lines: Bits per byte of other compressors on the same text, by name.
        bits_per_byte: Of the model on all held-out text; the last in the metrics by default.
        environment: Added to the run's environment.json.
        refresh: Seconds after which a browser loads the page again.
    """
    if by is not None and by not in BY:
        raise ValueError(f"curves by {by!r} are unknown: use one of {', '.join(BY)}")
    folders = [run_dirs] if isinstance(run_dirs, str | os.PathLike) else list(run_dirs)
    if not folders:
        raise ValueError("no run folders given: name at least one")
    runs = [read(folder) for folder in folders]
    folder_names = [run.name for run in runs]
    for i, run in enumerate(runs):
        name = names[i] if names else str(run.folder) if folder_names.count(run.name) > 1 else run.name
        runs[i] = replace(run, name=name)
    references = dict(reference_lines or {})
    for name, value in references.items():
        if not 0 < value < math.inf:
            raise ValueError(f"reference line {name!r} is {value}: bits per byte are a positive number")
    only = runs[0] if len(runs) == 1 else None
    if only and (bits_per_byte is None or not math.isfinite(bits_per_byte)):
        bits_per_byte = only.last("val_bits_per_byte")

    names_shown = [run.name for run in runs[:MOST_NAMES]]
    if more := len(runs) - len(names_shown):
        names_shown.append(f"{more} more")
    title = title or ", ".join(names_shown)
    note = f"{_curves_note(runs)} {curves_note}".strip()
    page_sections = [
        *leading,
        Section("Curves" if only else "Runs", _curves(runs, references, by), note),
        *sections,
        Section("Configuration", _settings(runs, [_flat(run.config) for run in runs])),
        _environment(runs, environment or {}),
    ]
    body = _header(runs, title, headline, references, bits_per_byte, figures) + "".join(map(_section, page_sections))
    now = datetime.now().astimezone()
    shell, style = (
        resources.files("lm.reporting").joinpath(f"assets/report.{kind}").read_text("utf-8") for kind in ("html", "css")
    )
    page = shell.format(
        refresh=f'<meta http-equiv="refresh" content="{max(1, round(refresh))}">\n' if refresh else "",
        title=text(title),
        style=style,
        body=body,
        when=f"{now.day} {now:%B %Y, %H:%M}",
    )  # fmt: skip
    target = Path(path) if path is not None else runs[0].folder / "report.html"
    atomic_write(target, page.encode("utf-8", "xmlcharrefreplace"))
    return target


def read(folder: str | os.PathLike[str]) -> Run:
    """Read a run folder's configuration and metrics.

    If a resumed run repeated steps, the later lines count. A line that a killed run left unfinished is left out.
    """
    folder = Path(folder)
    try:
        config = tomllib.loads((folder / "config.toml").read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise FileNotFoundError(f"{folder} is not a run folder: there is no config.toml in it") from None
    except ValueError as error:
        raise ValueError(f"{folder / 'config.toml'}: {error}") from error
    metrics = folder / "metrics.jsonl"
    lines = metrics.read_bytes().splitlines(keepends=True) if metrics.exists() else []
    steps: dict[float, Record] = {}
    skipped: dict[int, str] = {}
    damaged = 0
    for line in filter(bytes.strip, lines):
        try:
            values = json.loads(line)
            record = {k: float(v) for k, v in values.items() if isinstance(v, int | float)}
            step = int(record["step"])
            steps.setdefault(step, {}).update(record)
            if isinstance(reason := values.get("skipped"), str):
                skipped[step] = reason
            elif "loss" in record:  # a resumed run repeated the step
                skipped.pop(step, None)
        except (ValueError, KeyError, AttributeError, OverflowError):
            damaged += line.endswith(b"\n")  # without it, the line is the last and still being written
    if damaged and not steps:
        raise ValueError(f"{metrics}: not one of its {damaged} lines is a JSON object with a step")
    environment = read_json(folder / "environment.json", missing_ok=True)
    records = [steps[step] for step in sorted(steps)]
    return Run(folder.resolve().name, folder, config, records, damaged, environment, skipped)


# The page's own parts


def _header(
    runs: Sequence[Run],
    title: str,
    headline: str | None,
    references: Mapping[str, float],
    bits_per_byte: float | None,
    figures: Iterable[tuple[str, str, str]],
) -> str:
    beside, sentence = "", ""
    if bits_per_byte is not None:
        ranked = sorted([("this model", bits_per_byte), *references.items()], key=lambda pair: pair[1])
        rows = [(name, value, f"{value:.3f}") for name, value in ranked] if references else []
        label = f"bits per byte of held-out text{_when(runs[0], 'val_bits_per_byte')}"
        ranking = charts.bars(rows, highlight="this model") if rows else ""
        beside = f'<div class="beside"><b>{bits_per_byte:.3f}</b><small>{label}</small>{ranking}</div>'
        changes = [
            f"{abs(change):.1f} % {'less' if change < 0 else 'more'} than {name}".replace("-", "\u2011")
            for name, value in sorted(references.items(), key=lambda pair: pair[1])
            for change in [100 * (bits_per_byte / value - 1)]
        ]
        compared = f": {' and '.join(filter(None, (', '.join(changes[:-1]), *changes[-1:])))}" if changes else ""
        sentence = f"On text it has never seen, the model needs {bits_per_byte:.3f} bits per byte{compared}."
    elif best := [(value, run.name) for run in runs if (value := run.last("val_bits_per_byte")) is not None]:
        verb = "ends" if all(run.finished for run in runs) else "is so far"
        sentence = f"{min(best)[1]} {verb} lowest of {len(best)}, at {min(best)[0]:.3f} bits per byte of held-out text."
    elif len(runs) == 1 and (loss := runs[0].last("loss")) is not None:
        sentence = f"The training loss ends at {number(loss)}."
    for run in runs:
        if reason := run.diverged:
            which = "The run" if len(runs) == 1 else run.name
            stopped = f"{which} diverged: it stopped at step {number(run.records[-1]['step'])}, where {reason}."
            sentence = f"{stopped} {sentence}".strip()
    kicker = "a training run" if len(runs) == 1 else f"{len(runs)} training runs"
    return (
        f'<header><div class="top"><div><p class="kicker">{kicker}</p><h1>{text(title)}</h1>'
        f'<p class="headline">{text(sentence if headline is None else headline)}</p></div>{beside}</div>\n'
        f"{charts.big([*(_figures(runs[0]) if len(runs) == 1 else ()), *figures])}</header>\n"
    )


def _figures(run: Run) -> list[tuple[str, str, str]]:
    """Return (value, unit, label) of the figures at the top of a run's page."""
    steps = [(number(run.records[-1]["step"]), "steps", "of the optimizer")] if run.records else []
    rates = [(run.last("tokens"), "", "tokens", "read in training"), (run.last("seconds"), "s", "", "of training")]
    rates.append((run.speed, "", "tokens/s", "in the median"))
    for value, kind, unit, label in rates:
        if value is not None:
            digits, _, prefix = quantity(value, kind).partition(" ")
            steps.append((digits, f"{prefix} {unit}".strip(), label))
    return steps


def _curves(runs: Sequence[Run], references: Mapping[str, float], by: str | None) -> str:
    if not any(run.records for run in runs):
        return '<p class="empty">No step has been logged yet.</p>'
    alone = len(runs) == 1
    x = BY[by] if by else "step" if alone or not all(run.points("tokens") for run in runs) else "tokens"

    def losses(name: str, note: str, key: str, wide: bool, **options: Any) -> str:
        lines: list[Line] = []
        for i, run in enumerate(runs):
            points, heldout = run.points(key, x), run.points(f"val_{key}", x)
            label = ("train" if alone else run.name) if wide and len(runs) <= MOST_LABELS else ""
            average = Line("train" if alone else f"{run.name}, train", smooth(points), i, label=label)
            if alone:
                lines += [Line("each step", points, 0, "thin"), average]
                lines.append(Line("held-out", heldout, 1, "marks", "held-out" if wide else ""))
            else:
                lines.append(replace(average, style="soft", label="") if heldout else average)
                lines.append(Line(f"{run.name}, held-out", heldout, i, "marks", label))
        return chart(name, lines, note=note, x_name=x, wide=wide, ceiling=_ceiling(lines), **options)

    def single(name: str, note: str, key: str, noisy: bool = True, **options: Any) -> str:
        lines: list[Line] = []
        for i, run in enumerate(runs):
            points = run.points(key, x)
            lines += [Line(run.name, points, i, "thin")] if noisy and alone else []
            lines.append(Line("" if alone else run.name, smooth(points) if noisy else points, i))
        return chart(name, lines, note=note, x_name=x, **options)

    has_bytes = any(run.points(key) for run in runs for key in ("bits_per_byte", "val_bits_per_byte"))
    drawn = [] if alone else [_legend(runs)]
    if has_bytes:
        drawn.append(losses("Bits per byte", "less is better", "bits_per_byte", True, references=references))
    drawn.append(losses("Loss", "nats per token", "loss", not has_bytes))
    peaks = [max((y for _, y in points), default=0.0) for run in runs if (points := run.points("learning_rate"))]
    far_apart = max(peaks, default=0.0) > FAR_APART * min(peaks, default=0.0)
    note = "log scale" if far_apart else ""
    drawn.append(single("Learning rate", note, "learning_rate", noisy=False, zero=not far_apart, log=far_apart))
    drawn.append(single("Gradient norm", "log scale", "gradient_norm", log=True))
    drawn.append(single("Speed", "tokens per second", "tokens_per_second", zero=True))
    if any(run.points("mfu") for run in runs):
        drawn.append(single("Use of the device", "share of its peak FLOPs", "mfu", zero=True))
    if sets := _by_set(runs, x):
        name, note = "Held-out loss by set", "nats per token"
        drawn.append(chart(name, sets, note=note, wide=True, x_name=x, ceiling=_ceiling(sets)))
    return f'<div class="charts">{"".join(drawn)}</div>\n'


def _ceiling(lines: Sequence[Line]) -> float:
    """Return the top of a chart of losses: curves come in from above it, and one that diverges does not flatten it."""
    curves = [[y for _, y in line.points if math.isfinite(y)] for line in lines]
    later = max((y for ys in curves for y in ys[len(ys) // 20 :]), default=math.inf)
    return min(later, 1.05 * max((ys[0] for ys in curves if ys), default=math.inf))


def _by_set(runs: Sequence[Run], x: str) -> list[Line]:
    """The held-out losses of each set of a mixture."""
    lines: list[Line] = []
    for run in runs:
        for key in dict.fromkeys(key for record in run.records for key in record if key.startswith(BY_SET)):
            name = ("" if len(runs) == 1 else f"{run.name}, ") + key.removeprefix(BY_SET)
            lines.append(Line(name, run.points(key, x), len(lines), "marks", name))
    return lines


def _curves_note(runs: Sequence[Run]) -> str:
    notes = ["Light lines are the text in training, averaged over neighbouring steps; dots are held-out text."]
    if len(runs) == 1:
        notes = ["Light lines are single steps, strong lines the average of neighbouring ones, dots held-out text."]
    for run in runs:
        bad = sum(not math.isfinite(y) for _, y in run.points("loss"))
        name = "" if len(runs) == 1 else f" of {run.name}"
        if bad:
            notes.append(f"The loss{name} was not a finite number in {bad} {'steps' if bad > 1 else 'step'}.")
        if run.skipped:
            steps = f"{len(run.skipped)} {'steps' if len(run.skipped) > 1 else 'step'}{name}"
            notes.append(f"{steps} changed no weight; the last, {max(run.skipped)}: {run.skipped[max(run.skipped)]}.")
        if run.damaged:
            notes.append(f"{run.damaged} unreadable {'lines' if run.damaged > 1 else 'line'} left out.")
    return " ".join(notes) if any(run.records for run in runs) else ""


def _legend(runs: Sequence[Run]) -> str:
    has_bits = any(run.last("val_bits_per_byte") for run in runs)
    heldout = "val_bits_per_byte" if has_bits else "val_loss"
    rows = [
        [
            Html(f'<i class="swatch {charts.colour_of(i)}"></i>{text(run.name)}'),
            *(run.last(key) for key in ("step", "tokens", "loss", heldout)),
            run.last_step(heldout),
            run.speed,
            quantity(run.last("seconds"), "s").replace(" ", "\u00a0"),
        ]
        for i, run in enumerate(runs)
    ]
    name = "held-out bits/byte" if has_bits else "held-out loss"
    return table(["run", "steps", "tokens", "loss", name, "of step", "tokens/s", "time"], rows)


def _when(run: Run, key: str) -> str:
    """The step of the last value of `key`, where it is not the run's last step."""
    step = run.last_step(key)
    return "" if step is None or step == run.records[-1]["step"] else f", at step {number(step)}"


def _environment(runs: Sequence[Run], extra: Mapping[str, object]) -> Section:
    environments = [{**run.environment, **extra} for run in runs]
    if any(environments):
        return Section("Environment", _settings(runs, environments))
    machine = {"Python": platform.python_version(), "system": platform.platform(), "processors": os.cpu_count()}
    return Section("Environment", _pairs(machine), "Of the machine that drew this page.")


def _settings(runs: Sequence[Run], settings: Sequence[Mapping[str, Any]]) -> str:
    """A table of the settings in which runs differ, a row for each run, and below it those they share."""
    keys = dict.fromkeys(key for one in settings for key in one)
    values = {key: [_toml(one[key]) if key in one else "—" for one in settings] for key in keys}
    differ = [key for key, row in values.items() if len(set(row)) > 1]
    rows = [[run.name, *(values[key][i] for key in differ)] for i, run in enumerate(runs)]
    shared = {key: row[0] for key, row in values.items() if key not in differ}
    return (table(["", *differ], rows) if differ else "") + _pairs(shared)


def _pairs(pairs: Mapping[str, object]) -> str:
    items = "".join(f"<div><dt>{text(key)}</dt><dd>{text(_toml(value))}</dd></div>" for key, value in pairs.items())
    return f'<dl class="pairs">{items}</dl>\n'


def _flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for key, value in config.items():
        flat |= _flat(value, f"{prefix}{key}.") if isinstance(value, Mapping) else {f"{prefix}{key}": value}
    return flat


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and abs(value) >= 10_000:
        return f"{value:,}"
    return ", ".join(map(_toml, value)) if isinstance(value, list | tuple) else str(value)


def _section(section: Section) -> str:
    note = f"<p>{text(section.note)}</p>" if section.note else ""
    margin = f'<div class="margin"><h2>{text(section.title)}</h2>{note}</div>'
    return f"<section>{margin}<div>{section.html}</div></section>\n"
