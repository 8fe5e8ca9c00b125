"""A run that is stopped at any moment, however it is, goes on to the identical tokenizer."""

import io
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from strategies import corpus

import bpe
from bpe import training
from bpe.native import atomic_file

SIZE = 600
CHILD = """
import sys, time
import bpe
print("begun", flush=True)
bpe.train(sys.argv[1], int(sys.argv[3]), checkpoint=sys.argv[2], progress=lambda *_: time.sleep(0.03))
print("done", flush=True)
"""


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "corpus.txt"
    path.write_text(corpus(8) * 2)
    return path


def test_a_finished_run_is_there_at_once_and_goes_further(
    text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    expected = [bpe.train(text, size) for size in (SIZE, SIZE + 50, SIZE - 50)]
    assert bpe.train(text, SIZE, checkpoint=folder).vocab == expected[0].vocab
    monkeypatch.setattr(training, "count_source", None)  # the counts are not made again
    for tokenizer in expected:
        again = bpe.train([text], tokenizer.vocab_size, checkpoint=folder, num_threads=1)
        assert (again.vocab, again.merges) == (tokenizer.vocab, tokenizer.merges)


def test_a_stream_goes_on_from_what_was_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list or an iterator that breaks at any text: those of finished blocks are skipped, not counted again."""
    monkeypatch.setattr("bpe.counting.checkpoint.BLOCK", 2000)
    texts = [corpus(number, 20 + number) for number in range(60)]
    expected, folder = bpe.train(texts, SIZE), tmp_path / "run"
    counted: list[int] = []
    count_source = training.count_source

    def counting(source: Any, *arguments: Any) -> Any:
        texts = list(source)
        counted.append(len(texts))
        return count_source(texts, *arguments)

    monkeypatch.setattr(training, "count_source", counting)

    def broken(stop: int) -> Any:
        yield from texts[:stop]
        raise ConnectionError("the stream broke")

    for stop in (3, 25, 26, 59):
        with pytest.raises(ConnectionError):
            bpe.train(broken(stop), SIZE, checkpoint=folder)
    assert bpe.train(iter(texts), SIZE, checkpoint=folder).fingerprint == expected.fingerprint
    assert sum(counted) == len(texts)  # each was counted in one run alone
    assert bpe.train(texts, SIZE, checkpoint=folder, memory_limit=1 << 24).fingerprint == expected.fingerprint
    with pytest.raises(ValueError, match="another run"):
        bpe.train(texts[1:], SIZE, checkpoint=folder)
    bpe.count(texts).save(folder / "counts")  # which do not say of how many texts they are
    with pytest.raises(ValueError, match="another run"):
        bpe.train(texts, SIZE, checkpoint=folder)


@pytest.mark.parametrize("tie_break", ["bytes", "huggingface", "ids"])
def test_stopped_at_any_call(text: Path, tmp_path: Path, tie_break: str) -> None:
    folder = tmp_path / "run"
    expected = bpe.train(text, SIZE, tie_break=tie_break)
    for stop in (1, 2, 4, 3, 2):
        calls = 0

        def report(phase: str, done: int, total: int | None, stop: int = stop) -> None:
            nonlocal calls
            calls += 1
            if calls == stop:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            bpe.train(text, SIZE, tie_break=tie_break, checkpoint=folder, progress=report)
    actual = bpe.train(text, SIZE, tie_break=tie_break, checkpoint=folder)
    assert (actual.vocab, actual.merges) == (expected.vocab, expected.merges)


def test_the_counts_serve_whatever_is_learned_from_them(text: Path, tmp_path: Path) -> None:
    start = bpe.train([corpus(9)], 300)
    folder = tmp_path / "run"
    bpe.train(text, SIZE, checkpoint=folder)
    for size in (400, 500):
        assert bpe.extend(start, text, size, checkpoint=folder).merges == bpe.extend(start, text, size).merges
    settings: dict[str, Any]
    for settings in ({"tie_break": "ids"}, {"min_count": 2}, {"max_token_bytes": 9}):
        actual = bpe.train(text, 400, checkpoint=folder, **settings)
        assert actual.merges == bpe.train(text, 400, **settings).merges
    assert bpe.train_from_counts(bpe.Counts.load(folder / "counts"), SIZE).merges == bpe.train(text, SIZE).merges


def test_a_url_is_a_corpus_that_a_checkpoint_compares(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    fsspec.filesystem("memory").pipe_file("/checkpoint.txt", b"the cat and the hat")
    trained = [bpe.train("memory://checkpoint.txt", 260, checkpoint=tmp_path / "run") for _ in range(2)]
    assert trained[0].merges == trained[1].merges == bpe.train(["the cat and the hat"], 260).merges
    fsspec.filesystem("memory").pipe_file("/checkpoint.txt", b"another text and size")
    with pytest.raises(ValueError, match=r"memory://checkpoint\.txt has changed since"):
        bpe.train("memory://checkpoint.txt", 260, checkpoint=tmp_path / "run")


def test_a_damaged_file_is_refused_by_name(text: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    bpe.train(text, SIZE, checkpoint=folder)
    data = (folder / "counts").read_bytes()
    rng = random.Random(1)
    for _ in range(12):
        at = rng.randrange(len(data))
        for damaged in (data[:at], data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :]):
            (folder / "counts").write_bytes(damaged)
            with pytest.raises(ValueError, match=r"counts: .*delete it to count again"):
                bpe.train(text, SIZE, checkpoint=folder)


@pytest.mark.thread_unsafe(reason="it changes the text, which is one file for all threads")
def test_a_checkpoint_of_another_run_is_refused_by_name(text: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    bpe.train(text, SIZE, checkpoint=folder)
    arguments: dict[str, Any]
    for arguments, message in [
        ({"pattern": "cl100k"}, "its pattern is"),
        ({"special_tokens": ["<|x|>"]}, r"its special_tokens is \['<|endoftext|>'\], not \['<|x|>'\]"),
    ]:
        with pytest.raises(ValueError, match=f"run is the checkpoint of another run: {message}"):
            bpe.train(text, SIZE, checkpoint=folder, **arguments)
    other = tmp_path / "other.txt"
    other.write_text("other text")
    with pytest.raises(ValueError, match=r"another run: .*other\.txt was not in its corpus"):
        bpe.train([text, other], SIZE, checkpoint=folder)
    bpe.train([text, other], SIZE, checkpoint=tmp_path / "both")
    with pytest.raises(ValueError, match=r"another run: .*other\.txt was in its corpus"):
        bpe.train(text, SIZE, checkpoint=tmp_path / "both")
    with pytest.raises(ValueError, match="one corpus is a list of files, and the other an iterable of texts"):
        bpe.train(iter(["text"]), SIZE, checkpoint=tmp_path / "both")
    os.utime(text, (1, 1))
    with pytest.raises(ValueError, match=r"corpus\.txt has changed since; name another folder, or delete it"):
        bpe.train(text, SIZE, checkpoint=folder)
    with pytest.raises(ValueError, match="needs a corpus of files"):
        bpe.train([io.BytesIO(b"text")], 300, checkpoint=tmp_path / "new")
    bpe.count(text).save(folder / "counts")  # which do not say of which files they are
    with pytest.raises(ValueError, match=r"another run: .*corpus\.txt was not in its corpus"):
        bpe.train(text, SIZE, checkpoint=folder)


def test_a_corpus_that_changes_while_it_is_counted_is_refused(text: Path, tmp_path: Path) -> None:
    changing = tmp_path / "changing.txt"
    changing.write_bytes(text.read_bytes())

    def report(phase: str, done: int, total: int | None) -> None:
        if phase == "counting bytes":
            os.utime(changing, (1, 1))

    with pytest.raises(ValueError, match="changed while it was counted"):
        bpe.train(changing, SIZE, checkpoint=tmp_path / "run", progress=report)


def test_a_full_disk_names_the_file(text: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(atomic_file.os, "fsync", full)
    with pytest.raises(OSError, match="No space left") as caught:
        bpe.train(text, SIZE, checkpoint=tmp_path / "run")
    assert "run" in str(caught.value.filename)
    assert not list((tmp_path / "run").glob(".*"))


def kill_and_take_up(text: Path, folder: Path, rng: random.Random, kills: int, size: int, longest: float) -> None:
    """Kill a training process at random moments, then let it finish."""
    for _ in range(kills):
        child = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(text), str(folder), str(size)], stdout=subprocess.PIPE, text=True
        )
        assert child.stdout is not None
        assert child.stdout.readline() == "begun\n"
        time.sleep(rng.random() * longest)
        child.send_signal(signal.SIGKILL)
        child.communicate()
    expected = bpe.train(text, size)
    actual = bpe.train(text, size, checkpoint=folder)
    assert (actual.vocab, actual.merges) == (expected.vocab, expected.merges)
    assert [path.name for path in folder.iterdir() if not path.name.startswith(".")] == ["counts"]


def test_killed_at_random_moments(text: Path, tmp_path: Path) -> None:
    kill_and_take_up(text, tmp_path / "run", random.Random(2), kills=4, size=SIZE, longest=0.4)


@pytest.mark.soak
def test_killed_a_hundred_times(tmp_path: Path) -> None:
    text = tmp_path / "corpus.txt"
    text.write_text("".join(corpus(seed) for seed in range(60)))
    rng = random.Random(3)
    for run in range(10):
        kill_and_take_up(text, tmp_path / f"run{run}", rng, kills=10, size=1500, longest=0.8)


def test_ctrl_c_while_waiting_for_standard_input(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-c",
        "import sys; from bpe.commands.main import main; print('begun', flush=True); sys.exit(main())",
    ]
    out = tmp_path / "tok.json"
    child = subprocess.Popen(
        [*command, "train", "-", "--vocab-size", "300", "--out", str(out)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stdout.readline() == "begun\n"
    assert child.stdin is not None
    child.stdin.write("some text " * 100_000)
    child.stdin.flush()
    time.sleep(0.2)
    child.send_signal(signal.SIGINT)
    _, error = child.communicate()
    assert child.returncode == 130
    assert error.startswith("stopped; ")
    assert not out.exists()
