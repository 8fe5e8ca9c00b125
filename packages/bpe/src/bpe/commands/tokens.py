"""`bpe tokens`: the number of tokens of files, as `wc` counts words; `bpe vocab`: a vocabulary, a token a line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from typing import Any

from bpe.commands.corpus import corpus
from bpe.corpus import sources
from bpe.loading import NAMED, load
from bpe.native.lazy_imports import numpy as np
from bpe.native.parallel import threads_for
from bpe.outputs.encode_source import encoded_groups, recipe_of
from bpe.tokenizer import Tokenizer


def add(commands: Any) -> None:
    """Add both commands to a parser's own."""
    tokens = commands.add_parser(
        "tokens",
        help="the number of tokens of each file, as wc",
        epilog="A line for each name: tokens, bytes of text, the name; of a folder its files together. The last line "
        "is the total of several.",
    )
    tokens.add_argument("text", nargs="*", help="files, folders, URLs (default: standard input, which is also -)")
    tokens.add_argument("--tokenizer", required=True, help=NAMED)
    special = "special tokens in the text are such, or ordinary text (%(default)s)"
    tokens.add_argument("--special", choices=("recognise", "ignore"), default="recognise", help=special)
    _add_reading(tokens)
    tokens.add_argument("--json", action="store_true", help="print a line of JSON for each name")
    tokens.set_defaults(run=_tokens)

    vocab = commands.add_parser(
        "vocab",
        help="the tokens of a vocabulary, one a line",
        epilog="Columns, separated by tabs: id; rank of the merge that makes the token; the token as a Python literal; "
        "the two halves of that merge; with --on the number of times that the text has it.",
    )
    vocab.add_argument("tokenizer", help=NAMED)
    vocab.add_argument("--on", nargs="+", metavar="TEXT", help="count the tokens in these files too")
    _add_reading(vocab)
    vocab.add_argument("--sort", choices=("id", "length", "count"), default="id", help="what comes first (%(default)s)")
    vocab.add_argument("--json", action="store_true", help="print a line of JSON for each token, its bytes as Latin-1")
    vocab.set_defaults(run=_vocab)


def _add_reading(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--text-key", default="text", help="where JSON lines and Parquet have the text (%(default)s)")
    parser.add_argument("--num-threads", type=int, help="threads (default: all processors)")


def ids_of(
    tokenizer: Tokenizer, source: sources.Source, special: str, threads: int | None
) -> Iterator[tuple[Any, int]]:
    """Yield (ids, bytes of text) of a source part by part, encoded in threads."""
    allowed: Any = "all" if special == "recognise" else ()
    # Bytes of the file, names of special tokens included.
    recipe = recipe_of(tokenizer._text_encoder, "", "npy", None, None, allowed)._replace(end_bytes=0)
    for group in encoded_groups(source, recipe, threads_for(threads)):
        yield group.ids, int(group.text_ends[-1]) if len(group.text_ends) else 0


def _tokens(options: argparse.Namespace) -> None:
    tokenizer = load(options.tokenizer)
    rows: list[tuple[int, int, str]] = []
    for name in options.text or ["-"]:
        tokens = size = 0
        for ids, part in ids_of(tokenizer, corpus([name], options.text_key), options.special, options.num_threads):
            tokens, size = tokens + len(ids), size + part
        rows.append((tokens, size, name))
    if len(rows) > 1:
        rows.append((sum(row[0] for row in rows), sum(row[1] for row in rows), "total"))
    width = max(len(str(row[1])) for row in rows) + 1
    for tokens, size, name in rows:
        if options.json:
            print(json.dumps({"tokens": tokens, "bytes": size, "name": name}))
        else:
            print(f"{tokens:{width}d} {size:{width}d} {name}")


def _vocab(options: argparse.Namespace) -> None:
    tokenizer = load(options.tokenizer)
    ranks: dict[bytes, int] = {}
    for index, (left, right) in enumerate(tokenizer.merges):
        ranks.setdefault(left + right, index)
    counts = np.zeros(tokenizer.max_token_value + 1, dtype=np.int64)
    if options.on is not None:
        for ids, _ in ids_of(tokenizer, corpus(options.on, options.text_key), "recognise", options.num_threads):
            counts += np.bincount(ids, minlength=len(counts))
    elif options.sort == "count":
        raise ValueError("--sort count needs a text to count in: name it by --on")
    first = {"id": lambda item: 0, "length": lambda item: -len(item[1]), "count": lambda item: -int(counts[item[0]])}
    special = {*tokenizer.special_tokens.values()}
    for number, token in sorted(sorted(tokenizer.vocab.items()), key=first[options.sort]):
        rank = None if number in special else ranks.get(token)
        halves = () if rank is None else tokenizer.merges[rank]
        if options.json:
            row: dict[str, Any] = {"id": number, "rank": rank, "bytes": token.decode("latin-1")}
            row["halves"] = [half.decode("latin-1") for half in halves]
            if options.on is not None:
                row["count"] = int(counts[number])
            print(json.dumps(row))
        else:
            cells = [str(number), "" if rank is None else str(rank), literal(token), " ".join(map(literal, halves))]
            sys.stdout.write("\t".join(cells + [str(counts[number])] * (options.on is not None)) + "\n")


def literal(token: bytes) -> str:
    """A token as a literal of Python: of text where its bytes are UTF-8, else of bytes."""
    try:
        return repr(token.decode())
    except UnicodeDecodeError:
        return repr(token)
