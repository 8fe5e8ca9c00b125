"""SentencePiece-style BPE beside peers, taking turns: training, and encoding in the shapes of published tokenizers.

    python packages/bpe/benchmarks/sentencepiece_style.py TRAINING … --texts FILE … [--vocab-size 32000] [--rounds 3]
        [--write]

No published vocabulary of this kind is at hand everywhere, so one is trained on the TRAINING files, and written as
three tokenizer.json files: as Llama 2's (a space is put before the text by a normalizer, and nothing splits it), as
Gemma's (no space is put anywhere) and with Metaspace. Encoding is measured as encoding.py does, a process for each
candidate, text and file: MB/s on one thread, new and then known, and microseconds for each of 20,000 lines; for
tokenizers, which is slow, of the first megabyte of each text. Training is measured by the clock, on all processors,
beside tokenizers' BpeTrainer, which learns the same tokens, and `sentencepiece`, which learns others. --write puts the
tables into docs/design/performance/bpe.md.
"""

from __future__ import annotations

import argparse
import copy
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

from encode import PAGE, measure
from peers import processor

import bpe

BEGIN, END = "<!-- written by nox -s bench -- sentencepiece_style: begin -->\n", "<!-- end of sentencepiece -->\n"
SLOW, PART = "tokenizers", 1 << 20  # who gets only so many bytes of a text
CANDIDATES = ("bpe, str to array", "bpe, str to list", "gigatoken", "gigatoken, to list", "fastokens", "tokenizers")
BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]


def train_ours(files: list[str], size: int, out: str) -> None:
    result = bpe.train_sentencepiece([Path(file) for file in files], size)
    result.to_huggingface(out)


def train_tokenizers(files: list[str], size: int, out: str) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    result = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    result.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<unk>", "<s>", "</s>", *BYTE_TOKENS]
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=special, show_progress=False)
    result.train(files, trainer)
    result.save(out)


def train_sentencepiece(files: list[str], size: int, out: str) -> None:
    import sentencepiece

    sentencepiece.SentencePieceTrainer.train(
        input=",".join(files), model_prefix=out, model_type="bpe", vocab_size=size, byte_fallback=True,
        character_coverage=1.0, normalization_rule_name="identity", num_threads=os.cpu_count(), minloglevel=2,
        max_sentence_length=1 << 20,
    )  # fmt: skip


TRAINERS: dict[str, Callable[[list[str], int, str], None]] = {
    "bpe": train_ours,
    "tokenizers": train_tokenizers,
    "sentencepiece": train_sentencepiece,
}


def shapes(path: Path) -> dict[str, Path]:
    """The tokenizer of a file with Metaspace in three shapes, each in a file beside it."""
    file = json.loads(path.read_text("utf-8"))
    file["model"] |= {"fuse_unk": True, "unk_token": "<unk>"}
    llama, gemma = copy.deepcopy(file), copy.deepcopy(file)
    replaced: dict[str, Any] = {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}
    llama["normalizer"] = {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"}, replaced]}
    llama["pre_tokenizer"] = None
    gemma["normalizer"] = replaced
    gemma["pre_tokenizer"] = {
        "type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False
    }  # fmt: skip
    gemma["decoder"]["decoders"] = gemma["decoder"]["decoders"][:3]
    result = {}
    for name, content in {"Llama 2": llama, "Gemma": gemma, "Metaspace": file}.items():
        result[name] = path.with_name(f"{name.lower().replace(' ', '-')}.json")
        result[name].write_text(json.dumps(content, ensure_ascii=False), "utf-8")
    return result


def training_table(files: list[str], size: int, rounds: int, folder: Path) -> list[str]:
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in TRAINERS}
    for _ in range(rounds):
        for name in TRAINERS:
            command = [sys.executable, __file__, *files, "--vocab-size", str(size), "--train", name]
            command += ["--out", str(folder / name)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            seconds, memory = json.loads(done.stdout.splitlines()[-1])
            results[name].append((seconds, memory))
    ours, theirs = (json.loads((folder / name).read_text("utf-8"))["model"] for name in ("bpe", "tokenizers"))
    same = "yes" if len(ours["merges"]) == len(theirs["merges"]) and ours["vocab"] == theirs["vocab"] else "no"
    rows = ["| trainer | seconds | most memory, MB | the tokens of bpe |", "|---|---:|---:|---|"]
    for name, runs in results.items():
        seconds, memory = (statistics.median(column) for column in zip(*runs, strict=True))
        rows.append(f"| {name} | {seconds:.2f} | {memory:.0f} | {same if name == 'tokenizers' else '-'} |")
    return rows


def encoding_table(texts: list[Path], rounds: int, tokenizers: dict[str, Path]) -> list[str]:
    rows = ["| tokenizer | text | encoder | first, MB/s | known, MB/s | a line, µs |", "|---|---|---|---:|---:|---:|"]
    for shape, tokenizer in tokenizers.items():
        for text in texts:
            results: dict[str, list[dict[str, Any]]] = {}
            part = tokenizer.with_name(f"part of {text.name}")
            part.write_bytes(text.read_bytes()[:PART])
            for number in range(rounds):
                for name in CANDIDATES[:: 1 if number % 2 else -1]:
                    run = measure(name, str(tokenizer), part if name == SLOW else text)
                    if run:
                        results.setdefault(name, []).append(run)
            for name in CANDIDATES:
                label = f"| {shape} | {text.name} | {name}"
                if name not in results:
                    rows.append(f"{label} | cannot | | |")
                    continue
                first, warm, line = (
                    statistics.median(run[key] for run in results[name]) for key in ("first", "warm", "message")
                )
                other = "" if name == SLOW or results[name][0]["ids"] == results[CANDIDATES[0]][0]["ids"] else " *"
                rows.append(f"{label}{other} | {first:.0f} | {warm:.0f} | {line:.2f} |")
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("training", nargs="+")
    parser.add_argument("--texts", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--vocab-size", type=int, default=32_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--train", choices=TRAINERS, help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.train:
        before, begun = most_memory(), time.perf_counter()
        TRAINERS[options.train](options.training, options.vocab_size, options.out)
        print(json.dumps([time.perf_counter() - begun, (most_memory() - before) / 1e6]))
        return
    with tempfile.TemporaryDirectory() as folder:
        training = training_table(options.training, options.vocab_size, options.rounds, Path(folder))
        encoding = encoding_table(options.texts, options.rounds, shapes(Path(folder, "bpe")))
    names = " ".join(Path(file).name for file in options.training)
    command = f"nox -s bench -- sentencepiece_style {names} --texts {' '.join(text.name for text in options.texts)}"
    command += f" --vocab-size {options.vocab_size} --rounds {options.rounds} --write"
    megabytes = sum(map(os.path.getsize, options.training)) / 1e6
    out = [
        f"{options.vocab_size:,} tokens, {megabytes:.0f} MB of text; {processor()}, "
        f"Python {platform.python_version()}, {time.strftime('%d %B %Y').lstrip('0')}; "
        f"medians of {options.rounds} rounds taken in turn. An asterisk: other ids than ours.",
        "",
        *training,
        "",
        *encoding,
    ]  # fmt: skip
    print("\n".join(out))
    if options.write:
        before_it, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
        PAGE.write_text(
            f"{before_it}{BEGIN}    {command}\n\n" + "\n".join(out) + f"\n{END}{rest.partition(END)[2]}", "utf-8"
        )


def most_memory() -> int:
    """The most bytes that this process ever held. (Linux: ru_maxrss would begin with the parent's.)"""
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) << 10


if __name__ == "__main__":
    main()
