"""GGUF files read: the model and its chat template, of the architectures that gguf.py writes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from lm.interop import shapes
from lm.interop.gguf_models import KINDS, ROPE_TENSORS, SIZES, Fields, family_config, family_of, folder_tensors
from lm.interop.stored import gguf_rows, matrices
from lm.interop.tensors import imported, table
from lm.model import Transformer
from lm.tokenizer import TextConfig
from lm.training.checkpoint import check_sizes


def from_gguf(path: str | Path, *, stored: bool = False) -> Transformer:
    """Reads the model of a .gguf file.

    Args:
        path: A file of the architecture "llama", "qwen3" or "gpt2", or of one that to_gguf() writes a family as; in any
            type of numbers that the package gguf reads.
        stored: Matrices stay in the mapped file, in its types; lm.load's dtype "file".

    Returns:
        The model, in fp32 and eval mode.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is damaged, or what it asks for is not supported, by name.
        MissingExtra: The package gguf is not installed.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no {path}: name a .gguf file")
    fields = Fields(path)
    architecture, tensor_shapes = fields.need("general.architecture"), fields.shapes
    supported = sorted({kind.architecture for kind in KINDS.values()})
    if architecture not in supported:
        raise ValueError(f"{path}: architecture {architecture!r} is not supported: it is one of {', '.join(supported)}")
    of_family = family_config(family_of(architecture, fields), sizes(fields), fields)
    config = shapes.plain(of_family, path) or of_family
    if config is not of_family and config.position == "rope":  # the tensors say which biases a Llama has
        parts = {"qkv": "attn_q", "output": "attn_output", "ffn": "ffn_up"}
        has = {part: f"blk.0.{tensor}.bias" in tensor_shapes for part, tensor in parts.items()}
        unbiased = {"bias": False, "qkv_bias": None, "output_bias": None, "ffn_bias": None}
        config = replace(config, **unbiased | shapes.biases(**has))
    check_sizes(config, tensor_shapes, path)
    used, names = set(ROPE_TENSORS), table(config, in_gguf=True)
    rows = matrices(config, names, gguf_rows(config, fields, used)) if stored else None
    tensors = {name: torch.from_numpy(fields.array(name)) for name in tensor_shapes if name not in used}
    return imported(folder_tensors(config, tensors, fields.gguf), names, config, path, rows)


def sizes(fields: Fields) -> dict[str, Any]:
    """The sizes of a model, by our names. ValueError: one is missing, or heads of keys and values differ."""
    shapes = fields.shapes
    if "token_embd.weight" not in shapes:
        raise ValueError(f"{fields.path}: the tensor 'token_embd.weight' is missing")
    architecture, optional = fields.get("general.architecture"), ("attention.head_count_kv", "vocab_size")
    values = {name: int(fields.need(f"{architecture}.{key}")) for key, name in SIZES.items() if key not in optional}
    head_dim = int(fields.at("attention.key_length", values["d_model"] // values["num_heads"]))
    if int(fields.at("attention.value_length", head_dim)) != head_dim:
        raise ValueError(f"{fields.path}: keys of {head_dim} elements and values of others are not supported")
    if values["num_layers"] > len(shapes):  # before a list of them is made
        raise ValueError(f"{fields.path}: block_count is {values['num_layers']:,}, and it has {len(shapes)} tensors")
    layer_norm_eps = fields.at("attention.layer_norm_epsilon", 1e-5)
    return values | {
        "vocab_size": shapes["token_embd.weight"][0],
        "num_kv_heads": int(fields.at("attention.head_count_kv", values["num_heads"])),
        "head_dim": head_dim,
        "tied_embeddings": "output.weight" not in shapes,
        "norm_eps": float(fields.at("attention.layer_norm_rms_epsilon", layer_norm_eps)),
    }


def gguf_text_config(path: Path) -> TextConfig:
    """The special tokens, the chat template and the stop tokens in a .gguf file."""
    fields = Fields(path)
    texts = fields.get("tokenizer.ggml.tokens", [])
    ids = {
        key: int(number)
        for key in ("bos", "eos", "eot", "padding", "unknown")
        if (number := fields.get(f"tokenizer.ggml.{key}_token_id")) is not None
    }
    keys = {"bos_token": "bos", "eos_token": "eos", "pad_token": "padding", "unk_token": "unknown"}
    names = {name: texts[ids[key]] for name, key in keys.items() if ids.get(key, len(texts)) < len(texts)}
    stops = dict.fromkeys(ids[key] for key in ("eos", "eot") if key in ids)
    return TextConfig(names, fields.get("tokenizer.chat_template"), tuple(stops))
