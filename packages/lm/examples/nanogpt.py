"""Read nanoGPT's ckpt.pt, as tensors and plain values alone, and write it as a Hugging Face folder.

    python packages/lm/examples/nanogpt.py ckpt.pt OUT

`lm import OUT --out RUN` then makes a run of it.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path

from torch import Tensor

from lm import to_huggingface
from lm.config import FFN, ModelConfig
from lm.interop.config_json import Settings
from lm.interop.huggingface import tidied
from lm.interop.tensors import imported, table
from lm.model import Transformer
from lm.training.checkpoint import check_sizes, load_pickled

COMPILED = "_orig_mod."  # what torch.compile puts before every name
TRANSPOSED = ("c_attn.weight", "c_proj.weight", "c_fc.weight")  # (out, in), where Hugging Face's are (in, out)


def from_nanogpt(path: str | Path, *, ffn: FFN = "gelu_exact") -> Transformer:
    """Read the model of a nanoGPT checkpoint.

    Args:
        path: A ckpt.pt.
        ffn: The activation: "gelu" for a checkpoint made before June 2023, when nanoGPT's GELU became exact.

    Returns:
        The model, in fp32 and eval mode.

    Raises:
        FileNotFoundError: There is no such file.
        ValueError: It is not a checkpoint of nanoGPT, holds more than tensors and plain values, or is
            of a shape that is not supported.
    """
    path = Path(path)
    saved = load_pickled(path)
    if not isinstance(saved, Mapping) or not isinstance(saved.get("model_args"), Mapping) or "model" not in saved:
        raise ValueError(f"{path} is not a checkpoint of nanoGPT: it has no model and model_args")
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
            raise ValueError(f"{path}: {name!r} is not a tensor")
        tensors[str(name).removeprefix(COMPILED)] = tensor.T if str(name).endswith(TRANSPOSED) else tensor
    tensors = tidied(tensors, config, path)
    check_sizes(config, {name: tuple(tensor.shape) for name, tensor in tensors.items()}, path)
    return imported(tensors, table(config), config, path)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", metavar="CKPT.PT")
    parser.add_argument("out", metavar="OUT", help="the Hugging Face folder to write")
    options = parser.parse_args(arguments)
    print(to_huggingface(from_nanogpt(options.checkpoint), options.out))


if __name__ == "__main__":
    main()
