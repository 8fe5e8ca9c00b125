"""Encode beside peers, taking turns: MB/s on the first pass and warm, memory, time to load, and whether ids agree.

    python packages/bpe/benchmarks/encoding.py FILE … --tokenizers TOKENIZER … [--rounds 3] [--only NAME …] [--write]

A tokenizer is whatever `bpe encode` takes: a tokenizer.json, a .tiktoken file, a published name. Each round gives each
candidate a process of its own for every text and tokenizer. On one thread it encodes the text once, new to it ("first"), and
three times more, of which the best counts ("warm"); then the lines of the text one by one, as chat messages come. --write
puts the tables into the package's README. Only ratios within one run mean anything; the seconds are of the process's own CPU
time, so that other work on the machine counts less. A peer that is not installed, or cannot read a tokenizer, is left out, and
named.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import importlib.util
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import bpe
from bpe.opening import open_tokenizer

README = Path(__file__).parent.parent / "README.md"
BEGIN, END = "<!-- written by nox -s bench -- encode: begin -->\n", "<!-- end of encode -->\n"
MESSAGES = 20_000  # lines, at most, that are encoded one by one

Encode = Callable[[Any], Any]


def ours(name: str) -> bpe.Tokenizer:
    return open_tokenizer(name)


def ours_to_array(name: str) -> Encode:
    tokenizer = ours(name)
    return lambda text: tokenizer.encode_to_numpy(text, disallowed_special=())


def ours_from_bytes(name: str) -> Encode:
    tokenizer = ours(name)
    return lambda text: tokenizer.encode_to_numpy(
        text.encode() if isinstance(text, str) else text, disallowed_special=()
    )


def ours_to_list(name: str) -> Encode:
    return ours(name).encode_ordinary


def gigatoken_to_array(name: str) -> Encode:
    import gigatoken

    made = gigatoken.Tokenizer.from_tiktoken(name) if name.endswith(".tiktoken") else gigatoken.Tokenizer(as_json(name))
    return lambda text: made.encode(text)


def fastokens_to_array(name: str) -> Encode:
    import fastokens

    return fastokens.Tokenizer.from_file(as_json(name)).encode_ordinary


def tokie_to_array(name: str) -> Encode:
    import tokie

    made = tokie.Tokenizer.from_json(as_json(name))
    return lambda text: made.encode(text).ids


def tokenizers_to_list(name: str) -> Encode:
    from tokenizers import Tokenizer

    made = Tokenizer.from_file(as_json(name))
    return lambda text: made.encode(text, add_special_tokens=False).ids


def ranks_of(name: str) -> tuple[dict[bytes, int], str]:
    """Ranks and split pattern, as tiktoken wants them; of a merge list the ids, where they follow the merges."""
    tokenizer = ours(name)
    special = set(tokenizer.special_tokens.values())
    expression = tokenizer.data.pattern.expressions[0].replace(r"\s+(?!\s|\S)|", "")
    return {token: number for number, token in tokenizer.vocab.items() if number not in special}, expression


def tiktoken_to_list(name: str) -> Encode:
    import tiktoken

    ranks, expression = ranks_of(name)
    return tiktoken.Encoding("benchmark", pat_str=expression, mergeable_ranks=ranks, special_tokens={}).encode_ordinary


def riptoken_to_list(name: str) -> Encode:
    import riptoken

    ranks, expression = ranks_of(name)
    return riptoken.CoreBPE(ranks, {}, expression).encode_ordinary


CANDIDATES: dict[str, tuple[str, Callable[[str], Encode]]] = {
    "bpe, str to array": ("bpe", ours_to_array),
    "bpe, bytes to array": ("bpe", ours_from_bytes),
    "bpe, str to list": ("bpe", ours_to_list),
    "gigatoken": ("gigatoken", gigatoken_to_array),
    "fastokens": ("fastokens", fastokens_to_array),
    "tokie": ("tokie", tokie_to_array),
    "riptoken": ("riptoken", riptoken_to_list),
    "tiktoken": ("tiktoken", tiktoken_to_list),
    "tokenizers": ("tokenizers", tokenizers_to_list),
}


def as_json(name: str) -> str:
    """The tokenizer as a tokenizer.json that every peer reads: one for ranks, in a temporary file without gaps between ids."""
    if name.endswith(".json"):
        return name
    path = Path(tempfile.gettempdir(), f"groundup-bench-{hashlib.sha256(name.encode()).hexdigest()[:16]}.json")
    if not path.exists():
        ours(name).to_huggingface(path)
        data = json.loads(path.read_text())
        vocab = data["model"]["vocab"]
        vocab |= {token["content"]: token["id"] for token in data["added_tokens"]}
        taken = set(vocab.values())
        vocab |= {f"<|unused{number}|>": number for number in range(max(taken)) if number not in taken}
        path.write_text(json.dumps(data, ensure_ascii=False))
    return str(path)


def most_memory() -> int:
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    return next(int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if line.startswith("VmRSS"))


def work(name: str, tokenizer: str, path: Path) -> dict[str, Any]:
    """What the process of one candidate does."""
    text = path.read_text(encoding="utf-8", errors="replace").replace("<|endoftext|>", "")  # peers differ in that
    size = len(text.encode())
    messages = text.splitlines()[:MESSAGES]
    given: Any = text.encode() if "bytes" in name else text
    if "bytes" in name:
        messages = [message.encode() for message in messages]  # type: ignore[misc]
    before, begun = most_memory(), time.process_time()
    encode = CANDIDATES[name][1](tokenizer)
    encode("a")
    load, held = time.process_time() - begun, most_memory() - before
    seconds = []
    for _ in range(4):
        begun = time.process_time()
        ids = encode(given)
        seconds.append(time.process_time() - begun)
    digest = hashlib.sha256(np.asarray(getattr(ids, "ids", ids), dtype=np.uint32).tobytes()).hexdigest()[:12]
    begun = time.process_time()
    for message in messages:
        encode(message)
    each = (time.process_time() - begun) / max(1, len(messages))
    return {
        "load": load,
        "memory": held / 1e6,
        "first": size / 1e6 / seconds[0],
        "warm": size / 1e6 / min(seconds[1:]),
        "message": each * 1e6,
        "ids": digest,
    }


def two_threads(tokenizer: str, path: Path, rounds: int) -> tuple[float, float]:
    """MB/s of wall time, warm, of one long text on one thread and on all, in turn: the best of the rounds."""
    made = ours(tokenizer)
    text = path.read_text(encoding="utf-8", errors="replace")
    best = [0.0, 0.0]
    for _ in range(1 + 3 * rounds):
        for i, threads in enumerate((1, None)):
            begun = time.perf_counter()
            made.encode_batch_to_numpy([text], num_threads=threads, disallowed_special=())
            best[i] = max(best[i], path.stat().st_size / 1e6 / (time.perf_counter() - begun))
    return best[0], best[1]


def measure(name: str, tokenizer: str, path: Path) -> dict[str, Any] | None:
    command = [sys.executable, __file__, str(path), "--tokenizers", tokenizer, "--worker", name]
    # One thread each: what a peer does with more is another question.
    alone = {**os.environ, "RAYON_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"}
    done = subprocess.run(command, env=alone, capture_output=True, text=True, check=False)
    if done.returncode:
        print(f"{name}, {tokenizer}, {path.name}: failed, {' '.join(done.stderr.split())[-200:]}", file=sys.stderr)
        return None
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    print(
        f"  {path.name} {Path(tokenizer).stem} {name}: {found['first']:.0f} / {found['warm']:.0f} MB/s", file=sys.stderr
    )
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--tokenizers", nargs="+", required=True, metavar="TOKENIZER")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=CANDIDATES)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--worker", choices=CANDIDATES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        print(json.dumps(work(options.worker, options.tokenizers[0], options.texts[0])))
        return
    names = [name for name in options.only or CANDIDATES if importlib.util.find_spec(CANDIDATES[name][0])]
    missing = [name for name in options.only or CANDIDATES if name not in names]
    cells = [(path, tokenizer) for path in options.texts for tokenizer in options.tokenizers]
    found: dict[tuple[str, Path, str], list[dict[str, Any]]] = {}
    for _ in range(options.rounds):
        for path, tokenizer in cells:
            for name in names:
                run = measure(name, tokenizer, path)
                if run is not None:
                    found.setdefault((name, path, tokenizer), []).append(run)

    def median(name: str, path: Path, tokenizer: str, key: str) -> float:
        return statistics.median(run[key] for run in found[name, path, tokenizer])

    versions = [
        f"{n} {importlib.metadata.version(n)}" for n in dict.fromkeys(CANDIDATES[x][0] for x in names) if n != "bpe"
    ]
    heads = [f"{path.stem}, {Path(tokenizer).stem}" for path, tokenizer in cells]
    out = [
        f"MB/s on one thread, first pass / warm; median of {options.rounds} rounds taken in turn; Python "
        f"{platform.python_version()}, {', '.join(versions)}; {time.strftime('%d %B %Y').lstrip('0')}"
        + (f"; not installed: {', '.join(missing)}" if missing else "") + ". An asterisk: other ids than ours.",
        "",
        f"| encoder | {' | '.join(heads)} |",
        "|---" * (len(heads) + 1) + "|",
    ]  # fmt: skip
    for name in names:
        row = []
        for path, tokenizer in cells:
            if (name, path, tokenizer) not in found:
                row.append("-")
                continue
            same = (
                found[name, path, tokenizer][0]["ids"]
                == found.get((names[0], path, tokenizer), [{"ids": None}])[0]["ids"]
            )
            first, warm = (median(name, path, tokenizer, key) for key in ("first", "warm"))
            row.append(f"{first:.0f} / {warm:.0f}{'' if same else ' *'}")
        out.append(f"| {name} | {' | '.join(row)} |")
    path, tokenizer = cells[0]
    out += [
        "",
        f"With {Path(tokenizer).stem}: seconds and memory to load it, and microseconds for each of the first {MESSAGES:,} "
        f"lines of {path.name}, one call a line.",
        "",
        "| encoder | load, s | memory, MB | a line, µs |",
        "|---|---|---|---|",
    ]
    for name in names:
        if (name, path, tokenizer) in found:
            load, memory, message = (median(name, path, tokenizer, key) for key in ("load", "memory", "message"))
            out.append(f"| {name} | {load:.2f} | {memory:.0f} | {message:.1f} |")
    one, all_of_them = two_threads(tokenizer, path, options.rounds)
    out += ["", f"{path.name} as one text, warm, by the clock: {one:.0f} MB/s on one thread, {all_of_them:.0f} on "
            f"{os.cpu_count()}: {all_of_them / one:.2f} times."]  # fmt: skip
    print("\n".join(out))
    if options.write:
        command = f"{' '.join(path.name for path in options.texts)} --tokenizers " + " ".join(
            Path(tokenizer).name for tokenizer in options.tokenizers
        )
        before, _, rest = README.read_text().partition(BEGIN)
        _, _, after = rest.partition(END)
        README.write_text(
            f"{before}{BEGIN}    nox -s bench -- encode {command} --rounds {options.rounds} --write\n\n"
            + "\n".join(out)
            + f"\n{END}{after}"
        )


if __name__ == "__main__":
    main()
