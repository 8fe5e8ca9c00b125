"""One HTML page for a run, or for several side by side, that needs nothing but itself.

`write` draws what is in the run folders; everything else comes to it as sections, for which `table`, `bars`, `big`,
`comparison` and `samples` make the HTML.
"""

import json
import math
import os
import platform
import statistics
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from importlib import resources
from pathlib import Path
from typing import Any, NamedTuple

from lm.files import atomic_write
from lm.reporting.charts import (
    Html,
    Line,
    Point,
    bars,
    big,
    chart,
    colour_of,
    comparison,
    embed,
    number,
    quantity,
    samples,
    smooth,
    table,
    text,
)  # fmt: skip

__all__ = [
    "Figure", "Html", "Run", "Section", "bars", "big", "comparison", "quantity", "read", "samples", "table", "text",
    "write",
]  # fmt: skip

Record = dict[str, float]

FAR_APART = 20  # times the lowest peak of a learning rate from which on runs are drawn on a log scale
BY = {"step": "step", "tokens": "tokens", "time": "seconds"}  # what curves may be over, and how it is logged
BY_SET = "val_loss/"  # and the name of a set of a mixture, in the metrics


class Figure(NamedTuple):
    """A number worth reading from across the room: ("1.63", "bits per byte", "held-out text")."""

    value: str
    unit: str
    label: str


@dataclass(frozen=True)
class Section:
    """A part of the page: its title and note in the margin, its HTML beside them."""

    title: str
    html: str
    note: str = ""


@dataclass(frozen=True)
class Run:
    """A run folder as read: `records` holds the metrics, one a step and in order; `damaged` lines are not in it."""

    name: str
    folder: Path
    config: Mapping[str, Any]
    records: Sequence[Record]
    damaged: int = 0
    environment: Mapping[str, Any] = field(default_factory=dict)

    @property
    def finished(self) -> bool:
        """Whether it has taken all the steps that its configuration asks for."""
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
        return next((r[key] for r in reversed(self.records) if math.isfinite(r.get(key, math.nan))), None)


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
    """Write the page of one run folder, or of several overlaid, to `path` or report.html in the first; say where.

    headline         one sentence under the title; made from the numbers where it is not given
    figures          (value, unit, label), after those that the metrics give
    names            of the runs, in their order; else those of their folders
    by               what the curves are over: one of BY; steps for one run and tokens for several where it is not given
    leading          sections before the curves
    sections         after the curves, in their order
    reference_lines  bits per byte of other compressors on the same text, by name
    bits_per_byte    of the finished model on all held-out text; else the last that the metrics hold
    curves_note      what else stands beside the curves: of which text their held-out points are, for example
    environment      what the run was made with, after what its environment.json says
    refresh          seconds after which a browser that shows the page loads it again

    FileNotFoundError for a folder without a config.toml, ValueError for one whose files cannot be read.
    """
    if by is not None and by not in BY:
        raise ValueError(f"curves by {by!r} are unknown: use one of {', '.join(BY)}")
    folders = [run_dirs] if isinstance(run_dirs, str | os.PathLike) else list(run_dirs)
    if not folders:
        raise ValueError("no run folders given: name at least one")
    runs = [read(folder) for folder in folders]
    own = [run.name for run in runs]
    runs = [replace(run, name=str(run.folder)) if own.count(run.name) > 1 else run for run in runs]
    if names is not None:
        runs = [replace(run, name=name) for run, name in zip(runs, names, strict=True)]
    references = dict(reference_lines or {})
    for name, value in references.items():
        if not 0 < value < math.inf:
            raise ValueError(f"reference line {name!r} is {value}: bits per byte are a positive number")
    only = runs[0] if len(runs) == 1 else None
    if only and (bits_per_byte is None or not math.isfinite(bits_per_byte)):
        bits_per_byte = only.last("val_bits_per_byte")

    parts = [_header(runs, title, headline, references, bits_per_byte, figures)]
    parts += [_section(section) for section in leading]
    note = f"{_curves_note(runs)} {curves_note}".strip()
    parts.append(_section(Section("Curves" if only else "Runs", _curves(runs, references, by), note)))
    parts += [_section(section) for section in sections]
    parts.append(_section(Section("Configuration", _configuration(runs))))
    parts.append(_section(_environment(runs, environment or {})))

    now = datetime.now().astimezone()
    assets = resources.files("lm.reporting") / "assets"
    page = (
        (assets / "report.html")
        .read_text("utf-8")
        .format(
            refresh=f'<meta http-equiv="refresh" content="{max(1, round(refresh))}">\n' if refresh else "",
            title=text(title or ", ".join(run.name for run in runs)),
            style=(assets / "report.css").read_text("utf-8"),
            script=(assets / "report.js").read_text("utf-8"),
            body="".join(parts),
            counted=embed(_counted(only.records) if only else {}),
            when=f"{now.day} {now:%B %Y, %H:%M}",
        )
    )
    target = Path(path) if path is not None else runs[0].folder / "report.html"
    atomic_write(target, page.encode("utf-8", "xmlcharrefreplace"))
    return target


def read(folder: str | os.PathLike[str]) -> Run:
    """A run folder's configuration and metrics.

    Where a resumed run went over steps again, the later lines count. A line that a killed run left unfinished is left
    out. FileNotFoundError where there is no config.toml, ValueError where a file is not what its name says.
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
    damaged = 0
    for line in filter(bytes.strip, lines):
        try:
            record = {k: float(v) for k, v in json.loads(line).items() if isinstance(v, int | float)}
            steps.setdefault(int(record["step"]), {}).update(record)
        except (ValueError, KeyError, AttributeError, OverflowError):
            damaged += line.endswith(b"\n")  # without it, the line is the last and still being written
    if damaged and not steps:
        raise ValueError(f"{metrics}: not one of its {damaged} lines is a JSON object with a step")
    try:
        made = json.loads((folder / "environment.json").read_text("utf-8"))
    except FileNotFoundError:
        made = {}
    except ValueError as error:
        raise ValueError(f"{folder / 'environment.json'}: {error}") from error
    return Run(folder.resolve().name, folder, config, [steps[step] for step in sorted(steps)], damaged, made)


# The page's own parts


def _header(
    runs: Sequence[Run],
    title: str | None,
    headline: str | None,
    references: Mapping[str, float],
    bits_per_byte: float | None,
    figures: Iterable[tuple[str, str, str]],
) -> str:
    found = [*(_figures(runs[0]) if len(runs) == 1 else ()), *figures]
    beside = ""
    if bits_per_byte is not None:
        own = "this model"
        ranked = sorted([(own, bits_per_byte), *references.items()], key=lambda pair: pair[1])
        drawn = bars([(name, value, f"{value:.3f}") for name, value in ranked], highlight=own) if references else ""
        said = "bits per byte of held-out text"
        beside = f'<div class="beside"><b>{bits_per_byte:.3f}</b><small>{said}</small>{drawn}</div>'
    sentence = headline if headline is not None else _sentence(runs, references, bits_per_byte)
    kicker = "a training run" if len(runs) == 1 else f"{len(runs)} training runs"
    heading = text(title or ", ".join(run.name for run in runs))
    return (
        f'<header><div class="top"><div><p class="kicker">{kicker}</p><h1>{heading}</h1>'
        f'<p class="headline">{text(sentence)}</p></div>{beside}</div>\n{big(found)}</header>\n'
    )


def _sentence(runs: Sequence[Run], references: Mapping[str, float], bits_per_byte: float | None) -> str:
    if bits_per_byte is not None and references:
        told = []
        for name, value in sorted(references.items(), key=lambda pair: pair[1]):
            change = 100 * (bits_per_byte / value - 1)
            unbroken = name.replace(" ", "\u00a0").replace("-", "\u2011")
            told.append(f"{abs(change):.1f} % {'less' if change < 0 else 'more'} than {unbroken}")
        many = f"{', '.join(told[:-1])} and {told[-1]}" if len(told) > 1 else told[0]
        return f"On text it has never seen, the model needs {bits_per_byte:.3f} bits per byte: {many}."
    if bits_per_byte is not None:
        return f"On text it has never seen, the model needs {bits_per_byte:.3f} bits per byte."
    best = [(value, run.name) for run in runs for value in [run.last("val_bits_per_byte")] if value is not None]
    if best:
        return f"{min(best)[1]} ends lowest of {len(best)}, at {min(best)[0]:.3f} bits per byte of held-out text."
    loss = runs[0].last("loss")
    return "" if loss is None or len(runs) > 1 else f"The training loss ends at {number(loss)}."


def _figures(run: Run) -> Iterator[Figure]:
    tokens, seconds = run.last("tokens"), run.last("seconds")
    rates = [y for _, y in run.points("tokens_per_second") if math.isfinite(y)]
    if run.records:
        yield Figure(number(run.records[-1]["step"]), "steps", "of the optimizer")
    if tokens is not None:
        yield _figure(tokens, "tokens", "read in training")
    if seconds is not None:
        value, _, unit = quantity(seconds, "s").partition(" ")
        yield Figure(value, unit, "of training")
    if rates:
        yield _figure(statistics.median(rates), "tokens/s", "in the median")


def _figure(value: float, unit: str, label: str) -> Figure:
    digits, _, prefix = quantity(value).partition(" ")
    return Figure(digits, f"{prefix} {unit}".strip(), label)


def _curves(runs: Sequence[Run], references: Mapping[str, float], by: str | None) -> str:
    if not any(run.records for run in runs):
        return '<p class="empty">No step has been logged yet.</p>'
    alone = len(runs) == 1
    x = "step" if alone or not all(run.points("tokens") for run in runs) else "tokens"
    x = x if by is None else BY[by]

    def losses(train: str, heldout: str, labelled: bool) -> list[Line]:
        lines: list[Line] = []
        for i, run in enumerate(runs):
            points, held = run.points(train, x), run.points(heldout, x)
            if alone:
                lines.append(Line("each step", points, 0, "thin"))
                lines.append(Line("train", smooth(points), 0, label="train" if labelled else ""))
                lines.append(Line("held-out", held, 1, "marks", "held-out" if labelled else ""))
            else:
                label = run.name if labelled else ""
                average = Line(f"{run.name}, train", smooth(points), i, label=label)
                lines.append(replace(average, style="soft", label="") if held else average)
                lines.append(Line(f"{run.name}, held-out", held, i, "marks", label))
        return [line for line in lines if line.points]

    def single(key: str, noisy: bool = True) -> list[Line]:
        lines: list[Line] = []
        for i, run in enumerate(runs):
            points = run.points(key, x)
            lines += [Line(run.name, points, i, "thin")] if noisy and alone else []
            lines.append(Line("" if alone else run.name, smooth(points) if noisy else points, i))
        return [line for line in lines if line.points]

    def start(key: str) -> float:
        """Where the curves begin: one that goes through the roof does not press the others flat."""
        begun = [y for run in runs for _, y in run.points(key)[:1] if math.isfinite(y)]
        return math.inf if alone else max(begun, default=math.inf) * 1.05

    has_bytes = any(run.points(key) for run in runs for key in ("bits_per_byte", "val_bits_per_byte"))
    drawn = [] if alone else [_legend(runs)]
    if has_bytes:
        lines = losses("bits_per_byte", "val_bits_per_byte", True)
        drawn.append(
            chart(
                "Bits per byte",
                lines,
                note="less is better",
                x_name=x,
                references=references,
                wide=True,
                enter=0.05,
                ceiling=start("bits_per_byte"),
            )
        )
    lines = losses("loss", "val_loss", not has_bytes)
    drawn.append(
        chart("Loss", lines, note="nats per token", x_name=x, wide=not has_bytes, enter=0.05, ceiling=start("loss"))
    )
    rates = single("learning_rate", noisy=False)
    peaks = [max(y for _, y in line.points) for line in rates]
    far_apart = max(peaks, default=0.0) > FAR_APART * min(peaks, default=0.0)
    note = "log scale" if far_apart else ""
    drawn.append(chart("Learning rate", rates, note=note, x_name=x, zero=not far_apart, log=far_apart))
    drawn.append(chart("Gradient norm", single("gradient_norm"), note="log scale", x_name=x, log=True))
    drawn.append(chart("Speed", single("tokens_per_second"), note="tokens per second", x_name=x, zero=True))
    if used := single("mfu"):
        drawn.append(chart("Use of the device", used, note="share of its peak FLOPs", x_name=x, zero=True))
    if sets := _by_set(runs, x):
        drawn.append(chart("Held-out loss by set", sets, note="nats per token", x_name=x, wide=True, enter=0.05))
    return f'<div class="charts">{"".join(drawn)}</div>\n'


def _by_set(runs: Sequence[Run], x: str) -> list[Line]:
    """The held-out losses of each set of a mixture."""
    lines: list[Line] = []
    for run in runs:
        for key in dict.fromkeys(key for record in run.records for key in record if key.startswith(BY_SET)):
            name = key.removeprefix(BY_SET) if len(runs) == 1 else f"{run.name}, {key.removeprefix(BY_SET)}"
            lines.append(Line(name, run.points(key, x), len(lines), "marks", name))
    return lines


def _curves_note(runs: Sequence[Run]) -> str:
    notes = ["Light lines are the text in training, averaged over neighbouring steps; dots are held-out text."]
    if len(runs) == 1:
        notes = ["Light lines are single steps, strong lines the average of neighbouring ones, dots held-out text."]
    for run in runs:
        bad = sum(not math.isfinite(y) for _, y in run.points("loss"))
        if bad:
            name = "" if len(runs) == 1 else f" of {run.name}"
            notes.append(f"The loss{name} was not a finite number in {bad} {'steps' if bad > 1 else 'step'}.")
        if run.damaged:
            notes.append(f"{run.damaged} unreadable {'lines' if run.damaged > 1 else 'line'} left out.")
    return " ".join(notes) if any(run.records for run in runs) else ""


def _legend(runs: Sequence[Run]) -> str:
    rows = []
    for i, run in enumerate(runs):
        held, rates = run.last("val_bits_per_byte"), [y for _, y in run.points("tokens_per_second")]
        rows.append([
            Html(f'<i class="swatch {colour_of(i)}"></i>{text(run.name)}'),
            *(run.last(key) for key in ("step", "tokens", "loss")),
            held if held is not None else run.last("val_loss"),
            statistics.median(rates) if rates else None,
            quantity(run.last("seconds"), "s").replace(" ", "\u00a0"),
        ])  # fmt: skip
    held_name = "held-out bits/byte" if any(run.last("val_bits_per_byte") for run in runs) else "held-out loss"
    return table(["run", "steps", "tokens", "loss", held_name, "tokens/s", "time"], rows)


def _environment(runs: Sequence[Run], given: Mapping[str, object]) -> Section:
    """What the runs were made with; where several differ, a column for each."""
    if len(runs) > 1 and any(run.environment != runs[0].environment for run in runs):
        return Section("Environment", _side_by_side(runs, [dict(run.environment) for run in runs]) + _pairs(given))
    made = {**runs[0].environment, **given}
    if made:
        return Section("Environment", _pairs(made))
    made = {"Python": platform.python_version(), "system": platform.platform(), "processors": os.cpu_count()}
    return Section("Environment", _pairs(made), "Of the machine that drew this page.")


def _configuration(runs: Sequence[Run]) -> str:
    if len(runs) == 1:
        plain = {k: v for k, v in runs[0].config.items() if not isinstance(v, Mapping)}
        groups = {
            **({"": plain} if plain else {}),
            **{k: v for k, v in runs[0].config.items() if isinstance(v, Mapping)},
        }
        return "".join(f"<h3>{text(name)}</h3>{_pairs(_flat(group))}" for name, group in groups.items())
    return str(_side_by_side(runs, [_flat(run.config) for run in runs]))


def _side_by_side(runs: Sequence[Run], flat: Sequence[Mapping[str, Any]]) -> str:
    """The settings in which runs differ, as a table, and below it those that all have.

    The table has a row for each setting and a column for each run, or the other way round where there are more runs.
    """
    keys = dict.fromkeys(key for config in flat for key in config)
    values = {key: [_toml(config[key]) if key in config else "—" for config in flat] for key in keys}
    differ = {key: found for key, found in values.items() if len(set(found)) > 1}
    names = [run.name for run in runs]
    rows = [[Html(f"<strong>{text(key)}</strong>"), *found] for key, found in differ.items()]
    if len(runs) > len(differ):
        names, rows = (
            [str(key) for key in differ],
            [[name, *(found[i] for found in differ.values())] for i, name in enumerate(names)],
        )
    drawn = table(["", *names], rows) if differ else ""
    return drawn + _pairs({key: found[0] for key, found in values.items() if key not in differ})


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
    return (
        f'<section><div class="margin"><h2>{text(section.title)}</h2>{note}</div><div>{section.html}</div></section>\n'
    )


def _counted(records: Sequence[Record]) -> dict[str, list[float]]:
    """Tokens and seconds by step, for the read-out under the pointer."""
    known = [r for r in records if all(math.isfinite(r.get(k, math.nan)) for k in ("tokens", "seconds"))]
    known = known[:: math.ceil(len(known) / 400) or 1]
    return {key: [float(f"{record[key]:.6g}") for record in known] for key in ("step", "tokens", "seconds")}
