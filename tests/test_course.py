"""The exercises of the course: a solution passes, a skeleton and each of the usual mistakes fail with words that
help."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import assignment
import course_mistakes
import grade as grader
import grading
import interpreter  # type: ignore[import-not-found]  # before whatever imports triton
import pytest
from course_mutants import Mutant

pytest.importorskip("bpe", reason="the exercises compare with bpe")

ROOT = Path(__file__).parent.parent
EXERCISES = ROOT / "docs" / "course" / "exercises"
SOLUTIONS = ROOT / "tests" / "course_solutions"
NAMES = sorted(path.name for path in EXERCISES.glob("ex*.py"))
HAS_TRITON = importlib.util.find_spec("triton") is not None


def needs_interpreter(name: str) -> None:
    """Skip where Triton was imported before its interpreter was asked for."""
    if name.startswith("ex8") and interpreter.LATE:
        pytest.skip("triton was imported without its interpreter")


def chapter_of(name: str) -> int:
    """The number in a file's name."""
    return int(name[2:].partition("_")[0])


def grade(path: Path, capsys: pytest.CaptureFixture[str], only: str = "") -> tuple[bool, list[str]]:
    """True if everything in a file is right, and the lines that grading it prints."""
    needs_interpreter(path.name)
    capsys.readouterr()
    right = grader.grade(chapter_of(path.name), path, only)
    return right, capsys.readouterr().out.splitlines()


def command(*arguments: object, **settings: Any) -> subprocess.CompletedProcess[str]:
    """Run grade.py in a process of its own."""
    run = [sys.executable, EXERCISES / "grade.py", *map(str, arguments)]
    return subprocess.run(run, **{"capture_output": True, "text": True, "timeout": 120, **settings})


def test_every_chapter_has_its_files() -> None:
    assert sorted(name for name, _ in grader.CHAPTERS.values()) == NAMES
    assert sorted(path.name for path in SOLUTIONS.glob("ex*.py")) == NAMES


def test_the_command_gives_a_status_and_one_exercise_if_asked(tmp_path: Path) -> None:
    path = SOLUTIONS / "ex1_utf8.py"
    done = command(1, "--file", path, "--only", "is_whole")
    assert (done.returncode, done.stdout, done.stderr) == (0, "✓ is_whole\n1 of 1 right\n", "")
    missing = command(1, "--file", path, "--only", "encode")
    assert missing.returncode == 1
    assert "chapter 1 has no exercise encode" in missing.stderr


BROKEN = {
    "exit": ("import sys\nsys.exit(0)\n", "ends the program"),
    "exit inside": ("def encode_utf8(text):\n    exit()\n", "✗ encode_utf8: ends the program"),
    "endless import": ("while True:\n    pass\n", "not finished after 1 seconds"),
    "endless": ("def is_whole(data):\n    while True:\n        try:\n            while True: pass\n"
                "        except Exception: pass\n", "✗ is_whole: is not finished after 1 seconds"),
    "no Python": ("def", "✗ mine.py: SyntaxError"),
    "a package's name": ("def encode_utf8(text): return text.encode(), json\n", "name 'json' is not defined"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "message"), BROKEN.values(), ids=BROKEN)
def test_a_file_that_ends_the_program_or_never_ends_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str
) -> None:
    path = tmp_path / ("json.py" if "json" in text else "mine.py")
    path.write_text(text, encoding="utf-8")
    assert not grader.grade(1, path, limit=1)
    assert message in capsys.readouterr().out


def test_the_command_stops_code_that_python_cannot_interrupt(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("import sys\nsum(iter(int, 1))\n", encoding="utf-8")
    code = "import limits, runpy; limits.GRACE = 1; runpy.run_path('grade.py', None, '__main__')"
    command = [sys.executable, "-c", code, "1", "--limit", "1", "--file", path]
    ran = subprocess.run(command, capture_output=True, text=True, cwd=EXERCISES, timeout=120)
    assert ran.returncode == 1
    assert "Timeout" in ran.stderr


def test_points_as_json_and_hidden_checks(tmp_path: Path) -> None:
    path, hidden = tmp_path / "mine.py", tmp_path / "hidden.py"
    path.write_text("print('noise')\ndef encode_utf8(text): return text.encode()\n", encoding="utf-8")
    hidden.write_text(
        "from grading import same\n"
        "def more(yours): same('encode_utf8(3)', yours('3'), b'4')\n"
        "CHAPTERS = {1: {'encode_utf8': more}}\n",
        encoding="utf-8",
    )
    for extra, points in ((), 1), (("--hidden", hidden), 0):
        ran = command(1, "--json", "--seed", 7, "--file", path, *extra)
        assert ran.returncode == 1
        report = json.loads(ran.stdout)
        assert (report["points"], report["max_points"], report["seed"]) == (points, 3, 7)
        assert [each["points"] for each in report["exercises"]] == [points, 0, 0]
        assert "There is no decode_utf8" in report["exercises"][1]["message"]


def test_gradescope_gets_points_for_what_was_handed_in(tmp_path: Path) -> None:
    (tmp_path / "ex1_utf8.py").write_text((SOLUTIONS / "ex1_utf8.py").read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "ex5_budget.py").write_text("import os\nprint('[]', flush=True)\nos._exit(0)\n", encoding="utf-8")
    command = [sys.executable, EXERCISES / "gradescope.py", tmp_path, tmp_path / "results.json", "--chapters", "1", "3"]
    subprocess.run(command, check=True, timeout=120)
    tests = json.loads((tmp_path / "results.json").read_text(encoding="utf-8"))["tests"]
    assert [(test["score"], test["max_score"]) for test in tests[:3]] == [(1, 1)] * 3
    names = ["1. encode_utf8", "1. decode_utf8", "1. is_whole", "3. ex3_judge.py"]
    assert [test["name"] for test in tests[:4]] == names
    assert sum(test["score"] for test in tests[3:]) == 0
    assert sum(test["max_score"] for test in tests[3:]) == 3 + 5
    assert "ended by this file (status 0)" in tests[4]["output"]


@pytest.mark.parametrize("chapter", [1, 2, 6])
def test_a_notebook_of_nbgrader_gives_each_exercise_a_graded_cell(chapter: int) -> None:
    cells = assignment.notebook(chapter)["cells"]
    solution = (SOLUTIONS / grader.CHAPTERS[chapter][0]).read_text(encoding="utf-8")
    right: dict[str, object] = {}
    exec(compile(solution, "solution", "exec"), right)
    names: dict[str, object] = {"check": grader.check}
    points = 0
    for one in cells[2:]:
        text, marks = "".join(one["source"]), one["metadata"].get("nbgrader")
        if marks is None:
            exec(text, names)
            continue
        with pytest.raises(AssertionError, match="its body is not written yet"):
            exec(text, names)
        exec(text, {**names, **{name: value for name, value in right.items() if name in names}})
        points += marks["points"]
    assert points == sum(grader.POINTS.get(name, 1) for name in grader.checks_of(chapter))
    with pytest.raises(SystemExit, match="graded as a file"):
        assignment.notebook(9)


def test_a_pipe_without_check_marks(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "cp1252"}
    ran = command(1, "--file", SOLUTIONS / "ex1_utf8.py", encoding="cp1252", env=environment)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "ok encode_utf8" in ran.stdout


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_pool_of_processes_can_import_the_file(tmp_path: Path, method: str) -> None:
    """As on macOS, Windows, and in Python 3.14; the pool is not closed, and the command ends nevertheless."""
    path = tmp_path / "my pool.py"
    path.write_text(
        "import multiprocessing\n"
        "def code(character): return character.encode()\n"
        "def encode_utf8(text):\n"
        "    global pool\n"
        "    pool = globals().get('pool') or multiprocessing.get_context('METHOD').Pool(1)\n"
        "    return b''.join(pool.map(code, text))\n".replace("METHOD", method),
        encoding="utf-8",
    )
    ran = command(1, "--only", "encode_utf8", "--json", "--file", path)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.soak  # test_a_solution_passes has other inputs each day
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("name", [name for name in NAMES if chapter_of(name) not in (8, 9)])
def test_a_solution_passes_with_other_inputs(
    name: str, seed: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(grading.State, "seed", seed)
    assert grader.grade(chapter_of(name), SOLUTIONS / name, is_timed=False), capsys.readouterr().out


@pytest.mark.parametrize("name", NAMES)
def test_a_solution_passes(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    right, lines = grade(SOLUTIONS / name, capsys)
    assert right, lines
    assert all(line[0] in "✓ " for line in lines[:-1])


def test_the_file_is_graded_again_when_it_is_saved(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def encode_utf8(text): return b''", encoding="utf-8")
    command = [sys.executable, "-u", EXERCISES / "grade.py", "1", "--only", "encode_utf8", "--watch", "--file", path]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        assert watching.stdout is not None
        lines = iter(watching.stdout)
        assert "✗ encode_utf8" in next(line for line in lines if line[0] in "✓✗")
        for text, sign in (("def", "✗ mine.py: SyntaxError"), ("def encode_utf8(text): return text.encode()", "✓")):
            path.write_text(text, encoding="utf-8")
            os.utime(path, (0, len(text)))
            assert next(line for line in lines if line[0] in "✓✗").startswith(sign)
        watching.send_signal(signal.SIGINT)
        assert watching.wait(60) == 0


def all_are_judged_rightly(folder: Path, program: str, *arguments: object) -> None:
    """Run a program of this folder in another one, where some of the mistakes write."""
    run = [sys.executable, ROOT / "tests" / program, *map(str, arguments)]
    ran = subprocess.run(run, capture_output=True, text=True, cwd=folder, env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize(
    ("chapters", "every"),
    [
        ([n for n in grader.CHAPTERS if n not in (8, 9)], 20),
        ([8, 9], 60),  # most of their mutants run in Triton's interpreter or start two processes
        pytest.param(list(grader.CHAPTERS), 1, marks=pytest.mark.soak),
    ],
    ids=["plain", "of kernels and of two processes", "all"],
)
def test_mutants_of_the_solutions_are_caught(tmp_path: Path, chapters: list[int], every: int) -> None:
    """One of so many in each chapter; of chapter 8 where Triton is there."""
    chapters = [number for number in chapters if number != 8 or HAS_TRITON]
    all_are_judged_rightly(tmp_path, "course_mutants.py", *chapters, "--every", every)


@pytest.mark.parametrize("every", [12, pytest.param(1, marks=pytest.mark.soak)])
@pytest.mark.parametrize("kind", ["wrong", "right"])
def test_solutions_of_students_are_judged_as_they_should_be(tmp_path: Path, kind: str, every: int) -> None:
    """One of so many of each table: mistakes that no change of one token makes, and right ways that are not ours."""
    files = [name for name in NAMES if not name.startswith("ex8") or HAS_TRITON]
    all_are_judged_rightly(tmp_path, "course_mistakes.py", kind, *files, "--every", every)


@pytest.mark.parametrize("name", NAMES)
def test_a_skeleton_fails_and_says_what_is_missing(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    right, lines = grade(EXERCISES / name, capsys)
    assert not right
    assert lines[-1].startswith("0 of ")
    for line in lines[:-1]:
        assert line.startswith("✗ ")
        assert "its body is not written yet" in line


@pytest.mark.parametrize("name", NAMES)
def test_a_skeleton_says_what_every_exercise_is(name: str) -> None:
    text = (EXERCISES / name).read_text(encoding="utf-8")
    page = next((ROOT / "docs/course").glob(f"{chapter_of(name)}-*.md")).read_text(encoding="utf-8")
    module = __import__(grader.CHAPTERS[chapter_of(name)][1])
    for exercise in module.CHAPTERS[chapter_of(name)]:
        for part in exercise.split(" and "):
            assert re.search(rf"(?:def|class) {part}\b", text)
            assert re.search(rf"`{part}\b", page)


NAMED = [one for one in course_mistakes.changed("wrong") if one.verdict]


@pytest.mark.parametrize("mistake", NAMED, ids=lambda one: f"{one.exercises[0]}: {one.verdict}")
def test_a_mistake_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], mistake: Mutant) -> None:
    path = tmp_path / mistake.file
    path.write_text(mistake.source, encoding="utf-8")
    needs_interpreter(mistake.file)
    assert not grader.grade(chapter_of(mistake.file), path, mistake.exercises[0], is_timed=False)
    assert mistake.verdict in capsys.readouterr().out
