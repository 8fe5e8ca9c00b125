"""`bpe encode` and `bpe decode`: filters, and files to files."""

from __future__ import annotations

import argparse
import contextlib
import errno
import itertools
import json
import os
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, BinaryIO

from bpe.commands.cluster import add_cluster_arguments, check_cluster, encode_on_cluster
from bpe.commands.corpus import Target, corpus, keep_apart, standard_input, target
from bpe.corpus import compressed, remote, sources
from bpe.loading import NAMED, load
from bpe.native.json_lines import parse_line
from bpe.native.lazy_imports import numpy as np
from bpe.native.progress import Progress, reporter, silent, watched
from bpe.outputs import FORMATS
from bpe.outputs.writers import writer_of
from bpe.tokenizer import Tokenizer

BLOCK = 1 << 20  # bytes read, or ids decoded, at a time
BATCH = 4096  # documents encoded at a time
BINARY = (".bin", ".npz", ".parquet", ".arrow")  # endings of files that hold no text


def add(commands: Any) -> None:
    """Add both commands to a parser's own."""
    encode = commands.add_parser(
        "encode",
        help="text to ids",
        epilog="Without --out ids go to standard output: a text's on one line, of JSON lines a document's.",
    )
    encode.add_argument("tokenizer", help=NAMED)
    encode.add_argument("text", nargs="*", help="files (default: standard input, which is also -)")
    encode.add_argument("--out", type=target, help="write here, whole or not at all: X.npy is one array of all ids")
    encode.add_argument(
        "--jsonl", action="store_true", help="each line is a document: a JSON string, or an object with a text"
    )
    encode.add_argument("--text-key", default="text", help="where an object has its text (%(default)s)")
    encode.add_argument("--num-threads", type=int, help="threads, with --jsonl or a .npy (default: all processors)")
    encode.add_argument(
        "--special",
        choices=("recognise", "ignore", "refuse"),
        default="recognise",
        help="special tokens in the text are such, are ordinary text, or are an error (%(default)s)",
    )
    encode.add_argument(
        "--format",
        choices=FORMATS,
        help="write --out as other trainers read it (X.npy: npy); a name without an ending gets the format's",
    )
    encode.add_argument("--end-of-text", metavar="TOKEN", help="a special token to put after each text, for --format")
    encode.add_argument(
        "--shard-tokens",
        type=int,
        metavar="N",
        help="the most ids of a file, for --format: the same command goes on where it was stopped",
    )
    add_cluster_arguments(encode, "each file to a token file of the folder --out; what is done already is skipped")
    encode.set_defaults(run=lambda options: _encode(options, load(options.tokenizer)))

    decode = commands.add_parser(
        "decode", help="ids to text", epilog="Without --out the text goes to standard output, byte for byte."
    )
    decode.add_argument("tokenizer", help=NAMED)
    decode.add_argument(
        "ids", nargs="*", help="files: .npy, or numbers separated by white space (default: standard input)"
    )
    decode.add_argument("--out", type=target, help="write here, whole or not at all")
    decode.add_argument("--jsonl", action="store_true", help="each line is a JSON array of ids, or an object with ids")
    decode.add_argument("--text-key", default="text", help="where the text goes in an object (%(default)s)")
    decode.set_defaults(run=lambda options: _decode(options, load(options.tokenizer)))


def _encode(options: argparse.Namespace, tokenizer: Tokenizer) -> None:
    if options.num_threads is not None and options.num_threads < 1:
        raise ValueError(f"--num-threads is {options.num_threads}; it takes at least 1")
    file_options = [name for name in ("format", "end_of_text", "shard_tokens") if getattr(options, name) is not None]
    if check_cluster(options, "shard_tokens"):
        encode_on_cluster(options, tokenizer)
        return
    if file_options and options.out is None:
        raise ValueError(f"--{file_options[0].replace('_', '-')} is for --out, and ids are printed here")
    if file_options and options.format is None and Path(options.out).suffix != ".npy":
        raise ValueError(f"--{file_options[0].replace('_', '-')} needs a --format, or --out X.npy")
    if options.out is not None and options.format is not None:
        options.out = _named_for_trainers(options.out, options.format)
    if options.out is not None and (Path(options.out).suffix == ".npy" or options.format is not None):
        if options.special == "refuse":
            raise ValueError(
                "--special refuse reads every text first, which a .npy does not: leave --out out, or name another file"
            )
        source: Any = corpus(options.text or ["-"], options.text_key)
        keep_apart(options.out, source)
        if options.jsonl:
            source = _documents(options)
        count = tokenizer.encode_file(
            source,
            options.out,
            format=options.format or "npy",
            end_of_text=options.end_of_text,
            shard_tokens=options.shard_tokens,
            allowed_special=_rules(options.special)["allowed_special"],
            num_threads=options.num_threads,
            progress=watched(),
        )
        print(f"{options.out}: {count:,} ids")
        return
    if options.out is not None and Path(options.out).suffix in BINARY:
        raise ValueError(
            f"{options.out} would hold numbers as text: write --out X.npy, or name its --format, such as bin"
        )
    if options.num_threads is not None and not options.jsonl:
        raise ValueError("--num-threads is for --jsonl and for --out X.npy; ids are printed by one thread")
    keep_apart(options.out, options.text)
    for name in options.text:
        if isinstance(sources.file_of(name), sources.Parquet):
            raise ValueError(f"{name}: Parquet is read for --out X.npy only")
    with _output(options.out) as out, reporter(watched() and (bool(options.text) or options.out is not None)) as report:
        files = _inputs(options.text, report, "encoding bytes")
        for name, file in zip(options.text or ["-"], files, strict=True):
            if options.jsonl or isinstance(sources.file_of(name), sources.JsonLines):
                _encode_documents(tokenizer, file, out, options)
            else:
                _encode_text(tokenizer, file, out, options.special)


def _named_for_trainers(out: Target, format: str) -> Target:
    """Return the file to write, in a folder that is there: run/data of Megatron is run/data.bin and run/data.idx."""
    if isinstance(out, str):
        return out
    ending = writer_of(format).ending
    if not out.name.endswith(ending) and not out.suffix:
        out = out.with_name(out.name + ending)
    out.parent.mkdir(parents=True, exist_ok=True)
    return out


def _documents(options: argparse.Namespace) -> Iterator[str]:
    """The texts of JSON lines, one after another."""
    for file in _inputs(options.text, silent, ""):
        for _, value in itertools.chain.from_iterable(_batches(file, options.text_key, str, "a text")):
            yield value if isinstance(value, str) else value[options.text_key]


def _encode_text(tokenizer: Tokenizer, file: BinaryIO, out: BinaryIO, special: str) -> None:
    """The ids of a text on one line, as they become certain."""
    before = b""
    blocks = ((block, len(block)) for block in iter(lambda: file.read(BLOCK), b""))
    chunks = (block for block, _ in sources.as_utf8(blocks, _name(file)))
    numbers = tokenizer.encode_iterable(chunks, **_rules(special))
    while ids := list(itertools.islice(numbers, BATCH)):
        out.write(before + " ".join(map(str, ids)).encode())
        before = b" "
    out.write(b"\n")


def _rules(special: str) -> dict[str, Any]:
    """The arguments of encode() for --special."""
    return {
        "allowed_special": "all" if special == "recognise" else (),
        "disallowed_special": "all" if special == "refuse" else (),
    }


def _encode_documents(tokenizer: Tokenizer, file: BinaryIO, out: BinaryIO, options: argparse.Namespace) -> None:
    """A line for each line of text: ids for a string; for an object the object, with ids in the text's place."""
    for lines in _batches(file, options.text_key, str, "a text"):
        values = [value for _, value in lines]
        texts = [value if isinstance(value, str) else value[options.text_key] for value in values]
        documents = tokenizer.encode_batch(texts, num_threads=options.num_threads, **_rules(options.special))
        for value, ids in zip(values, documents, strict=True):
            _print_line(out, _exchanged(value, options.text_key, "ids", ids))


def _decode(options: argparse.Namespace, tokenizer: Tokenizer) -> None:
    keep_apart(options.out, options.ids)
    with _output(options.out) as out, reporter(watched() and options.out is not None) as report:
        for file in _inputs(options.ids, report, "decoding bytes"):
            if options.jsonl:
                _decode_documents(tokenizer, file, out, options.text_key)
                continue
            for ids in _ids_of(file):
                with _named(file):
                    text = tokenizer.decode_bytes(ids)
                out.write(text)


def _decode_documents(tokenizer: Tokenizer, file: BinaryIO, out: BinaryIO, text_key: str) -> None:
    for number, value in itertools.chain.from_iterable(_batches(file, "ids", list, "ids")):
        with _named(file, number):
            text = tokenizer.decode(value if isinstance(value, list) else value["ids"])
        _print_line(out, _exchanged(value, "ids", text_key, text))


@contextlib.contextmanager
def _named(file: BinaryIO, line: int | None = None) -> Iterator[None]:
    """Name the file and the line in errors about ids."""
    try:
        yield
    except (KeyError, TypeError, OverflowError) as error:
        location = _name(file) if line is None else f"{_name(file)}, line {line}"
        raise ValueError(f"{location}: {error.args[0]}") from None


def _ids_of(file: BinaryIO) -> Iterator[Any]:
    """The ids of a file in blocks: of a .npy, or numbers in text."""
    start = file.read(6)
    if start == b"\x93NUMPY":
        name = _name(file)
        if not os.path.isfile(name) or compressed.kind_of(name) is not None:
            raise ValueError(f"{name}: a .npy is read from a file of its own, neither compressed nor through a pipe")
        try:
            ids = np.load(name, mmap_mode="r", allow_pickle=False)
        except (ValueError, EOFError, SyntaxError) as error:
            raise ValueError(f"{name}: not a whole .npy of ids: {error}") from None
        if ids.ndim != 1 or ids.dtype.kind not in "iu":
            raise ValueError(f"{name}: an array of {ids.dtype} with {ids.ndim} axes, where ids are integers along one")
        for begin in range(0, len(ids), BLOCK):
            yield ids[begin : begin + BLOCK]
        return
    digits = start
    for block in itertools.chain(iter(lambda: file.read(BLOCK), b""), [b" "]):
        digits += block
        end = max(map(digits.rfind, (b" ", b"\n", b"\t", b"\r"))) + 1
        yield [_number(word, file) for word in digits[:end].split()]
        digits = digits[end:]
        if len(digits) > BLOCK:
            _number(digits, file)


def _number(word: bytes, file: BinaryIO) -> int:
    if not (word.isdigit() and len(word) < 20):
        shown = word[:40].decode("utf-8", "replace")
        raise ValueError(f"{_name(file)}: {shown!r} is no id: ids are whole numbers, separated by white space")
    return int(word)


# Lines of JSON


def _batches(file: BinaryIO, key: str, kind: type, what: str) -> Iterator[list[tuple[int, Any]]]:
    """The lines in lists of BATCH, as (number, value): a value of that kind, or an object with one under the key."""
    numbered = enumerate(file, start=1)
    while lines := list(itertools.islice(numbered, BATCH)):
        values = []
        for number, line in lines:
            if not line.strip():
                continue
            value = parse_line(line, _name(file), number)
            content = value.get(key) if isinstance(value, dict) else value
            if not isinstance(content, kind):
                raise ValueError(
                    f"{_name(file)}, line {number}: neither {what} nor an object with {what} under {key!r}"
                )
            values.append((number, value))
        yield values


def _exchanged(value: Any, key: str, new: str, content: Any) -> Any:
    """The content by itself, or the object with it under the new key in the old one's place."""
    if not isinstance(value, dict):
        return content
    return {new if name == key else name: content if name == key else other for name, other in value.items()}


def _print_line(out: BinaryIO, value: Any) -> None:
    out.write(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass") + b"\n")


# Where it comes from and goes


def _inputs(names: list[str], report: Progress, phase: str) -> Iterator[BinaryIO]:
    """Each file in turn, open; standard input for none and for -."""
    sizes = {name: sources.size_of_file(name) for name in names if name != "-"}
    done, total = 0, sum(sizes[name] or 0 for name in names) if sizes and "-" not in names else None
    for name in names or ["-"]:
        if name == "-":
            yield standard_input()
            continue
        with compressed.reader(name) as file:
            yield file
        done += sizes[name] or 0
        report(phase, done, total)


def _name(file: BinaryIO) -> str:
    name = getattr(file, "name", None)
    return name if isinstance(name, str) and name != "<stdin>" else "standard input"


def _output(path: Target | None) -> AbstractContextManager[BinaryIO]:
    if path is not None:
        return remote.output(path)
    if sys.stdout is None:
        raise OSError(errno.EBADF, "closed, so that there is nowhere to write to", "standard output")
    return contextlib.nullcontext(sys.stdout.buffer)
