"""Train beside peers, taking turns: seconds, MB/s, peak memory, and whether results agree.

    python packages/bpe/benchmarks/train.py FILE … [--vocab-size 32000 10000] [--rounds 3] [--only NAME …]
        [--counting]               MB/s of each FILE: scanned, and counted by 1, 2, … threads
        [--words [6000000]]        so many distinct words, of the lengths and the counts that words have
        [--growth [1 2 4 …]]       the first FILE's sentences in new orders and with new words, as many times its size
        [--vocab-sizes [1000 …]]   vocabularies of these sizes, on the first FILE that has tokens for them all
        [--patience 120]           seconds that one training may take; a peer that takes longer is not asked for more
        [--write [curves]]         put tables and plot into docs/design/performance/bpe.md, its part of that name

Of several vocabulary sizes a FILE gets the first that ours reaches on it. Each training is a process of its own, timed
from the call to its result, the list of merges with it, without the time to import; memory is the most that the process
ever held. A peer that is not installed is left out, and named. Only ratios within one run mean anything: machines
differ, and so do minutes.
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
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import charts
import corpora
from peers import SPECIAL, TRAINERS, processor

FOLLOWED = tuple(name for name in TRAINERS if "tie_break" not in name)  # as corpus and vocabulary grow
PAGE = Path(__file__).parents[3] / "docs/design/performance/bpe.md"
PLOT = PAGE.with_name("bpe-training.svg")
PARTS = {  # of the page, and what stands before and after each
    "tables": ("<!-- written by nox -s bench -- train: begin -->\n", "<!-- end -->\n"),
    "curves": ("<!-- written by nox -s bench -- train … --write curves: begin -->\n", "<!-- end of curves -->\n"),
}


@dataclass(frozen=True)
class Run:
    """One training: seconds, the most bytes of memory, and a digest of the tokens; or the reason why there was none."""

    seconds: float = 0.0
    memory: int = 0
    tokens: str = ""
    failure: str = ""


def measure(name: str, path: Path, size: int, patience: float) -> Run:
    """One training in a process of its own."""
    command = [sys.executable, __file__, str(path), "--vocab-size", str(size), "--worker", name]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=patience)
    except subprocess.TimeoutExpired:
        return Run(failure=f"more than {patience:.0f} s")
    if process.returncode:
        reason = (process.stderr.strip().splitlines() or ["no reason given"])[-1]
        print(f"{name} on {path.name}, {size:,} tokens: {reason[-300:]}", file=sys.stderr)
        killed, cannot = process.returncode < 0, "too small" in reason or "size is smaller" in reason
        return Run(failure="killed" if killed else "cannot" if cannot else "failed")
    return Run(**json.loads(process.stdout.splitlines()[-1]))


class Turns:
    """Trainers taking turns, each given up after its first failure by time or memory."""

    def __init__(self, patience: float) -> None:
        self._patience = patience

    def rounds(self, names: Sequence[str], path: Path, size: int, count: int) -> dict[str, Run]:
        """Each trainer `count` times: median seconds, most memory; or why it made no tokenizer."""
        results: dict[str, list[Run]] = {name: [] for name in names}
        for _ in range(count):
            for name, runs in results.items():
                if runs and runs[-1].failure:
                    continue
                runs.append(measure(name, path, size, self._patience))
                reports = runs[-1].failure or f"{runs[-1].seconds:.2f} s"
                print(f"  {path.name} {size:,} {name}: {reports}", file=sys.stderr)
        return {name: runs[-1] if runs[-1].failure else middle(runs) for name, runs in results.items()}

    def curve(self, names: Sequence[str], points: Iterable[tuple[float, Path, int]]) -> dict[float, dict[str, Run]]:
        """Each trainer once at each point, (where it is on the axis, text, vocabulary size), until it takes too
        long."""
        results: dict[float, dict[str, Run]] = {}
        going = list(names)
        for place, path, size in points:
            results[place] = self.rounds(going, path, size, 1)
            going = [name for name in going if results[place][name].failure in ("", "cannot")]
        return results


def middle(runs: Sequence[Run]) -> Run:
    """The median seconds and the most memory of several."""
    return Run(statistics.median(run.seconds for run in runs), max(run.memory for run in runs), runs[0].tokens)


def reached(path: Path, sizes: Sequence[int]) -> int:
    """The first of several vocabulary sizes that the text reaches; the last where it reaches none."""
    import bpe

    for size in sizes[:-1]:
        try:
            bpe.train(path, size)
        except ValueError:
            continue
        return size
    return sizes[-1]


def large_enough(paths: Sequence[Path], size: int) -> Path:
    """The first text that has tokens for a vocabulary of this size; the last where none has."""
    return next((path for path in paths if reached(path, (size, 0))), paths[-1])


def table(found: dict[tuple[Path, int], dict[str, Run]]) -> list[str]:
    """Every trainer on every text."""
    lines = [
        "| text | tokens | trainer | seconds | MB/s | times ours | peak memory | the same tokens as |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (path, size), runs in found.items():
        megabytes = path.stat().st_size / 1e6
        same = {run.tokens: name for name, run in reversed(runs.items())}
        for name, run in runs.items():
            start = f"| {path.name}, {megabytes:.1f} MB | {size:,} | {name} "
            if run.failure:
                lines.append(f"{start}| {run.failure} | - | - | - | - |")
                continue
            ours = runs.get("bpe", Run(failure="not asked"))
            ratio = "-" if ours.failure else f"{run.seconds / ours.seconds:.1f}"
            twin = same[run.tokens] if same[run.tokens] != name else "-"
            lines.append(
                f"{start}| {run.seconds:.3f} | {megabytes / run.seconds:.0f} | {ratio} | {run.memory / 1e6:.0f} MB | "
                f"{twin} |"
            )
    return lines


def curve_table(head: str, found: dict[float, dict[str, Run]]) -> list[str]:
    """Seconds and memory of each trainer at each of several sizes."""
    names = list(dict.fromkeys(name for runs in found.values() for name in runs))
    lines = [f"| {head} | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for size, runs in found.items():
        requests = [runs.get(name, Run(failure="-")) for name in names]
        cells = [run.failure or f"{run.seconds:.2f} s, {run.memory / 1e6:.0f} MB" for run in requests]
        lines.append(f"| {size:,.0f} | {' | '.join(cells)} |")
    return lines


def series(found: dict[float, dict[str, Run]]) -> dict[str, list[tuple[float, float]]]:
    """The same as lines of points for a plot."""
    names = dict.fromkeys(name for runs in found.values() for name in runs)
    points = {
        name: [(size, runs[name].seconds) for size, runs in found.items() if name in runs and not runs[name].failure]
        for name in names
    }
    return {name: line for name, line in points.items() if line}


def counting_table(paths: Sequence[Path]) -> list[str]:
    """MB/s of the pattern gpt2 on each text, the best of five: scanned by one thread, and counted by several."""
    from bpe import patterns
    from bpe.counting.count import count_source
    from bpe.scanning import scanner
    from bpe.scanning.special_tokens import SpecialTokens

    pattern, special = patterns.resolve("gpt2"), SpecialTokens([SPECIAL])
    threads = sorted({1, 2, os.cpu_count() or 1, *(1 << i for i in range(2, (os.cpu_count() or 1).bit_length()))})
    lines = [
        f"| text | scanning | {' | '.join(f'and counting, {n} thread' + 's' * (n > 1) for n in threads)} | distinct |",
        "|---" * (len(threads) + 3) + "|",
    ]
    for path in paths:
        text = path.read_bytes()
        rate = {0: len(text) / 1e6 / fastest(lambda text=text: scanner.boundaries(text))}
        for num_threads in threads:
            seconds = fastest(
                lambda path=path, num_threads=num_threads: count_source(
                    path, pattern, special, num_threads, lambda *_: None
                )
            )
            rate[num_threads] = len(text) / 1e6 / seconds
        from bpe.counting.records import number_of_records

        distinct = number_of_records(count_source(path, pattern, special, 1, lambda *_: None))
        lines.append(f"| {path.name} | {' | '.join(f'{one:,.0f}' for one in rate.values())} | {distinct:,} |")
    return lines


def fastest(work: Callable[[], object], times: int = 5) -> float:
    """The least seconds that some work takes, by the clock."""
    least = float("inf")
    for _ in range(times):
        begun = time.perf_counter()
        work()
        least = min(least, time.perf_counter() - begun)
    return least


def most_memory() -> int:
    """The most bytes this process ever held.

    (What the system tells its parent may count what that had when it forked.)
    """
    status = Path("/proc/self/status")
    if status.exists():
        return next(int(line.split()[1]) * 1024 for line in status.read_text().splitlines() if line.startswith("VmHWM"))
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def work(options: argparse.Namespace) -> None:
    """Measure one training."""
    run = TRAINERS[options.worker][1](str(options.texts[0]), options.vocab_size[0])
    begun = time.perf_counter()
    tokens = run()
    seconds, memory = time.perf_counter() - begun, most_memory()
    digest = hashlib.sha256(b"\0".join(sorted(tokens()))).hexdigest()[:12]
    print(json.dumps({"seconds": seconds, "memory": memory, "tokens": digest}))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("texts", nargs="+", type=Path, metavar="FILE")
    parser.add_argument("--vocab-size", nargs="+", type=int, default=[32_000, 10_000])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", nargs="+", choices=TRAINERS)
    parser.add_argument("--counting", action="store_true")
    parser.add_argument("--words", nargs="?", type=int, const=6_000_000, metavar="NUMBER")
    parser.add_argument("--patience", type=float, default=120.0, metavar="SECONDS")
    parser.add_argument("--growth", nargs="*", type=int, metavar="TIMES")
    parser.add_argument("--vocab-sizes", nargs="*", type=int, metavar="SIZE")
    parser.add_argument("--write", nargs="?", const="tables", choices=PARTS, metavar="PART")
    parser.add_argument("--worker", choices=TRAINERS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(options)
        return
    names = [name for name in options.only or TRAINERS if importlib.util.find_spec(TRAINERS[name][0])]
    missing = [name for name in options.only or TRAINERS if name not in names]
    followed = [name for name in names if name in FOLLOWED]
    first = options.texts[0]
    turns = Turns(options.patience)

    versions = [
        f"{name} {importlib.metadata.version(name)}"
        for name in dict.fromkeys(TRAINERS[n][0] for n in names)
        if name != "bpe"
    ]
    results = {}
    for path in options.texts:
        size = reached(path, options.vocab_size)
        results[path, size] = turns.rounds(names, path, size, options.rounds)
    out = [
        f"{os.cpu_count()} processors ({processor()}), Python {platform.python_version()}, {', '.join(versions)}; "
        f"{time.strftime('%d %B %Y').lstrip('0')}; median of {options.rounds} rounds taken in turn"
        + (f"; not installed: {', '.join(missing)}" if missing else "") + ".",
        "",
        *table(results),
    ]  # fmt: skip
    if options.counting:
        out += ["", "MB/s of scanning (one thread) and of the whole of counting, by the clock, pattern gpt2:", ""]
        out += counting_table(options.texts)
    panels: list[charts.Panel] = []
    with tempfile.TemporaryDirectory() as folder:
        if options.words is not None:
            text = Path(folder, "words.txt")
            corpora.coin(text, options.words)
            size = options.vocab_size[0]
            out += [
                "",
                f"{options.words:,} distinct words:",
                "",
                *table({(text, size): turns.rounds(names, text, size, 1)}),
            ]
        if options.growth is not None:

            def grown() -> Iterator[tuple[float, Path, int]]:
                size = reached(first, options.vocab_size)
                for times in options.growth or (1, 2, 4, 8, 16, 32, 64):
                    text = Path(folder, f"{first.stem} times {times}.txt")
                    corpora.grow(first, text, times * first.stat().st_size)
                    yield text.stat().st_size / 1e6, text, size
                    text.unlink()

            growth = turns.curve(followed, grown())
            out += ["", f"As the corpus grows (the sentences of {first.name} in new orders, with new words):", ""]
            out += curve_table("MB", growth)
            panels.append(charts.Panel("As the corpus grows", "MB of text", "seconds", series(growth)))
    if options.vocab_sizes is not None:
        sizes = options.vocab_sizes or (1000, 4000, 16_000, 64_000, 128_000, 256_000)
        text = large_enough(options.texts, max(sizes))
        sized = turns.curve(followed, ((size, text, size) for size in sizes))
        out += ["", f"As the vocabulary grows, on {text.name}:", "", *curve_table("tokens", sized)]
        panels.append(charts.Panel(f"As the vocabulary grows, {text.name}", "tokens", "seconds", series(sized)))
    panels = [panel for panel in panels if any(panel.series.values())]
    print("\n".join(out))
    if options.write:
        if panels:
            charts.write_svg(PLOT, panels)
            out += ["", f"![Seconds of training]({PLOT.name})"]
        command = " ".join(path.name for path in options.texts)
        for flag in ("rounds", "patience", "vocab_size"):
            value = getattr(options, flag)
            if value != parser.get_default(flag):
                reports = " ".join(map(str, value)) if isinstance(value, list) else f"{value:g}"
                command += f" --{flag.replace('_', '-')} {reports}"
        command += "".join(
            f" {flag}"
            for flag, used in (
                ("--counting", options.counting),
                ("--words", options.words is not None),
                ("--growth", options.growth is not None),
                ("--vocab-sizes", options.vocab_sizes is not None),
            )
            if used
        )
        if options.only:
            command += " --only " + " ".join(f"'{name}'" if " " in name else name for name in options.only)
        begin, end = PARTS[options.write]
        command += " --write" + (f" {options.write}" if options.write != "tables" else "")
        before, _, rest = PAGE.read_text().partition(begin)
        _, _, after = rest.partition(end)
        PAGE.write_text(f"{before}{begin}    nox -s bench -- train {command}\n\n" + "\n".join(out) + f"\n{end}{after}")


if __name__ == "__main__":
    main()
