"""The command as a process: closed streams, full disks, Ctrl-C, names that are not UTF-8."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from command_line import command


@pytest.mark.skipif(sys.platform == "win32", reason="closes descriptors by the shell")
@pytest.mark.parametrize(
    ("redirection", "arguments", "status", "expected"),
    [
        ("<&-", ["encode", "tok.json"], 2, b"bpe encode: standard input: closed"),
        ("<&-", ["decode", "tok.json"], 2, b"bpe decode: standard input: closed"),
        ("<&-", ["train", "-", "--vocab-size", "280", "--out", "new.json"], 2, b"bpe train: standard input: closed"),
        (">&-", ["encode", "tok.json", "corpus.txt"], 2, b"bpe encode: standard output: closed"),
        (">&-", ["train", "corpus.txt", "--vocab-size", "280", "--out", "new.json"], 0, b""),
        ("2>&-", ["encode", "nowhere.json"], 2, b""),
    ],
)
def test_a_stream_that_is_closed(
    trained: Path, redirection: str, arguments: list[str], status: int, expected: bytes
) -> None:
    shell = ["sh", "-c", f'exec "$@" {redirection}', "sh"]
    paths = [trained / one if one.endswith((".json", ".txt")) else one for one in arguments]
    done = subprocess.run([*shell, *command(*paths)], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (status, b"")
    assert done.stderr.startswith(expected)
    assert len(done.stderr.splitlines()) == (1 if expected else 0)


def test_a_reader_that_leaves_is_no_error(trained: Path) -> None:
    (trained / "long").write_bytes(b"the cat " * 300_000)
    running = subprocess.Popen(
        command("encode", trained / "tok.json", trained / "long"), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    running.stdout.read(10)
    running.stdout.close()
    error = running.stderr.read()
    running.stderr.close()
    assert (running.wait(), error) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this machine has no /dev/full")
def test_a_full_disk_is_one_sentence(trained: Path) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command("encode", trained / "tok.json", trained / "corpus.txt"),
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr.decode().splitlines() == ["bpe encode: standard output: No space left on device"]


@pytest.mark.parametrize(
    ("number", "status", "lines"), [(signal.SIGINT, 130, ["stopped; nothing was written"]), (signal.SIGTERM, 143, [])]
)
def test_signals_leave_nothing_half_written(trained: Path, number: int, status: int, lines: list[str]) -> None:
    running = subprocess.Popen(
        command("encode", trained / "tok.json", "--jsonl", "--out", trained / "ids.jsonl"),
        stdin=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    running.stdin.write(b'"the cat"\n' * 50_000)
    running.stdin.flush()
    while not list(trained.glob(".ids.jsonl*")):
        time.sleep(0.01)
    running.send_signal(number)
    error = running.stderr.read()
    running.stdin.close()
    running.stderr.close()
    assert running.wait() == status
    assert error.decode().splitlines() == lines
    assert sorted(path.name for path in trained.iterdir()) == ["corpus.txt", "tok.json"]


@pytest.mark.skipif(sys.platform != "linux", reason="file names that are no text")
def test_names_and_terminals_that_are_no_utf8(trained: Path) -> None:
    odd = trained / os.fsdecode(b"\xff.txt")
    odd.write_text("caf\u00e9 " * 9)
    tok, page = trained / "tok.json", trained / os.fsdecode(b"\xfe.html")
    commands = [
        ["report", tok, "--on", odd, "--html", page],
        ["report", tok, "--on", odd],
        ["report", tok, "--on", odd, "--json"],
        ["view", tok, "--text", odd, "--out", page],
        ["train", odd, "--vocab-size", "260", "--special", "\u00e9", "--out", trained / os.fsdecode(b"\xfd.json")],
    ]
    inputs = json.dumps([[str(argument) for argument in arguments] for arguments in commands])
    program = "import json, sys; from bpe.commands.main import main; sys.exit(any(map(main, json.load(sys.stdin))))"
    for encoding in ("ascii", "utf-8"):
        environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "1"}
        done = subprocess.run(
            [sys.executable, "-c", program], input=inputs.encode(), capture_output=True, check=False, env=environment
        )
        assert (done.returncode, done.stderr) == (0, b"")
    done = subprocess.run(
        command("train", odd, "--vocab-size", "260", "--special", os.fsdecode(b"\xff"), "--out", trained / "new.json"),
        capture_output=True,
        check=False,
    )
    assert done.returncode == 2
    assert b"surrogates not allowed" in done.stderr
