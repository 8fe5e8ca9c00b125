"""Models from wherever they lie: a run, a Hugging Face folder, a nanoGPT checkpoint, a llama2.c file; and runs made of them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import tomli_w

from lm.chat_template import Template
from lm.config import TrainConfig, to_table
from lm.interop.huggingface import from_huggingface
from lm.interop.llama2c import from_llama2c
from lm.interop.nanogpt import from_nanogpt
from lm.model import Transformer
from lm.tokenizer import PAIR, kept_tokenizer, load_tokenizer
from lm.training import checkpoint
from lm.training.run_folder import load as load_run
from lm.training.run_folder import read_config, writing
from lm.training.step import make_optimizer


def load(path: str | Path, step: int | None = None) -> Transformer:
    """The model at `path`, in eval mode: a run (at `step`, if given), a Hugging Face folder, nanoGPT's ckpt.pt or the folder
    with it, or llama2.c's `.bin`. FileNotFoundError: there is nothing of the kind.
    """
    path = Path(path)
    if (path / "config.toml").is_file():
        return load_run(path, step)
    if step is not None:
        raise ValueError(f"{path} is no run, and only a run has steps: leave out step {step}")
    if (path / "config.json").is_file():
        return from_huggingface(path)
    if (path / "ckpt.pt").is_file() or path.suffix == ".pt":
        return from_nanogpt(path / "ckpt.pt" if path.is_dir() else path)
    if path.suffix == ".bin":
        return from_llama2c(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no {path}: name a run, or a model to load")
    raise FileNotFoundError(
        f"{path} holds no model: there is no config.toml (a run), config.json (Hugging Face) or ckpt.pt (nanoGPT) in it, "
        f"and it is no .bin (llama2.c)"
    )


def tokenizer_of(path: str | Path) -> Path | None:
    """The tokenizer that lies in a run or in the folder of another program's model."""
    path = Path(path)
    if (path / "config.toml").is_file():
        return kept_tokenizer(path)
    beside = path / "tokenizer.json"
    if not beside.is_file() and all((path / name).is_file() for name in PAIR):
        beside = path / PAIR[0]
    return beside if beside.is_file() else None


def own_tokenizer(path: str | Path, named: str | Path | None = None) -> Any:
    """The tokenizer named, or else the one of a run or a model, loaded. FileNotFoundError: it keeps none."""
    found = tokenizer_of(path) if named is None else Path(named)
    if found is None:
        raise FileNotFoundError(f"{path} keeps no tokenizer: name one with --tokenizer")
    return load_tokenizer(found)


def talks_by(path: str | Path, tokenizer: Any) -> Template | None:
    """How a run that learned from conversations writes them; None for all others."""
    if not (Path(path) / "config.toml").is_file():
        return None
    data = read_config(path)[2]
    if any("train_mask_sha256" in about for about in (data, *data.values()) if isinstance(about, dict)):
        return Template(tokenizer)
    return None


def import_run(source: str | Path, run_dir: str | Path, *, tokenizer: str | Path | None = None) -> Transformer:
    """Makes a run of another program's model: its weights as those of step 0, from which training goes on.

    tokenizer: a tokenizer file, by default the one in the source's folder. Gives the model. FileExistsError: there is something
    in run_dir. ValueError: a model or a tokenizer that is not supported, by name; then nothing is written.
    """
    run = Path(run_dir)
    if run.exists() and (not run.is_dir() or any(run.iterdir())):
        raise FileExistsError(
            f"{run} is there already, and is not an empty folder: choose another for the imported model"
        )
    model = load(source)
    path = tokenizer_of(source) if tokenizer is None else Path(tokenizer)
    tables = {"model": to_table(model.config)}
    loaded = None if path is None else load_tokenizer(path)
    if loaded is not None:
        if loaded.n_vocab > model.config.vocab_size:
            raise ValueError(
                f"{path} has {loaded.n_vocab} tokens, and the model's vocab_size is {model.config.vocab_size}: "
                f"it is another model's tokenizer"
            )
        tables["data"] = {"tokenizer": loaded.fingerprint}
    with writing(run):
        run.mkdir(parents=True, exist_ok=True)
        if loaded is not None:
            loaded.save(run / "tokenizer.json")
        optimizer = make_optimizer(model, TrainConfig(steps=1, warmup_steps=0))
        checkpoint.save(
            run / "checkpoints", 0, model, optimizer, {"imported": os.path.basename(os.path.abspath(source))}
        )
        # The configuration last: a folder without it is no run.
        temporary = run / ".config.toml.partial"
        temporary.write_text(tomli_w.dumps(tables))
        os.replace(temporary, run / "config.toml")
    return model
