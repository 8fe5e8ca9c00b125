"""`--cluster ADDRESS` of `bpe train` and `bpe encode`: the same work on a Ray cluster."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from bpe.commands.corpus import corpus
from bpe.commands.count import split_by
from bpe.native.progress import watched
from bpe.tokenizer import Tokenizer


def add_cluster_argument(parser: argparse.ArgumentParser, what: str) -> None:
    """Add --cluster. what: the rest of its help."""
    parser.add_argument(
        "--cluster",
        metavar="ADDRESS",
        help=f"on the Ray cluster whose head is at HOST:PORT (or auto, or local for this machine): {what}",
    )


def train_on_cluster(options: argparse.Namespace, source: list[Any]) -> Tokenizer:
    """The tokenizer of a `bpe train` with --cluster; says on standard error what each node counted."""
    from bpe import cluster

    for name in ("extend", "checkpoint", "counts"):
        if getattr(options, name) is not None:
            raise ValueError(f"--{name} is for one machine: leave it out, or leave out --cluster")
    return cluster.train(
        source,
        options.vocab_size,
        **split_by(options),
        tie_break=options.tie_break,
        min_count=options.min_count,
        max_token_bytes=options.max_token_bytes,
        num_threads=1 if options.num_threads is None else options.num_threads,
        memory_limit=options.memory_limit,
        address=options.cluster,
        progress=watched(),
        summary=_tell,
    )


def encode_on_cluster(options: argparse.Namespace, tokenizer: Tokenizer) -> None:
    """A `bpe encode` with --cluster: each file to a token file of the folder --out."""
    from bpe import cluster

    if options.out is None or isinstance(options.out, str) or options.out.suffix:
        raise ValueError(f"--cluster encodes file by file into a folder: name one by --out, not {options.out}")
    if options.jsonl or options.special == "refuse" or not options.text:
        raise ValueError("--cluster encodes files, each as its name says: without --jsonl and --special refuse")
    manifest = cluster.encode(
        corpus(options.text, options.text_key),
        Path(options.out),
        tokenizer,
        format=options.format or "npy",
        end_of_text=options.end_of_text,
        allowed_special="all" if options.special == "recognise" else (),
        num_threads=1 if options.num_threads is None else options.num_threads,
        address=options.cluster,
        progress=watched(),
        summary=_tell,
    )
    cluster.merge(options.out)
    print(f"{options.out}: {manifest.tokens:,} ids in {len(manifest.files)} files")


def _tell(summary: object) -> None:
    print(summary, file=sys.stderr)
