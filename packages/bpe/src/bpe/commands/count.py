"""`bpe count`: text to counts of pretokens, which are added up and trained from; and counts made elsewhere."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bpe.commands.cluster import add_cluster_arguments, check_cluster, count_on_cluster
from bpe.commands.corpus import check_target, corpus, keep_apart, size, target
from bpe.corpus import remote
from bpe.corpus.sources import open_parquet
from bpe.counts import Counts, count
from bpe.native.progress import watched


def add(commands: Any) -> None:
    """Add the command to a parser's own."""
    parser = commands.add_parser(
        "count",
        help="count the pretokens of text, for `bpe train --counts`",
        epilog="Parts of a corpus may be counted on different machines: `bpe count --counts PART… --out ALL` adds "
        "them up, and `bpe train --counts PART…` trains what the whole text trains.",
    )
    parser.add_argument(
        "--out", type=target, required=True, help="the file, or the URL, to write; X.parquet is a table of both"
    )
    add_counting_arguments(parser)
    add_cluster_arguments(parser, "its nodes count the files")
    parser.set_defaults(run=_run)


def add_counting_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what says which text and counts are read, and how text is split and counted."""
    parser.add_argument("corpus", nargs="*", help="files, folders, patterns of names, URLs, or - for standard input")
    parser.add_argument("--pattern", help="a split pattern by name, or a regular expression (default: gpt2)")
    parser.add_argument(
        "--special", action="append", metavar="TOKEN", help="a special token; again for more (default: <|endoftext|>)"
    )
    parser.add_argument(
        "--counts",
        nargs="+",
        action="extend",
        metavar="FILE",
        help="counts to add up: files of `bpe count`, or .parquet tables of pretokens and their counts",
    )
    parser.add_argument(
        "--count-columns",
        nargs=2,
        default=("word", "count"),
        metavar=("WORD", "COUNT"),
        help="the columns of such a table (default: word count)",
    )
    parser.add_argument("--text-key", default="text", help="where JSON lines and Parquet have the text (%(default)s)")
    parser.add_argument("--num-threads", type=int, help="threads (default: all processors)")
    parser.add_argument(
        "--memory-limit", type=size, metavar="SIZE", help="what counting may hold, as 500MB or 2GiB; more goes to disk"
    )


def read_counts(options: argparse.Namespace) -> Counts:
    """The sum of the counts that a command line names.

    A file of `bpe count` says by which pattern and special tokens its text was split. A table does not: it takes those
    of the command line, or of such a file beside it. ValueError where two of them contradict one another.
    """
    tables = [name for name in options.counts if name.lower().endswith(".parquet")]
    counts = [Counts.load(name) for name in options.counts if name not in tables]
    how = split_by(options, counts[0] if counts else None)
    word, number = options.count_columns
    for name in tables:
        with open_parquet(name, [word, number]) as file:
            table = file.read(columns=[word, number])
        try:
            counts.append(Counts.from_arrow(table, word=word, count=number, **how))
        except ValueError as error:
            raise ValueError(f"{name}: {error}") from None
    return Counts.from_mapping({}, **how).merge(*counts)


def split_by(options: argparse.Namespace, counts: Counts | None = None) -> dict[str, Any]:
    """The pattern and the special tokens: of the command line, of counts beside it, or by default."""
    default = (counts.pattern.expressions or None) if counts else "gpt2"
    return {
        "pattern": default if options.pattern is None else options.pattern,
        "special_tokens": options.special or (counts.special_tokens if counts else ("<|endoftext|>",)),
    }


def _run(options: argparse.Namespace) -> None:
    check_target(options.out, "the counts")
    on_cluster = check_cluster(options)
    if not options.corpus and not options.counts:
        raise ValueError("there is nothing to count: name text, or --counts to add up")
    source = corpus(options.corpus, options.text_key)
    keep_apart(options.out, [*source, *(options.counts or ())])
    counts = read_counts(options) if options.counts else None
    if source and on_cluster:
        counted = count_on_cluster(options, source, split_by(options, counts))
    elif source:
        counted = count(
            source,
            **split_by(options, counts),
            num_threads=options.num_threads,
            memory_limit=options.memory_limit,
            progress=watched(),
        )
    if source:
        counts = counted if counts is None else counts.merge(counted)
    assert counts is not None  # text or counts are there
    if Path(options.out).suffix.lower() == ".parquet":
        table = counts.to_arrow()
        from pyarrow import parquet

        with remote.output(options.out) as file:
            parquet.write_table(table, file)
    else:
        counts.save(options.out)
    print(f"{options.out}: {len(counts):,} pretokens of {counts.total_bytes:,} bytes")
