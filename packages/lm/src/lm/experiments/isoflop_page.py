"""What is drawn of an IsoFLOP experiment: loss by size, by compute and by wall-clock, and prediction beside outcome."""

from __future__ import annotations

import math

import numpy as np

from lm.experiments.isoflop import IsoFlop, Prediction, seconds_predicted
from lm.experiments.scaling import TrainedModel, by_budget
from lm.experiments.trials import Outcome
from lm.reporting import report
from lm.reporting.charts import Line, chart, comparison, table


def laws(experiment: IsoFlop, outcomes: dict[str, Outcome]) -> list[report.Section]:
    """The sections of the page, as far as the runs go."""
    runs = experiment.runs(outcomes)
    if not runs:
        return []
    sections = [report.Section("Loss by size", figures(by_size(runs), by_wall_clock(experiment, outcomes)), SIZE_NOTE)]
    if any(trial.name not in outcomes for trial in experiment.grid()):
        return sections
    try:
        found = experiment.prediction(outcomes)
    except ValueError:
        return sections
    return [outcome(experiment, outcomes, found), report.Section("Laws", law_table(found), LAW_NOTE), *sections]


SIZE_NOTE = "Each line is one budget of FLOPs: the size at which it is lowest is the best for that budget."
LAW_NOTE = "Fitted to the grid alone; 95% intervals from runs drawn again within each budget."


def figures(*drawn: str) -> str:
    return f'<div class="charts">{"".join(drawn)}</div>'


def by_size(runs: list[TrainedModel]) -> str:
    """The loss of each budget by parameters, and the parabolas."""
    lines = []
    for number, (budget, some) in enumerate(by_budget(runs).items()):
        points = sorted((run.parameters, run.loss) for run in some)
        lines.append(Line(f"{budget:.2g} FLOPs", points, number, "marks", f"{budget:.2g}"))
        if len(points) > 2:
            x = np.log([size for size, _ in points])
            bends = np.polyfit(x, [loss for _, loss in points], 2)
            along = np.linspace(x[0], x[-1], 40)
            lines.append(Line("", [(math.exp(a), float(np.polyval(bends, a))) for a in along], number, "thin"))
    return chart("Loss", lines, note="nats a token, at the end", x_name="parameters", wide=True, log_x=True)


def by_wall_clock(experiment: IsoFlop, outcomes: dict[str, Outcome]) -> str:
    """The loss of each width by how long its runs took."""
    lines = []
    for number, width in enumerate(sorted(set(experiment.widths))):
        trials = [trial for trial in experiment.grid() if trial.model.d_model == width and trial.name in outcomes]
        ended = [outcomes[trial.name] for trial in trials]
        points = sorted((one.seconds, one.loss) for one in ended if one.seconds > 0 and math.isfinite(one.loss))
        if points:
            lines.append(Line(f"width {width}", points, number, "marks", str(width)))
    note = "nats a token, by width; runs side by side are slower"
    return chart("Loss by wall-clock", lines, note=note, x_name="seconds", wide=True, log_x=True)


def law_table(found: Prediction) -> str:
    """What each law says, in its own constants."""
    surface, (_, size), (_, loss) = found.surface, found.parabola.size_law, found.parabola.loss_law
    said = {
        "parabola": f"N* ∝ C^{size:.3f}, loss ∝ C^{loss:.3f}",
        "surface": f"{surface.floor:.3f} + {surface.a:.4g} / N^{surface.alpha:.3f} "
        f"+ {surface.b:.4g} / D^{surface.beta:.3f}",
    }
    rows = [[law, said[law], found.sizes[law].text(), found.losses[law].text(".4f")] for law in said]
    return table(["law", "constants", "best parameters", "loss there"], rows)


def outcome(experiment: IsoFlop, outcomes: dict[str, Outcome], found: Prediction) -> report.Section:
    """What was predicted of the larger run beside what came of it."""
    title = f"At {experiment.at:.2g} FLOPs"
    trial = experiment.predicted_trial(found)[0]
    ended = outcomes.get(trial.name)
    run = experiment.run_of(trial, math.nan if ended is None else ended.loss)
    took = seconds_predicted(experiment, outcomes, trial.model.d_model)
    rows = [
        ("loss, by the parabolas", found.losses["parabola"].value, None if ended is None else ended.loss),
        ("loss, by the surface at this size", found.surface.loss(run.parameters, run.tokens), ended and ended.loss),
        ("seconds", None if math.isnan(took) else took, None if ended is None else ended.seconds, "s"),
    ]
    return report.Section(title, comparison(rows), f"{run.parameters:,.0f} parameters, {run.tokens:,.0f} tokens.")
