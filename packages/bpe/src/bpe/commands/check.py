"""`bpe check`: what in a tokenizer's file is probably a mistake, and what other libraries do with it."""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from bpe.commands.corpus import documents
from bpe.formats import UTF8_BYTES
from bpe.formats.gguf import pattern_name
from bpe.formats.sentencepiece import BYTE_TOKENS
from bpe.formats.templates import read_steps
from bpe.formats.vocabularies import to_printable
from bpe.loading import NAMED, load
from bpe.patterns import PATTERNS
from bpe.reporting.report import ordinary_tokens, unreachable_tokens
from bpe.tokenizer import Tokenizer

LIKE_AN_EXPRESSION = re.compile(r"\\[pPsSdDwW]|\[\^|\(\?|\\[rn].*\]|\|.*\\")
SHOWN = 5  # tokens that a finding names
# The only expressions that tokenizers 1.0 splits by.
TOKENIZERS_1_PATTERNS = {PATTERNS[name] for name in ("gpt2", "llama3", "qwen2", "o200k")}
TOKENIZERS_1_PATTERNS |= {(expression,) for expression in PATTERNS["deepseek-v3"]}


class Finding(NamedTuple):
    """A finding: `kind` is "warning" for a probable mistake, and "note" for a fact worth knowing."""

    kind: str
    text: str


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
    findings = check(tokenizer, path if path.suffix == ".json" and path.exists() else None)
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


def check(tokenizer: Tokenizer, path: Path | None) -> list[Finding]:
    """Check a tokenizer, and the tokenizer.json that it was read from, if it was."""
    findings = [*_literals(path)] if path is not None else []
    findings += [*_merges(tokenizer), *_vocabulary(tokenizer), *_special(tokenizer), *_elsewhere(tokenizer)]
    return findings


def _literals(path: Path) -> Iterator[Finding]:
    """Strings of a tokenizer.json that are matched literally and look like expressions."""
    file = json.loads(path.read_bytes())
    if not isinstance(file.get("model"), dict):
        return
    for key, part in (("normalizers", "normalizer"), ("pretokenizers", "pre_tokenizer"), ("decoders", "decoder")):
        for step in read_steps(key, file.get(part), path):
            literal = step.get("pattern", {}).get("String", "")
            if LIKE_AN_EXPRESSION.search(literal):
                match = f"the step {step['type']} matches the literal string {literal[:60]!r}"
                yield Finding("warning", f'{match}, which looks like an expression: {{"Regex": …}} would apply it')


def _merges(tokenizer: Tokenizer) -> Iterator[Finding]:
    """Merges that never apply: of a token whose own bytes do not merge to it, or that has such a half."""
    ids = {token: number for number, token in reversed(ordinary_tokens(tokenizer))}
    never = set(tokenizer._text_encoder.never_merged(ids)) if tokenizer.data.words is None else set()
    if dead := [pair for pair in tokenizer.merges if never.intersection((*pair, pair[0] + pair[1]))]:
        examples = _some([left + right for left, right in dead])
        # with ignore_merges a pretoken that is such a token is taken whole, as several published vocabularies want it
        kind, how = ("note", ", but for whole pretokens") if tokenizer.data.ignore_merges else ("warning", "")
        yield Finding(kind, f"{len(dead):,} merges never apply{how}, as of {examples}")


def _vocabulary(tokenizer: Tokenizer) -> Iterator[Finding]:
    """Tokens that no text gives, holes in the ids, bytes without a token."""
    data = tokenizer.data
    tokens = [] if data.words is not None else [data.vocab[number] for number in unreachable_tokens(tokenizer)]
    if tokens:
        yield Finding("warning", f"{len(tokens):,} tokens are given by no text, as {_some(tokens)}")
    if holes := tokenizer.n_vocab - len(tokenizer.vocab):
        unused = f"{holes:,} ids up to {tokenizer.max_token_value:,} have no token"
        yield Finding("note", f"{unused}; a model needs rows for them")
    bytes_alone = {token for token in data.vocab.values() if len(token) == 1}
    if data.characters is None and data.words is None and len(bytes_alone) < 256:
        yield Finding("note", f"{256 - len(bytes_alone)} bytes have no token: text with them loses them, or is refused")


def _special(tokenizer: Tokenizer) -> Iterator[Finding]:
    """Special tokens that ordinary text can give: an ordinary token has the same bytes."""
    ordinary = {token for _, token in ordinary_tokens(tokenizer)}
    for name, number in tokenizer.special_tokens.items():
        ids = tokenizer.encode_ordinary(name)
        if ids == [number] or name.encode() in ordinary:
            yield Finding("warning", f"the special token {name!r} can be given by ordinary text, as {ids}")


def _elsewhere(tokenizer: Tokenizer) -> Iterator[Finding]:
    """Findings about what other libraries can do with the tokenizer."""
    writers: dict[str, Callable[[Path], None]] = {
        "tokenizers (tokenizer.json)": tokenizer.to_huggingface,
        "tiktoken (.tiktoken)": tokenizer.to_tiktoken,
        "GPT-2's vocab.json and merges.txt": tokenizer.to_gpt2,
        "sentencepiece (.model)": tokenizer.to_sentencepiece,
    }
    with tempfile.TemporaryDirectory() as folder:
        for number, (library, write) in enumerate(writers.items()):
            out = Path(folder, str(number))
            try:
                write(out)
                yield Finding("note", f"{library}: can be written, with the same ids")
            except ValueError as error:
                yield Finding("note", f"{library}: cannot be written: {str(error).replace(str(out), '').lstrip(': ')}")
                continue
            if write == tokenizer.to_huggingface:
                refusals = list(tokenizers_1_refuses(json.loads(out.read_bytes())))
                yield Finding("note", f"tokenizers 1.0: {'; '.join(refusals) or 'reads that file'}")
    if tokenizer.data.characters is not None:
        yield Finding("note", "llama.cpp: its model `llama`, SentencePiece's")
    elif tokenizer.data.words is None:
        name = pattern_name(tokenizer.data.pattern)
        yield Finding("note", f"llama.cpp: {f'its split pattern {name!r}' if name else 'no split pattern of its own'}")


def tokenizers_1_refuses(file: dict[str, Any]) -> Iterator[str]:
    """Yield the reasons for which tokenizers 1.0 (its release candidate 3) does not encode by a tokenizer.json."""
    steps = read_steps("pretokenizers", file["pre_tokenizer"], "tokenizer.json")
    vocab = file["model"]["vocab"]
    needed: Iterable[str] = BYTE_TOKENS if file["model"]["byte_fallback"] else ()
    for number, one in enumerate(steps, 1):
        if one["type"] == "ByteLevel":
            needed = [to_printable(bytes([byte])) for byte in UTF8_BYTES]
            if number < len(steps):
                yield "refuses it, since steps follow ByteLevel"
            if one["add_prefix_space"]:
                yield "refuses it for add_prefix_space"
        elif one["type"] == "Split" and (one["pattern"].get("Regex"),) not in TOKENIZERS_1_PATTERNS:
            yield f"does not encode, since it lacks the split pattern {str(one['pattern'])[:60]}"
    if missing := [token for token in needed if token not in vocab]:
        yield f"refuses it, since bytes have no token: {', '.join(missing[:SHOWN])}"


def _some(tokens: list[bytes]) -> str:
    """The first tokens of a list, as literals."""
    return ", ".join(repr(token.decode("utf-8", "backslashreplace")) for token in tokens[:SHOWN])
