"""Experiments: which runs they ask for, given those that there are, and what they find."""

from __future__ import annotations

import dataclasses
import math
import statistics
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lm.config import ModelConfig, TrainConfig
from lm.experiments.ablations import ABLATIONS, TRAINING, changes
from lm.reporting.charts import Line, chart
from lm.reporting.report import Section

# Half the width of a 95% interval of a mean, in standard errors, by how many values it is the mean of (Student's t).
STUDENT = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365, 9: 2.306, 10: 2.262}
MANY = 2.228  # for more values, a little too wide
LEARNS_NOTHING, REMEDY = "learns no more than how often each token occurs", "lower the rate, or train for longer"


@dataclass(frozen=True)
class Trial:
    """One run of an experiment: what is varied, as words and as a number where it is one, and the seed."""

    variant: str
    seed: int
    model: ModelConfig
    train: TrainConfig
    x: float | None = None

    @property
    def name(self) -> str:
        """The folder of its run."""
        return f"{self.variant}-seed-{self.seed}"


@dataclass(frozen=True)
class Outcome:
    """The end of a trial."""

    variant: str
    seed: int
    loss: float  # nats a token, held out, or the mean of the last tenth of the steps; infinite if it diverged
    steps: int
    seconds: float
    tokens_per_second: float
    x: float | None = None
    bits_per_byte: float | None = None
    why: str | None = None  # why it stopped before its end


Outcomes = Mapping[str, Outcome]  # by the name of their trial


@dataclass(frozen=True)
class Mean:
    """A mean with half the width of its 95% interval, which is not known of one value."""

    value: float
    margin: float | None

    @classmethod
    def of(cls, values: Sequence[float]) -> Mean:
        if len(values) < 2 or not all(map(math.isfinite, values)):
            return cls(statistics.fmean(values), None)
        error = statistics.stdev(values) / math.sqrt(len(values))
        return cls(statistics.fmean(values), STUDENT.get(len(values), MANY) * error)

    def __str__(self) -> str:
        return f"{self.value:.4f}" + ("" if self.margin is None else f" ± {self.margin:.4f}")

    @property
    def signed(self) -> str:
        return f"{self.value:+.4f}" + ("" if self.margin is None else f" ± {self.margin:.4f}")


@dataclass(frozen=True)
class Experiment(ABC):
    """A base configuration, and the number of seeds that a finding rests on."""

    model: ModelConfig
    train: TrainConfig
    unigram_entropy: float  # nats a token of a model that predicts each token by its frequency
    seeds: int = 3

    title = ""
    x_name = ""

    @abstractmethod
    def trials_for(self, outcomes: Outcomes) -> list[Trial]:
        """Return the trials that these outcomes call for; when all have an outcome, the experiment is over."""

    @abstractmethod
    def finding(self, outcomes: Outcomes) -> str:
        """Return the finding, computed from the outcomes."""

    def sections(self, outcomes: Outcomes) -> list[Section]:
        """The sections of its page before the table: the loss by what is varied, if that is a number."""
        swept = {one.x for one in outcomes.values() if one.x is not None and math.isfinite(one.loss)}
        if len(swept) < 2:
            return []
        groups = sorted(by_variant(outcomes).values(), key=lambda ones: ones[0].x or 0.0)
        points = [(ones[0].x or 0.0, Mean.of([one.loss for one in ones]).value) for ones in groups]
        means = [(x, loss) for x, loss in points if math.isfinite(loss)]
        diverged = [one.variant for one in outcomes.values() if not math.isfinite(one.loss)]
        figure = chart(
            f"Loss by {self.x_name}",
            [Line("loss", means, 0, "marks")],
            note="nats per token, at the end" + (f"; diverged: {', '.join(diverged)}" if diverged else ""),
            x_name=self.x_name,
            references={"unigrams": self.unigram_entropy},
            wide=True,
            log_x=True,
            ceiling=self.unigram_entropy * 1.05,
        )
        return [Section(self.x_name.capitalize(), f'<div class="charts">{figure}</div>')]

    def trials(self, variant: str, seeds: int, x: float | None = None, model: Any = None, **train: Any) -> list[Trial]:
        """A variant with so many seeds: settings that differ from the base."""
        changed = dataclasses.replace(self.train, **train)
        return [
            Trial(variant, seed, model or self.model, dataclasses.replace(changed, seed=self.train.seed + seed), x)
            for seed in range(seeds)
        ]

    def best(self, outcomes: Outcomes) -> list[str]:
        """The variants of a sweep that learned, by their first seed; the best two by the mean of theirs."""
        learned = sorted((one for one in of_first_seed(outcomes) if not self.diverged(one)), key=lambda one: one.loss)
        means = {one.variant: losses_of(outcomes, one.variant).value for one in learned[:2]}
        return [*sorted(means, key=lambda variant: means[variant]), *(one.variant for one in learned[2:])]

    def diverged(self, outcome: Outcome) -> bool:
        """True if a run stopped by itself, or ended above the unigrams' entropy."""
        return outcome.why is not None or not outcome.loss < self.unigram_entropy


def gap(outcomes: Outcomes, variant: str, base: str) -> Mean:
    """Return the loss of a variant above another's, seed by seed: both saw the same data in the same order."""
    of_base = {one.seed: one.loss for one in outcomes.values() if one.variant == base}
    ones = [one for one in outcomes.values() if one.variant == variant and one.seed in of_base]
    return Mean.of([one.loss - of_base[one.seed] for one in ones])


def losses_of(outcomes: Outcomes, variant: str) -> Mean:
    """The loss of a variant over its seeds."""
    return Mean.of([one.loss for one in outcomes.values() if one.variant == variant])


def by_variant(outcomes: Outcomes) -> dict[str, list[Outcome]]:
    grouped: dict[str, list[Outcome]] = {}
    for one in outcomes.values():
        grouped.setdefault(one.variant, []).append(one)
    return grouped


def of_first_seed(outcomes: Outcomes) -> list[Outcome]:
    """One outcome a variant, in the order of x: what a sweep decides by."""
    return sorted((one for one in outcomes.values() if one.seed == 0), key=lambda one: one.x or 0.0)


def comparison_of(outcomes: Outcomes, best: str, next_best: str) -> str:
    """Return a sentence on how far the next variant is behind, and if that is more than chance."""
    ahead = gap(outcomes, next_best, best)
    if ahead.margin is None:
        return f"{next_best} is {ahead} behind (one seed, so how much of that is chance is not known)"
    if ahead.value - ahead.margin > 0:
        return f"{next_best} is {ahead} behind, which is more than the seeds differ by"
    return f"{next_best} is {ahead} behind, which may be chance"


MOST_RATES = 24


@dataclass(frozen=True)
class LearningRates(Experiment):
    """From an eighth of the base's rate up by factors of two to the first that diverges, and half-way back.

    Where the lowest is the best, or none learns, lower ones are tried. The best and the runner-up are run with more
    seeds.
    """

    rates: tuple[float, ...] = ()

    title = "Learning rates"
    x_name = "learning rate"

    def grid(self) -> list[float]:
        return list(self.rates) or [self.train.learning_rate * 2.0**k for k in range(-3, 4)]

    def trials_for(self, outcomes: Outcomes) -> list[Trial]:
        rates = self.grid()
        trials = [trial for rate in rates for trial in self.at(rate, 1)]
        done = of_first_seed(outcomes)
        if any(trial.name not in outcomes for trial in trials):
            return trials
        learned = [one for one in done if not self.diverged(one)]
        if not self.rates and not learned and len(done) < MOST_RATES:
            return self.at((done[0].x or 0.0) / 2, 1)
        if not self.rates and learned:
            best = min(learned, key=lambda one: one.loss)
            edge = self.edge(done)
            if edge is None and len(done) < MOST_RATES:
                return self.at(2 * (done[-1].x or 0.0), 1)
            if best is done[0] and len(done) < MOST_RATES:
                return self.at((best.x or 0.0) / 2, 1)
            if edge is not None:
                below = max(one.x or 0.0 for one in learned if (one.x or 0.0) < edge)
                if edge / below > 1.5:
                    return self.at(math.sqrt(edge * below), 1)
        two = sorted(learned, key=lambda one: one.loss)[:2]
        return [trial for one in two for trial in self.at(one.x or 0.0, self.seeds)]

    def at(self, rate: float, seeds: int) -> list[Trial]:
        lowest = min(self.train.min_learning_rate, rate)
        return self.trials(f"{rate:.3g}", seeds, rate, learning_rate=rate, min_learning_rate=lowest)

    def edge(self, done: Sequence[Outcome]) -> float | None:
        """The lowest rate above the best one at which training diverges."""
        best = min((one for one in done if not self.diverged(one)), key=lambda one: one.loss, default=None)
        diverged = [one.x or 0.0 for one in done if self.diverged(one)]
        return min((x for x in diverged if best is not None and x > (best.x or 0.0)), default=None)

    def finding(self, outcomes: Outcomes) -> str:
        done = of_first_seed(outcomes)
        variants = self.best(outcomes)
        if not variants:
            return "No rate learned more than how often each token occurs: lower them, or train for longer."
        best, edge = variants[0], self.edge(done)
        sentence = f"The best learning rate is {best}, at a loss of {losses_of(outcomes, best)}"
        if len(variants) > 1:
            sentence += f"; {comparison_of(outcomes, best, variants[1])}"
        if edge is None:
            return f"{sentence}. None of the rates up to {done[-1].variant} fails."
        first = next(one for one in done if one.x == edge)
        how = "diverge" if first.why is not None else "learn no more than how often each token occurs"
        times = edge / next(one.x or 1.0 for one in done if one.variant == best)
        return f"{sentence}. The lowest rate above it to {how} is {edge:.3g}, {times:.3g} times the best."


@dataclass(frozen=True)
class BatchSizes(Experiment):
    """Batches from an eighth of the base's to eight times it, over as many tokens; the rate by the square root."""

    sizes: tuple[int, ...] = ()
    scale_rate: bool = True

    title = "Batch sizes"
    x_name = "batch size"

    def trials_for(self, outcomes: Outcomes) -> list[Trial]:
        base = self.train.batch_size
        sizes = self.sizes or tuple(sorted({max(1, round(base * 2.0**k)) for k in range(-3, 4)}))
        trials = [trial for size in sizes for trial in self.at(size, 1)]
        if any(trial.name not in outcomes for trial in trials):
            return trials
        learned = sorted((one for one in of_first_seed(outcomes) if not self.diverged(one)), key=lambda one: one.loss)
        return [trial for one in learned[:2] for trial in self.at(round(one.x or 1.0), self.seeds)]

    def at(self, size: int, seeds: int) -> list[Trial]:
        base = self.train
        share = base.batch_size / size
        steps = max(1, round(base.steps * share))
        warmup = min(steps - 1, round(base.warmup_steps * share))

        def scaled(every: int) -> int:
            return max(1, round(every * share)) if every else 0

        rate = base.learning_rate / math.sqrt(share) if self.scale_rate else base.learning_rate
        micro = base.micro_batch_size or base.batch_size
        return self.trials(
            str(size),
            seeds,
            float(size),
            batch_size=size,
            steps=steps,
            warmup_steps=warmup,
            decay_steps=base.decay_steps and min(steps - warmup, scaled(base.decay_steps)),
            eval_every=scaled(base.eval_every),
            checkpoint_every=scaled(base.checkpoint_every),
            micro_batch_size=max(part for part in range(1, min(micro, size) + 1) if size % part == 0),
            learning_rate=rate,
            min_learning_rate=min(rate, base.min_learning_rate),
        )

    def finding(self, outcomes: Outcomes) -> str:
        done = {one.variant: one for one in of_first_seed(outcomes)}
        variants = self.best(outcomes)
        if not variants:
            return "No batch size learned more than how often each token occurs: lower the rate, or train for longer."
        best, fastest = done[variants[0]], max(map(done.__getitem__, variants), key=lambda one: one.tokens_per_second)
        losses = losses_of(outcomes, best.variant)
        sentence = f"Over as many tokens, batches of {best.variant} end lowest, at a loss of {losses}"
        if len(variants) > 1:
            sentence += f"; {comparison_of(outcomes, best.variant, variants[1])}"
        if fastest is not best and fastest.tokens_per_second > 1.02 * best.tokens_per_second:
            times = fastest.tokens_per_second / best.tokens_per_second
            behind = fastest.loss - best.loss
            sentence += f". Batches of {fastest.variant} are {times:.2f} times as fast and end {behind:+.4f} above"
        return f"{sentence}."


BASE = "base"
LOWER = 4  # a variant that diverges is tried again at this part of the rate, so many times
LOWER_TIMES = 3


@dataclass(frozen=True)
class Ablations(Experiment):
    """The base, and beside it each part of the model or of its training taken out or replaced, one at a time.

    The number of parameters stays, but for embeddings that are added or tied: a feed-forward of two matrices is half as
    wide again as SwiGLU's of three. A variant that diverges is tried at a fourth of the rate.
    """

    only: tuple[str, ...] = ()

    title = "Ablations"

    def __post_init__(self) -> None:
        for name in self.only:
            if name not in ABLATIONS and name not in TRAINING:
                names = ", ".join(name for name in (*ABLATIONS, *TRAINING) if not self.changes_nothing(name))
                raise ValueError(f"no ablation is named {name!r}: those of this model are {names}")
            if self.changes_nothing(name):
                settings = " and ".join(f"{key} = {value!r}" for key, value in changes(name, self.train).items())
                raise ValueError(f"the ablation {name!r} changes nothing: the base has {settings} already")

    def changes_nothing(self, name: str) -> bool:
        """True if an ablation leaves the base as it is."""
        base = self.train if name in TRAINING else self.model
        return all(getattr(base, key) == value for key, value in changes(name, self.train).items())

    def is_run(self, name: str) -> bool:
        """True if an ablation is to be run: those named, else all, of those that change anything."""
        return not self.changes_nothing(name) and (not self.only or name in self.only)

    def models(self) -> dict[str, ModelConfig]:
        """Each variant of the model that differs from the base, and that the base's shape allows."""
        models = {}
        for name, change in ABLATIONS.items():
            if not self.is_run(name) or (self.model.norm == "none" and change.keys() == {"norm_placement"}):
                continue
            if "ffn" in change and "swiglu" in (change["ffn"], self.model.ffn):
                wider = self.model.d_ff * 3 / 2 if self.model.ffn == "swiglu" else self.model.d_ff * 2 / 3
                change = {**change, "d_ff": max(1, round(wider))}
            models[name] = dataclasses.replace(self.model, **change)
        return models

    def trials_for(self, outcomes: Outcomes) -> list[Trial]:
        trials = self.trials(BASE, self.seeds)
        variants = {name: (model, dict[str, Any]()) for name, model in self.models().items()}
        variants |= {name: (self.model, changes(name, self.train)) for name in TRAINING if self.is_run(name)}
        for name, (model, train) in variants.items():
            tried = self.trials(name, self.seeds, model=model, **train)
            trials += tried
            for times in range(1, LOWER_TIMES + 1):
                if not any(trial.name in outcomes and self.diverged(outcomes[trial.name]) for trial in tried):
                    break
                rate = self.train.learning_rate / LOWER**times
                own = {key: value / LOWER**times for key, value in train.items() if key.endswith("learning_rate")}
                rates = {"learning_rate": rate, "min_learning_rate": min(rate, self.train.min_learning_rate)}
                variant = f"{name}-rate-over-{LOWER**times}"
                tried = self.trials(variant, self.seeds, model=model, **(train | own), **rates)
                trials += tried
        return trials

    def finding(self, outcomes: Outcomes) -> str:
        variants = by_variant(outcomes)
        if BASE not in variants:
            return "The base has not been trained yet."
        base = Mean.of([one.loss for one in variants[BASE]])
        if any(one.why is not None for one in variants[BASE]):
            parts = ["The base diverges: lower the rate"]
        elif any(map(self.diverged, variants[BASE])):
            parts = [f"The base {LEARNS_NOTHING} ({base}): {REMEDY}"]
        else:
            parts = [f"The base ends at a loss of {base}"]
        gaps, diverge, learn_nothing = [], [], []
        for name, ones in variants.items():
            if name == BASE:
                continue
            if any(one.why is not None for one in ones):
                diverge.append(name)
            elif any(map(self.diverged, ones)):
                learn_nothing.append(name)
            else:
                gaps.append((gap(outcomes, name, BASE), name))
        for difference, name in sorted(gaps, key=lambda pair: -pair[0].value):
            is_finite = math.isfinite(difference.value)
            parts.append(f"{name} {difference.signed}" if is_finite else f"{name} ends at {losses_of(outcomes, name)}")
        sentence = "; ".join(parts)
        if diverge:
            sentence += f". {', '.join(diverge)} {'diverge' if len(diverge) > 1 else 'diverges'}"
        if learn_nothing:
            verb = LEARNS_NOTHING.replace("learns", "learn") if len(learn_nothing) > 1 else LEARNS_NOTHING
            sentence += f". {', '.join(learn_nothing)} {verb}"
        unsure = [name for mean, name in gaps if mean.margin is None or abs(mean.value) <= mean.margin]
        if unsure and self.seeds > 1:
            sentence += f". Within what the seeds differ by: {', '.join(sorted(unsure))}"
        return f"{sentence}."
