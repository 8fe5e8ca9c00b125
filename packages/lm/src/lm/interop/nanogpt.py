"""Checkpoints of nanoGPT: ckpt.pt, read as tensors and plain values alone."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from lm.config import FFN, ModelConfig
from lm.interop import gpt2
from lm.interop.hf_config import Settings
from lm.interop.huggingface import tidied
from lm.interop.model_folder import load_pickled
from lm.interop.tensors import built, check_sizes, imported
from lm.model import Transformer

COMPILED = "_orig_mod."  # what torch.compile puts before every name


def from_nanogpt(path: str | Path, *, ffn: FFN = "gelu_exact") -> Transformer:
    """Reads the model of a nanoGPT checkpoint.

    Args:
        path: A ckpt.pt.
        ffn: The activation: "gelu" for a checkpoint made before June 2023, when nanoGPT's GELU became exact.

    Returns:
        The model, in fp32 and eval mode.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is no checkpoint of nanoGPT, holds what would have to be run, or asks for what is not supported.
    """
    path = Path(path)
    saved = load_pickled(path)
    if not isinstance(saved, Mapping) or not isinstance(saved.get("model_args"), Mapping) or "model" not in saved:
        raise ValueError(f"{path} is no checkpoint of nanoGPT: it has no model and model_args")
    args = Settings(saved["model_args"], f"{path}, model_args")
    args.take("dropout", float, 0.0)
    d_model = args.take("n_embd", int)
    config = ModelConfig(
        vocab_size=args.take("vocab_size", int),
        context_length=args.take("block_size", int),
        num_layers=args.take("n_layer", int),
        d_model=d_model,
        num_heads=args.take("n_head", int),
        d_ff=4 * d_model,
        ffn=ffn,
        norm="layernorm",
        position="learned",
        tied_embeddings=True,
        bias=args.take("bias", bool, True),
    )
    args.nothing_left()
    tensors: dict[str, Tensor] = {}
    for name, tensor in saved["model"].items():
        if not isinstance(tensor, Tensor):
            raise ValueError(f"{path}: {name!r} is no tensor")
        tensors[str(name).removeprefix(COMPILED)] = tensor
    tensors = tidied(tensors, config, path)
    check_sizes(config, {name: tuple(tensor.shape) for name, tensor in tensors.items()}, path)
    return built(config, imported(tensors, gpt2.table(config, transposed=False), config, path))
