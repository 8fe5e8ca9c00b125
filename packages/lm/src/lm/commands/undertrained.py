"""`lm undertrained`: the tokens that a model never learned."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from lm.commands.options import Commands, add, add_device, model_of


def register(commands: Commands) -> None:
    made = add(commands, "undertrained", list_tokens, "list the tokens that a model never learned, the surest first")
    made.add_argument("run", metavar="RUN", help="the folder of a run, or another program's model")
    made.add_argument("--tokenizer", help="a tokenizer file (default: the model's own)")
    add_device(made)
    made.add_argument(
        "--unused", type=int, nargs="+", default=[], metavar="ID", help="ids known to be unused, to hold others against"
    )
    made.add_argument("--top", type=int, help="list so many (default: all)")
    made.add_argument("--json", action="store_true", help="print JSON")


def list_tokens(options: argparse.Namespace) -> None:
    from lm.evaluation import undertrained
    from lm.interop.loading import read_tokenizer, tokenizer_of

    if options.top is not None and options.top < 1:
        raise ValueError(f"--top must be at least 1, and {options.top} is not")
    path = options.tokenizer or tokenizer_of(options.run)
    tokenizer = None if path is None else read_tokenizer(Path(path))
    found = undertrained(options.run, tokenizer, unused=options.unused, model=model_of(options))
    vocab = {} if tokenizer is None else tokenizer.vocab
    listed = found.tokens[: options.top]
    if options.json:
        lines = [
            {"id": number, "bytes": vocab[number].hex() if number in vocab else None, found.sign: value}
            for number, value in listed
        ]
        says = {"sign": found.sign, "limit": found.limit, "known": found.known, "count": len(found.tokens)}
        print(json.dumps({**says, "tokens": lines}, indent=1))
        return
    if found.sign == "moved":
        print(f"{len(found.tokens):,} tokens whose embeddings never moved")
    else:
        print(
            f"{len(found.tokens):,} tokens no farther from the mean of {len(found.known):,} that no text has than "
            f"those are themselves (1 - cosine of their rows in the head, at most {found.limit:.3g})"
        )
    for number, value in listed:
        text = repr(vocab[number])[1:] if number in vocab else "no token"
        print(f"{number:>8}  {value:.6f}  {text}")
