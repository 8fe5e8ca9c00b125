"""`lm export`: a model for other programs."""

from __future__ import annotations

import argparse

from lm.commands.options import Commands, add, add_step, step_of


def register(commands: Commands) -> None:
    text = "write a model for transformers (a folder, which it loads as it is) or for llama.cpp (a .gguf file)"
    made = add(commands, "export", export, text)
    made.add_argument("run", metavar="RUN", help="the folder of a run, or another program's model")
    made.add_argument("--out", required=True, help="a folder, or FILE.gguf; it is written whole or not at all")
    made.add_argument(
        "--dtype",
        choices=("fp32", "fp16", "bf16", "q8_0"),
        help="dtype of the weights (default: fp32, in a .gguf fp16; fp16 and q8_0 are for a .gguf)",
    )
    made.add_argument("--shard-bytes", type=int, help="split weights above this size into files (default: 5 billion)")
    made.add_argument("--tokenizer", help="a tokenizer file (default: the model's own)")
    add_step(made)


def export(options: argparse.Namespace) -> None:
    from lm.interop import to_gguf, to_huggingface
    from lm.interop.exporting import SHARD_BYTES

    if options.out.endswith(".gguf"):
        if options.shard_bytes is not None:
            raise ValueError("--shard-bytes is for a folder: a .gguf is one file")
        dtype = options.dtype or "fp16"
        print(to_gguf(options.run, options.out, dtype=dtype, tokenizer=options.tokenizer, step=step_of(options)))
        return
    print(
        to_huggingface(
            options.run,
            options.out,
            dtype=options.dtype or "fp32",
            shard_bytes=SHARD_BYTES if options.shard_bytes is None else options.shard_bytes,
            tokenizer=options.tokenizer,
            step=step_of(options),
        )
    )
