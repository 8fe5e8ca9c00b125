"""Resident memory of processes that hold several tokenizers."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import collections
import bpe

def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096

data = bpe.train(["the cat sat on the mat"] * 3, 262).data
bpe.Tokenizer.from_data(data).encode("the cat")
begin = resident()
used_last = collections.deque(maxlen=50)
for number in range(150):
    tokenizer = bpe.Tokenizer.from_data(data)
    tokenizer.encode(f"the cat {number}")
    used_last.append(tokenizer)
print(resident() - begin)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the system says there how much of a process is in memory")
def test_fifty_small_tokenizers_take_half_a_megabyte_each() -> None:
    """Of many that come and go: memory that was freed is taken again, and then all of it is resident."""
    result = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert int(result.stdout) < 27_000_000  # a megabyte each, while tables of pairs of bytes were written whole


FAILING_MALLOC = r"""
#include <stdatomic.h>
#include <stdlib.h>
void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
static atomic_long left;
void fail_at(long number) { left = number; }
long not_yet(void) { return left; }
static int fails(size_t size) { return size >= 600 && left > 0 && --left == 0; }
void *malloc(size_t size) { return fails(size) ? NULL : __libc_malloc(size); }
void *calloc(size_t count, size_t size) { return fails(count * size) ? NULL : __libc_calloc(count, size); }
void *realloc(void *old, size_t size) { return fails(size) ? NULL : __libc_realloc(old, size); }
"""

WITHOUT_MEMORY = r"""
import ctypes, sys
import bpe
from bpe.encoding import arrow
library = ctypes.CDLL(sys.argv[1])
thai = "\u0e01\u0e33\u0e25\u0e31\u0e07\u0e40\u0e23\u0e35\u0e22\u0e19" * 30
text = "low lower <s> " + "a" * 70 + "ab" * 3000 + thai + " e\u0301 " + "lowest " * 600
texts = ["a", "lower " * 5, thai, text.encode(), text]
plain = bpe.train([text], 300, pattern="cl100k", special_tokens=["<s>"])
marked = bpe.train_sentencepiece([text], 310, special_tokens=["<s>"])
for data in (plain.data, plain.data._replace(normalizer="NFC", lstrip=frozenset(["<s>"])), marked.data):
    calls = [
        lambda one: [one.encode(each, allowed_special="all") for each in texts],
        lambda one: one.encode_batch(texts, allowed_special="all", num_threads=2),
    ]
    for call in calls:
        expected, number, failures = call(bpe.Tokenizer.from_data(data)), 0, 0
        while True:
            number += 1
            one = bpe.Tokenizer.from_data(data)
            one.encode("")  # which makes the tables, with NumPy, and imports what is needed
            library.fail_at(number)
            try:
                actual = call(one)
            except MemoryError:
                actual, failures = None, failures + 1
            done = library.not_yet() > 0
            library.fail_at(0)
            assert actual in (None, expected), number
            assert call(one) == expected, number
            if done:
                break
        print(number, failures)
"""


@pytest.mark.skipif(shutil.which("cc") is None or platform.libc_ver()[0] != "glibc", reason="asks cc and glibc")
@pytest.mark.skipif("LD_PRELOAD" in os.environ, reason="a sanitizer's malloc stands before the one that fails")
def test_each_allocation_may_fail(tmp_path: Path) -> None:
    """A call without memory is a MemoryError, and the calls after it give the ids of any other."""
    source, library = tmp_path / "failing.c", tmp_path / "failing.so"
    source.write_text(FAILING_MALLOC)
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    command = [sys.executable, "-c", WITHOUT_MEMORY, str(library)]
    environment = os.environ | {"LD_PRELOAD": str(library)}
    result = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    assert all(int(line.split()[1]) > 5 for line in result.stdout.splitlines()), result.stdout
