"""Train on one file with this package and its peers, taking turns: seconds, MB/s, peak memory, and whether results agree.

    python packages/bpe/benchmarks/training.py FILE [--vocab-size 32000] [--rounds 3] [--only NAME …]

Each training is a process of its own, timed from the call to its result, without the time to import; memory is the most
that the process ever held. A peer that is not installed is left out, and named. Only ratios within one run mean anything:
machines differ, and so do minutes.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

SPECIAL = "<|endoftext|>"
GPT2 = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""

Tokens = Iterable[bytes]


def train_ours(path: str, size: int, tie_break: str) -> Callable[[], Tokens]:
    import bpe

    def run() -> Tokens:
        return bpe.train(path, size, tie_break=tie_break).token_byte_values()

    return run


def train_gigabpe(path: str, size: int) -> Callable[[], Tokens]:
    import gigabpe

    def run() -> Tokens:
        vocab, _ = gigabpe.train_bpe([path], size, special_tokens=[SPECIAL])
        return printable_to_bytes(vocab)

    return run


def train_gigatoken(path: str, size: int) -> Callable[[], Tokens]:
    import gigatoken

    def run() -> Tokens:
        vocab, _ = gigatoken.train_bpe(gigatoken.TextFileSource([path]), size, [SPECIAL])
        return [token for token in vocab.values() if token != SPECIAL.encode()]

    return run


def train_tokenizers(path: str, size: int) -> Callable[[], Tokens]:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    def run() -> Tokens:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=size, special_tokens=[SPECIAL], initial_alphabet=alphabet, show_progress=False
        )
        tokenizer.train_from_iterator(documents(path), trainer)
        return printable_to_bytes(tokenizer.get_vocab())

    return run


def train_rustbpe(path: str, size: int) -> Callable[[], Tokens]:
    import rustbpe

    def run() -> Tokens:
        tokenizer = rustbpe.Tokenizer()
        tokenizer.train_from_iterator(iter(documents(path)), size - 1, pattern=GPT2)
        return [bytes(token) for token, _ in tokenizer.get_mergeable_ranks()]

    return run


CANDIDATES: dict[str, tuple[str, Callable[[str, int], Callable[[], Tokens]]]] = {
    "bpe": ("bpe", lambda path, size: train_ours(path, size, "bytes")),
    "bpe, tie_break huggingface": ("bpe", lambda path, size: train_ours(path, size, "huggingface")),
    "bpe, tie_break ids": ("bpe", lambda path, size: train_ours(path, size, "ids")),
    "gigabpe": ("gigabpe", train_gigabpe),
    "gigatoken": ("gigatoken", train_gigatoken),
    "rustbpe": ("rustbpe", train_rustbpe),
    "tokenizers": ("tokenizers", train_tokenizers),
}


def documents(path: str) -> list[str]:
    """The text between special tokens, for peers that would read a file by its lines and so cut runs of line ends."""
    return Path(path).read_text(encoding="utf-8", errors="replace").split(SPECIAL)


def printable_to_bytes(vocab: Iterable[str]) -> list[bytes]:
    """Tokens spelled as GPT-2 spells them, without the special one."""
    from bpe.formats.gpt2 import from_printable

    return [token for text in vocab if text != SPECIAL and (token := from_printable(text)) is not None]


def measure(name: str, path: str, size: int) -> dict[str, object]:
    """One training in a process of its own."""
    command = [sys.executable, __file__, path, "--vocab-size", str(size), "--worker", name]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    out = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{name} failed: {process.stderr.read()[-500:] if process.stderr else ''}")
    return {**json.loads(out.splitlines()[-1]), "memory": usage.ru_maxrss * 1024}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--vocab-size", type=int, default=32_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=CANDIDATES)
    parser.add_argument("--worker", choices=CANDIDATES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        run = CANDIDATES[options.worker][1](str(options.file), options.vocab_size)
        begun = time.perf_counter()
        tokens = run()
        seconds = time.perf_counter() - begun
        digest = hashlib.sha256(b"\0".join(sorted(tokens))).hexdigest()[:12]
        print(json.dumps({"seconds": seconds, "tokens": digest}))
        return
    names = [name for name in options.only or CANDIDATES if importlib.util.find_spec(CANDIDATES[name][0])]
    missing = [name for name in options.only or CANDIDATES if name not in names]
    found: dict[str, list[dict[str, object]]] = {name: [] for name in names}
    for _ in range(options.rounds):
        for name in names:
            found[name].append(measure(name, str(options.file), options.vocab_size))
    megabytes = options.file.stat().st_size / 1e6
    same = {str(rows[0]["tokens"]): name for name, rows in reversed(found.items())}
    ours = statistics.median(float(str(row["seconds"])) for row in found["bpe"]) if "bpe" in found else None
    print(
        f"{options.file.name}, {megabytes:.1f} MB, {options.vocab_size:,} tokens, {os.cpu_count()} processors, median of"
    )
    print(
        f"{options.rounds} rounds taken in turn" + (f"; not installed: {', '.join(missing)}" if missing else "") + "\n"
    )
    print("| trainer | seconds | MB/s | times ours | peak memory | the same tokens as |")
    print("|---|---|---|---|---|---|")
    for name, rows in found.items():
        seconds = statistics.median(float(str(row["seconds"])) for row in rows)
        memory = max(int(str(row["memory"])) for row in rows) / 1e6
        ratio = f"{seconds / ours:.1f}" if ours else "-"
        twin = same[str(rows[0]["tokens"])]
        print(f"| {name} | {seconds:.2f} | {megabytes / seconds:.0f} | {ratio} | {memory:.0f} MB | {twin} |")


if __name__ == "__main__":
    main()
