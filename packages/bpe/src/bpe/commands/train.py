"""`bpe train`: files, folders and standard input to a saved tokenizer."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from bpe.commands.cluster import add_cluster_arguments, check_cluster, count_on_cluster
from bpe.commands.corpus import Target, check_target, corpus, keep_apart, target
from bpe.commands.count import add_counting_arguments, read_counts, split_by
from bpe.commands.until_stable import share, train_until_stable
from bpe.loading import load
from bpe.merging.conventions import CONVENTIONS
from bpe.native.progress import timed_phases, watched
from bpe.reporting.report import longest_tokens
from bpe.tokenizer import Tokenizer
from bpe.training import extend, train, train_from_counts, train_sentencepiece


def add(commands: Any) -> None:
    """Add the command to a parser's own."""
    parser = commands.add_parser(
        "train",
        help="train a tokenizer on text",
        epilog="A file is read as its name says: .gz, .xz and .zst are decompressed; .jsonl, .ndjson and .json have a "
        "text a line, .parquet one a row. A folder means every file in it, hidden ones aside. "
        "Special tokens get their ids here, and no text has them otherwise: give those of a chat format now, "
        "--special '<|endoftext|>' --special '<|im_start|>' --special '<|im_end|>', for a model that will learn one "
        "later.",
    )
    size = parser.add_mutually_exclusive_group(required=True)
    size.add_argument("--vocab-size", type=int)
    size.add_argument(
        "--sizes",
        type=_sizes,
        metavar="N,N",
        help="several vocabulary sizes, as 16k,32k,64k: the text is counted and merged once, and each tokenizer, the "
        "same as of a training to its size, is written beside --out: X.json is X-16k.json",
    )
    parser.add_argument("--out", type=target, required=True, help="the file, or the URL, to write the tokenizer to")
    add_counting_arguments(parser)
    parser.add_argument(
        "--sentencepiece",
        action="store_true",
        help="SentencePiece-style BPE: merge characters, as Llama 2's; special tokens are <unk>, <s>, </s> by default",
    )
    parser.add_argument("--limit-alphabet", type=int, metavar="N", help="with --sentencepiece: the most characters")
    parser.add_argument("--superwords", choices=("superbpe",), help="tokens of several words; the text is read twice")
    parser.add_argument("--tie-break", choices=CONVENTIONS, help="of equally common pairs (default: bytes)")
    parser.add_argument("--min-count", type=int, default=1, help="no pair that occurs less often is merged")
    parser.add_argument("--max-token-bytes", type=int, help="no token is longer")
    parser.add_argument(
        "--checkpoint",
        type=Path,
        metavar="FOLDER",
        help="write the counts here: the same command does not count again after it was stopped",
    )
    parser.add_argument(
        "--extend", metavar="TOKENIZER", help="continue this tokenizer, its ids, pattern and special tokens kept"
    )
    parser.add_argument("--json", action="store_true", help="print what was trained, and the phases, as JSON")
    parser.add_argument(
        "--until-stable",
        type=share,
        metavar="SHARE",
        help="read twice as much text each time, until this share of the tokens of a held-out text stay, as 0.99",
    )
    add_cluster_arguments(parser, "its nodes count the files, this machine learns the merges")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> None:
    check_target(options.out, "the tokenizer")  # better now than after an hour
    if options.counts is not None:
        _refuse_beside_counts(options)
    elif not options.corpus:
        raise ValueError("there is nothing to train on: name text, or --counts of text")
    _check_style(options)
    source = corpus(options.corpus, options.text_key)
    keep_apart(options.out, options.counts or source)
    settings = {
        name: getattr(options, name)
        for name in ("min_count", "max_token_bytes", "num_threads", "memory_limit", "checkpoint")
    }
    outs = {options.out: options.vocab_size}
    if options.sizes is not None:
        outs = {_named_by_size(options.out, label): size for label, size in options.sizes.items()}
        options.vocab_size = max(outs.values())
    begun = time.perf_counter()
    try:
        with timed_phases() as phases:
            tokenizer = _trained(options, source, settings)
        seconds = time.perf_counter() - begun
        for out, size in outs.items():
            (tokenizer if size == options.vocab_size else tokenizer.with_vocab_size(size)).save(out)
    except KeyboardInterrupt as error:
        if options.checkpoint is not None and (options.checkpoint / "counts").exists():
            error.add_note(f"the counts are in {options.checkpoint}: the same command goes on from there")
        raise
    _print(options, tokenizer, outs, seconds, phases)


def _print(
    options: argparse.Namespace, tokenizer: Tokenizer, outs: dict[Target, int], seconds: float, phases: dict[str, float]
) -> None:
    """Print what was trained, in how long, and the CPU seconds of each phase."""
    memory = most_memory()
    longest = [token.decode(errors="replace") for _, token in longest_tokens(tokenizer, 5)]
    if options.json:
        row = {
            "outputs": {str(out): size for out, size in outs.items()},
            "seconds": round(seconds, 6),
            "memory": memory or None,
            "cpu_seconds": {phase: round(spent, 6) for phase, spent in phases.items()},
            "longest": longest,
        }
        print(json.dumps(row))
        return
    peak = f", {memory / 1e6:,.0f} MB at most" if memory else ""
    for out, size in outs.items():
        print(f"{out}: {size:,} tokens in {seconds:.2f} s{peak}")
    if phases:
        print("CPU seconds: " + ", ".join(f"{phase} {spent:.2f}" for phase, spent in phases.items()))
    print("longest: " + "  ".join(map(repr, longest)))


def _sizes(text: str) -> dict[str, int]:
    """{label: size} of "16k,32k" or "16000,32768"."""
    sizes: dict[str, int] = {}
    for label in text.split(","):
        match = re.fullmatch(r"([0-9]+)(k?)", label.strip().lower())
        if match is None or not int(match[1]):
            raise argparse.ArgumentTypeError(f"expected sizes as 16k,32k or 16000,32000, got {text!r}")
        sizes[label.strip()] = int(match[1]) * (1000 if match[2] else 1)
    return sizes


def _named_by_size(out: Target, label: str) -> Target:
    """The file of one of several sizes: X-16k.json for X.json."""
    name = out if isinstance(out, str) else out.name
    stem, dot, ending = name.rpartition(".")
    name = f"{stem}-{label}.{ending}" if dot and "/" not in ending else f"{name}-{label}"
    return name if isinstance(out, str) else out.with_name(name)


def most_memory() -> int:
    """The most bytes of memory that this process has had; 0 where the system does not say."""
    try:
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith("VmHWM"))
    except (OSError, StopIteration):
        pass
    try:
        import resource
    except ImportError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def _refuse_beside_counts(options: argparse.Namespace) -> None:
    """ValueError for what has no meaning where text is counted already."""
    if options.corpus:
        raise ValueError("--counts stand for the text: count the other text too (bpe count), and name all --counts")
    for name in ("extend", "checkpoint", "memory_limit", "num_threads"):
        if getattr(options, name) is not None:
            raise ValueError(f"--{name.replace('_', '-')} is for text, and --counts hold none: leave it out")


def _check_style(options: argparse.Namespace) -> None:
    """ValueError for what has no meaning for the kind of tokenizer that is trained; fills in the tie-break."""
    if options.limit_alphabet is not None and not options.sentencepiece:
        raise ValueError("--limit-alphabet is for --sentencepiece, which merges characters; bytes are all tokens")
    for name in ("pattern", "tie_break", "counts", "extend", "cluster", "superwords"):
        if options.sentencepiece and getattr(options, name) is not None:
            raise ValueError(f"--{name.replace('_', '-')} has no meaning beside --sentencepiece: leave one of them out")
    for name in ("superwords", "extend"):
        if options.sizes is not None and getattr(options, name) is not None:
            raise ValueError(f"--sizes are nested where merges depend on the counts alone: leave out --{name}")
    for name in ("counts", "extend", "cluster"):
        if options.superwords is not None and getattr(options, name) is not None:
            raise ValueError(f"--superwords are learned from text on one machine: leave out --{name}")
    for name in ("sentencepiece", "superwords", "counts", "extend", "checkpoint", "cluster"):
        if options.until_stable is not None and getattr(options, name):
            raise ValueError(f"--until-stable reads text as it needs it: leave it out, or --{name}")
    if options.tie_break is None:
        options.tie_break = "bytes"


def _trained(options: argparse.Namespace, source: list[Any], settings: dict[str, Any]) -> Tokenizer:
    on_cluster = check_cluster(options, "extend", "checkpoint", "counts")
    if options.sentencepiece:
        return train_sentencepiece(
            source,
            options.vocab_size,
            special_tokens=options.special or ("<unk>", "<s>", "</s>"),
            limit_alphabet=options.limit_alphabet,
            progress=watched(),
            **settings,
        )
    settings["tie_break"] = options.tie_break
    rule = {name: settings[name] for name in ("tie_break", "min_count", "max_token_bytes")}
    if options.until_stable is not None:
        how = {**split_by(options), "num_threads": options.num_threads, "memory_limit": options.memory_limit}
        learn = partial(train_from_counts, vocab_size=options.vocab_size, **rule)
        return train_until_stable(source, options.until_stable, how, learn)
    if on_cluster or options.counts is not None:
        counts = count_on_cluster(options, source, split_by(options)) if on_cluster else read_counts(options)
        return train_from_counts(counts, options.vocab_size, progress=watched(), **rule)
    if options.extend is None:
        return train(
            source,
            options.vocab_size,
            **split_by(options),
            superwords=options.superwords,
            progress=watched(),
            **settings,
        )
    if options.pattern is not None or options.special is not None:
        raise ValueError("--extend keeps the tokenizer's pattern and special tokens; leave out --pattern and --special")
    return extend(load(options.extend), source, options.vocab_size, progress=watched(), **settings)
