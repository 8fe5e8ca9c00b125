"""The demo, as a stranger runs it: to its end, stopped in the middle, and asked for what cannot be."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lm.config import TrainConfig

ROOT = Path(__file__).parent.parent
DEMO = ROOT / "demo" / "demo.py"


sys.path.append(str(DEMO.parent))
from pace import Watch  # noqa: E402  (a program's module, beside it)


def prose(size: int) -> str:
    """Text with something to learn in it: sentences over a small vocabulary."""
    rng = random.Random(7)
    words = ["".join(rng.choices("abcdefghijklmnop", k=rng.randint(2, 9))) for _ in range(600)]
    lines = []
    while sum(map(len, lines)) < size:
        lines.append("def " + " ".join(rng.choices(words, k=12)) + ".\n")
    return "".join(lines)


def start(*arguments: object, cwd: Path, limit: str = "") -> subprocess.Popen[str]:
    command = [sys.executable, str(DEMO), *map(str, arguments)]
    if limit:
        command = ["bash", "-c", f'{limit}; exec "$@"', "bash", *command]
    return subprocess.Popen(command, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate()
    return process.returncode, out, err


def half_written(folder: Path) -> list[Path]:
    """Files that are not whole yet; the lock of a run stays, and says nothing once its process has ended."""
    return [path for path in folder.rglob(".*") if path.name != ".lock"]


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "text.txt"
    path.write_text(prose(600_000))
    return path


def test_stopped_in_the_middle_it_goes_on_to_the_end(text: Path, tmp_path: Path) -> None:
    command = ("--corpus", text, "--minutes", 0.5, "--vocab-size", 600, "--out", "run")
    process = start(*command, cwd=tmp_path)
    metrics = tmp_path / "run" / "metrics.jsonl"
    while process.poll() is None and not (metrics.exists() and metrics.stat().st_size):
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    status, out, err = finish(process)
    assert status == 130, err
    assert "The same command goes on from there" in err
    steps_done = max(int(name) for name in os.listdir(tmp_path / "run" / "checkpoints") if name.isdigit())
    assert steps_done > 0

    status, out, err = finish(start(*command, cwd=tmp_path))
    assert status == 0, err
    run = tmp_path / "run"
    steps = json.loads((run / "plan.json").read_text())["steps"]
    logged = [json.loads(line)["step"] for line in metrics.read_text().splitlines() if '"loss"' in line]
    assert logged == sorted(set(logged)), "a step stands twice in the metrics"
    assert logged[-1] == steps > steps_done
    for word in (
        "Corpus",
        "Tokenizer",
        "bytes a token",
        "parameters",
        "memory at the peak",
        "tokens/s",
        "bits per byte",
    ):
        assert word in out
    match = re.search(r"this model (\d\.\d+); gzip -9 (\d\.\d+), xz -9e (\d\.\d+)", out)
    assert match
    assert all(0 < float(value) < 8 for value in match.groups())
    assert re.search(r"xz -9e, all at once: \d\.\d+\. No weights are counted", out)
    for prompt in ("def ", "class ", "import "):
        assert f"\n{prompt}" in out
    page = (run / "report.html").read_text()
    assert "http://" not in page.replace("http://www.w3.org", "")
    for part in ("Curves", "Tokenizer", "A passage", "Budget", "Samples"):
        assert part in page
    assert "have not seen the text that the model learned from" in page
    first = [page.index(words) for words in ("Tokenizer and budget", "Written by the model", "The dots are a sample")]
    assert first == sorted(first)
    assert first[-1] < page.index("Byte-level BPE, trained")
    measured = re.search(r"speed, in the median.*?</tr>", page, re.DOTALL)
    assert measured
    assert not re.search(r"[-−]\d[\d,.]* (k )?tokens/s", measured[0])
    model_page = (run / "model.html").read_text()
    assert str(run.name) + "/model.html" in out
    assert "docs/course/{}.md" in model_page
    assert not half_written(run)

    status, again, err = finish(start(*command, cwd=tmp_path))  # all is done: the same words, at once
    assert status == 0, err
    assert again.splitlines()[-1] == out.splitlines()[-1]

    status, _, err = finish(start(*command, "--vocab-size", 700, cwd=tmp_path))
    assert status == 2
    assert "holds a run with another vocab_size" in err


@pytest.mark.parametrize(
    ("content", "arguments", "error"),
    [
        (b"", (), "is empty"),
        (b"text\0more" * 100_000, (), "is a binary file"),
        (b"\xff\xfe" * 200_000, (), "is not UTF-8"),
        (b"too little text\n", (), "the corpus is too small"),
        (prose(600_000).encode(), ("--vocab-size", 50_000), "too small for a vocabulary of 50000"),
        (prose(600_000).encode(), ("--vocab-size", 100), "vocab_size is 100"),
        (prose(600_000).encode(), ("--minutes", 0), "--minutes is 0"),
        (prose(600_000).encode(), ("--out", "taken"), "taken"),
        (None, (), "nowhere.txt"),
    ],
)
def test_what_cannot_be_is_one_clear_sentence(
    content: bytes | None, arguments: tuple[object, ...], error: str, tmp_path: Path
) -> None:
    name = "nowhere.txt" if content is None else "text.txt"
    if content is not None:
        (tmp_path / name).write_bytes(content)
    (tmp_path / "taken").write_text("a file")
    status, _, err = finish(start("--corpus", name, "--out", "run", *arguments, cwd=tmp_path))
    assert status == 2
    last = err.strip().splitlines()[-1]
    assert last.startswith("demo: ")
    assert error in last
    assert "Traceback" not in err
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(os.name == "nt", reason="limits on file sizes are POSIX")
@pytest.mark.parametrize("blocks", [300, 700])
def test_a_full_disk_is_one_clear_sentence(text: Path, tmp_path: Path, blocks: int) -> None:
    # A limit on file sizes stands in for a full disk: at 300 KiB the text cannot be written, at 700 the checkpoints
    # cannot.
    command = ("--corpus", text, "--minutes", 0.3, "--vocab-size", 600, "--out", "run")
    status, _, err = finish(start(*command, cwd=tmp_path, limit=f"ulimit -f {blocks}"))
    assert status == 2, err
    last = err.strip().splitlines()[-1]
    assert "demo: " in last
    assert "Nothing is half-written" in last
    assert "Traceback" not in err
    assert not half_written(tmp_path / "run")


# A run of 1,000 steps of 0.25 s, with 275 s of time.
SCHEDULE = TrainConfig(steps=1000, warmup_steps=100, schedule="linear", decay_steps=200)
TIME = 275.0


def watch(seconds_of: Callable[[int], float], first: int = 1, config: TrainConfig = SCHEDULE) -> tuple[int, Watch]:
    """The step after which a watch stops a run whose steps take these seconds (the last if it does not)."""
    now = 0.0
    watching = Watch(TIME, config, clock=lambda: now)
    for step in range(first, config.steps + 1):
        now += seconds_of(step)
        if watching({"step": step, "loss": 5.0, "seconds": 0.25 * step}):
            return step, watching
    return config.steps, watching


def test_a_machine_as_fast_as_measured_keeps_the_schedule() -> None:
    step, watching = watch(lambda step: 0.25)
    assert step == 1000
    assert watching.shorter is None


def test_steps_longer_than_the_window_shorten_the_schedule_too() -> None:
    step, watching = watch(lambda step: 30.0)
    assert step < 10
    assert watching.shorter is not None


@pytest.mark.parametrize("paused", [2, 30, 400, 790])
def test_a_pause_of_seconds_does_not_shorten_the_schedule(paused: int) -> None:
    step, _ = watch(lambda step: 12.0 if step == paused else 0.25)
    assert step == 1000


@pytest.mark.parametrize("slower_from", [0, 150, 400, 700])
def test_a_machine_that_slows_down_gets_a_schedule_that_fits(slower_from: int) -> None:
    def seconds_of(step: int) -> float:
        return 0.5 if step > slower_from else 0.25

    step, watching = watch(seconds_of)
    assert watching.shorter is not None
    steps, decay = watching.shorter["steps"], watching.shorter["decay_steps"]
    assert step < steps < 1000
    assert SCHEDULE.warmup_steps <= steps - decay >= step, "the rate so far is the same by both schedules"
    total = sum(map(seconds_of, range(1, steps + 1)))
    assert 0.8 * TIME < total <= TIME


def test_a_schedule_whose_rate_falls_already_stays() -> None:
    step, watching = watch(lambda step: 1.0 if step > 800 else 0.25)
    assert (step, watching.shorter) == (1000, None)


def test_a_continued_run_counts_the_seconds_before() -> None:
    step, watching = watch(lambda step: 0.5, first=500)
    assert step < 800
    assert watching.shorter is not None
    assert 0.25 * 500 + 0.5 * (watching.shorter["steps"] - 500) <= TIME
