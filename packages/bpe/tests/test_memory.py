"""Resident memory of processes that hold several tokenizers."""

from __future__ import annotations

import subprocess
import sys

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
def test_fifty_small_tokenizers_take_a_megabyte_each() -> None:
    """Of many that come and go: memory that was freed is taken again, and then all of it is resident."""
    result = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert int(result.stdout) < 100 << 20  # 9.5 MB each, when the list of shared ints had room for a million
