"""IsoFLOP: sizes at the same budgets of FLOPs, laws fitted to them, and a larger run that the laws predicted.

    python packages/lm/examples/isoflop.py cpu-demo --data FOLDER --out OUT [--widths W,W,…] [--budgets C,C,…]

As `lm experiment`: the same command goes on with the runs in OUT, and writes OUT/report.html.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scaling_laws import (
    Interval,
    Parabola,
    Surface,
    TrainedModel,
    bootstrapped,
    by_budget,
    fit_parabola,
    fit_surface,
    power_law,
)

from lm.commands.cli import Ended, Parser
from lm.commands.configuration import configuration
from lm.commands.experiment import perform, run_arguments
from lm.config import ModelConfig, TrainConfig
from lm.experiments.grid import Outcomes, Trial, write
from lm.reporting import report
from lm.reporting.charts import Line, chart, comparison, table

SHARES = (0.125, 0.25, 0.5, 0.75, 1.0)  # of the base's width
BUDGETS = (1e12, 2e12, 4e12)
AT = 1.6e13
PREDICTED = "predicted"  # what the name of the larger run begins with


@dataclass(frozen=True)
class Prediction:
    """A forecast of the laws for a budget, before anything was trained with it.

    Attributes:
        sizes: The best number of parameters, by each law.
        losses: The loss there, by each law.
        parabola, surface: The laws.
    """

    sizes: dict[str, Interval]
    losses: dict[str, Interval]
    parabola: Parabola
    surface: Surface


@dataclass(frozen=True)
class IsoFlop:
    """Each width at each budget; then, at the budget `at`, the width that is nearest to what the parabolas say is best.

    A model is the base at another width: d_ff and the number of heads go with it, layers and vocabulary stay. head_dim
    stays too, or is half where the width is not whole heads. The learning rate goes with 1 / √width; the schedule is as
    long as the run. FLOPs are accounting's, exact, forward and backward.
    """

    model: ModelConfig
    train: TrainConfig
    widths: tuple[int, ...] = ()
    budgets: tuple[float, ...] = BUDGETS
    at: float = AT

    def __post_init__(self) -> None:
        if not self.widths:
            object.__setattr__(self, "widths", usual_widths(self.model))
        if len(set(self.widths)) < 3 or len(set(self.budgets)) < 2:
            raise ValueError(
                f"{len(set(self.widths))} widths and {len(set(self.budgets))} budgets are too few: laws want 3 and 2"
            )
        if not self.at > max(self.budgets):
            raise ValueError(f"the budget to predict is {self.at:g}: choose one above {max(self.budgets):g}")
        for width in self.widths:
            self.model_of(width)
            for budget in self.budgets:
                self.steps(width, budget)

    def model_of(self, width: int) -> ModelConfig:
        """The base model at another width."""
        base, narrow = self.model, narrow_head(self.model)
        if width < 1 or width % narrow:
            raise ValueError(f"a width is a multiple of {narrow}, for heads that wide or wider, and {width} is none")
        head_width = narrow if width % base.head_width else base.head_width
        heads = width // head_width
        shared = base.num_heads // base.kv_heads  # query heads for a key head
        return dataclasses.replace(
            base,
            d_model=width,
            num_heads=heads,
            num_kv_heads=max(1, heads // shared) if heads % shared == 0 else heads,
            head_dim=head_width,
            d_ff=max(1, round(base.d_ff * width / base.d_model)),
        )

    @functools.cache  # noqa: B019 (experiments are few)
    def costs(self, width: int) -> tuple[int, int]:
        """The parameters of a width, and the FLOPs of one step."""
        from accounting import parameters, training_flops  # here, because nothing but a budget needs it

        shape = self.model_of(width).shape()
        flops = training_flops(shape, batch_size=self.train.batch_size, pairs="causal")
        return int(parameters(shape).total), int(flops.total)

    def steps(self, width: int, budget: float) -> int:
        """Steps that a budget is enough for. ValueError: fewer than ten."""
        steps = round(budget / self.costs(width)[1])
        if steps < 10:
            raise ValueError(
                f"{budget:g} FLOPs are {steps} steps at width {width}, too few to learn anything: raise the budget, "
                f"or lower the width or the batch_size"
            )
        return steps

    def trial_of(self, width: int, budget: float, name: str) -> Trial:
        """One run of a width, as long as a budget lasts."""
        base, steps = self.train, self.steps(width, budget)
        rate = base.learning_rate * math.sqrt(self.model.d_model / width)
        warmup = min(base.warmup_steps, steps // 10)
        decay = None if base.decay_steps is None else max(1, round(base.decay_steps / base.steps * steps))
        config = dataclasses.replace(
            base,
            steps=steps,
            warmup_steps=warmup,
            decay_steps=decay and min(decay, steps - warmup),
            learning_rate=rate,
            min_learning_rate=min(rate, base.min_learning_rate),
            log_every=max(1, steps // 200),
            eval_every=0,
            checkpoint_every=max(1, steps // 4),
        )
        return Trial(name, 0, self.model_of(width), config)

    def grid(self) -> list[Trial]:
        """Every width at every budget."""
        return [
            self.trial_of(width, budget, f"{budget:.3g}-width-{width}")
            for budget in sorted(set(self.budgets))
            for width in sorted(set(self.widths))
        ]

    def predicted_trial(self, prediction: Prediction) -> Trial:
        """The run at the larger budget: the width whose parameters are nearest to what the parabolas say is best."""
        best, step = prediction.sizes["parabola"].value, narrow_head(self.model)
        widths = [width for width in range(step, 4 * max(self.widths) + 1, step) if self.is_possible(width)]
        nearest = min(widths, key=lambda width: abs(math.log(self.costs(width)[0] / best)))
        return self.trial_of(nearest, self.at, f"{PREDICTED}-{self.at:.3g}-width-{nearest}")

    def is_possible(self, width: int) -> bool:
        """True if the larger budget is enough for a width."""
        return self.at / self.costs(width)[1] >= 10

    def runs(self, outcomes: Outcomes) -> list[TrainedModel]:
        """The trained models of the grid; those that diverged are left out."""
        return [
            self.run_of(trial, outcomes[trial.name].loss)
            for trial in self.grid()
            if trial.name in outcomes and math.isfinite(outcomes[trial.name].loss)
        ]

    def run_of(self, trial: Trial, loss: float) -> TrainedModel:
        """A trial with its outcome, as the laws know it."""
        parameters, flops = self.costs(trial.model.d_model)
        tokens = trial.train.steps * trial.train.batch_size * trial.model.context_length
        return TrainedModel(parameters, tokens, float(flops) * trial.train.steps, loss)

    def prediction(self, outcomes: Outcomes) -> Prediction:
        """The forecast for the larger budget of laws fitted to the grid. ValueError: they cannot be fitted."""
        return predicted(tuple(self.runs(outcomes)), self.at)

    def finding(self, outcomes: Outcomes) -> str:
        if any(trial.name not in outcomes for trial in self.grid()):
            return "The grid has not been trained yet."
        try:
            prediction = self.prediction(outcomes)
        except ValueError as error:
            return f"No law could be fitted: {error}."
        sentences = [
            f"by {law} {prediction.sizes[law].text()} parameters are best and reach a loss of "
            f"{prediction.losses[law].text('.4f')}"
            for law in prediction.sizes
        ]
        text = f"At {self.at:.2g} FLOPs, with 95% intervals: {'; '.join(sentences)}"
        trial = self.predicted_trial(prediction)
        if (outcome := outcomes.get(trial.name)) is not None:
            size = self.costs(trial.model.d_model)[0]
            text += f". The run of {size:,} parameters ended at a loss of {outcome.loss:.4f}"
        return f"{text}.{self.outside(prediction)}"

    def outside(self, prediction: Prediction) -> str:
        """Says which budgets are best spent on a size that is not among those that were trained."""
        sizes = [self.costs(width)[0] for width in self.widths]
        best = zip(prediction.parabola.budgets, prediction.parabola.best_sizes, strict=True)
        budgets = [f"{budget:.2g}" for budget, size in best if not min(sizes) <= size <= max(sizes)]
        if not budgets:
            return ""
        return (
            f" The best size at {', '.join(budgets)} FLOPs is outside of those trained, so it is a guess: add widths."
        )


def narrow_head(model: ModelConfig) -> int:
    """The head_dim of widths that are not whole heads: half of the model's, where rotary embeddings can halve that."""
    return model.head_width // 2 if model.head_width % 4 == 0 else model.head_width


def usual_widths(model: ModelConfig) -> tuple[int, ...]:
    """An eighth of a model's width to all of it, in whole heads or narrow ones."""
    step = narrow_head(model)
    return tuple(sorted({step * max(1, round(share * model.d_model / step)) for share in SHARES}))


@functools.lru_cache(maxsize=8)
def predicted(runs: Sequence[TrainedModel], flops: float) -> Prediction:
    """The forecast for a budget, with intervals."""
    parabola, surface = fit_parabola(runs), fit_surface(runs)

    def by_parabola(some: Sequence[TrainedModel]) -> tuple[float, float]:
        law = fit_parabola(some)
        return law.best_size(flops), law.best_loss(flops)

    def by_surface(some: Sequence[TrainedModel]) -> tuple[float, float]:
        law = surface if some is runs else fit_surface(some, surface)
        size = law.best_size(flops)
        return size, law.loss(size, flops / (6 * size))

    intervals = {"parabola": bootstrapped(runs, by_parabola), "surface": bootstrapped(runs, by_surface)}
    return Prediction(
        sizes={law: interval[0] for law, interval in intervals.items()},
        losses={law: interval[1] for law, interval in intervals.items()},
        parabola=parabola,
        surface=surface,
    )


def seconds_predicted(experiment: IsoFlop, outcomes: Outcomes, width: int) -> float:
    """Seconds of the larger run: FLOPs a second grow with width as a power law, fitted to the grid."""
    speeds: dict[int, list[float]] = {}
    for trial in experiment.grid():
        outcome = outcomes[trial.name]
        if outcome.seconds > 0 and outcome.steps:
            done = experiment.costs(trial.model.d_model)[1] * outcome.steps
            speeds.setdefault(trial.model.d_model, []).append(done / outcome.seconds)
    if len(speeds) < 2:
        return math.nan
    a, b = power_law(list(speeds), [sorted(some)[len(some) // 2] for some in speeds.values()])
    return experiment.at / math.exp(a + b * math.log(width))


# The page


def laws(experiment: IsoFlop, outcomes: Outcomes) -> list[report.Section]:
    """The sections of the page, as far as the runs go."""
    runs = experiment.runs(outcomes)
    if not runs:
        return []
    sections = [report.Section("Loss by size", figures(by_size(runs), by_wall_clock(experiment, outcomes)), SIZE_NOTE)]
    if any(trial.name not in outcomes for trial in experiment.grid()):
        return sections
    try:
        prediction = experiment.prediction(outcomes)
    except ValueError:
        return sections
    return [
        outcome(experiment, outcomes, prediction),
        report.Section("Laws", law_table(prediction), LAW_NOTE),
        *sections,
    ]


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


def by_wall_clock(experiment: IsoFlop, outcomes: Outcomes) -> str:
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


def law_table(prediction: Prediction) -> str:
    """Each law in its own constants."""
    surface, (_, size), (_, loss) = prediction.surface, prediction.parabola.size_law, prediction.parabola.loss_law
    constants = {
        "parabola": f"N* ∝ C^{size:.3f}, loss ∝ C^{loss:.3f}",
        "surface": f"{surface.floor:.3f} + {surface.a:.4g} / N^{surface.alpha:.3f} "
        f"+ {surface.b:.4g} / D^{surface.beta:.3f}",
    }
    rows = [
        [law, constants[law], prediction.sizes[law].text(), prediction.losses[law].text(".4f")] for law in constants
    ]
    return table(["law", "constants", "best parameters", "loss there"], rows)


def outcome(experiment: IsoFlop, outcomes: Outcomes, prediction: Prediction) -> report.Section:
    """The larger run as it was predicted beside its outcome."""
    title = f"At {experiment.at:.2g} FLOPs"
    trial = experiment.predicted_trial(prediction)
    ended = outcomes.get(trial.name)
    run = experiment.run_of(trial, math.nan if ended is None else ended.loss)
    took = seconds_predicted(experiment, outcomes, trial.model.d_model)
    rows = [
        ("loss, by the parabolas", prediction.losses["parabola"].value, None if ended is None else ended.loss),
        (
            "loss, by the surface at this size",
            prediction.surface.loss(run.parameters, run.tokens),
            ended and ended.loss,
        ),
        ("seconds", None if math.isnan(took) else took, None if ended is None else ended.seconds, "s"),
    ]
    return report.Section(title, comparison(rows), f"{run.parameters:,.0f} parameters, {run.tokens:,.0f} tokens.")


def numbers(kind: type) -> Any:
    """Return a function that reads numbers between commas."""

    def read(text: str) -> tuple[Any, ...]:
        return tuple(kind(part) for part in text.split(","))

    read.__name__ = f"list of {kind.__name__}"  # argparse calls it so where it cannot be read
    return read


def main(arguments: Sequence[str] | None = None) -> int:
    parser = Parser("isoflop.py", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    run_arguments(parser)
    help = "d_model (default: ⅛ of the base's to all)"
    parser.add_argument("--widths", type=numbers(int), default=(), metavar="W,W,…", help=help)
    help = "FLOPs (default: 1e12,2e12,4e12)"
    parser.add_argument("--budgets", type=numbers(float), default=BUDGETS, metavar="C,C,…", help=help)
    parser.add_argument("--at", type=float, metavar="C", default=AT, help="the larger budget (default: 1.6e13)")
    try:
        options, settings = parser.parse_known_args(arguments)
        experiment = IsoFlop(*configuration(options.config, settings), options.widths, options.budgets, options.at)
        trials, out = experiment.grid(), Path(options.out)
        outcomes = perform(options, trials, lambda _: None)
        with contextlib.suppress(ValueError):  # no law can be fitted, as the finding says
            trials.append(experiment.predicted_trial(experiment.prediction(outcomes)))
            outcomes = perform(options, trials, lambda _: None)
        finding = experiment.finding(outcomes)
        page = write(trials, outcomes, out, title="IsoFLOP", headline=finding, sections=laws(experiment, outcomes))
    except Ended as ended:
        print(ended, file=sys.stderr)
        return ended.status
    except (ValueError, FileNotFoundError) as error:
        print(error, file=sys.stderr)
        return 2
    print(finding)
    print(page)
    return 0


if __name__ == "__main__":
    sys.exit(main())
