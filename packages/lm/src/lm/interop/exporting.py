"""Hugging Face folders written: transformers loads them without code of lm."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor

from lm.config import ModelConfig, one_of
from lm.families import family
from lm.families.parts import FamilyConfig
from lm.interop.card import card
from lm.interop.loading import ModelText, load, model_text, tokenizer_of
from lm.interop.model_folder import replacing, write_weights
from lm.interop.shapes import as_family
from lm.interop.tensors import exported
from lm.model import Transformer
from lm.tokenizer import BEGINS, END_OF_TEXT, TextConfig, load_tokenizer
from lm.training.run import located

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
SHARD_BYTES = 5_000_000_000


def to_huggingface(
    model_or_run_dir: Transformer | str | Path,
    folder: str | Path,
    *,
    dtype: str = "fp32",
    shard_bytes: int = SHARD_BYTES,
    tokenizer: str | Path | None = None,
    step: int | Literal["best", "average"] | None = None,
) -> Path:
    """Write a Hugging Face folder that transformers loads; nothing appears at `folder` until it is complete.

    Args:
        model_or_run_dir: A model in memory, or a run or another program's model, as for lm.load.
        folder: The folder to write.
        dtype: "fp32" or "bf16".
        shard_bytes: Weights above this size are split into files of at most this size.
        tokenizer: A tokenizer file (default: the run's own).
        step: For a run, the checkpoint of this step, or "best" (default: the newest).

    Returns:
        The path of the folder.

    Raises:
        ValueError: Hugging Face has no architecture for this model; the message names the setting.
        FileExistsError: `folder` holds something that no export wrote.
    """
    one_of("dtype", dtype, tuple(DTYPES))
    if shard_bytes < 1:
        raise ValueError(f"shard_bytes must be at least 1, got {shard_bytes}")
    # The model, and what its config.json says of it and of the special tokens.
    run, model, text = source_of(model_or_run_dir, tokenizer, step)
    config = model.config
    described = describe(config)
    special, generation = special_ids(text), generation_config(text)
    described |= {"dtype": str(DTYPES[dtype]).removeprefix("torch."), "use_cache": True, **special}
    # All files are written into a folder beside the target, which takes its place when they are complete.
    with replacing(folder) as target:
        write_weights(target, weights(model, DTYPES[dtype]), shard_bytes)
        write_json(target / "config.json", described)
        unchanged = {} if generation else {"_from_model_config": True}
        write_json(target / "generation_config.json", {**unchanged, **special, **generation})
        if text is not None:
            text.tokenizer.to_huggingface(target / "tokenizer.json")
            names = special_names(text)
            write_json(target / "special_tokens_map.json", names)
            about: dict[str, Any] = {"tokenizer_class": "PreTrainedTokenizerFast"}
            about |= {"model_max_length": config.context_length, "clean_up_tokenization_spaces": False, **names}
            if text.kept_template is not None:
                about["chat_template"] = text.kept_template.source
            write_json(target / "tokenizer_config.json", about)
        page = card(config, run, described["architectures"][0], has_tokenizer=text is not None)
        (target / "README.md").write_text(page, encoding="utf-8")
    return Path(folder)


def source_of(
    source: Transformer | str | Path, tokenizer: str | Path | None, step: int | Literal["best", "average"] | None
) -> tuple[Path | None, Transformer, ModelText | None]:
    """Return a run or folder, None for a model in memory; the model; and its text, if it has any. ValueError: the
    tokenizer has more tokens than the model. UserWarning: it lacks a tenth of them."""
    if isinstance(source, Transformer):
        if step is not None:
            raise ValueError(f"a model in memory has no checkpoints: leave out step {step!r}, or name its run")
        run, model = None, source
    else:
        run, model = located(source), load(source, step)
        tokenizer = tokenizer_of(run) if tokenizer is None else tokenizer
    if tokenizer is None:
        return run, model, None
    text = ModelText(load_tokenizer(Path(tokenizer)), TextConfig()) if run is None else model_text(run, tokenizer)
    sizes = f"{tokenizer} has {text.tokenizer.n_vocab} tokens, and the model's vocab_size is {model.config.vocab_size}"
    if text.tokenizer.n_vocab > model.config.vocab_size:
        raise ValueError(f"{sizes}: it is another model's tokenizer")
    if 10 * text.tokenizer.n_vocab < 9 * model.config.vocab_size:
        warnings.warn(f"{sizes}: is it another model's tokenizer? ids beyond it become unused tokens", stacklevel=3)
    return run, model, text


def describe(config: ModelConfig) -> dict[str, Any]:
    """The config.json of a model. ValueError: Hugging Face has no architecture for it."""
    of_family = as_family(config)
    is_gpt2 = of_family.family == "gpt2"
    architecture = "GPT2LMHeadModel" if is_gpt2 else family(of_family.family).__name__ + "ForCausalLM"
    table = {"architectures": [architecture], **of_family.to_huggingface()}
    # Transformers before version 5 looks for rope_theta there.
    before_5 = {"rope_theta": config.rope_theta, "attention_dropout": 0.0}
    return table if is_gpt2 or of_family is config else table | before_5


def weights(model: Transformer, dtype: torch.dtype) -> list[tuple[str, Tensor]]:
    """A model's weights by transformers' names."""
    tensors, config = dict(exported(model)), model.config
    if isinstance(config, FamilyConfig):
        tensors = family(config.family).to_hf(tensors, config)
    return [(name, tensor.detach().to("cpu", dtype)) for name, tensor in tensors.items()]


def special_names(text: ModelText) -> dict[str, str]:
    """The special tokens by Hugging Face's names for what they are for: the model's own, or the usual ones."""
    own = {name: token for name, token in text.config.names.items() if token in text.tokenizer.special_tokens}
    special = text.tokenizer.special_tokens
    ends = [name for name, number in special.items() if number == text.end_of_text] + list(END_OF_TEXT)
    end = next((name for name in ends if name in special), None)
    begin = next((name for name in (*BEGINS, END_OF_TEXT[0]) if name in special), None)
    usual = {"bos_token": begin, "eos_token": end}
    return {name: token for name, token in usual.items() if token is not None} | own


def special_ids(text: ModelText | None) -> dict[str, int | None]:
    """bos_token_id and eos_token_id, None where there is no such token."""
    names = {} if text is None else special_names(text)
    ids = {} if text is None else text.tokenizer.special_tokens
    return {f"{name}_id": ids.get(names.get(name, "")) for name in ("bos_token", "eos_token")}


def generation_config(text: ModelText | None) -> dict[str, Any]:
    """Tokens and strings that end an answer, if that is not the eos_token alone."""
    template = None if text is None else text.kept_template
    ids = text.config.eos_ids if text is not None and template is None else ()
    stops, strings = (ids, ()) if template is None else (template.stop_tokens, template.stop)
    return ({"eos_token_id": list(stops)} if stops else {}) | ({"stop_strings": list(strings)} if strings else {})


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
