"""A line of JSON for the instructions that this commit takes, behind those of the commits before it.

    python tools/history.py history.jsonl [--threshold 1.05]

Valgrind counts the instructions of each of the MEASUREMENTS on one thread, in a process of its own, less those of a
process that only prepares it. Other work on the machine, which moves times by a third, does not change them. The corpus
is the running Python's standard library, the same on one machine and Python. A line has the commit, the date, the
machine, the versions and the counts; lines of other machines, Pythons or versions of torch are kept and not compared
with. Exit status 1 where something takes more than threshold times its last count.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.append(str(ROOT / "demo"))
import corpus  # noqa: E402

MEASUREMENTS = {
    "import bpe": ("", "import bpe"),
    "import accounting": ("", "import accounting"),
    "train a tokenizer of 8,000": ("import bpe; bpe.train(['a b'], 257)", "bpe.train([text], 8000)"),
    "encode, first pass": ("import bpe; t = bpe.train([text], 8000)", "t.encode_ordinary(text)"),
    "encode, known words": (
        "import bpe; t = bpe.train([text], 8000); t.encode_ordinary(text)",
        "t.encode_ordinary(text)",
    ),
    "decode": ("import bpe; t = bpe.train([text], 8000); ids = t.encode_ordinary(text)", "t.decode(ids)"),
    "plan of 64 devices": (
        "import accounting as a; shape, device = a.SHAPES['llama-3-8b'], a.DEVICES['h100']",
        "a.plan(shape, device, 64, tokens=10**12)",
    ),
    "training step": (
        "import torch, lm; torch.set_num_threads(1); torch.manual_seed(0)\n"
        "model = lm.fuse(lm.Transformer(lm.ModelConfig(2048, 128, num_layers=2, d_model=128, num_heads=4, d_ff=352)))\n"
        "optimizer = lm.optimizer.adamw(model, 1e-3); ids = torch.randint(2048, (8, 129))\n"
        "def step():\n"
        "    lm.loss.cross_entropy(model(ids[:, :-1]), ids[:, 1:]).backward()\n"
        "    optimizer.step(); optimizer.zero_grad()\n"
        "step()",
        "step()",
    ),
    "generate 100 tokens": (
        "import torch, lm; torch.set_num_threads(1); torch.manual_seed(0)\n"
        "model = lm.Transformer(lm.ModelConfig(2048, 128, num_layers=2, d_model=128, num_heads=4, d_ff=352))\n"
        "lm.generate(model, [1], max_new_tokens=2)",
        "lm.generate(model, [1], max_new_tokens=100)",
    ),
}
PROGRAM = """
import os, sys
os.sched_setaffinity(0, {{min(os.sched_getaffinity(0))}})
text = open(sys.argv[1], encoding="utf-8").read()
{before}
{measured}
"""
# Valgrind has no AVX-512. The hash of a str decides the order of sets.
SETTINGS = {
    "PYTHONHASHSEED": "0",
    "OMP_NUM_THREADS": "1",
    "LM_CFLAGS": "-march=x86-64-v3",
    "ATEN_CPU_CAPABILITY": "avx2",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
}
VALGRIND = ("valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null")


def instructions(before: str, measured: str, corpus: Path) -> int:
    """Number of instructions that a fresh Python executes for `before` and then `measured`."""
    program = PROGRAM.format(before=before, measured=measured)
    environment = {**os.environ, **SETTINGS}
    command = [*VALGRIND, sys.executable, "-c", program, str(corpus)]
    result = subprocess.run(command, capture_output=True, text=True, env=environment)
    if result.returncode:
        raise SystemExit(f"{measured!r} fails:\n{result.stderr}")
    return int(re.findall(r"I +refs: +([\d,]+)", result.stderr)[-1].replace(",", ""))


def measure(name: str, corpus: Path) -> int:
    """Number of instructions of one of the MEASUREMENTS, without those of its preparation."""
    before, measured = MEASUREMENTS[name]
    return instructions(before, measured, corpus) - instructions(before, "", corpus)


def about() -> dict[str, Any]:
    """The text of a line without its figures."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
        return done.stdout.strip()

    return {
        "commit": git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain") else ""),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": f"{platform.system()}, {platform.machine()}",
        "python": platform.python_version(),
        "torch": importlib.metadata.version("torch"),
    }


def compared(line: dict[str, Any], history: list[dict[str, Any]], threshold: float) -> list[str]:
    """A sentence for each count of a line that is more than threshold times the last one of the same machine."""
    same = [old for old in history if all(old[name] == line[name] for name in ("machine", "python", "torch"))]
    more = []
    for name, count in line["instructions"].items():
        last = next((old for old in reversed(same) if name in old["instructions"]), None)
        if last is not None and count > threshold * last["instructions"][name]:
            times = count / last["instructions"][name]
            more.append(f"{name}: {count:,} instructions, {times:.2f} times those of {last['commit']}")
    return more


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a history; none where there is no file yet."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("history", type=Path, help="a file of JSON lines, made if there is none")
    parser.add_argument("--threshold", type=float, default=1.05)
    parser.add_argument("--only", nargs="+", choices=sorted(MEASUREMENTS), help="these measurements alone")
    options = parser.parse_args()

    names = options.only or list(MEASUREMENTS)
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "corpus.txt")
        text.write_bytes(corpus.joined(corpus.split(corpus.standard_library()).train)[: 4 << 20])
        text.write_text(text.read_bytes().decode("utf-8", errors="ignore"), encoding="utf-8")
        line = {**about(), "instructions": {name: measure(name, text) for name in names}}
    history = read(options.history)
    with options.history.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    width = max(map(len, names))
    for name, count in line["instructions"].items():
        print(f"{name:{width}}  {count:15,} instructions")
    if more := compared(line, history, options.threshold):
        raise SystemExit("\n".join(["more instructions than before:", *more]))


if __name__ == "__main__":
    main()
