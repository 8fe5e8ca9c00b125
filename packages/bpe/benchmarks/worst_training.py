"""Training on corpora that are one long pretoken, or nearly, beside prose: time and memory a byte, ours and our peers'.

    python packages/bpe/benchmarks/worst_training.py TEXT [--bytes 4000000] [--rounds 3] [--seconds 120]
        [--only NAME …] [--kinds KIND …] [--write]

TEXT is the prose that everything is measured against; its first so many bytes are used. Each training is a process of
its own; they take turns. Time is the CPU time of the call that trains, the median of the rounds; memory is the most
that the process ever held beyond what it held before the call. A peer that is not done after so many seconds is not
asked again. Ours is marked where a byte takes more than BOUND times a byte of prose. Peers that are not installed are
left out, and named. --write puts the table into docs/design/performance/bpe.md.
"""

from __future__ import annotations

import argparse
import base64
import importlib.util
import json
import random
import shlex
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from peers import GPT2, SPECIAL, TRAINERS

BOUND = 5.0
PAGE = Path(__file__).parents[3] / "docs/design/performance/bpe.md"
BEGIN, END = "<!-- written by nox -s bench -- worst-train: begin -->\n", "<!-- end of worst-train -->\n"
CANDIDATES = ("bpe", "gigabpe", "tokenizers", "rustbpe")


class Kind(NamedTuple):
    """A corpus: a function of the prose and a size in bytes, and the vocabulary that is trained on it."""

    make: Callable[[str, int], str]
    vocab_size: int
    split: bool = True  # by GPT-2's pattern; else not at all


def drawn(alphabet: str) -> Callable[[str, int], str]:
    """Characters drawn at random."""
    width = len(alphabet[0].encode())
    return lambda prose, size: "".join(random.Random(1).choices(alphabet, k=size // width))


def in_base64(prose: str, size: int) -> str:
    return base64.b64encode(random.Random(1).randbytes(size * 3 // 4)).decode()


def one_word(prose: str, size: int) -> str:
    """The letters of the prose."""
    return "".join(character for character in prose if character.isalpha())


KINDS = {
    "prose": Kind(lambda prose, size: prose, 8_000),
    "one byte": Kind(lambda prose, size: "a" * size, 264),
    "ten letters": Kind(drawn("etaoinsrhl"), 8_000),
    "twenty Chinese characters": Kind(drawn("的一是不了人我在有他这为之大来以个中上们"), 8_000),
    "base64": Kind(in_base64, 8_000),
    "DNA": Kind(drawn("ACGT"), 8_000),
    "prose without spaces": Kind(one_word, 8_000),
    "prose, pattern=None": Kind(lambda prose, size: prose, 8_000, split=False),
}


def trainer(name: str, path: Path, kind: Kind) -> Callable[[], Any]:
    """The call that is measured."""
    if kind.split:
        return TRAINERS[name][1](str(path), kind.vocab_size)
    if name == "bpe":
        import bpe

        return lambda: bpe.train(path, kind.vocab_size, pattern=None)
    if name == "tokenizers":
        from tokenizers import Tokenizer, models, trainers

        alone = trainers.BpeTrainer(vocab_size=kind.vocab_size, special_tokens=[SPECIAL], show_progress=False)
        return lambda: Tokenizer(models.BPE()).train_from_iterator([path.read_text("utf-8")], alone)
    if name == "rustbpe":
        import rustbpe

        text = path.read_text("utf-8")
        return lambda: rustbpe.Tokenizer().train_from_iterator(iter([text]), kind.vocab_size, pattern=r"[\s\S]+")
    sys.exit(f"{name} has no training without {GPT2!r}")


def work(name: str, path: Path, kind: Kind) -> None:
    """Print the CPU seconds of one training, and how many bytes of memory it took."""
    run = trainer(name, path, kind)
    before = most_memory()
    begun = time.process_time()
    run()
    seconds = time.process_time() - begun
    print(json.dumps([seconds, most_memory() - before]))


def most_memory() -> int:
    """The most bytes that this process ever held. (Linux: ru_maxrss would begin with the parent's.)"""
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) << 10


def measure(name: str, path: Path, kind: str, seconds: float) -> tuple[float, float] | str:
    """CPU seconds and bytes of memory, or why there are none."""
    command = [sys.executable, __file__, str(path), "--worker", name, "--kind", kind]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False)
    except subprocess.TimeoutExpired:
        return f"not in {seconds:g} s"
    if done.returncode:
        return "killed" if done.returncode < 0 else "cannot"
    spent, memory = json.loads(done.stdout.splitlines()[-1])
    return spent, memory


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", type=Path)
    parser.add_argument("--bytes", type=int, default=4_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--only", nargs="+", choices=CANDIDATES)
    parser.add_argument("--kinds", nargs="+", choices=KINDS, help="these and prose only")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--worker", choices=CANDIDATES, help=argparse.SUPPRESS)
    parser.add_argument("--kind", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker, options.text, KINDS[options.kind])
        return
    wanted = options.only or list(CANDIDATES)
    names = [name for name in wanted if importlib.util.find_spec(name)]
    missing = [name for name in wanted if name not in names]
    table = [f"| corpus | tokens | {' | '.join(names)} |", f"|---|---|{'---|' * len(names)}"]
    title = f"{options.bytes:,} bytes, prose from {options.text.name}: ns of CPU time a byte, bytes of memory a byte"
    print(title + (f"; not installed: {', '.join(missing)}" if missing else ""), "", *table, sep="\n")
    prose = options.text.read_bytes()[: options.bytes].decode("utf-8", "ignore")
    kinds = [kind for kind in KINDS if options.kinds is None or kind in ("prose", *options.kinds)]
    base: dict[str, float] = {}
    for kind in kinds:
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
        failed: dict[str, str] = {}
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "corpus.txt")
            path.write_text(KINDS[kind].make(prose, options.bytes), encoding="utf-8")
            size = path.stat().st_size
            for _ in range(options.rounds):
                for name in names:
                    result = failed.get(name) or measure(name, path, kind, options.seconds)
                    if isinstance(result, str):
                        failed[name] = result
                    else:
                        found[name].append(result)
        cells = []
        for name in names:
            if name in failed:
                cells.append(failed[name])
                continue
            cost = statistics.median(seconds for seconds, _ in found[name]) / size * 1e9
            memory = max(memory for _, memory in found[name]) / size
            base.setdefault(name, cost)
            times = cost / base[name]
            mark = " **beyond**" if name == "bpe" and times > BOUND else ""
            cells.append(f"{cost:.1f} ({times:.1f}×{mark}), {memory:.0f} B")
        table.append(f"| {kind} | {KINDS[kind].vocab_size:,} | {' | '.join(cells)} |")
        print(table[-1], flush=True)
    if options.write:
        command = f"worst-train {options.text.name} --bytes {options.bytes} --rounds {options.rounds}"
        command += f" --seconds {options.seconds:g}"
        for option, chosen in (("only", options.only), ("kinds", options.kinds)):
            command += f" --{option} {shlex.join(chosen)}" if chosen else ""
        before, _, rest = PAGE.read_text("utf-8").partition(BEGIN)
        after = rest.partition(END)[2]
        lines = "\n".join(table)
        PAGE.write_text(f"{before}{BEGIN}    nox -s bench -- {command} --write\n\n{lines}\n{END}{after}", "utf-8")


if __name__ == "__main__":
    main()
