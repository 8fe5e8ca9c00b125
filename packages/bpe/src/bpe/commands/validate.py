"""`bpe validate`: the ids of a tokenizer beside tokenizers' or tiktoken's, on one's own text, and the speeds."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from bpe.commands.corpus import documents
from bpe.loading import NAMED, load
from bpe.tokenizer import Tokenizer

BATCH = 256  # documents that are encoded by both, one after the other
SHOWN = 3  # documents whose first difference is printed
Encode = Callable[[list[str]], list[list[int]]]


def add(commands: Any) -> None:
    """Add the command to a parser's own."""
    parser = commands.add_parser(
        "validate",
        help="ids and speed beside tokenizers or tiktoken, on text of yours",
        epilog="The other library, which has to be installed, is tokenizers for a tokenizer.json, and tiktoken for a "
        ".tiktoken file or the name of a published encoding. A document is a file, a line of JSON or a row of Parquet. "
        "Special tokens in the text are recognised beside tokenizers, and ordinary text beside tiktoken. If some ids "
        "differ the exit status is 1.",
    )
    parser.add_argument("tokenizer", help=NAMED)
    parser.add_argument("text", nargs="+", help="files, folders, patterns of names, URLs")
    parser.add_argument("--text-key", default="text", help="where JSON lines and Parquet have the text (%(default)s)")
    parser.add_argument("--num-threads", type=int, default=1, help="threads of both libraries (%(default)s)")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    tokenizer = load(options.tokenizer)
    library, theirs, allowed = _peer(options.tokenizer, tokenizer, options.num_threads)

    def ours(texts: list[str]) -> list[list[int]]:
        return tokenizer.encode_batch(
            texts, num_threads=options.num_threads, allowed_special=allowed, disallowed_special=()
        )

    total = size = different = 0
    seconds = [0.0, 0.0]
    parts = documents(options.text, options.text_key)
    while texts := [data.decode("utf-8", "replace") for data in islice(parts, BATCH)]:
        results = []
        for number, encode in enumerate((ours, theirs)):
            begun = time.perf_counter()
            results.append(encode(texts))
            seconds[number] += time.perf_counter() - begun
        for text, one, other in zip(texts, *results, strict=True):
            total += 1
            size += len(text.encode("utf-8", "replace"))
            if one != other:
                different += 1
                if different <= SHOWN:
                    pairs = enumerate(zip(one, other, strict=False))
                    at = next((index for index, (a, b) in pairs if a != b), min(len(one), len(other)))
                    beside = f"{one[at : at + 8]} for {library}'s {other[at : at + 8]}"
                    print(f"document {total:,} differs at id {at:,}: {beside}")
    rates = [size / max(each, 1e-9) / 1e6 for each in seconds]
    print(
        f"{total - different:,} of {total:,} documents ({size:,} bytes) have the ids of {library}; "
        f"bpe {rates[0]:,.1f} MB/s, {library} {rates[1]:,.1f} MB/s: {rates[0] / rates[1]:.1f} times as fast"
    )
    return 1 if different else 0


def _peer(name: str, tokenizer: Tokenizer, threads: int) -> tuple[str, Encode, Any]:
    """(the other library's name, its encoding of texts, the special tokens that it recognises)."""
    path = Path(name)
    path = path / "tokenizer.json" if path.is_dir() else path
    if path.suffix == ".json" and tokenizer.data.merges is not None and b'"model"' in path.read_bytes():
        tokenizers = _imported("tokenizers")
        os.environ["RAYON_NUM_THREADS"] = str(threads)
        peer = tokenizers.Tokenizer.from_file(str(path))
        peer.no_truncation()
        peer.no_padding()
        batch = partial(peer.encode_batch_fast, add_special_tokens=False)
        return "tokenizers", lambda texts: [result.ids for result in batch(texts)], "all"
    if tokenizer.data.merges is None and tokenizer.data.characters is None:
        tiktoken = _imported("tiktoken")
        special, ranks = dict(tokenizer.special_tokens), tokenizer._mergeable_ranks
        encoding = tiktoken.Encoding(
            tokenizer.name, pat_str=tokenizer._pat_str, mergeable_ranks=ranks, special_tokens=special
        )
        return "tiktoken", lambda texts: encoding.encode_ordinary_batch(texts, num_threads=threads), set()
    raise ValueError(
        f"{name}: expected a tokenizer.json, a .tiktoken file or a published encoding: no other library reads it"
    )


def _imported(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise ImportError(f"the ids are compared with {name}'s, which is not installed: pip install {name}") from None
