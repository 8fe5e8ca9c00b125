"""Encode beside peers, taking turns: MB/s on the first pass and warm, memory, time to load, and whether ids agree.

    python packages/bpe/benchmarks/encode.py FILE … --tokenizers TOKENIZER … [--rounds 3] [--only NAME …]
        [--write]

A tokenizer is whatever `bpe encode` takes: a tokenizer.json, a .tiktoken file, a published name. Each round gives each
candidate a process of its own for every text and tokenizer. On one thread it encodes the text once, new to it
("first"), and three times more, of which the best counts ("warm"); then the lines of the text one by one, as chat
messages come. For the first text and tokenizer also batches of documents and of chat messages, on one thread and on
all, and pieces of every size; and one long text on one thread, on all, and by as many processes, in turn, new to each
and then known. --write puts the tables into docs/design/performance/bpe.md, and a plot beside it.

Only ratios within one run mean anything; the seconds are of the process's own CPU time, so that other work on the
machine counts less, but where it says by the clock. A peer that is not installed, or cannot read a tokenizer, is left
out, and named.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import importlib.util
import itertools
import json
import math
import multiprocessing
import os
import platform
import shlex
import statistics
import subprocess
import sys
import time
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import charts
import numpy as np
from peers import ENCODERS, processor

import bpe

PAGE = Path(__file__).parents[3] / "docs/design/performance/bpe.md"
BEGIN, END = "<!-- written by nox -s bench -- encode: begin -->\n", "<!-- end of encode -->\n"
PLOT = PAGE.with_name("bpe-encoding.svg")
MESSAGES = 20_000  # lines, at most, that are encoded one by one
DOCUMENT = 5_000  # characters of a document of a batch
CHAT = range(50, 301)  # characters of the chat messages of another: as many of each length as of any other
WARMING = 5  # passes over a text until all of it is known to each thread, whichever part it took in one
TURNS = 9  # turns of one thread and all, a round: the median counts, so that no single moment does
SIZES = [4**i for i in range(2, 12)]  # characters given at once


def memory_held() -> int:
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    return next(int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if line.startswith("VmRSS"))


def read(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace").replace("<|endoftext|>", "")  # peers differ in that


def cut(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def work(name: str, tokenizer: str, path: Path, by_size: bool) -> dict[str, Any]:
    """Measure one candidate, on one thread."""
    text = read(path)
    convert = (lambda text: text.encode()) if "bytes" in name else (lambda text: text)
    size, whole = len(text.encode()), convert(text)
    messages = [convert(line) for line in text.splitlines()[:MESSAGES]]
    before, begun = memory_held(), time.process_time()
    encode = ENCODERS[name][1](tokenizer).one
    encode("a")
    load, cells = time.process_time() - begun, memory_held() - before
    seconds = []
    for _ in range(4):
        begun = time.process_time()
        ids = encode(whole)
        seconds.append(time.process_time() - begun)
    digest = hashlib.sha256(np.asarray(getattr(ids, "ids", ids), dtype=np.uint32).tobytes()).hexdigest()[:12]
    begun = time.process_time()
    for message in messages:
        encode(message)
    each = (time.process_time() - begun) / max(1, len(messages))
    sizes = {}
    for at_once in SIZES if by_size else ():
        pieces = [convert(piece) for piece in cut(text[: max(at_once, 1 << 20)], at_once)]
        best = math.inf
        for _ in range(3):
            begun = time.process_time()
            for piece in pieces:
                encode(piece)
            best = min(best, time.process_time() - begun)
        sizes[at_once] = sum(len(piece.encode() if isinstance(piece, str) else piece) for piece in pieces) / 1e6 / best
    return {
        "load": load,
        "memory": cells / 1e6,
        "first": size / 1e6 / seconds[0],
        "warm": size / 1e6 / min(seconds[1:]),
        "message": each * 1e6,
        "ids": digest,
        "sizes": sizes,
    }


def messages_of(text: str) -> list[str]:
    """The beginning of a text as chat messages, long and short in turn."""
    lengths = [CHAT[(37 * i) % len(CHAT)] for i in range(MESSAGES)]
    ends = [0, *itertools.accumulate(lengths)]
    return [text[begin:end] for begin, end in itertools.pairwise(ends) if begin < len(text)]


def work_on_batch(name: str, tokenizer: str, path: Path, threads: int) -> dict[str, Any]:
    """By the clock, warm: MB/s of the text in documents, and microseconds a message of its beginning in chat
    messages."""
    text = read(path)
    many = ENCODERS[name][1](tokenizer).many
    best = {}
    for what, texts in (("batch", cut(text, DOCUMENT)), ("chat", messages_of(text))):
        inputs: list[Any] = [one.encode() for one in texts] if "bytes" in name else texts
        best[what] = math.inf
        for _ in range(4 if what == "batch" else 8):
            begun = time.perf_counter()
            many(inputs, threads)
            best[what] = min(best[what], (time.perf_counter() - begun) / len(texts))
    return {"batch": len(text.encode()) / 1e6 / len(cut(text, DOCUMENT)) / best["batch"], "chat": best["chat"] * 1e6}


def encode_share(tokenizer: str, path: Path, share: int, shares: int, turns: Connection) -> None:
    """A process of its own: encode its share of a text whenever it is told to, and say when that is done."""
    result, text = bpe.load(tokenizer), read(path)
    part = text[len(text) * share // shares : len(text) * (share + 1) // shares]
    turns.send(True)
    while (message := turns.recv()) is not None:
        if message == "forget":
            result = forgetful(result)
        else:
            result.encode_to_numpy(part, disallowed_special=())
        turns.send(True)


def forgetful(tokenizer: bpe.Tokenizer) -> bpe.Tokenizer:
    """The same tokenizer, which has encoded nothing yet but a letter."""
    result = bpe.Tokenizer.from_data(tokenizer.data)
    result.encode_ordinary("a")
    return result


class Turns(NamedTuple):
    """Of one text: median MB/s on one thread and on all; of each turn how many times one thread all are, and processes
    are.
    """

    one: float
    every: float
    times: list[float]
    apart: list[float]


def threads_beside_one(tokenizer: str, path: Path, rounds: int) -> dict[str, Turns]:
    """One long text on one thread, on all, and by as many processes, each with its share of the text, in turn, by the
    clock.

    "first": by tokenizers that have encoded nothing yet, so that each thread and each process learns. "warm": by others
    that know the text. What processes give, which have nothing to do with one another, is what the machine gives.
    """
    result, text, processors = bpe.load(tokenizer), read(path), os.cpu_count() or 1
    context = multiprocessing.get_context("spawn")
    ends = [context.Pipe() for _ in range(processors)]
    workers = [
        context.Process(target=encode_share, args=(tokenizer, path, i, processors, there))
        for i, (_, there) in enumerate(ends)
    ]
    for worker in workers:
        worker.start()

    def heard() -> None:
        for here, _ in ends:
            here.recv()

    def tell(what: str | None) -> None:
        for here, _ in ends:
            here.send(what)

    def turn(tokenizers: tuple[bpe.Tokenizer, bpe.Tokenizer]) -> tuple[float, ...]:
        seconds = []
        for result, threads in zip(tokenizers, (1, None), strict=True):
            begun = time.perf_counter()
            result.encode_batch_to_numpy([text], num_threads=threads, disallowed_special=())
            seconds.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        tell("encode")
        heard()
        return (*seconds, time.perf_counter() - begun)

    heard()  # each has read its text
    results: dict[str, list[tuple[float, ...]]] = {"first": [], "warm": []}
    for _ in range(TURNS * rounds):
        tell("forget")
        heard()
        results["first"].append(turn((forgetful(result), forgetful(result))))
    expected = forgetful(result), forgetful(result)
    for number in range(WARMING + TURNS * rounds):
        seconds = turn(expected)
        if number >= WARMING:  # all is known to each thread by then, whichever part it took in one
            results["warm"].append(seconds)
    tell(None)
    for worker in workers:
        worker.join()
    size = len(text.encode()) / 1e6
    return {
        how: Turns(
            size / statistics.median(one for one, _, _ in turns),
            size / statistics.median(every for _, every, _ in turns),
            sorted(one / every for one, every, _ in turns),
            sorted(one / apart for one, _, apart in turns),
        )
        for how, turns in results.items()
    }


def measure(name: str, tokenizer: str, path: Path, *arguments: str, threads: int = 1) -> dict[str, Any]:
    """Measure in a process of its own; nothing where it fails."""
    command = [sys.executable, __file__, str(path), "--tokenizers", tokenizer, "--worker", name, *arguments]
    count = str(threads)
    limits = {"RAYON_NUM_THREADS": count, "TOKENIZERS_PARALLELISM": "true" if threads > 1 else "false"}
    done = subprocess.run(command, env={**os.environ, **limits}, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{name}, {tokenizer}, {path.name}: failed, {' '.join(done.stderr.split())[-200:]}", file=sys.stderr)
        return {}
    results: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    shown = ", ".join(f"{key} {results[key]:.0f}" for key in ("first", "warm", "batch") if key in results)
    print(f"  {path.name} {Path(tokenizer).stem} {name}: {shown} MB/s", file=sys.stderr)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--tokenizers", nargs="+", required=True, metavar="TOKENIZER")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=ENCODERS)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--worker", choices=ENCODERS, help=argparse.SUPPRESS)
    parser.add_argument("--by-size", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--batch", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        cell = options.worker, options.tokenizers[0], options.texts[0]
        print(json.dumps(work_on_batch(*cell, options.batch) if options.batch else work(*cell, options.by_size)))
        return
    names = [name for name in options.only or ENCODERS if importlib.util.find_spec(ENCODERS[name][0])]
    missing = [name for name in options.only or ENCODERS if name not in names]
    cells = [(path, tokenizer) for path in options.texts for tokenizer in options.tokenizers]
    processors = os.cpu_count() or 1
    results: dict[tuple[str, Path, str], list[dict[str, Any]]] = {}
    for _ in range(options.rounds):
        for path, tokenizer in cells:
            for name in names:
                first_cell = (path, tokenizer) == cells[0]
                run = measure(name, tokenizer, path, *(["--by-size"] if first_cell else []))
                for threads in (1, processors) if first_cell and run else ():
                    more = measure(name, tokenizer, path, "--batch", str(threads), threads=threads)
                    run |= {f"{key} {threads}": more.get(key, math.nan) for key in ("batch", "chat")}
                if run:
                    results.setdefault((name, path, tokenizer), []).append(run)

    def median(name: str, path: Path, tokenizer: str, key: str) -> float:
        return statistics.median(run[key] for run in results[name, path, tokenizer])

    versions = [
        f"{n} {importlib.metadata.version(n)}" for n in dict.fromkeys(ENCODERS[x][0] for x in names) if n != "bpe"
    ]
    heads = [f"{path.stem}, {Path(tokenizer).stem}" for path, tokenizer in cells]
    out = [
        f"MB/s on one thread, first pass / warm; median of {options.rounds} rounds taken in turn; "
        f"{processor()}, Python {platform.python_version()}, {', '.join(versions)}; "
        f"{time.strftime('%d %B %Y').lstrip('0')}"
        + (f"; not installed: {', '.join(missing)}" if missing else "") + ". An asterisk: other ids than ours.",
        "",
        f"| encoder | {' | '.join(heads)} |",
        "|---" * (len(heads) + 1) + "|",
    ]  # fmt: skip
    for name in names:
        row = []
        for path, tokenizer in cells:
            if (name, path, tokenizer) not in results:
                row.append("-")
                continue
            same = (
                results[name, path, tokenizer][0]["ids"]
                == results.get((names[0], path, tokenizer), [{"ids": None}])[0]["ids"]
            )
            first, warm = (median(name, path, tokenizer, key) for key in ("first", "warm"))
            row.append(f"{first:.0f} / {warm:.0f}{'' if same else ' *'}")
        out.append(f"| {name} | {' | '.join(row)} |")
    path, tokenizer = cells[0]
    out += [
        "",
        f"With {Path(tokenizer).stem}: seconds and memory to load it and encode a first letter; microseconds for each "
        f"of the first {MESSAGES:,} lines of {path.name}, one call a line; by the clock, warm, many given at once: "
        f"MB/s of that text in documents of {DOCUMENT:,} characters, and microseconds for each of {MESSAGES:,} chat "
        f"messages of {CHAT[0]} to {CHAT[-1]} characters. Ours gives an array or a list a text; gigatoken one Awkward "
        "Array of all, or lists.",
        "",
        f"| encoder | load, s | memory, MB | a line, µs | documents, 1 thread | documents, {processors} threads | "
        f"a message, 1 thread | a message, {processors} threads |",
        "|---" * 8 + "|",
    ]
    keys = ("load", "memory", "message", "batch 1", f"batch {processors}", "chat 1", f"chat {processors}")
    for name in names:
        if (name, path, tokenizer) in results:
            load, memory, message, one, every, chat, chats = (median(name, path, tokenizer, key) for key in keys)
            out.append(
                f"| {name} | {load:.3f} | {memory:.0f} | {message:.2f} | {one:.0f} | {every:.0f} | {chat:.2f} | "
                f"{chats:.2f} |"
            )
    for how, turns in threads_beside_one(tokenizer, path, options.rounds).items():
        out += ["", f"{path.name} as one text, {how}{' pass' if how == 'first' else ''}, by the clock: "
                f"{turns.one:.0f} MB/s on one thread, {turns.every:.0f} on {processors}: "
                f"{statistics.median(turns.times):.2f} times, the median of {len(turns.times)} turns (from "
                f"{turns.times[0]:.2f} to {turns.times[-1]:.2f}). {processors} processes, "
                "each with its share of the text and in the same turns: "
                f"{statistics.median(turns.apart):.2f} times (from "
                f"{turns.apart[0]:.2f} to {turns.apart[-1]:.2f})."]  # fmt: skip
    print("\n".join(out))
    if options.write:
        lines = {
            name: [
                (int(size), statistics.median(run["sizes"][size] for run in results[name, path, tokenizer]))
                for size in results[name, path, tokenizer][0]["sizes"]
            ]
            for name in names
            if (name, path, tokenizer) in results
        }
        title = f"{path.name}, {Path(tokenizer).stem}: one thread, warm"
        charts.write_svg(PLOT, [charts.Panel(title, "characters given at once", "MB/s", lines)])
        command = f"{' '.join(path.name for path in options.texts)} --tokenizers " + " ".join(
            Path(tokenizer).name for tokenizer in options.tokenizers
        )
        command += f" --rounds {options.rounds}"
        if options.only:
            command += f" --only {shlex.join(options.only)}"
        before, _, rest = PAGE.read_text().partition(BEGIN)
        _, _, after = rest.partition(END)
        PAGE.write_text(
            f"{before}{BEGIN}    nox -s bench -- encode {command} --write\n\n"
            + "\n".join(out)
            + f"\n\n![MB/s against the size of what is given at once]({PLOT.name})\n{END}{after}"
        )


if __name__ == "__main__":
    main()
