"""The tokenizer beside a model: loaded where text is wanted, kept in the run that was trained with it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lm.data import open_data
from lm.extras import need


def load_tokenizer(path: str | Path) -> Any:
    """The bpe.Tokenizer in a file. MissingExtra: the package bpe is not installed."""
    return need("bpe", "text", "groundup-lm[text]").Tokenizer.load(path)


def check_tokenizer(path: str | Path, data: str | Path | Mapping[str, Any], vocab_size: int) -> None:
    """ValueError, before anything is written, for a tokenizer that is not the model's or did not make the data."""
    tokenizer = load_tokenizer(path)
    if tokenizer.n_vocab != vocab_size:
        raise ValueError(
            f"{path} has {tokenizer.n_vocab} tokens, and vocab_size is {vocab_size}: "
            f"write --model.vocab_size {tokenizer.n_vocab}"
        )
    mixture = open_data(data)
    if mixture.tokenizer not in (None, tokenizer.fingerprint):
        made = mixture.parts[0].tokens.path
        raise ValueError(f"{made} was made by another tokenizer than {path}: encode the text with this one")


def keep_tokenizer(source: Path, run: Path) -> None:
    """Copies the tokenizer's file into the run, whole or not at all."""
    run.mkdir(parents=True, exist_ok=True)
    temporary = run / ".tokenizer.partial"
    try:
        shutil.copyfile(source, temporary)
        os.replace(temporary, run / f"tokenizer{source.suffix}")
    finally:
        temporary.unlink(missing_ok=True)


def kept_tokenizer(run: Path) -> Path | None:
    """The tokenizer that a run keeps."""
    return next(iter(sorted(run.glob("tokenizer.*"))), None)
