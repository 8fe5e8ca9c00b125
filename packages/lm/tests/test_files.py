"""Files: written whole or not at all, and locked."""

from __future__ import annotations

import errno
import os
import subprocess
import sys

import pytest
from runs import environment

from lm import files
from lm.files import Locked, atomic_file, atomic_write, lock, sha256


def test_what_is_written_takes_the_place_of_what_was(tmp_path):
    path = tmp_path / "file"
    atomic_write(path, "one\n")
    with atomic_file(path) as file:
        file.write(b"two\n")
        assert path.read_text() == "one\n", "not before all is written"
    assert path.read_bytes() == b"two\n"
    assert sha256(path) == "27dd8ed44a83ff94d557f9fd0412ed5a8cbca69ea04922d88c01184a07300a5a"
    assert os.listdir(tmp_path) == ["file"]


def test_two_that_write_the_same_file_at_once_each_write_a_whole_one(tmp_path):
    path = tmp_path / "file"
    with atomic_file(path) as outer:
        outer.write(b"the outer one")
        with atomic_file(path) as inner:
            inner.write(b"the inner one")
        assert path.read_text() == "the inner one"
    assert path.read_text() == "the outer one"
    assert os.listdir(tmp_path) == ["file"]


@pytest.mark.parametrize("failing", ["block", "fsync", "replace"])
def test_an_error_leaves_the_file_as_it_was_and_nothing_else(tmp_path, monkeypatch, failing):
    path = tmp_path / "file"
    atomic_write(path, "one")

    def fail(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    if failing != "block":
        monkeypatch.setattr(os, failing, fail)

    def write():
        with atomic_file(path) as file:
            file.write(b"two")
            if failing == "block":
                fail()

    with pytest.raises(OSError, match="No space"):
        write()
    assert path.read_text() == "one"
    assert os.listdir(tmp_path) == ["file"]


def test_a_lock_is_held_by_one_process_and_ends_with_it(tmp_path):
    holder = "import sys, time\nfrom pathlib import Path\nfrom lm.files import lock\n"
    holder += "with lock(Path(sys.argv[1])): print(1, flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", holder, tmp_path], stdout=subprocess.PIPE, env=environment())
    process.stdout.readline()
    with pytest.raises(Locked, match=f"process {process.pid} is at work"), lock(tmp_path):
        pass
    process.kill()
    process.communicate()
    with lock(tmp_path), pytest.raises(Locked, match=f"process {os.getpid()} is at work"), lock(tmp_path):
        pass


@pytest.mark.parametrize(
    "message",
    [
        "I/O error: No space left on device (os error 28)",
        'IoError(Os { code: 28, kind: StorageFull, message: "No space left on device" })',  # safetensors 0.4
    ],
)
def test_a_full_disk_in_the_words_of_other_libraries(message, tmp_path):
    error = RuntimeError(f"Error while serializing: {message}")
    assert files.reason(error, tmp_path).startswith("the disk is full")
