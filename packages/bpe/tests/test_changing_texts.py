"""Texts that others write to while they are encoded: the cache keeps no ids of other bytes."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import numpy as np
import pytest

import bpe


@pytest.mark.parametrize("kind", ["array", "read-only view", "rows of Arrow", "mapped file"])
def test_a_text_that_is_written_to_while_it_is_encoded_changes_no_other(kind: str, tmp_path: Path) -> None:
    chance = random.Random(5)
    words = ["".join(chance.choices("abcdefgh", k=7)) for _ in range(50_000)]
    one, other = (" ".join(word + end for word in words).encode() for end in ("ab", "ba"))
    tokenizer, twin = (bpe.train([" ".join(words[:1000])], 400) for _ in range(2))
    done = threading.Event()
    (tmp_path / "text").write_bytes(one)
    text = np.memmap(tmp_path / "text", mode="r+") if kind == "mapped file" else np.frombuffer(bytearray(one), np.uint8)

    def write() -> None:
        while not done.is_set():
            text[:] = np.frombuffer(other, np.uint8)
            text[:] = np.frombuffer(one, np.uint8)

    def encode() -> None:
        if kind == "rows of Arrow":
            arrow = pytest.importorskip("pyarrow")
            edges = np.append(np.arange(0, len(one), 1000, dtype=np.int32), np.int32(len(one)))
            buffers = [None, arrow.py_buffer(edges), arrow.py_buffer(text)]
            tokenizer.encode_arrow(arrow.Array.from_buffers(arrow.binary(), len(edges) - 1, buffers))
        elif kind == "mapped file":
            tokenizer.encode_file(tmp_path / "text", tmp_path / "ids.npy")
        else:
            view = memoryview(text)
            tokenizer.encode_to_numpy(view.toreadonly() if kind == "read-only view" else view)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        for _ in range(6):
            encode()
    finally:
        done.set()
        writer.join()
    assert np.array_equal(tokenizer.encode_to_numpy(one), twin.encode_to_numpy(one))
    assert np.array_equal(tokenizer.encode_to_numpy(other), twin.encode_to_numpy(other))
