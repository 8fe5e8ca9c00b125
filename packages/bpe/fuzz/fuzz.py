"""A fuzzer guided by the coverage of the extension: scan, encode, decode, training and formats against reference.py.

    nox -s fuzz                       # ten minutes; `-- --seconds N` for another while
    nox -s fuzz -- FILE …             # run findings again

An input that reaches an edge of the extension, or a line of bpe.formats, that none before it reached joins the corpus,
which is kept from run to run; inputs are made by changing those of the corpus. A worker process runs them, with the
extension built under the sanitizers, and writes each to a file before it does: when it dies, that input killed it. What
a target raises is cut down to the smallest input that raises the same, and saved.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import os
import random
import subprocess
import sys
import time
import traceback
from pathlib import Path

STUCK = 120  # seconds on one input, where thousands are usual in one


class Coverage:
    """What inputs have reached: edges of the extension by coverage.c, lines of bpe.formats by Python's own tracing."""

    def __init__(self, library: str) -> None:
        self.native = ctypes.CDLL(library)
        self.lines: set[tuple[str, int]] = set()

    def trace(self, frame, event, argument):
        if f"bpe{os.sep}formats" not in frame.f_code.co_filename:
            return None
        return self.line

    def line(self, frame, event, argument):
        self.lines.add((frame.f_code.co_filename, frame.f_lineno))
        return self.line

    def new(self, run, data: bytes) -> bool:
        """Whether run(data) reached anything new."""
        lines = len(self.lines)
        self.native.coverage_begin()
        sys.settrace(self.trace)
        try:
            run(data)
        finally:
            sys.settrace(None)
        return self.native.coverage_new() + len(self.lines) - lines > 0


def kind_of(error: BaseException) -> tuple[type, int]:
    """What makes two failures the same: the type, and the line that raised."""
    return type(error), traceback.extract_tb(error.__traceback__)[-1].lineno or 0


def smallest(run, data: bytes, error: BaseException) -> bytes:
    """The input without every stretch that it can lose and still fail in the same way."""
    size = len(data) // 2
    while size:
        at = 1
        while at < len(data):
            shorter = data[:at] + data[at + size :]
            try:
                run(shorter)
            except Exception as other:
                if kind_of(other) == kind_of(error):
                    data = shorter
                    continue
            at += size
        size //= 2
    return data


def save(data: bytes, folder: Path, targets) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    name = targets[data[0] % len(targets)].__name__
    path = folder / f"{name}-{hashlib.sha256(data).hexdigest()[:10]}"
    path.write_bytes(data)
    return path


def work(options: argparse.Namespace) -> int:
    """The worker: run inputs until the time is up (0) or one fails (1, its path on the last line)."""
    import targets

    os.fsync = lambda descriptor: None  # no finding is in how durable a file is
    coverage, chance = Coverage(options.coverage), random.Random(options.seed)
    current = os.open(options.current, os.O_RDWR | os.O_CREAT)
    corpus: list[list[bytes]] = [[] for _ in targets.TARGETS]
    made = {function.__name__: 0 for function in targets.TARGETS}

    def attempt(data: bytes, keep: bool = True) -> None:
        os.ftruncate(current, 0)
        os.pwrite(current, data, 0)
        made[targets.TARGETS[data[0] % len(made)].__name__] += 1
        if coverage.new(targets.run, data):
            corpus[data[0] % len(made)].append(data)
            if keep:
                (options.corpus / hashlib.sha256(data).hexdigest()[:16]).write_bytes(data)

    def seeds():
        for path in sorted(options.corpus.iterdir()):
            if data := path.read_bytes():
                yield data, False
        for kind, function in enumerate(targets.TARGETS):
            start = targets.format_seeds() if function is targets.formats else map(chance.randbytes, [0, *[200] * 20])
            yield from ((bytes([kind]) + data, True) for data in start)

    def changed():
        while True:
            inputs = corpus[chance.randrange(len(corpus))]
            recent = inputs[-20:] if chance.random() < 0.3 else inputs
            from inputs import change

            yield change(chance.choice(recent), inputs, chance), True

    end = time.monotonic() + options.seconds
    told = begun = time.monotonic()
    for stream in (seeds(), changed()):
        for data, keep in stream:
            try:
                attempt(data, keep)
            except Exception as error:
                traceback.print_exc()
                print(save(smallest(targets.run, data, error), options.findings, targets.TARGETS), flush=True)
                return 1
            if time.monotonic() > told + 15 or time.monotonic() > end:
                told = time.monotonic()
                counts = ", ".join(f"{name} {count:,}" for name, count in made.items())
                print(
                    f"{told - begun:4.0f} s  {counts}; {sum(map(len, corpus)):,} inputs reach "
                    f"{coverage.native.coverage_edges():,} edges and {len(coverage.lines):,} lines of formats",
                    flush=True,
                )
            if told > end:
                return 0
    return 0


def again(paths: list[Path]) -> int:
    """Run findings as they are."""
    import targets

    failed = 0
    for path in paths:
        try:
            targets.run(path.read_bytes())
            print(f"{path}: nothing wrong")
        except Exception:
            traceback.print_exc()
            failed += 1
    return int(failed > 0)


def watch(options: argparse.Namespace) -> int:
    """Start a worker, see it to its end, and say what it found."""
    options.corpus.mkdir(parents=True, exist_ok=True)
    before = set(options.reports.glob("report.*"))
    worker = subprocess.Popen([sys.executable, __file__, "--worker", *sys.argv[1:]], stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    os.set_blocking(worker.stdout.fileno(), False)
    last, stuck, changed = "", False, time.monotonic()
    stamp = None
    while worker.poll() is None:
        time.sleep(0.2)
        for line in worker.stdout.readlines():
            last = line.strip()
            print(last, flush=True)
        now = os.stat(options.current).st_mtime_ns if options.current.exists() else None
        if now != stamp:
            stamp, changed = now, time.monotonic()
        elif time.monotonic() > changed + STUCK:
            stuck = True
            worker.kill()
    for line in worker.stdout.readlines():
        last = line.strip()
        print(last, flush=True)
    worker.stdout.close()
    if worker.returncode == 0:
        print(f"no finding in {options.seconds:g} seconds")
        return 0
    if worker.returncode == 1 and last and Path(last).exists():
        path = Path(last)
    else:
        for report in sorted(set(options.reports.glob("report.*")) - before):
            print(report.read_text(errors="replace")[:6000])
        print("stuck on one input" if stuck else f"the worker died with status {worker.returncode}")
        from targets import TARGETS

        path = save(options.current.read_bytes(), options.findings, TARGETS)
    print(f"a finding; to run it again: nox -s fuzz -- {path}")
    return 1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="*", type=Path, help="findings to run again")
    parser.add_argument("--seconds", type=float, default=600, help="how long (%(default)g)")
    parser.add_argument("--seed", type=int, default=None, help="of the changes (default: another every time)")
    parser.add_argument("--work", type=Path, required=True, help="a folder for the corpus and the findings")
    parser.add_argument("--coverage", required=True, help="coverage.c, compiled, as it is preloaded")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.corpus, options.findings = options.work / "corpus", options.work / "findings"
    options.current, options.reports = options.work / "current", options.work / "reports"
    if options.file:
        return again(options.file)
    return work(options) if options.worker else watch(options)


if __name__ == "__main__":
    sys.exit(main())
