"""The tokenizers of models in use, beside every encoder that reads their files.

    python packages/bpe/benchmarks/families.py TOKENIZER ... --texts FILE ... [--peers gigatoken fastokens ...]
        [--newest FOLDER] [--rounds 3] [--threads 1]

A row is a tokenizer, a text and an encoder. Each measurement is a process of its own; those of one row's encoders take
turns. What is encoded, in MB/s of CPU time with one thread, and by the clock with several, which get all texts of a
column in one call:

    first, next     the first 2 MB of the text in one call, and the 2 MB after it
    documents       up to 2 MB after these (of a short text the first ones), in calls of 5,000 characters
    messages        the last 200 kB, in calls of 200 characters
    10 kB           the first 10,000 characters, twenty times
    again           the first 2 MB once more

Ratios are bpe's speed over that of the fastest other encoder. Ids are compared; an asterisk marks other ids than bpe's.
--newest is a folder in which pip has installed tokenizers 1.0 (`pip install --pre --target FOLDER tokenizers`).
"""

from __future__ import annotations

import argparse
import hashlib
import importlib
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

MB = 2_000_000
COLUMNS = ("first", "next", "documents", "messages", "10 kB", "again")
PEERS = ("gigatoken", "fastokens", "snaptokens", "tokenizers", "tokenizers 1.0")


def encoder(name: str, path: str, threads: int) -> Callable[[list[str]], Iterable[Any]]:
    """Return what encodes texts, with their special tokens as text where the library can.

    Of one thread a call for each text, of several one call for all.
    """
    if name == "bpe":
        import bpe

        ours = bpe.load(path)
        if threads > 1:
            return lambda texts: ours.encode_batch_to_numpy(texts, num_threads=threads, disallowed_special=())
        return lambda texts: [ours.encode_to_numpy(text, disallowed_special=()) for text in texts]
    if name == "gigatoken":
        import gigatoken

        theirs = gigatoken.Tokenizer(path)
        if threads > 1:
            return lambda texts: theirs.encode_batch(texts, parallel=True)
        return lambda texts: list(map(theirs.encode, texts))
    if name in ("fastokens", "snaptokens"):
        theirs = importlib.import_module(name).Tokenizer.from_file(path)
        options = {"split_special_tokens": True} if name == "fastokens" else {}
        if threads > 1:
            return lambda texts: rows(*theirs.encode_batch_flat(texts, **options))
        return lambda texts: [theirs.encode_batch_flat([text], **options)[0] for text in texts]  # faster than encode()
    import tokenizers

    theirs = tokenizers.Tokenizer.from_file(path)
    compiled = theirs.compile() if hasattr(theirs, "compile") else theirs
    if threads > 1:
        return lambda texts: compiled.encode_batch(texts, add_special_tokens=False)
    return lambda texts: [compiled.encode(text, add_special_tokens=False).ids for text in texts]


def rows(ids: bytes, offsets: bytes) -> list[Any]:
    """The ids of each text, of fastokens' and snaptokens' flat buffers."""
    import numpy as np

    return np.split(np.frombuffer(ids, np.uint32), np.frombuffer(offsets, np.uint64)[1:-1].astype(np.int64))


def ids_of(result: Any) -> Any:
    import numpy as np

    if isinstance(result, bytes):
        return np.frombuffer(result, dtype=np.uint32)
    return np.asarray(getattr(result, "ids", result), dtype=np.uint32)


def measure(name: str, path: str, text_path: str, threads: int) -> None:
    """Print the speeds of one encoder, and the digests of its ids: the whole work of a child process."""
    text = Path(text_path).read_text("utf-8", "replace").replace("<|endoftext|>", "")
    part = len(text) * MB // len(text.encode())
    rest = text[2 * part :]
    rest = rest if len(rest) > part // 5 else text
    small = rest[-part // 10 :]
    encode = encoder(name, path, threads)
    for result in encode(["a"]):
        ids_of(result)
    now = time.process_time if threads == 1 else time.perf_counter
    runs = {
        "first": [text[:part]],
        "next": [text[part : 2 * part]],
        "documents": [rest[at : at + 5000] for at in range(0, min(part, len(rest)), 5000)],
        "messages": [small[at : at + 200] for at in range(0, len(small), 200)],
        "10 kB": [text[:10_000]] * 20,
        "again": [text[:part]],
    }
    speeds, digest = {}, hashlib.sha256()
    for column, texts in runs.items():
        begin = now()
        results = encode(texts)
        seconds = now() - begin
        speeds[column] = sum(len(one.encode()) for one in texts) / 1e6 / max(seconds, 1e-9)
        for result in results:
            digest.update(ids_of(result).tobytes())
    print(json.dumps([speeds, digest.hexdigest()]))


def run(name: str, path: str, text: str, newest: str | None, threads: int) -> Any:
    """The result of measure() in a process of its own; None where the encoder refuses the file or is not there."""
    environment = {**os.environ, "RAYON_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": "1"}
    if name == "tokenizers 1.0":
        if newest is None:
            return None
        environment["PYTHONPATH"] = os.pathsep.join([newest, environment.get("PYTHONPATH", "")])
    command = [sys.executable, __file__, "--child", name, path, text, str(threads)]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    return json.loads(result.stdout.splitlines()[-1]) if result.returncode == 0 else None


def row(name: str, speeds: dict[str, float], same: bool) -> str:
    cells = [f"{speeds[column]:.0f}" for column in COLUMNS]
    return " | ".join([f"| {name}{'' if same else ' *'}", *cells]) + " |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizers", nargs="+", metavar="TOKENIZER")
    parser.add_argument("--texts", nargs="+", required=True, metavar="FILE", help="of 4 MB or more")
    parser.add_argument("--peers", nargs="+", choices=PEERS, default=PEERS)
    parser.add_argument("--newest", metavar="FOLDER", help="where tokenizers 1.0 is installed")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    names = ["bpe", *arguments.peers]
    for path in arguments.tokenizers:
        for text in arguments.texts:
            results: dict[str, list[Any]] = {name: [] for name in names}
            for _ in range(arguments.rounds):
                for name in names:
                    result = run(name, path, text, arguments.newest, arguments.threads)
                    if result is not None:
                        results[name].append(result)
            print(f"\n{path}, {Path(text).name}\n\n| MB/s | {' | '.join(COLUMNS)} |\n|{'---|' * (len(COLUMNS) + 1)}")
            medians = {
                name: {column: statistics.median(speeds[column] for speeds, _ in found) for column in COLUMNS}
                for name, found in results.items()
                if found
            }
            for name, speeds in medians.items():
                print(row(name, speeds, results[name][0][1] == results["bpe"][0][1]))
            ours = medians.pop("bpe")
            fastest = {column: max((speeds[column] for speeds in medians.values()), default=0) for column in COLUMNS}
            ratios = [f"{ours[column] / fastest[column]:.2f}" if fastest[column] else "-" for column in COLUMNS]
            print(" | ".join(["| bpe / fastest other", *ratios]) + " |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        measure(*sys.argv[2:5], int(sys.argv[5]))
    else:
        main()
