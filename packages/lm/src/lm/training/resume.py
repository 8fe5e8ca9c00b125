"""Continuing a run, and beginning one from another: what may differ, and what the user is told."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from lm.config import ModelConfig, TrainConfig, from_table, settable, to_table
from lm.families import config_class
from lm.schedule import learning_rate
from lm.training import checkpoint
from lm.training.checkpoint import CHECKPOINTS, Checkpoint


@dataclass(frozen=True)
class RunConfig:
    """The content of a run's config.toml."""

    model: ModelConfig
    train: TrainConfig | None  # None for an imported model without any
    data: dict[str, Any] = field(default_factory=dict)  # fingerprints
    # Origin of the first weights, empty for random ones: its kind ("import", "weights" or "branch"), and for the last
    # two the run's path, the step and the hash of the weights.
    start: dict[str, Any] = field(default_factory=dict)


# May a setting of [train] differ between a run and its continuation?
#     free       yes: it changes nothing that is learned
#     rounding   yes: it changes the last bits of a step, and the run says so
#     schedule   yes if the learning rate of all steps so far is the same by both; `steps` may always rise
#     exact      no: it changes the weights. Only `precision` may change with the device.
# Everything in [model] and [data] is exact.
Policy = Literal["free", "rounding", "schedule", "exact"]
POLICY: dict[str, Policy] = {
    **dict.fromkeys(settable(TrainConfig), "exact"),
    **dict.fromkeys(("log_every", "eval_every", "eval_tokens", "checkpoint_every", "keep_checkpoints"), "free"),
    **dict.fromkeys(("micro_batch_size", "activation_checkpointing", "collective_timeout", "reward_timeout"), "free"),
    **dict.fromkeys(("epochs", "early_stopping"), "free"),  # a run has the steps of its epochs
    **dict.fromkeys(("device", "threads", "compile", "parallel"), "rounding"),
    **dict.fromkeys(("steps", "decay_steps"), "schedule"),
}


def tables_of(config: RunConfig) -> dict[str, dict[str, Any]]:
    """The settings of a run by section; no "train" for an imported model that had no training."""
    train = {} if config.train is None else {"train": to_table(config.train)}
    return {"model": to_table(config.model), **train}


def exact_settings(config: RunConfig) -> dict[str, dict[str, Any]]:
    """The settings that a checkpoint records, to notice an edited config.toml: all that are not free."""
    tables = {"train": {}, **tables_of(config)}
    return {
        name: {key: value for key, value in table.items() if name != "train" or POLICY[key] != "free"}
        for name, table in tables.items()
    }


def refused_changes(
    before: Mapping[str, Mapping[str, Any]], now: Mapping[str, Mapping[str, Any]], *, same_rates: bool = False
) -> Iterator[tuple[str, Any, Any]]:
    """Yield (name, old, new) for the settings that changed and must not. same_rates: see has_same_rates."""
    for section, old_table in before.items():
        new_table = now[section]
        for key, old, new in differences(old_table, new_table):
            drops = new_table.get("dropout") or new_table.get("lora_dropout")
            redraws = key == "micro_batch_size" and drops  # whose masks it changes
            if section == "train" and (
                (POLICY.get(key) in ("free", "rounding") and not redraws)
                or (POLICY.get(key) == "schedule" and same_rates)
                or (key == "steps" and new > old)
                or (key == "precision" and old_table.get("device") != new_table.get("device"))
            ):
                continue
            yield f"{section}.{key}", old, new


def differences(before: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """The keys whose values differ, in order, with both values; None where a table lacks the key."""
    values = ((key, before.get(key), now.get(key)) for key in sorted(before.keys() | now.keys()))
    return (one for one in values if one[1] != one[2])


def has_same_rates(before: TrainConfig, now: TrainConfig, steps: int) -> bool:
    """True if the learning rate of the first steps is the same by both, and neither ends before them."""
    enough = min(before.steps, now.steps) >= steps
    return enough and all(learning_rate(before, step) == learning_rate(now, step) for step in range(steps))


def refuse_changes(run_dir: Path, earlier: RunConfig, requested: RunConfig) -> None:
    """ValueError: the request differs from the run in the folder where a continuation may not; by name."""
    before, now = {**tables_of(earlier), "data": earlier.data}, {**tables_of(requested), "data": requested.data}
    if earlier.train is None:  # an imported model knows only the tokenizer of its data
        now["data"] = {key: requested.data.get(key) for key in earlier.data}
    done = max(checkpoint.steps(run_dir / CHECKPOINTS), default=0)
    same_rates = bool(earlier.train and requested.train and has_same_rates(earlier.train, requested.train, done))
    for name, old, new in refused_changes(before, now, same_rates=same_rates):
        remedy = "ask for the same to continue it, choose another folder, or begin there with --branch"
        if name == "train.steps":
            remedy = "its learning rates so far are of that many steps; --branch makes a run that ends earlier"
        raise ValueError(f"the run in {run_dir} has {name} = {old!r}, and this call asks for {new!r}: {remedy}")


def recorded(saved: Checkpoint, written: RunConfig) -> RunConfig:
    """The configuration that a checkpoint was made by: config.toml may have been edited since."""
    tables = saved.state.get("config")
    if tables is None or written.train is None or not tables["train"]:
        return written
    free = {key: value for key, value in to_table(written.train).items() if POLICY[key] == "free"}
    model = from_table(config_class(tables["model"]), tables["model"], "model")
    return dataclasses.replace(written, model=model, train=from_table(TrainConfig, free | tables["train"], "train"))


def notes(saved: Checkpoint, earlier: TrainConfig | None, config: RunConfig) -> Iterator[str]:
    """Lines for the user of a run that has a checkpoint: the step it continues from, and what changed."""
    assert config.train is not None
    run_dir, steps = saved.path.parent.parent, config.train.steps
    if not saved.step:
        yield from origin_notes(config)
    elif saved.step == steps:
        yield f"{run_dir} has all of its {steps} steps: nothing is left to train"
    else:
        yield f"continuing {run_dir} from step {saved.step} of {steps}"
    if earlier is not None and earlier.steps != steps:
        changed = f"steps {'raised' if steps > earlier.steps else 'lowered'} from {earlier.steps} to {steps}"
        if has_same_rates(earlier, config.train, saved.step):
            yield f"{changed}: the run is, to the bit, one of {steps} steps"
        else:
            yield f"{changed}: the learning rate is that of {steps} steps only from here on"


def origin_notes(config: RunConfig) -> Iterator[str]:
    """Lines for the user of a run that begins with other weights than random ones."""
    start = config.start
    if start.get("kind") == "branch":
        yield f"going on from step {start['step']} of {start['from']}, with its optimizer"
    elif start.get("kind") == "weights":
        yield f"beginning with the weights of {start['from']} at its step {start['step']}, and a new optimizer"
    elif start.get("kind") == "import":
        yield "beginning with the imported weights, and a new optimizer"


def rounding_note(saved: Checkpoint, now: Mapping[str, Any]) -> str | None:
    """A line for the user if the steps so far were computed in another way (see run.computed_by), else None."""
    pairs = differences(saved.state.get("computed_by", now), now)
    changes = "; ".join(f"{key} {old}, now {new}" for key, old, new in pairs)
    ways = f"the steps so far were computed with {changes}: the run continues to rounding, not to the bit"
    return ways if changes else None


def refuse_other_origin(run_dir: Path, start: Mapping[str, Any], branch: str | Path | None, step: int | None) -> None:
    """ValueError: this call names another branch than the one that the run began from."""
    if branch is None:
        return
    is_branch, source, begun = start.get("kind") == "branch", start.get("from"), start.get("step")
    if not is_branch or Path(str(source)).resolve() != Path(branch).resolve() or step not in (None, begun):
        began = f"began from {source} at step {begun}" if is_branch else "did not begin as a branch"
        raise ValueError(f"the run in {run_dir} {began}: leave --branch out to continue it, or choose another --out")
