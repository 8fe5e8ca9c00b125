"""How a run begins or goes on: its configuration resolved, checked against what its folder holds, and written.

resolve     names what is left open ("auto"), as the run so far has it or as this machine has it
check       refuses by name what may not differ between a run and its continuation
open_run    both, and finds what the run begins or goes on from
prepare     writes all that stands in the folder before the first step
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import MISSING
from importlib import metadata
from pathlib import Path
from typing import Any, cast

import torch

from lm.config import DeviceName, ModelConfig, TrainConfig, settable, to_table
from lm.device import choose_device, choose_precision
from lm.files import atomic_write
from lm.ops.cpu import passes
from lm.schedule import learning_rate
from lm.tokenizer import keep_tokenizer, kept_tokenizer
from lm.training import checkpoint, environment
from lm.training.checkpoint import Checkpoint
from lm.training.distributed import DistributedContext
from lm.training.metrics import read_lines
from lm.training.run_folder import (
    CHECKPOINTS,
    CONFIG,
    METRICS,
    REFERENCE,
    RunConfig,
    find_checkpoint,
    plain_weights,
    read,
    refuse_what_is_missing,
    remove,
    write,
    writing,
)

# What may differ between a run and its continuation, because it changes nothing that is learned.
FREE = frozenset(
    {
        "log_every",
        "eval_every",
        "eval_tokens",
        "checkpoint_every",
        "keep_checkpoints",
        "micro_batch_size",
        "activation_checkpointing",
        "parallel",
        "collective_timeout",
    }
)
SECTIONS: dict[str, type] = {"model": ModelConfig, "train": TrainConfig}
# What may differ where it is asked for, because it changes no more than rounding; the run then says so.
ROUNDING = frozenset({"device", "threads", "compile"})


@dataclasses.dataclass(frozen=True)
class Opened:
    """What open_run found: the configuration to train by, the checkpoint to go on from, and what to say of it."""

    config: RunConfig
    saved: Checkpoint | None
    notes: tuple[str, ...] = ()
    is_written: bool = False  # whether config.toml says so already

    @property
    def training(self) -> TrainConfig:
        """The configuration of its training, which a run that is opened has."""
        assert self.config.train is not None
        return self.config.train


def resolve(asked: TrainConfig, known: TrainConfig | None = None) -> TrainConfig:
    """Names device, precision and threads where they are left open, as the run so far has them or else this machine.

    Args:
        asked: What this call asks for.
        known: What the run so far was trained by; None for a new one. Then compile may stay "auto", to be measured.

    Raises:
        ValueError: The device is not on this machine, or does not have the precision.
    """
    device = find_device(asked, known)
    precision = asked.precision
    if known is not None and precision == "auto":
        precision = "auto" if known.precision == "tf32" and device.type != "cuda" else known.precision
    precision = choose_precision(precision, device)
    if precision == "fp16" and asked.parallel == "fsdp":
        raise ValueError("precision 'fp16' goes with parallel 'ddp': its loss scale is not shared between shards")
    return dataclasses.replace(
        asked,
        device=cast(DeviceName, device.type),
        precision=precision,
        threads=asked.threads or (torch.get_num_threads() if known is None else known.threads),
        compile=known.compile if known is not None and asked.compile == "auto" else asked.compile,
    )


def find_device(asked: TrainConfig, known: TrainConfig | None, index: int = 0) -> torch.device:
    """The device that is asked for, or else the one that the run so far was on; index: of the CUDA devices."""
    if known is None or asked.device != "auto":
        return choose_device(asked.device, index)
    try:
        return choose_device(known.device, index)
    except ValueError:
        raise ValueError(
            f"the run so far was on {known.device!r}, which is not on this machine: --train.device cpu moves it"
        ) from None


def check(known: RunConfig, asked: RunConfig) -> Iterator[tuple[str, Any, Any]]:
    """What may not differ between a run and its continuation, and does: the setting's name and both values."""
    sections: list[tuple[str, Mapping[str, Any], Mapping[str, Any]]] = [
        ("model", to_table(known.model), to_table(asked.model))
    ]
    if known.train is not None and asked.train is not None:
        sections.append(("train", to_table(known.train), to_table(asked.train)))
        sections.append(("data", known.data, asked.data))
    else:  # an imported model knows of its tokenizer alone
        sections.append(("data", known.data, {key: asked.data.get(key) for key in known.data}))
    for section, there, here in sections:
        for key, old, new in differences(there, here):
            if section == "train" and (key in FREE or key in ROUNDING):
                continue
            if section == "train" and key == "steps" and new > old:
                continue
            if section == "train" and key == "precision" and there["device"] != here["device"]:
                continue
            if (section, key, old) == ("data", "end_of_text", None):  # made before it was kept
                continue
            yield f"{section}.{key}", old, new


def differences(there: Mapping[str, Any], asked: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Each key that two tables do not agree on, in order, with what each has; None where it has nothing."""
    for key in sorted(there.keys() | asked.keys()):
        if there.get(key) != asked.get(key):
            yield key, there.get(key), asked.get(key)


def open_run(
    run_dir: Path,
    model: ModelConfig,
    asked: TrainConfig,
    data: dict[str, Any],
    *,
    restart: bool = False,
    branch: str | Path | None = None,
    step: int | None = None,
) -> Opened:
    """What the run in a folder begins or goes on from, and the configuration that it trains by; writes nothing.

    Args:
        run_dir: The run's folder, which may not be there yet.
        model: What is asked for.
        asked: What is asked for.
        data: The data's fingerprints (see Mixture.fingerprints).
        restart: Removes an earlier run that is there.
        branch: A run whose checkpoint of `step` (None: the newest) this one goes on from.
        step: See branch.

    Raises:
        ValueError: What is there does not go with what is asked for, or something is missing; by name.
    """
    if restart:
        with writing(run_dir):
            remove(run_dir)
    known, config = known_and_asked(run_dir, model, asked, data)
    trained = None if known is None else known.train
    if trained is None:
        imported = {"kind": "import", **known.start} if known is not None else {}
        config = dataclasses.replace(config, start=imported or origin(run_dir, config, branch, step))
    else:
        assert known is not None
        config = dataclasses.replace(config, start=known.start)
        refuse_other_origin(run_dir, known.start, branch, step)
    adapts = (
        f"lora_rank {asked.lora_rank}" if asked.lora_rank else "objective 'dpo'" if asked.objective == "dpo" else None
    )
    if adapts and not config.start:
        raise ValueError(
            f"{adapts} adapts weights, and this run begins with random ones: name a model with --train.init_from"
        )
    saved = None if known is None else find_checkpoint(run_dir)
    if saved is None:
        refuse_what_is_missing(run_dir, known)
        return Opened(config, None, tuple(begun(config)), is_written=known == config)
    refuse_edited(saved, config)
    return Opened(config, saved, tuple(notes(saved, trained, config)), is_written=known == config)


def known_and_asked(
    run_dir: Path, model: ModelConfig, asked: TrainConfig, data: dict[str, Any]
) -> tuple[RunConfig | None, RunConfig]:
    """The configuration of the run in a folder, None where there is none, and the one that is asked for, resolved.

    Raises:
        ValueError: They differ where a run and its continuation may not; by name.
    """
    known = read(run_dir) if (run_dir / CONFIG).is_file() else None
    config = RunConfig(model, resolve(asked, None if known is None else known.train), data)
    if known is not None:
        for name, old, new in check(known, config):
            way = "ask for the same to continue it, choose another folder, or begin there with --branch"
            if name == "train.steps":
                way = "a run can be trained longer, not shorter; --branch makes one that ends earlier"
            raise ValueError(f"the run in {run_dir} has {name} = {old!r}, and this call asks for {new!r}: {way}")
    return known, config


def origin(run_dir: Path, config: RunConfig, branch: str | Path | None, step: int | None) -> dict[str, Any]:
    """What a new run begins from: the [start] of its configuration, empty for random weights."""
    assert config.train is not None
    wants_weights = config.train.init_from != "scratch"
    if branch is not None and wants_weights:
        raise ValueError(
            f"--branch {branch} goes on with a run's weights and optimizer, and init_from {config.train.init_from} "
            f"takes weights alone: choose one"
        )
    if branch is None and step is not None:
        raise ValueError(f"step {step} is of the run that --branch names: name it")
    if branch is None and not wants_weights:
        return {}
    source = Path(config.train.init_from if branch is None else branch)
    if source.resolve() == run_dir.resolve():
        raise ValueError(f"{source} is the folder of this run itself: choose another --out")
    other = read(source)
    for key, old, new in differences(to_table(other.model), to_table(config.model)):
        raise ValueError(
            f"the run in {source} has model.{key} = {old!r}, and this call asks for {new!r}: ask for the same"
        )
    if (made := other.data.get("tokenizer")) is not None and config.data.get("tokenizer") not in (None, made):
        raise ValueError(
            f"the data was made by another tokenizer than the one of {source}: encode the text with that one"
        )
    saved = checkpoint.load(source / CHECKPOINTS, step, weights_only=branch is None)
    if saved is None:
        raise FileNotFoundError(f"the run in {source} has no checkpoint to begin from: train it for longer")
    if branch is not None and saved.step >= config.train.steps:
        raise ValueError(
            f"the checkpoint of {source} is of step {saved.step}, and train.steps is {config.train.steps}: raise it, "
            f"or name an earlier one with --step"
        )
    kind = "weights" if branch is None else "branch"
    return {"kind": kind, "from": str(source), "step": saved.step, "weights": saved.weights_fingerprint}


def refuse_other_origin(run_dir: Path, start: Mapping[str, Any], branch: str | Path | None, step: int | None) -> None:
    """ValueError: this call names another branch than the one that the run began from."""
    if branch is None:
        return
    there = (start.get("from"), start.get("step")) if start.get("kind") == "branch" else None
    if there is None or there[0] != str(branch) or step not in (None, there[1]):
        began = "did not begin as a branch" if there is None else f"began from {there[0]} at step {there[1]}"
        raise ValueError(f"the run in {run_dir} {began}: leave --branch out to continue it, or choose another --out")


def refuse_edited(saved: Checkpoint, config: RunConfig) -> None:
    """ValueError: config.toml was edited after the checkpoint was made, with the first setting that differs."""
    made = saved.state.get("config")
    if made is None:
        return
    now = made_with(config)
    for section, there in made.items():
        # a setting that there was not yet had what is now its default
        known = {key: value for key, value in defaults(SECTIONS[section]).items() if key in now[section]}
        for key, old, new in differences({**known, **there}, now[section]):
            moved = there.get("device") != now[section].get("device")
            if key in ROUNDING or (key == "steps" and new > old) or (key == "precision" and moved):
                continue
            raise ValueError(
                f"checkpoint {saved.path} was made with {section}.{key} = {old!r}, and config.toml has {new!r}: "
                f"put that back to continue the run, or choose another folder"
            )


def defaults(kind: type) -> dict[str, Any]:
    """The settings of a configuration that have a default other than None."""
    fields = settable(kind)
    return {name: field.default for name, field in fields.items() if field.default not in (MISSING, None)}


def made_with(config: RunConfig) -> dict[str, dict[str, Any]]:
    """What a checkpoint says of the configuration that it was made with: all that may not change."""
    train = {} if config.train is None else to_table(config.train)
    return {
        "model": to_table(config.model),
        "train": {key: value for key, value in train.items() if key not in FREE},
    }


def notes(saved: Checkpoint, known: TrainConfig | None, config: RunConfig) -> Iterator[str]:
    """What to say of a run that goes on: from where, and what of it is not as it would have been to the bit."""
    assert config.train is not None
    run_dir, steps = saved.path.parent.parent, config.train.steps
    if not saved.step:
        yield from begun(config)
    elif saved.step == steps:
        yield f"{run_dir} has all of its {steps} steps: nothing is left to train"
    else:
        yield f"continuing {run_dir} from step {saved.step} of {steps}"
    if known is not None and known.steps != config.train.steps:
        yield longer(known, config.train, saved.step)


def begun(config: RunConfig) -> Iterator[str]:
    """What to say of a run at its beginning, where that is not random weights."""
    start = config.start
    if start.get("kind") == "branch":
        yield f"going on from step {start['step']} of {start['from']}, with its optimizer"
    elif start.get("kind") == "weights":
        yield f"beginning with the weights of {start['from']} at its step {start['step']}, and a new optimizer"
    elif start.get("kind") == "import":
        yield "beginning with the imported weights, and a new optimizer"


def longer(known: TrainConfig, now: TrainConfig, step: int) -> str:
    """What it means for a run that its steps were raised when it had come to `step`."""
    said = f"steps raised from {known.steps} to {now.steps}"
    if all(learning_rate(known, done) == learning_rate(now, done) for done in range(step)):
        return f"{said}: the run is, to the bit, one of {now.steps} steps"
    return (
        f"{said}: the learning rate was that of {known.steps} steps so far and is that of {now.steps} from here on, "
        f"so that the run is not one of {now.steps} steps from its beginning"
    )


def computed_by(config: TrainConfig, distributed: DistributedContext) -> dict[str, Any]:
    """What a step's last bits depend on beside the configuration: kept in checkpoints, and compared by those who go
    on."""
    return {
        "torch": torch.__version__,
        "groundup-lm": version(),
        "processes": distributed.size,
        "device": config.device,
        "precision": config.precision,
        "threads": config.threads,
        "compile": config.compile,
        "fused passes": passes.means(distributed.device),
    }


def version() -> str:
    """This package's version, or "unknown" where it is imported from its source."""
    try:
        return metadata.version("groundup-lm")
    except metadata.PackageNotFoundError:
        return "unknown"


def computed_otherwise(saved: Checkpoint | None, now: Mapping[str, Any]) -> str | None:
    """What to say where the steps so far were computed in another way than the next: None where they were not."""
    if saved is None:
        return None
    changes = [f"{key} {old}, now {new}" for key, old, new in differences(saved.state.get("computed_by", now), now)]
    if not changes:
        return None
    return f"the steps so far were computed with {'; '.join(changes)}: the run continues to rounding, not to the bit"


def prepare(run_dir: Path, opened: Opened, tokenizer: Path | None) -> None:
    """Writes what stands in a run's folder before its first step: configuration, environment, tokenizer, and the
    checkpoint that it begins from, if that is another run's.
    """
    config, start = opened.config, opened.config.start
    assert config.train is not None
    with writing(run_dir):
        run_dir.mkdir(parents=True, exist_ok=True)
        if not opened.is_written:
            write(run_dir, config)
        environment.record(run_dir, config.train.device)
        source = Path(start["from"]) if start.get("kind") in ("weights", "branch") else None
        if tokenizer is None and source is not None and kept_tokenizer(run_dir) is None:
            tokenizer = kept_tokenizer(source)
        if tokenizer is not None:
            keep_tokenizer(tokenizer, run_dir)
        if opened.saved is None and source is not None:
            begin_from(run_dir, config, source)
        if config.train.objective == "dpo" and not config.train.lora_rank:
            keep_reference(run_dir, None if start.get("kind") != "branch" else source)
        (run_dir / CHECKPOINTS).mkdir(exist_ok=True)


def keep_reference(run_dir: Path, branched_from: Path | None) -> None:
    """Keeps the weights of step 0, of a branch those that the other run kept: preferences are learned beside them."""
    if checkpoint.steps(run_dir / REFERENCE):
        return
    folder = run_dir / CHECKPOINTS if branched_from is None else branched_from / REFERENCE
    saved = checkpoint.load(folder, 0, weights_only=True)
    assert saved is not None
    checkpoint.save(run_dir / REFERENCE, 0, saved.model, None, {})


def begin_from(run_dir: Path, config: RunConfig, source: Path) -> None:
    """Copies a checkpoint of another run, as the first of this one: of a branch with its optimizer and its metrics.

    Raises:
        ValueError: The other run's checkpoint is no longer the one that this run began from.
    """
    start = config.start
    saved = checkpoint.load(source / CHECKPOINTS, start["step"], weights_only=start["kind"] == "weights")
    if saved is None or saved.weights_fingerprint != start["weights"]:
        raise ValueError(f"the run in {run_dir} began from step {start['step']} of {source}, which has changed since")
    if start["kind"] == "weights":
        weights = plain_weights(read(source), saved)
        checkpoint.save(run_dir / CHECKPOINTS, 0, weights, None, {"config": made_with(config)})
        return
    atomic_write(run_dir / METRICS, "".join(read_lines(source / METRICS, saved.step)))
    state = {**saved.state, "best": None, "config": made_with(config)}
    checkpoint.copy(saved, run_dir / CHECKPOINTS, state)
