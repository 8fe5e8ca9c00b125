"""`bpe report`: tokenizers on texts, as a table, as JSON or as a page."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from bpe.commands.corpus import check_target, documents
from bpe.loading import NAMED, load
from bpe.native.atomic_file import write_atomically
from bpe.reporting import report


def add(commands: Any) -> None:
    """Add the command to a parser's own."""
    parser = commands.add_parser(
        "report",
        help="compression, speed and vocabularies of tokenizers on texts",
        description=report.NOTES,
    )
    parser.add_argument("tokenizer", nargs="+", help=NAMED)
    parser.add_argument("--on", nargs="+", required=True, metavar="TEXT", help="files, read as `bpe train` reads them")
    parser.add_argument("--text-key", default="text", help="where JSON lines and Parquet have the text (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print JSON, with the ids of the tokens in question")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write a page that needs nothing but itself")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> None:
    tokenizers = {name: load(path) for name, path in named(options.tokenizer).items()}
    texts = {name: list(documents([path], options.text_key)) for name, path in named(options.on).items()}
    if options.html is not None:
        check_target(options.html, "the page")
    measurements = report.measure(tokenizers, texts)
    if options.html is not None:
        write_atomically(options.html, measurements.html().encode("utf-8", "replace"))  # of a name that is no text
    if options.json:
        print(json.dumps(measurements.as_dict(), indent=1))
    elif options.html is not None:
        print(options.html)
    else:
        print(measurements)


def named(paths: list[str]) -> dict[str, str]:
    """Paths by their last part, or whole where two have the same."""
    last = [Path(path).name for path in paths]
    return {name if last.count(name) == 1 else path: path for name, path in zip(last, paths, strict=True)}
