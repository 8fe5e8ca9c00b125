"""The exercises of the course: a solution passes, a skeleton and each of the usual mistakes fail with words that
help."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("bpe", reason="the exercises compare with bpe")

ROOT = Path(__file__).parent.parent
EXERCISES = ROOT / "docs" / "course" / "exercises"
SOLUTIONS = ROOT / "tests" / "course_solutions"
NAMES = sorted(path.name for path in EXERCISES.glob("ex*.py"))


def grade(path: Path) -> tuple[int, list[str]]:
    """The exit status of grading a file, and the lines it prints."""
    command = [sys.executable, EXERCISES / "grade.py", path.name[2], "--file", path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert not done.stderr
    return done.returncode, done.stdout.splitlines()


@pytest.mark.parametrize("name", NAMES)
def test_a_solution_passes(name: str) -> None:
    status, lines = grade(SOLUTIONS / name)
    assert status == 0, lines
    assert all(line[0] in "✓ " for line in lines[:-1])


@pytest.mark.parametrize("name", NAMES)
def test_a_skeleton_fails_and_says_what_is_missing(name: str) -> None:
    status, lines = grade(EXERCISES / name)
    assert status == 1
    assert lines[-1].startswith("0 of ")
    for line in lines[:-1]:
        assert line.startswith("✗ ")
        assert "its body is not written yet" in line


@pytest.mark.parametrize(
    ("name", "right", "wrong", "said"),
    [
        ("ex1_utf8.py", "point < 0x800:", "point < 0x801:", "just below and just above a bound"),
        ("ex1_utf8.py", "0x1F if byte", "0x0F if byte", "✗ decode_utf8: decode_utf8("),
        ("ex1_utf8.py", "== size", ">= 1", "✗ is_whole: is_whole("),
        ("ex2_bpe.py", "counts[pair] += count", "counts[pair] += 1", "✗ count_pairs"),
        ("ex2_bpe.py", "            i += 2", "            i += 1", "never use a symbol twice"),
        ("ex2_bpe.py", "(counts[pair], pair)", "counts[pair]", "which of equally frequent pairs comes first"),
        ("ex2_bpe.py", "[::2]", "", "Check what is counted"),
        ("ex2_bpe.py", "min(pairs, key=self.ranks.__getitem__)", "pairs[0]", "stands first in the list of merges"),
        ("ex2_bpe.py", 'errors="replace"', 'errors="strict"', "raises UnicodeDecodeError"),
        ("ex3_judge.py", "len(text.encode())", "len(text)", "Count bytes, not characters"),
        ("ex3_judge.py", "set(tokenizer.vocab) -", "set(range(256)) -", "✗ unused_tokens"),
        ("ex3_judge.py", "if not whole(token)", "if token[0] >= 0x80", "✗ parts_of_characters"),
        ("ex3_judge.py", "def parts_of_characters", "def parts", "There is no parts_of_characters in ex3"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, name: str, right: str, wrong: str, said: str) -> None:
    solution = (SOLUTIONS / name).read_text(encoding="utf-8")
    assert right in solution
    path = tmp_path / name
    path.write_text(solution.replace(right, wrong), encoding="utf-8")
    status, lines = grade(path)
    assert status == 1
    assert said in "\n".join(lines)
