"""The results of an experiment: a table for the terminal, and a page of its curves."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

from lm.columns import in_columns
from lm.experiments.trials import BASE, Experiment, Mean, Outcome, by_variant, gap
from lm.reporting import report
from lm.reporting.charts import Html, number, table, text


def ranked(experiment: Experiment, outcomes: dict[str, Outcome]) -> list[tuple[str, list[Outcome]]]:
    """The variants and their outcomes: by x where they have one, else by their loss."""
    return sorted(
        by_variant(outcomes).items(),
        key=lambda pair: pair[1][0].x if pair[1][0].x is not None else min(one.loss for one in pair[1]),
    )


def reference(experiment: Experiment, outcomes: dict[str, Outcome]) -> str | None:
    """The variant that the others are measured against: the base, or the best."""
    if BASE in by_variant(outcomes):
        return BASE
    return next(iter(experiment.best(outcomes)), None)


def rows(experiment: Experiment, outcomes: dict[str, Outcome]) -> Iterator[list[str]]:
    """Variant, loss, difference to the reference, bits per byte, tokens a second, seconds, runs."""
    against = reference(experiment, outcomes)
    for variant, ones in ranked(experiment, outcomes):
        fallen = [one for one in ones if experiment.diverged(one)]
        speeds = [one.tokens_per_second for one in ones if one.tokens_per_second]
        bits = [one.bits_per_byte for one in ones if one.bits_per_byte is not None]
        loss = str(Mean.of([one.loss for one in ones])) if all(math.isfinite(one.loss) for one in ones) else ""
        if fallen:
            loss = f"learned nothing ({loss})" if loss else "diverged"
        difference = "" if fallen or against is None or variant == against else gap(outcomes, variant, against).signed
        yield [
            variant,
            loss,
            difference,
            f"{Mean.of(bits).value:.4f}" if bits and not fallen else "",
            f"{sum(speeds) / len(speeds):,.0f}" if speeds else "",
            f"{sum(one.seconds for one in ones):,.0f}",
            str(len(ones)),
        ]


def headers(experiment: Experiment, outcomes: dict[str, Outcome]) -> list[str]:
    against = reference(experiment, outcomes)
    difference = f"against {against}" if against else "difference"
    return [experiment.x_name or "variant", "loss", difference, "bits/byte", "tokens/s", "seconds", "runs"]


def as_table(experiment: Experiment, outcomes: dict[str, Outcome]) -> str:
    """The table for a terminal."""
    return in_columns([headers(experiment, outcomes), *rows(experiment, outcomes)])


def write(experiment: Experiment, outcomes: dict[str, Outcome], out: Path) -> Path:
    """Draw the page of an experiment: finding, table, loss by what is varied, and curves."""
    shown = [min(ones, key=lambda one: one.seed) for _, ones in ranked(experiment, outcomes)]
    drawn = table(
        headers(experiment, outcomes),
        [[Html(text(cell).replace(" ± ", "\u00a0±\u00a0")) for cell in row] for row in rows(experiment, outcomes)],
    )
    note = "± is half of a 95% interval over seeds: runs of a seed saw the same data in the same order."
    sections = [*experiment.sections(outcomes), report.Section("Results", drawn, note)]
    figures = [(number(len(outcomes)), "runs", f"of {len(by_variant(outcomes))} variants")]
    return report.write(
        [out / f"{one.variant}-seed-{one.seed}" for one in shown],
        out / "report.html",
        title=experiment.title,
        names=[one.variant for one in shown],
        headline=experiment.finding(outcomes),
        figures=figures,
        leading=sections,
    )
