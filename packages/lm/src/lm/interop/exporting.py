"""Hugging Face folders written: transformers loads them with no code of ours."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lm.config import ModelConfig
from lm.interop import gpt2, llama
from lm.interop.card import card
from lm.interop.importing import load, talks_by, tokenizer_of
from lm.interop.model_folder import replacing, write_weights
from lm.interop.tensors import Table, exported, with_biases
from lm.model import Transformer
from lm.tokenizer import load_tokenizer

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
SHARD_BYTES = 5_000_000_000


def to_huggingface(
    model_or_run_dir: Transformer | str | Path,
    folder: str | Path,
    *,
    dtype: str = "fp32",
    shard_bytes: int = SHARD_BYTES,
    tokenizer: str | Path | None = None,
) -> Path:
    """Writes a Hugging Face folder; gives its path. Nothing appears at `folder` before it is whole.

    dtype: "fp32" or "bf16". shard_bytes: weights above it are cut into files of at most so much. tokenizer: a tokenizer file,
    by default the one that the run keeps. ValueError: no architecture of Hugging Face's is this model, with what it lacks.
    FileExistsError: `folder` holds something that no export of ours wrote.
    """
    if dtype not in DTYPES:
        raise ValueError(f"dtype {dtype!r} is unknown: use one of {', '.join(DTYPES)}")
    if shard_bytes < 1:
        raise ValueError(f"shard_bytes must be at least 1, and {shard_bytes} is not")
    run = None if isinstance(model_or_run_dir, Transformer) else Path(model_or_run_dir)
    model = model_or_run_dir if isinstance(model_or_run_dir, Transformer) else load(model_or_run_dir)
    config = model.config
    described = describe(config)
    if tokenizer is None and run is not None:
        tokenizer = tokenizer_of(run)
    loaded = None if tokenizer is None else load_tokenizer(tokenizer)
    if loaded is not None and loaded.n_vocab > config.vocab_size:
        raise ValueError(
            f"{tokenizer} has {loaded.n_vocab} tokens, and the model's vocab_size is {config.vocab_size}: "
            f"it is another model's tokenizer"
        )
    special: dict[str, Any] = special_ids(loaded)
    talk = None if run is None or loaded is None else talks_by(run, loaded)
    ends = {} if talk is None else {"eos_token_id": talk.stop_tokens}
    described |= {"dtype": str(DTYPES[dtype]).removeprefix("torch."), "use_cache": True, **special}
    with replacing(folder) as made:
        state = model.state_dict()
        write_weights(made, weights(state, config, DTYPES[dtype]), shard_bytes)
        write_json(made / "config.json", described)
        write_json(made / "generation_config.json", {"_from_model_config": not ends, **special, **ends})
        if loaded is not None:
            loaded.to_huggingface(made / "tokenizer.json")
            names = special_names(loaded)
            write_json(made / "special_tokens_map.json", names)
            write_json(
                made / "tokenizer_config.json",
                {
                    "tokenizer_class": "PreTrainedTokenizerFast",
                    "model_max_length": config.context_length,
                    "clean_up_tokenization_spaces": False,
                    **names,
                    **({} if talk is None or (jinja := talk.jinja()) is None else {"chat_template": jinja}),
                },
            )
        for name, text in card(config, run, described["architectures"][0], has_tokenizer=loaded is not None).items():
            (made / name).write_text(text, encoding="utf-8")
    return Path(folder)


def describe(config: ModelConfig) -> dict[str, Any]:
    """The config.json of a model. ValueError: no architecture of theirs is it."""
    return gpt2.to_config(config) if config.position == "learned" else llama.to_config(config)


def weights(state: Mapping[str, Tensor], config: ModelConfig, dtype: torch.dtype) -> list[tuple[str, Tensor]]:
    """Our weights under their names. Their GPT-2 always has biases: where ours has none they are 0."""
    if config.position == "learned":
        config, state = with_biases(config, state)
        names: Table = gpt2.table(config)
    else:
        names = llama.table(config)
    return [(name, tensor.detach().to("cpu", dtype)) for name, tensor in exported(state, names, config)]


def special_names(tokenizer: Any) -> dict[str, str]:
    """The tokens that begin and end a text, by Hugging Face's names for them."""
    known = tokenizer.special_tokens
    pairs = {
        "bos_token": ("<s>", "<|begin_of_text|>", "<|endoftext|>"),
        "eos_token": ("</s>", "<|end_of_text|>", "<|endoftext|>"),
    }
    found = {name: next((token for token in tokens if token in known), None) for name, tokens in pairs.items()}
    return {name: token for name, token in found.items() if token is not None}


def special_ids(tokenizer: Any | None) -> dict[str, int | None]:
    """bos_token_id and eos_token_id, None where there is no such token."""
    names = {} if tokenizer is None else special_names(tokenizer)
    ids = {} if tokenizer is None else tokenizer.special_tokens
    return {f"{name}_id": ids.get(names.get(name, "")) for name in ("bos_token", "eos_token")}


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n", encoding="utf-8")
