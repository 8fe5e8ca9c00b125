"""`lm export`: a model for other programs."""

from __future__ import annotations

import argparse

from lm.commands import Commands, add


def register(commands: Commands) -> None:
    made = add(commands, "export", export, "write a model for transformers, as a folder that it loads as it is")
    made.add_argument("run", metavar="RUN", help="the folder of a run")
    made.add_argument("--to", required=True, metavar="FOLDER", help="where to; it is written whole or not at all")
    made.add_argument(
        "--dtype", choices=("fp32", "bf16"), default="fp32", help="numbers of the weights (default: fp32)"
    )
    made.add_argument(
        "--shard-bytes", type=int, default=5_000_000_000, help="cut weights above so many bytes into files"
    )
    made.add_argument("--tokenizer", help="a tokenizer file (default: the run's own)")


def export(options: argparse.Namespace) -> None:
    from lm.interop import to_huggingface

    written = to_huggingface(
        options.run, options.to, dtype=options.dtype, shard_bytes=options.shard_bytes, tokenizer=options.tokenizer
    )
    print(written)
