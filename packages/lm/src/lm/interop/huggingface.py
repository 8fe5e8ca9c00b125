"""Hugging Face folders read: Llama, Mistral, Qwen2, Qwen3 and GPT-2 as lm.model's shapes, others as families."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from lm.config import ModelConfig
from lm.families import family
from lm.families.parts import FamilyConfig
from lm.interop import config_json, shapes
from lm.interop.model_folder import read_json, read_weights
from lm.interop.stored import folder_rows, matrices
from lm.interop.tensors import imported, table
from lm.model import Transformer
from lm.training.checkpoint import check_sizes
from lm.training.run import located

# Tensors that some folders hold and that no weights are: masks of attention, and the angles of rotation.
BUFFERS = (".attn.bias", ".attn.masked_bias", "rotary_emb.inv_freq")


def from_huggingface(folder: str | Path, *, stored: bool = False) -> Transformer:
    """Reads the model of a Hugging Face folder: Llama, Mistral, Qwen2, Qwen3, GPT-2 and the families of lm.families.

    Args:
        folder: A folder with config.json and the weights as .safetensors, whole or in shards; or
            a model on the Hub, "OWNER/NAME" or "hf://OWNER/NAME", which is downloaded.
        stored: Matrices stay in their types and, of .safetensors, in the mapped files; lm.load's dtype "file".

    Returns:
        The model, in fp32 and eval mode.

    Raises:
        FileNotFoundError: There is no such folder.
        ValueError: A part is missing, unknown or not supported, by name.
    """
    folder = located(folder)
    if not (folder / "config.json").is_file():
        raise FileNotFoundError(f"{folder} is not a Hugging Face model: there is no config.json in it")
    source = folder / "config.json"
    settings = read_json(source)
    quantization = settings.pop("quantization_config", None)
    is_mxfp4 = isinstance(quantization, dict) and quantization.get("quant_method") == "mxfp4"
    if quantization and not (is_mxfp4 and settings.get("model_type") == "gpt_oss"):
        raise ValueError(f"{source}: quantization_config is not supported: import the model before it was quantized")
    of_family = config_json.from_config(settings, source)
    config = shapes.plain(of_family, source) or of_family
    # The weights by today's names; their shapes are checked before a model of this size is made.
    tensors = tidied(read_weights(folder), config, folder)
    check_sizes(config, {name: tuple(tensor.shape) for name, tensor in tensors.items()}, source)
    if isinstance(config, FamilyConfig):
        tensors = family(config.family).from_hf(tensors, config)
    names = table(config)
    rows = matrices(config, names, folder_rows(tensors)) if stored else None
    return imported(tensors, names, config, folder, rows)


def tidied(tensors: dict[str, Tensor], config: ModelConfig, source: object) -> dict[str, Tensor]:
    """The weights under today's names: no buffers, the prefix that some files leave out, a tied head once."""
    tensors = {name: tensor for name, tensor in tensors.items() if not name.endswith(BUFFERS)}
    prefix, embedding = ("transformer.", "wte") if config.position == "learned" else ("model.", "embed_tokens")
    if f"{embedding}.weight" in tensors:
        tensors = {name if name == "lm_head.weight" else prefix + name: tensor for name, tensor in tensors.items()}
    embedding = f"{prefix}{embedding}.weight"
    if config.tied_embeddings and "lm_head.weight" in tensors:
        head = tensors.pop("lm_head.weight")  # of two names of one tensor, safetensors keeps either
        if not torch.equal(tensors.setdefault(embedding, head), head):
            raise ValueError(f"{source}: the head is said to be the embedding (tie_word_embeddings), and is another")
    return tensors
