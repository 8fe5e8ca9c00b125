"""Every SIMD level that this machine has beside every other: UTF-8 and whole processes are the same at each.

Most tests run at one level, which the last lines of a test run name; those here run all levels, whatever BPE_SIMD says.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from strategies import TEXTS

from bpe.native import cpu
from bpe.native.text import utf8
from bpe.scanning import scanner


def test_there_is_more_than_one_level_to_compare() -> None:
    assert cpu.AVAILABLE[0] == "portable"
    if len(cpu.AVAILABLE) == 1:
        pytest.skip("this machine has only the level portable: THE VECTOR CODE IS NOT TESTED HERE")


@given(st.one_of(TEXTS, st.text(st.characters(max_codepoint=255)), st.text(st.characters(max_codepoint=0xFFFF))))
@example("".join(map(chr, [*range(0xD800), *range(0xE000, 0x110000, 31)])))
@example("".join(map(chr, range(256))))
def test_a_str_becomes_the_utf8_that_python_makes_of_it(text: str) -> None:
    expected: bytes | None
    try:
        expected = text.encode()
    except UnicodeEncodeError:
        expected = None
    for level in cpu.AVAILABLE:
        assert utf8(text, level=level) == expected, level


@pytest.mark.parametrize("most", [0xFF, 0xFFFF, 0x10FFFF])
def test_long_texts_of_characters_of_every_size_become_utf8(most: int) -> None:
    chance = random.Random(most)
    edges = [edge for edge in (0x7F, 0x80, 0x7FF, 0x800, 0xD7FF, 0xE000, 0xFFFF, 0x10000, 0x10FFFF) if edge <= most]
    for count in range(200):
        codes = [
            chance.choice([*edges, chance.randrange(128), chance.randrange(min(most, 0xD7FF))]) for _ in range(count)
        ]
        text = "".join(map(chr, codes)) + "a" * chance.randrange(40)
        for level in cpu.AVAILABLE:
            assert utf8(text, level=level) == text.encode(), level
            if most > 0xFF:
                at = chance.randrange(len(text) + 1)
                assert utf8(text[:at] + chr(chance.randrange(0xD800, 0xE000)) + text[at:], level=level) is None, level


PROGRAM = """
import hashlib, sys
import bpe
from bpe.native import cpu, hash_seed
data = open(sys.argv[1], "rb").read()
tokenizer = bpe.train([data.decode()], 600, num_threads=2)
ids = tokenizer.encode_to_numpy(data + b" " + data.upper())
print(cpu.level(), hash_seed.seed(), hashlib.sha256(repr(tokenizer.merges).encode() + ids.tobytes()).hexdigest())
"""


def run(file: object, level: str) -> subprocess.CompletedProcess[str]:
    settings = {**os.environ, "BPE_SIMD": level}
    return subprocess.run([sys.executable, "-c", PROGRAM, str(file)], capture_output=True, text=True, env=settings)


def test_whole_processes_at_each_level_and_with_other_seeds(tmp_path: Any) -> None:
    chance = random.Random(7)
    words = ["".join(chance.choices("etaoinsrhlé日", k=chance.randint(1, 30))) for _ in range(5_000)]
    file = tmp_path / "text"
    file.write_text(" ".join(words), encoding="utf-8")
    actual = [run(file, level).stdout.split() for level in (*cpu.AVAILABLE, "")]
    assert [line[0] for line in actual] == [*cpu.AVAILABLE, cpu.AVAILABLE[-1]]
    assert len({line[1] for line in actual}) == len(actual), "the seed of the hashes is not random"
    assert len({line[2] for line in actual}) == 1, "the result depends on the level or on the seed of the hashes"


@pytest.mark.parametrize("level", ["fastest", "AVX2", "sse2"])
def test_a_level_that_does_not_exist_is_refused_by_name(level: str, tmp_path: Any) -> None:
    file = tmp_path / "text"
    file.write_text("some text")
    failed = run(file, level)
    assert failed.returncode == 1
    assert failed.stderr.splitlines()[-1].startswith(f"ValueError: BPE_SIMD={level}: ")
    with pytest.raises(ValueError, match=level):
        scanner.split(b"text", "gpt2", level=level)
