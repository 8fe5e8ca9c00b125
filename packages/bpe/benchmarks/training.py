"""Train beside peers, taking turns: seconds, MB/s, peak memory, and whether results agree.

    python packages/bpe/benchmarks/training.py FILE … [--vocab-size 32000] [--rounds 3] [--only NAME …]
        [--growth [1 2 4 …]]       the first FILE's sentences in new orders and with new words, as many times its size
        [--vocab-sizes [1000 …]]   vocabularies of these sizes, on the first FILE
        [--write]                  put tables and plot into the package's README and docs/training.svg

Each training is a process of its own, timed from the call to its result, without the time to import; memory is the most
that the process ever held. A peer that is not installed is left out, and named. Only ratios within one run mean anything:
machines differ, and so do minutes.
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
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import charts
import corpora

SPECIAL = "<|endoftext|>"
GPT2 = r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""

Tokens = Iterable[bytes]
Later = Callable[[], Tokens]  # the tokens, made comparable when time and memory have been taken


def train_ours(path: str, size: int, tie_break: str) -> Callable[[], Later]:
    import bpe

    def run() -> Later:
        return bpe.train(path, size, tie_break=tie_break).token_byte_values

    return run


def train_gigabpe(path: str, size: int) -> Callable[[], Later]:
    import gigabpe

    def run() -> Later:
        vocab, _ = gigabpe.train_bpe([path], size, special_tokens=[SPECIAL])
        return lambda: printable_to_bytes(vocab)

    return run


def train_gigatoken(path: str, size: int) -> Callable[[], Later]:
    import gigatoken

    def run() -> Later:
        vocab, _ = gigatoken.train_bpe(gigatoken.TextFileSource([path]), size, [SPECIAL])
        return lambda: [token for token in vocab.values() if token != SPECIAL.encode()]

    return run


def train_tokenizers(path: str, size: int) -> Callable[[], Later]:
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    def run() -> Later:
        tokenizer = Tokenizer(models.BPE())
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=size, special_tokens=[SPECIAL], initial_alphabet=alphabet, show_progress=False
        )
        tokenizer.train_from_iterator(documents(path), trainer)
        return lambda: printable_to_bytes(tokenizer.get_vocab())

    return run


def train_rustbpe(path: str, size: int) -> Callable[[], Later]:
    import rustbpe

    def run() -> Later:
        tokenizer = rustbpe.Tokenizer()
        tokenizer.train_from_iterator(iter(documents(path)), size - 1, pattern=GPT2)
        return lambda: [bytes(token) for token, _ in tokenizer.get_mergeable_ranks()]

    return run


def train_bpeasy(path: str, size: int) -> Callable[[], Later]:
    import bpeasy

    def run() -> Later:
        found = bpeasy.train_bpe(iter(documents(path)), GPT2, 1 << 20, size - 1)
        return lambda: [bytes(token) for token in found]

    return run


def train_sentencepiece(path: str, size: int) -> Callable[[], Later]:
    import sentencepiece

    def run() -> Later:
        with tempfile.TemporaryDirectory() as folder:
            sentencepiece.SentencePieceTrainer.train(
                input=path, model_prefix=f"{folder}/model", model_type="bpe", vocab_size=size, byte_fallback=True,
                character_coverage=0.9995, num_threads=os.cpu_count(), minloglevel=2, max_sentence_length=1 << 20,
            )  # fmt: skip
            lines = Path(folder, "model.vocab").read_text(encoding="utf-8").splitlines()
        return lambda: [line.split("\t")[0].encode() for line in lines]

    return run


CANDIDATES: dict[str, tuple[str, Callable[[str, int], Callable[[], Later]]]] = {
    "bpe": ("bpe", lambda path, size: train_ours(path, size, "bytes")),
    "bpe, tie_break huggingface": ("bpe", lambda path, size: train_ours(path, size, "huggingface")),
    "bpe, tie_break ids": ("bpe", lambda path, size: train_ours(path, size, "ids")),
    "gigabpe": ("gigabpe", train_gigabpe),
    "gigatoken": ("gigatoken", train_gigatoken),
    "rustbpe": ("rustbpe", train_rustbpe),
    "tokenizers": ("tokenizers", train_tokenizers),
    "bpeasy": ("bpeasy", train_bpeasy),
    "sentencepiece": ("sentencepiece", train_sentencepiece),
}
QUICK = ("bpe", "gigabpe", "gigatoken")  # what is followed as corpus and vocabulary grow
README = Path(__file__).parent.parent / "README.md"
PLOT = Path(__file__).parent.parent / "docs" / "training.svg"
BEGIN, END = "<!-- written by nox -s bench -- train: begin -->\n", "<!-- end -->\n"


def documents(path: str) -> list[str]:
    """The text between special tokens, for peers that would read a file by its lines and so cut runs of line ends."""
    return Path(path).read_text(encoding="utf-8", errors="replace").split(SPECIAL)


def printable_to_bytes(vocab: Iterable[str]) -> list[bytes]:
    """Tokens spelled as GPT-2 spells them, without the special one."""
    from bpe.formats.gpt2 import from_printable

    return [token for text in vocab if text != SPECIAL and (token := from_printable(text)) is not None]


@dataclass(frozen=True)
class Run:
    """One training: seconds, the most bytes of memory, and a digest of the tokens. None where it failed."""

    seconds: float
    memory: int
    tokens: str


def measure(name: str, path: Path, size: int) -> Run | None:
    """One training in a process of its own."""
    command = [sys.executable, __file__, str(path), "--vocab-size", str(size), "--worker", name]
    with tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        assert process.stdout is not None
        out = process.stdout.read()
        if process.wait():
            errors.seek(0)
            print(f"{name} on {path.name}: failed, {' '.join(errors.read().split())[-200:]}", file=sys.stderr)
            return None
    found = json.loads(out.splitlines()[-1])
    return Run(**found)


def rounds(names: Sequence[str], path: Path, size: int, count: int) -> dict[str, Run]:
    """Each trainer `count` times, taking turns: median seconds, most memory."""
    found: dict[str, list[Run]] = {}
    for _ in range(count):
        for name in names:
            run = measure(name, path, size)
            if run is not None:
                found.setdefault(name, []).append(run)
                print(f"  {path.name} {size:,} {name}: {run.seconds:.2f} s", file=sys.stderr)
    return {
        name: Run(statistics.median(run.seconds for run in runs), max(run.memory for run in runs), runs[0].tokens)
        for name, runs in found.items()
    }


def table(found: dict[Path, dict[str, Run]]) -> list[str]:
    """Every trainer on every text."""
    lines = [
        "| text | trainer | seconds | MB/s | times ours | peak memory | the same tokens as |",
        "|---|---|---|---|---|---|---|",
    ]
    for path, runs in found.items():
        megabytes = path.stat().st_size / 1e6
        same = {run.tokens: name for name, run in reversed(runs.items())}
        for name, run in runs.items():
            ratio = f"{run.seconds / runs['bpe'].seconds:.1f}" if "bpe" in runs else "-"
            twin = same[run.tokens] if same[run.tokens] != name else "-"
            lines.append(
                f"| {path.name}, {megabytes:.1f} MB | {name} | {run.seconds:.2f} | {megabytes / run.seconds:.0f} | {ratio} "
                f"| {run.memory / 1e6:.0f} MB | {twin} |"
            )
    return lines


def curve(head: str, found: dict[float, dict[str, Run]]) -> list[str]:
    """Seconds and memory of each trainer at each of several sizes."""
    names = list(dict.fromkeys(name for runs in found.values() for name in runs))
    lines = [f"| {head} | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for size, runs in found.items():
        cells = [
            f"{runs[name].seconds:.2f} s, {runs[name].memory / 1e6:.0f} MB" if name in runs else "-" for name in names
        ]
        lines.append(f"| {size:,.0f} | {' | '.join(cells)} |")
    return lines


def series(found: dict[float, dict[str, Run]]) -> dict[str, list[tuple[float, float]]]:
    """The same as lines of points for a plot."""
    names = dict.fromkeys(name for runs in found.values() for name in runs)
    return {name: [(size, runs[name].seconds) for size, runs in found.items() if name in runs] for name in names}


def processor() -> str:
    """The name of the processor, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return "a processor without a name"


def most_memory() -> int:
    """The most bytes this process ever held. (What the system tells its parent may count what that had when it forked.)"""
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def work(options: argparse.Namespace) -> None:
    """What the process of one training does."""
    run = CANDIDATES[options.worker][1](str(options.texts[0]), options.vocab_size)
    begun = time.perf_counter()
    tokens = run()
    seconds, memory = time.perf_counter() - begun, most_memory()
    digest = hashlib.sha256(b"\0".join(sorted(tokens()))).hexdigest()[:12]
    print(json.dumps({"seconds": seconds, "memory": memory, "tokens": digest}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--vocab-size", type=int, default=32_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=CANDIDATES)
    parser.add_argument("--growth", nargs="*", type=int, metavar="TIMES")
    parser.add_argument("--vocab-sizes", nargs="*", type=int, metavar="SIZE")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--worker", choices=CANDIDATES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options)
        return
    names = [name for name in options.only or CANDIDATES if importlib.util.find_spec(CANDIDATES[name][0])]
    missing = [name for name in options.only or CANDIDATES if name not in names]
    quick = [name for name in names if name in QUICK]
    first = options.texts[0]

    versions = [
        f"{name} {importlib.metadata.version(name)}"
        for name in dict.fromkeys(CANDIDATES[n][0] for n in names)
        if name != "bpe"
    ]
    out = [
        f"{options.vocab_size:,} tokens, {os.cpu_count()} processors ({processor()}), Python {platform.python_version()}, "
        f"{', '.join(versions)}; {time.strftime('%d %B %Y').lstrip('0')}; median of {options.rounds} rounds taken in turn"
        + (f"; not installed: {', '.join(missing)}" if missing else "") + ".",
        "",
        *table({path: rounds(names, path, options.vocab_size, options.rounds) for path in options.texts}),
    ]  # fmt: skip
    panels: list[tuple[str, str, str, charts.Series]] = []
    if options.growth is not None:
        grown: dict[float, dict[str, Run]] = {}
        for times in options.growth or (1, 2, 4, 8, 16, 32, 64):
            with tempfile.TemporaryDirectory() as folder:
                text = Path(folder, f"{first.stem} times {times}.txt")
                corpora.grow(first, text, times * first.stat().st_size)
                grown[text.stat().st_size / 1e6] = rounds(quick, text, options.vocab_size, 1)
        out += ["", f"As the corpus grows (the sentences of {first.name} in new orders, with new words):", ""]
        out += curve("MB", grown)
        panels.append(("As the corpus grows", "MB of text", "seconds", series(grown)))
    if options.vocab_sizes is not None:
        sized: dict[float, dict[str, Run]] = {
            size: rounds(quick, first, size, 1)
            for size in options.vocab_sizes or (1000, 2000, 4000, 8000, 16_000, 32_000, 64_000, 128_000, 256_000)
        }
        out += ["", f"As the vocabulary grows, on {first.name}:", "", *curve("tokens", sized)]
        panels.append((f"As the vocabulary grows, {first.name}", "tokens", "seconds", series(sized)))
    panels = [panel for panel in panels if any(panel[3].values())]
    print("\n".join(out))
    if options.write:
        if panels:
            PLOT.parent.mkdir(exist_ok=True)
            PLOT.write_text(charts.svg(panels))
            out += ["", f"![Seconds of training]({PLOT.relative_to(README.parent)})"]
        command = " ".join(path.name for path in options.texts) + (
            f" --rounds {options.rounds}" if options.rounds != 3 else ""
        )
        command += "".join(
            f" {flag}"
            for flag, used in (("--growth", options.growth), ("--vocab-sizes", options.vocab_sizes))
            if used is not None
        )
        if options.only:
            command += " --only " + " ".join(f"'{name}'" if " " in name else name for name in options.only)
        text = README.read_text()
        before, _, rest = text.partition(BEGIN)
        _, _, after = rest.partition(END)
        README.write_text(
            f"{before}{BEGIN}    nox -s bench -- train {command} --write\n\n" + "\n".join(out) + f"\n{END}{after}"
        )


if __name__ == "__main__":
    main()
