"""`--cluster ADDRESS` of `bpe count`, `train` and `encode`: the same work on a Ray cluster."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from bpe.commands.corpus import corpus
from bpe.counts import Counts
from bpe.native.progress import watched
from bpe.tokenizer import Tokenizer


def add_cluster_arguments(parser: argparse.ArgumentParser, what: str) -> None:
    """Add --cluster and --on-error. what: the rest of the help of --cluster."""
    parser.add_argument(
        "--cluster",
        metavar="ADDRESS",
        help=f"on the Ray cluster whose head is at HOST:PORT (or auto, or local for this machine): {what}",
    )
    parser.add_argument(
        "--on-error",
        choices=("raise", "skip"),
        help="with --cluster: fail at the end for a file that cannot be read, or leave it out and say so "
        "(default: raise)",
    )


def check_cluster(options: argparse.Namespace, *others: str) -> bool:
    """True for a command with --cluster. ValueError for options that have no meaning with it, or without it."""
    if options.cluster is None:
        if options.on_error is not None:
            raise ValueError("--on-error is for --cluster: leave it out, or name a cluster")
        return False
    for name in others:
        if getattr(options, name) is not None:
            raise ValueError(f"--{name.replace('_', '-')} is for one machine: leave it out, or leave out --cluster")
    return True


def count_on_cluster(options: argparse.Namespace, source: list[Any], pattern_options: dict[str, Any]) -> Counts:
    """The counts of a source; says on standard error what each node counted. pattern_options: also special tokens."""
    from bpe import cluster

    return cluster.count(source, **pattern_options, memory_limit=options.memory_limit, **_options(options))


def encode_on_cluster(options: argparse.Namespace, tokenizer: Tokenizer) -> None:
    """A `bpe encode` with --cluster: each file to a token file of the folder --out."""
    from bpe import cluster

    if options.out is None or Path(options.out).suffix:
        raise ValueError(f"--cluster encodes file by file into a folder: name one by --out, not {options.out}")
    if options.jsonl or options.special == "refuse" or not options.text:
        raise ValueError("--cluster encodes files, each as its name says: without --jsonl and --special refuse")
    manifest = cluster.encode(
        corpus(options.text, options.text_key),
        options.out,
        tokenizer,
        format=options.format or "npy",
        end_of_text=options.end_of_text,
        allowed_special="all" if options.special == "recognise" else (),
        **_options(options),
    )
    print(f"{options.out}: {manifest.tokens:,} ids in {len(manifest.files)} files")


def _options(options: argparse.Namespace) -> dict[str, Any]:
    return {
        "num_threads": 1 if options.num_threads is None else options.num_threads,
        "on_error": options.on_error or "raise",
        "address": options.cluster,
        "progress": watched(),
        "summary": lambda summary: print(summary, file=sys.stderr),
    }
