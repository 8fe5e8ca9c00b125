"""`bpe check`: what in a tokenizer's file is probably a mistake, and what other libraries do with it."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from bpe.commands import lint
from bpe.commands.corpus import documents
from bpe.commands.lint import Finding
from bpe.loading import NAMED, load


def add(commands: Any) -> None:
    """Add the command to a parser's own."""
    parser = commands.add_parser(
        "check",
        help="mistakes in a tokenizer's file, and what other libraries do with it",
        epilog="Warnings are literal strings that look like expressions, merges that never apply, tokens that no text "
        "gives, special tokens that text can give, and text that does not come back. They make the exit status 1.",
    )
    parser.add_argument("tokenizer", help=NAMED)
    parser.add_argument("--on", nargs="+", metavar="TEXT", help="encode and decode these files too")
    parser.add_argument("--text-key", default="text", help="where JSON lines and Parquet have the text (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print a line of JSON for each finding")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    tokenizer = load(options.tokenizer)
    path = Path(options.tokenizer)
    path = path / "tokenizer.json" if path.is_dir() else path
    findings = lint.check(tokenizer, path if path.suffix == ".json" and path.exists() else None)
    if options.on is not None:
        used: set[int] = set()
        changed = 0
        for data in documents(options.on, options.text_key):
            ids = tokenizer.encode_to_numpy(data, allowed_special="all")
            used.update(ids.tolist())
            changed += tokenizer.decode_bytes(ids) != data
        findings.append(Finding("note", f"the text uses {len(used):,} of {tokenizer.vocab_size:,} tokens"))
        if changed:
            findings.append(Finding("warning", f"{changed:,} texts are not what decoding their ids gives"))
    for finding in findings:
        print(json.dumps(finding._asdict()) if options.json else f"{finding.kind}: {finding.text}")
    return 1 if any(finding.kind == "warning" for finding in findings) else 0
