"""Training on corpora that are one long pretoken, or nearly, beside prose: time and memory a byte, ours and our peers'.

    python packages/bpe/benchmarks/worst_training.py TEXT … [--bytes 4000000] [--word BYTES] [--rounds 3]
        [--seconds 120] [--only NAME …] [--kinds KIND …] [--growth BYTES …] [--write]

TEXT is the prose that everything is measured against, trained to as many tokens; its first so many bytes are used. Each
training is a process of its own; they take turns. Time is the CPU time of the call that trains, the median of the
rounds; memory is the most that the process ever held beyond what it held before the call. A peer that is not done after
so many seconds is not asked again. Ours is marked where a byte takes more than BOUND times a byte of prose. Peers that
are not installed are left out, and named. --word adds one word of so many random letters. --growth measures ours alone,
at several sizes; what is made of prose is left out where there is less of it. --write puts the table into
docs/design/performance/bpe.md.
"""

from __future__ import annotations

import argparse
import base64
import importlib.util
import json
import random
import shlex
import statistics
import string
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from peers import GPT2, SPECIAL, TRAINERS

BOUND = 5.0
PAGE = Path(__file__).parents[3] / "docs/design/performance/bpe.md"
BEGIN = "<!-- written by nox -s bench -- worst_training{}: begin -->\n"
END = "<!-- end of worst-train{} -->\n"
CANDIDATES = ("bpe", "gigabpe", "tokenizers", "rustbpe")


class Kind(NamedTuple):
    """A corpus: a function of the prose and a size in bytes, and the vocabulary that is trained on it."""

    make: Callable[[str, int], str]
    vocab_size: int
    split: bool = True  # by GPT-2's pattern; else not at all
    of_prose: bool = False


def drawn(alphabet: str) -> Callable[[str, int], str]:
    """Characters drawn at random."""
    width = len(alphabet[0].encode())
    return lambda prose, size: "".join(random.Random(1).choices(alphabet, k=size // width))


def in_base64(prose: str, size: int) -> str:
    return base64.b64encode(random.Random(1).randbytes(size * 3 // 4)).decode()


def in_lines(make: Callable[[str, int], str], width: int) -> Callable[[str, int], str]:
    def lines(prose: str, size: int) -> str:
        text = make(prose, size * width // (width + 1))
        return "".join(f"{text[begin : begin + width]}\n" for begin in range(0, len(text), width))

    return lines


def one_word(prose: str, size: int) -> str:
    """The letters of the prose."""
    return "".join(character for character in prose if character.isalpha())


KINDS = {
    "prose": Kind(lambda prose, size: prose, 8_000, of_prose=True),
    "one byte": Kind(lambda prose, size: "a" * size, 264),
    "ten letters": Kind(drawn("etaoinsrhl"), 8_000),
    "twenty Chinese characters": Kind(drawn("的一是不了人我在有他这为之大来以个中上们"), 8_000),
    "base64": Kind(in_base64, 8_000),
    "base64, pattern=None": Kind(in_base64, 8_000, split=False),
    "DNA": Kind(drawn("ACGT"), 8_000),
    "DNA, 70 letters a line": Kind(in_lines(drawn("ACGT"), 70), 8_000),
    "prose without spaces": Kind(one_word, 8_000, of_prose=True),
    "prose, pattern=None": Kind(lambda prose, size: prose, 8_000, split=False, of_prose=True),
}
KINDS |= {
    f"{name}, 25,000 tokens": KINDS[name]._replace(vocab_size=25_000)
    for name in ("prose", "ten letters", "base64, pattern=None", "prose, pattern=None")
}
WORD = "one word"  # of --word
KINDS[WORD] = Kind(drawn(string.ascii_letters), 8_000)


def is_large(kind: str) -> bool:
    """True if its vocabulary is compared with that of prose which is as large; the others, with the small one."""
    return KINDS[kind].vocab_size > 8_000


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


@contextmanager
def written(kind: str, prose: bytes, size: int) -> Iterator[Path]:
    """A file of a corpus of this size, less if it is made of prose and there is less."""
    text = prose[:size].decode("utf-8", "ignore")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "corpus.txt")
        path.write_text(KINDS[kind].make(text, size), encoding="utf-8")
        yield path


def in_turns(
    names: list[str], path: Path, kind: str, rounds: int, seconds: float
) -> dict[str, tuple[float, float] | str]:
    """Nanoseconds and bytes of memory a byte, or why there are none, of each trainer."""
    results: dict[str, list[tuple[float, float]]] = {name: [] for name in names}
    failed: dict[str, str] = {}
    size = path.stat().st_size
    for _ in range(rounds):
        for name in names:
            result = failed.get(name) or measure(name, path, kind, seconds)
            if isinstance(result, str):
                failed[name] = result
            else:
                results[name].append(result)
    done = {
        name: (statistics.median(spent for spent, _ in each) / size * 1e9, max(memory for _, memory in each) / size)
        for name, each in results.items()
        if name not in failed
    }
    return {**failed, **done}


def compared(options: argparse.Namespace, names: list[str], prose: bytes) -> Iterator[str]:
    """A table of the trainers, line by line."""
    yield f"| corpus | tokens | {' | '.join(names)} |"
    yield f"|---|---|{'---|' * len(names)}"
    base: dict[tuple[str, bool], float] = {}
    for kind in options.kinds:
        size = options.word if kind == WORD else options.bytes
        with written(kind, prose, size) as path:
            results = in_turns(names, path, kind, options.rounds, options.seconds)
        cells = []
        for name in names:
            result = results[name]
            if isinstance(result, str):
                cells.append(result)
                continue
            cost, memory = result
            times = cost / base.setdefault((name, is_large(kind)), cost)
            mark = " **beyond**" if name == "bpe" and times > BOUND else ""
            cells.append(f"{cost:.1f} ({times:.1f}×{mark}), {memory:.0f} B")
        shown = f"one word of {size:,} letters" if kind == WORD else kind
        yield f"| {shown} | {KINDS[kind].vocab_size:,} | {' | '.join(cells)} |"


def grown(options: argparse.Namespace, prose: bytes) -> Iterator[str]:
    """A table of ours at several sizes, line by line."""
    yield f"| corpus | {' | '.join(f'{size / 1e6:g} MB' for size in options.growth)} |"
    yield f"|---|{'---|' * len(options.growth)}"
    base: dict[int, float] = {}
    for kind in options.kinds:
        if is_large(kind):
            continue
        cells = []
        for size in options.growth:
            if KINDS[kind].of_prose and len(prose) < size:
                cells.append("")
                continue
            with written(kind, prose, size) as path:
                result = in_turns(["bpe"], path, kind, options.rounds, options.seconds)["bpe"]
            if isinstance(result, str):
                cells.append(result)
                continue
            cost, memory = result
            if kind == "prose":
                base[size] = cost
            times = f" ({cost / base[size]:.1f}×)" if size in base else ""
            cells.append(f"{cost:.1f}{times}, {memory:.0f} B")
        yield f"| {kind} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", type=Path, nargs="+", metavar="TEXT")
    parser.add_argument("--bytes", type=int, default=4_000_000)
    parser.add_argument("--word", type=int, help="bytes of one word of random letters")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--only", nargs="+", choices=CANDIDATES)
    parser.add_argument("--kinds", nargs="+", choices=[kind for kind in KINDS if kind != WORD], help="these and prose")
    parser.add_argument("--growth", type=int, nargs="+", metavar="BYTES")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--worker", choices=CANDIDATES, help=argparse.SUPPRESS)
    parser.add_argument("--kind", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options.worker, options.texts[0], KINDS[options.kind])
        return
    texts = " ".join(path.name for path in options.texts)
    choice = ["prose", *(options.kinds or [])]
    command = f"worst-train {texts} --rounds {options.rounds} --seconds {options.seconds:g}"
    command += f" --only {shlex.join(options.only)}" if options.only else ""
    command += f" --kinds {shlex.join(options.kinds)}" if options.kinds else ""
    options.kinds = [kind for kind in KINDS if kind != WORD and (options.kinds is None or kind in choice)]
    options.kinds += [WORD] if options.word else []
    prose = b"".join(path.read_bytes() for path in options.texts)
    if options.growth:
        command += f" --growth {' '.join(map(str, options.growth))}"
        which, missing, lines = " --growth", [], grown(options, prose)
    else:
        command += f" --bytes {options.bytes}" + (f" --word {options.word}" if options.word else "")
        selection = options.only or list(CANDIDATES)
        names = [name for name in selection if importlib.util.find_spec(name)]
        missing = [name for name in selection if name not in names]
        which, lines = "", compared(options, names, prose)
    title = f"prose from {texts}: ns of CPU time a byte, bytes of memory a byte"
    print(title + (f"; not installed: {', '.join(missing)}" if missing else ""), "", sep="\n")
    table = []
    for line in lines:
        print(line, flush=True)
        table.append(line)
    if options.write:
        begin, end = BEGIN.format(which), END.format(which)
        page = PAGE.read_text("utf-8")
        if begin not in page:  # the table of growth comes after the other
            page = page.replace(END.format(""), f"{END.format('')}\n{begin}{end}")
        before, _, rest = page.partition(begin)
        after = rest.partition(end)[2]
        body = "\n".join(table)
        PAGE.write_text(f"{before}{begin}    nox -s bench -- {command} --write\n\n{body}\n{end}{after}", "utf-8")


if __name__ == "__main__":
    main()
