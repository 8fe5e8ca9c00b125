"""A run: its folder, its configuration, the checkpoint that it continues from, and what it began with.

RUN/config.toml      the configuration, resolved; the fingerprints of the data; the model that the run began with
RUN/metrics.jsonl    a line for each step logged and for each evaluation
RUN/checkpoints/     see checkpoint.py
RUN/reference/       the first weights of a run by preferences
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import tomli_w
import torch

from lm import __version__
from lm.config import DeviceName, ModelConfig, TrainConfig, from_table, read_toml, to_table
from lm.device import Processes, choose_device, choose_precision, describe_machine, local_rank
from lm.extras import MissingExtra
from lm.families import config_class
from lm.files import atomic_write, fsync, reason
from lm.lora import merge
from lm.model import Transformer
from lm.ops.cpu import passes
from lm.optimizer import AVERAGE, make_optimizer
from lm.tokenizer import keep_tokenizer, kept_tokenizer
from lm.training import checkpoint, resume
from lm.training.checkpoint import CHECKPOINTS, MODEL, Checkpoint, Damaged, from_weights, load_optimizer
from lm.training.metrics import METRICS, read_lines
from lm.training.resume import RunConfig
from lm.training.trainer import Trainer, objective_of

CONFIG, REFERENCE, ENVIRONMENT = "config.toml", "reference", "environment.json"
HUB = "hf://"
HUB_NAME = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?(@[\w./-]+)?")  # gpt2, OWNER/NAME, OWNER/NAME@REVISION
MODEL_FILES = (".gguf", ".pt", ".bin")  # of other programs


@dataclass(frozen=True)
class Run:
    """A run in a folder."""

    folder: Path
    config: RunConfig  # that it trains by
    training: TrainConfig  # that of config
    saved: Checkpoint | None = None  # to continue from; None before the first step
    notes: tuple[str, ...] = ()  # lines for the user: where the run continues, and each difference

    @classmethod
    def open(
        cls,
        folder: Path,
        model: ModelConfig,
        requested: TrainConfig,
        data: dict[str, Any],
        *,
        tokenizer: Path | None = None,
        restart: bool = False,
        branch: str | Path | None = None,
        step: int | None = None,
    ) -> Run:
        """Open the run in a folder, or begin it; nothing is written before the request is checked, but for a restart.

        The arguments are as train() has them; data: its fingerprints. ValueError: the folder does not go with the
        request, or something is missing, by name.
        """
        if restart:
            with writing(folder):
                remove(folder)

        # The configuration: that of the request, if the run may go on by it.
        written = earlier = read(folder) if is_run(folder) else None
        saved = None if written is None else find_checkpoint(folder)
        if written is not None and saved is not None:
            earlier = resume.recorded(saved, written)
        train = resolve(requested, None if earlier is None else earlier.train)
        config = RunConfig(model, train, data)
        if earlier is not None:
            resume.refuse_changes(folder, earlier, config)

        # The origin of its first weights.
        start: dict[str, Any] = {}
        if earlier is not None and earlier.train is not None:
            resume.refuse_other_origin(folder, earlier.start, branch, step)
            start = earlier.start
        elif earlier is not None:
            start = {"kind": "import", **earlier.start}
        elif branch is not None or step is not None or train.init_from != "scratch":
            start = origin(folder, config, branch, step)
        config = dataclasses.replace(config, start=start)
        objective = objective_of(train.objective)
        if not start and (train.lora_rank or objective.needs_start):
            adapts = f"lora_rank {train.lora_rank}" if train.lora_rank else f"objective {train.objective!r}"
            raise ValueError(f"{adapts} adapts weights, and this run begins with random ones: give --train.init_from")
        if saved is None or earlier is None:
            refuse_missing_files(folder, earlier)
            notes = tuple(resume.origin_notes(config)) if start else ()
        else:
            notes = tuple(resume.notes(saved, earlier.train, config))

        # The files that stand in the folder before the first step.
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            if config != written:
                write(folder, config)
            if not (folder / ENVIRONMENT).exists():
                more = {"threads": train.threads, "begun": time.strftime("%Y-%m-%d %H:%M %z")}
                text = json.dumps({**describe_machine(train.device), **more}, indent=1)
                atomic_write(folder / ENVIRONMENT, text + "\n")
            source = Path(start["from"]) if start.get("kind") in ("weights", "branch") else None
            if tokenizer is None and source is not None and kept_tokenizer(folder) is None:
                tokenizer = kept_tokenizer(source)
            if tokenizer is not None:
                keep_tokenizer(tokenizer, folder)
            if saved is None and source is not None:
                saved = copy_origin(folder, config, source)
            if objective.needs_start and objective.needs_reference(train) and not train.lora_rank:
                keep_reference(folder, source if start.get("kind") == "branch" else None)
            (folder / CHECKPOINTS).mkdir(exist_ok=True)
        return cls(folder, config, train, saved, notes)

    def save(self, trainer: Trainer) -> None:
        """Save the state after a step; process 0 writes. All processes call it."""
        state, tensors, best = trainer.state(), trainer.tensors(), int(trainer.best[0]) if trainer.best else None
        state["computed_by"] = computed_by(self.training, trainer.distributed)
        state["config"] = resume.exact_settings(self.config)

        def write() -> None:
            fsync(self.folder / METRICS)  # after a power failure the checkpoint must find the lines that led to it
            keep = self.training.keep_checkpoints
            checkpoint.save(self.folder / CHECKPOINTS, trainer.step, *tensors, state, keep=keep, best=best)

        trainer.distributed.on_main(write)

    @staticmethod
    def load(folder: str | Path, step: int | Literal["average"] | None = None) -> Transformer:
        """Load the model of a run, in eval mode, from its newest whole checkpoint or the one of `step`.

        "average": the moving average of its weights, of the newest. Else the optimizer need not be there.
        FileNotFoundError: no run, or no checkpoint yet. ValueError: the run keeps no average.
        """
        config, path, is_average = read(folder), Path(folder) / CONFIG, step == "average"
        number: Any = None if is_average else step  # any other word is a step that there is not
        saved = checkpoint.load(Path(folder) / CHECKPOINTS, number, weights_only=not is_average)
        if saved is None:
            raise FileNotFoundError(f"the run in {folder} has no checkpoint yet: train it for longer")
        if not is_average:
            return plain_model(config, saved, path).eval()
        if config.train is None or not config.train.ema or not saved.step:
            raise ValueError(f"the run in {folder} keeps no average of its weights: train one with --train.ema 0.999")
        model = from_weights(config.model, saved.model, path, config.train)
        optimizer = make_optimizer(model, config.train)
        load_optimizer(optimizer, saved)
        for weight, state in optimizer.state.items():
            weight.detach().copy_(state[AVERAGE])
        return (merge(model) if config.train.lora_rank else model).eval()


def resolve(requested: TrainConfig, earlier: TrainConfig | None = None) -> TrainConfig:
    """Name device, precision and threads where they are left open: the run's so far, else this machine's."""
    device = find_device(requested, earlier)
    precision = requested.precision
    if earlier is not None and precision == "auto":
        precision = "auto" if earlier.precision == "tf32" and device.type != "cuda" else earlier.precision
    precision = choose_precision(precision, device)
    if precision == "fp16" and requested.parallel == "fsdp":
        raise ValueError("precision 'fp16' goes with parallel 'ddp': its loss scale is not shared between shards")
    return dataclasses.replace(
        requested,
        device=cast(DeviceName, device.type),
        precision=precision,
        threads=requested.threads or (torch.get_num_threads() if earlier is None else earlier.threads),
    )


def find_device(requested: TrainConfig, earlier: TrainConfig | None) -> torch.device:
    """Return the device requested, or else that of the run so far."""
    if earlier is None or requested.device != "auto":
        return choose_device(requested.device, local_rank())
    try:
        return choose_device(earlier.device, local_rank())
    except ValueError:
        raise ValueError(f"the run was on {earlier.device!r}, which is not here: --train.device cpu moves it") from None


def computed_by(config: TrainConfig, processes: Processes) -> dict[str, Any]:
    """Return what can change the last bits of a step beside the configuration; saved, and compared on resume."""
    return {
        "torch": torch.__version__,
        "groundup-lm": __version__,
        "processes": processes.size,
        **({"parallel": config.parallel} if processes.size > 1 else {}),
        "device": config.device,
        "precision": config.precision,
        "threads": config.threads,
        "compile": config.compile,
        "attention and fused passes": passes.backend_name(processes.device),
    }


def training_of(run_dir: Path) -> TrainConfig | None:
    """The training of the run in a folder; None if there is none, or it cannot be read, which Run.open reports."""
    with contextlib.suppress(ValueError, TypeError, OSError):
        return read(run_dir).train
    return None


def is_run(path: str | Path) -> bool:
    """True if a folder holds a run."""
    return (Path(path) / CONFIG).is_file()


def best_step(run_dir: str | Path) -> int:
    """Return the step of the run's checkpoint with the best evaluation. ValueError: none was evaluated."""
    read(run_dir)
    saved = checkpoint.load(Path(run_dir) / CHECKPOINTS, weights_only=True)
    if saved is None or not saved.state.get("best"):
        raise ValueError(f"{run_dir} has no checkpoint of a step that was evaluated on held-out data: name a step")
    return int(saved.state["best"][0])


def plain_model(config: RunConfig, saved: Checkpoint, path: Path) -> Transformer:
    """Return the model of a checkpoint, with adapters merged in."""
    model = from_weights(config.model, saved.model, path, config.train)
    return merge(model) if config.train is not None and config.train.lora_rank else model


def read(run_dir: str | Path) -> RunConfig:
    """Read the configuration of a run. FileNotFoundError: there is none. ValueError: another version wrote it."""
    path = Path(run_dir) / CONFIG
    if not path.is_file():
        raise FileNotFoundError(f"{run_dir} holds no run: there is no {CONFIG} in it")
    tables = read_toml(path)
    if not isinstance(tables.get("model"), dict):
        raise ValueError(f"{path} is not the configuration of a run: there is no [model] in it")
    try:
        model = from_table(config_class(tables["model"]), tables["model"], "model")
        train = from_table(TrainConfig, tables["train"], "train") if "train" in tables else None
    except KeyError as error:
        raise ValueError(f"{path} was edited, or another version of this program wrote it: {error.args[0]}") from None
    return RunConfig(model, train, dict(tables.get("data", {})), dict(tables.get("start", {})))


def write(run_dir: Path, config: RunConfig) -> None:
    """Write a run's configuration, whole or not at all."""
    train = None if config.train is None else to_table(config.train)
    tables = {"model": to_table(config.model), "train": train, "data": config.data, "start": config.start}
    atomic_write(run_dir / CONFIG, tomli_w.dumps({name: table for name, table in tables.items() if table}))


def find_checkpoint(run_dir: Path) -> Checkpoint | None:
    """Return the newest whole checkpoint of a run; None if it has none yet. Damaged: all are, with a remedy."""
    try:
        return checkpoint.load(run_dir / CHECKPOINTS)
    except Damaged as damage:
        weights = f"begin with whole weights alone, `--train.init_from {run_dir} --out ANOTHER`"
        remedy = f"Put the files back from a copy; or {weights}; or begin again with --restart"
        raise Damaged(f"no checkpoint in {run_dir} is whole: {damage}. {remedy}") from None


def refuse_missing_files(run_dir: Path, config: RunConfig | None) -> None:
    """ValueError: a folder lacks its checkpoint, or has metrics or checkpoints of an earlier run without one."""
    checkpoints, start = run_dir / CHECKPOINTS, {} if config is None else config.start
    if config is not None and (config.train is None or start.get("kind") == "import"):
        raise ValueError(f"{run_dir} is an imported model whose {CHECKPOINTS} are missing: import it again")
    has_latest = (checkpoints / "latest").exists()
    if config is not None and not start and checkpoints.is_dir() and not has_latest:
        return  # the run was stopped before its first checkpoint
    if config is None and not checkpoints.exists() and not (run_dir / METRICS).exists():
        return
    begun = start.get("step", 0) if start.get("kind") == "branch" else 0
    lines = read_lines(run_dir / METRICS)
    if has_latest or checkpoint.steps(checkpoints) or len(lines) > len(read_lines(run_dir / METRICS, begun)):
        missing = f"{CONFIG} is" if config is None else "the checkpoints that they led to are"
        raise ValueError(f"{run_dir} has metrics of an earlier run, and {missing} missing: --restart begins again")


def origin(run_dir: Path, config: RunConfig, branch: str | Path | None, step: int | None) -> dict[str, Any]:
    """The [start] of a new run that begins from a checkpoint of another one. ValueError: it cannot."""
    train = config.train
    assert train is not None
    if branch is not None and train.init_from != "scratch":
        raise ValueError(f"--branch {branch} and init_from {train.init_from} are two origins of the run: choose one")
    if branch is None and step is not None:
        raise ValueError(f"step {step} is of the run that --branch names: name it")
    source = Path(train.init_from if branch is None else branch)
    if source.resolve() == run_dir.resolve():
        raise ValueError(f"{source} is the folder of this run itself: choose another --out")
    other = read(source)
    for key, old, new in resume.differences(to_table(other.model), to_table(config.model)):
        raise ValueError(f"{source} has model.{key} = {old!r}, and this call asks for {new!r}: ask for the same")
    tokenizer = other.data.get("tokenizer")
    if tokenizer is not None and config.data.get("tokenizer") not in (None, tokenizer):
        raise ValueError(f"the data was made by another tokenizer than that of {source}: encode the text with that one")
    saved = checkpoint.load(source / CHECKPOINTS, step, weights_only=branch is None)
    if saved is None:
        raise FileNotFoundError(f"the run in {source} has no checkpoint to begin from: train it for longer")
    if branch is not None and saved.step >= train.steps:
        sizes = f"of step {saved.step}, and train.steps is {train.steps}"
        raise ValueError(f"the checkpoint of {source} is {sizes}: raise it, or name an earlier one with --step")
    start = {"from": str(source), "step": saved.step, "weights": saved.hashes[MODEL]}
    if branch is None or other.train is None:
        return {"kind": "weights", **start}
    # With another batch size the rows that were read are not steps times rows: the difference keeps the place.
    rows = other.start.get("rows_before", 0) + saved.step * (other.train.batch_size - train.batch_size)
    return {"kind": "branch", **start, **({"rows_before": rows} if rows else {})}


def copy_origin(run_dir: Path, config: RunConfig, source: Path) -> Checkpoint | None:
    """Copy a checkpoint of another run as the first of this one; for a branch with its optimizer and its metrics."""
    start, folder, state = config.start, run_dir / CHECKPOINTS, {"config": resume.exact_settings(config)}
    saved = checkpoint.load(source / CHECKPOINTS, start["step"], weights_only=start["kind"] == "weights")
    if saved is None or saved.hashes[MODEL] != start["weights"]:
        raise ValueError(f"the run in {run_dir} began from step {start['step']} of {source}, which has changed since")
    if start["kind"] == "weights":
        checkpoint.save(folder, 0, plain_model(read(source), saved, source / CONFIG), None, state)
    else:
        atomic_write(run_dir / METRICS, "".join(read_lines(source / METRICS, saved.step)))
        checkpoint.save(folder, saved.step, saved.model, saved.optimizer, {**saved.state, "best": None, **state})
    return checkpoint.load(folder)


def keep_reference(run_dir: Path, branched_from: Path | None) -> None:
    """Copy the weights of step 0, or the reference of the run that this one branched from: preferences need them."""
    if checkpoint.steps(run_dir / REFERENCE):
        return
    folder = run_dir / CHECKPOINTS if branched_from is None else branched_from / REFERENCE
    saved = checkpoint.load(folder, 0, weights_only=True)
    assert saved is not None
    checkpoint.save(run_dir / REFERENCE, 0, saved.model, None, {})


def remove(run_dir: Path) -> None:
    """Remove what a run wrote, so that it begins again. ValueError: imported weights would be lost."""
    if is_run(run_dir):
        tables = read_toml(run_dir / CONFIG)
        if "train" not in tables or tables.get("start", {}).get("kind") == "import":
            raise ValueError(f"--restart would remove the imported weights in {run_dir}: import them again instead")
    for name in (CONFIG, METRICS, ENVIRONMENT, "report.html"):
        (run_dir / name).unlink(missing_ok=True)
    for tokenizer in run_dir.glob("tokenizer.*"):
        tokenizer.unlink()
    for name in (CHECKPOINTS, REFERENCE, "tensorboard", "wandb", "mlflow"):
        shutil.rmtree(run_dir / name, ignore_errors=True)


@contextlib.contextmanager
def writing(run_dir: Path) -> Iterator[None]:
    """Turn an error in writing into NotSaved, with the folder and a remedy."""
    try:
        yield
    except checkpoint.NotSaved:
        raise
    except OSError as error:
        why = reason(error, run_dir)
        raise checkpoint.NotSaved(f"the run in {run_dir} cannot be written: {why}") from error


def hub_name(path: str | Path) -> str | None:
    """Return the hf:// name of a model on the Hub, also of a bare "gpt2" that is no path of this machine; else None."""
    if not isinstance(path, str) or path.startswith(HUB):
        return path if isinstance(path, str) else None
    is_bare = HUB_NAME.fullmatch(path) and not path.endswith(MODEL_FILES) and not Path(path).exists()
    return HUB + path if is_bare else None


def located(path: str | Path) -> Path:
    """Return a model's path on this machine; one on the Hub is downloaded. FileNotFoundError: with the reason."""
    name = hub_name(path)
    if name is None:
        return Path(path)
    from lm.data.hub import model_folder

    try:
        return model_folder(name)
    except (OSError, MissingExtra) as error:
        if name == path:
            raise
        raise FileNotFoundError(f"there is no {path} here, and as a model of the Hugging Face Hub: {error}") from None


def place_of(path: str | Path) -> str:
    """Return what identifies a model: its hf:// name, or its absolute path."""
    return hub_name(path) or str(Path(path).resolve())
