"""A line of JSON for what this commit takes, behind those of the commits before it, and what has become slower.

    python tools/history.py history.jsonl [--rounds 5] [--threshold 1.1]

Each of the MEASUREMENTS runs in a process of its own, in turns; what counts is the least processor time of the rounds,
which other work on the machine disturbs least. The corpus is the running Python's standard library, the same on one
machine and Python. A line has the commit, the date, the machine, the versions and the seconds; lines of other machines
or Pythons are kept and not compared with. Exit status 1 where something takes more than threshold times its last
figure.
"""

from __future__ import annotations

import argparse
import datetime
import importlib.metadata
import json
import os
import platform
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
import sys, time
text = open(sys.argv[1], encoding="utf-8").read()
{before}
began = time.process_time()
{measured}
print(time.process_time() - began)
"""


def measure(name: str, corpus: Path) -> float:
    """Seconds of processor time that one of the MEASUREMENTS takes, in a fresh process."""
    before, measured = MEASUREMENTS[name]
    program = PROGRAM.format(before=before, measured=measured)
    done = subprocess.run([sys.executable, "-c", program, str(corpus)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{name!r} fails:\n{done.stderr}")
    return float(done.stdout.split()[-1])


def processor() -> str:
    """The name of this machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def about() -> dict[str, Any]:
    """The text of a line without its figures."""

    def git(*arguments: str) -> str:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
        return done.stdout.strip()

    return {
        "commit": git("rev-parse", "--short=12", "HEAD") + ("+" if git("status", "--porcelain") else ""),
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "machine": f"{processor()}, {os.cpu_count()} cores, {platform.system()}",
        "python": platform.python_version(),
        "torch": importlib.metadata.version("torch"),
    }


def compared(line: dict[str, Any], history: list[dict[str, Any]], threshold: float) -> list[str]:
    """A sentence for each figure of a line that is more than threshold times the last one of the same machine."""
    same = [old for old in history if (old["machine"], old["python"]) == (line["machine"], line["python"])]
    slower = []
    for name, seconds in line["seconds"].items():
        last = next((old for old in reversed(same) if name in old["seconds"]), None)
        if last is not None and seconds > threshold * last["seconds"][name]:
            times = seconds / last["seconds"][name]
            slower.append(f"{name}: {seconds:.4f} s, {times:.2f} times as long as at {last['commit']}")
    return slower


def read(path: Path) -> list[dict[str, Any]]:
    """The lines of a history; none where there is no file yet."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("history", type=Path, help="a file of JSON lines, made if there is none")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threshold", type=float, default=1.1)
    parser.add_argument("--only", nargs="+", choices=sorted(MEASUREMENTS), help="these measurements alone")
    options = parser.parse_args()

    names = options.only or list(MEASUREMENTS)
    times: dict[str, list[float]] = {name: [] for name in names}
    with tempfile.TemporaryDirectory() as folder:
        text = Path(folder, "corpus.txt")
        text.write_bytes(corpus.joined(corpus.split(corpus.standard_library()).train)[: 4 << 20])
        text.write_text(text.read_bytes().decode("utf-8", errors="ignore"), encoding="utf-8")
        for _ in range(options.rounds):
            for name in names:
                times[name].append(measure(name, text))
    line = {**about(), "rounds": options.rounds, "seconds": {name: round(min(some), 6) for name, some in times.items()}}
    history = read(options.history)
    with options.history.open("a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    width = max(map(len, names))
    for name, seconds in line["seconds"].items():
        print(f"{name:{width}}  {seconds:10.4f} s")
    if slower := compared(line, history, options.threshold):
        raise SystemExit("\n".join(["slower than before:", *slower]))


if __name__ == "__main__":
    main()
