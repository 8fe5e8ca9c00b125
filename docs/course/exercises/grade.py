"""Grade the exercises of the course: what you wrote beside what it should give, and how fast it is beside ours.

    python grade.py 2                    the exercises of chapter 2, from ex2_bpe.py in this folder
    python grade.py 2 --file mine.py     from another file
    python grade.py 2 --only train_bpe   one exercise
    python grade.py 2 --watch            again whenever the file is saved, until Ctrl-C
    python grade.py 2 --json             points, messages and seconds as JSON, for programs that grade a class

Inputs are drawn anew each day; --seed N draws those of a day that was printed. Exit status 0 if everything is right.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

from grading import State, Wrong, watched
from limits import TimeOver, limited

HERE = Path(__file__).parent
LIMIT = 120.0  # seconds for each exercise
CHAPTERS = {  # the file that a student fills, and the module that checks it
    0: ("ex0_tensors.py", "checks_tensors"),
    1: ("ex1_utf8.py", "checks_text"),
    2: ("ex2_bpe.py", "checks_tokenizer"),
    3: ("ex3_judge.py", "checks_tokenizer"),
    4: ("ex4_transformer.py", "checks_transformer"),
    5: ("ex5_budget.py", "checks_budget"),
    6: ("ex6_training.py", "checks_training"),
    7: ("ex7_generation.py", "checks_generation"),
    8: ("ex8_scaling.py", "checks_scaling"),
    9: ("ex9_parallel.py", "checks_parallel"),
    10: ("ex10_posttraining.py", "checks_posttraining"),
    11: ("ex11_data.py", "checks_data"),
    12: ("ex12_precision.py", "checks_precision"),
    13: ("ex13_evaluation.py", "checks_evaluation"),
    14: ("ex14_measuring.py", "checks_measuring"),
    15: ("ex15_inference.py", "checks_inference"),
    16: ("ex16_published.py", "checks_published"),
}
POINTS = {  # of exercises that are worth more than one
    **dict.fromkeys(("Tokenizer", "AdamW", "MultiHeadSelfAttention", "TransformerLM", "generate", "predict"), 3),
    "grpo_train_step": 3,
    **dict.fromkeys(("train_bpe", "DDP", "FSDP", "ShardedOptimizer", "FlashAttention", "near_duplicates"), 5),
    "attention_kernel and attention_forward": 5,
    "keys_kernel and queries_kernel and FlashAttention": 10,
}


@dataclass
class Result:
    """The grading of one exercise.

    Attributes:
        name: The exercise.
        points, max_points: What it gets, of how much.
        message: What is wrong, empty where it is right.
        seconds: Time that its check took.
    """

    name: str
    points: int
    max_points: int
    message: str
    seconds: float

    @property
    def is_right(self) -> bool:
        return not self.message


def load(path: Path) -> ModuleType:
    """A student's file as a module of its own name, so that the processes of a pool can import it too."""
    if not path.is_file():
        raise SystemExit(f"{path}: there is no such file of Python")
    sys.modules.pop(State.module, None)
    if sys.path[:1] == [str(State.file.parent)]:
        sys.path.pop(0)
    State.file = path = path.resolve()
    name = path.stem
    sys.path.insert(0, str(path.parent))  # processes of a pool get it too
    with contextlib.suppress(ImportError, ValueError):
        other = importlib.util.find_spec(name)
        if "." in name or (other is not None and other.origin != str(path)):
            name = "student"  # a package, or a module of Python, has that name
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    State.module = name
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def opened(path: Path, limit: float, may_exit: bool) -> tuple[ModuleType | None, str]:
    """A student's module, or why it cannot be imported."""
    try:
        with limited(limit, may_exit):
            return load(path), ""
    except (Exception, SystemExit, TimeOver) as error:
        if not path.is_file():
            raise
        return None, in_words(error, path.resolve(), limit)


def checks_of(chapter: int, only: str = "", hidden: Path | None = None) -> dict[str, Callable[..., Any]]:
    """The check of each exercise of a chapter; those of a file of hidden checks after those of the course."""
    if chapter == 8 and "triton" not in sys.modules:
        os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported: kernels then run on any machine
    checks: dict[str, Callable[..., Any]] = dict(importlib.import_module(CHAPTERS[chapter][1]).CHAPTERS[chapter])
    if hidden is not None:
        spec = importlib.util.spec_from_file_location("hidden_checks", hidden)
        if spec is None or spec.loader is None or not hidden.is_file():
            raise SystemExit(f"{hidden}: there is no such file of Python")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for name, check in module.CHAPTERS.get(chapter, {}).items():
            checks[name] = both(checks[name], check) if name in checks else check
    if only:
        checks = {name: check for name, check in checks.items() if only in name.split(" and ")}
        if not checks:
            raise SystemExit(f"chapter {chapter} has no exercise {only}")
    return checks


def both(first: Callable[..., Any], second: Callable[..., Any]) -> Callable[..., Any]:
    """One check after the other; what the first one times is timed."""

    def check(*parts: Any) -> Any:
        line = first(*parts)
        second(*parts)
        return line

    return check


def in_words(error: BaseException, path: Path, limit: float) -> str:
    """The message of an error in a student's code, with the last of its lines that is in their file."""
    while type(error).__name__ == "InterpreterError" and error.__cause__ is not None:
        error = error.__cause__  # Triton's interpreter has wrapped it, and its traceback ends there
    if isinstance(error, Wrong):
        return str(error)
    if isinstance(error, TimeOver):
        return f"is not finished after {limit:g} seconds. Is there a loop without an end? (--limit gives it longer.)"
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f"{type(error).__name__}: {error.msg} ({path.name}, line {error.lineno})"
    if isinstance(error, SystemExit):
        return f"ends the program: take out exit() and sys.exit({error.code or ''})."
    places = [one for one in traceback.extract_tb(error.__traceback__) if not one.filename.startswith("<frozen")]
    own = [one for one in places if one.filename == str(path)]
    place = (own or places)[-1]
    return f"raises {type(error).__name__}: {error} ({Path(place.filename).name}, line {place.lineno})"


def graded(
    checks: Mapping[str, Callable[..., Any]], student: object, path: Path, limit: float, may_exit: bool
) -> Iterator[tuple[Result, Callable[[], str] | None]]:
    """The result of each check of a student's module, and what measures its speed."""
    for name, check in checks.items():
        show_progress(f"… {name}")
        began, line, message = time.perf_counter(), None, ""
        try:
            parts = []
            for part in name.split(" and "):
                if not hasattr(student, part):
                    raise Wrong(f"There is no {part} in {path.name}.")
                parts.append(watched(part, getattr(student, part)))
            with limited(limit, may_exit):
                line = check(*parts)
        except (Exception, SystemExit, TimeOver) as error:
            message = in_words(error, path.resolve(), limit)
        most = POINTS.get(name, 1)
        show_progress("")
        yield Result(name, 0 if message else most, most, message, round(time.perf_counter() - began, 3)), line


def check(chapter: int, exercise: str, names: Mapping[str, Any], limit: float = LIMIT) -> None:
    """Raise AssertionError unless an exercise is right, for a cell of a notebook: check(1, "is_whole", globals())."""
    student = SimpleNamespace(**{part: names[part] for part in exercise.split(" and ") if part in names})
    checks = {exercise: checks_of(chapter)[exercise]}
    for result, _ in graded(checks, student, Path("this notebook"), limit, False):
        if result.message:
            raise AssertionError(f"{exercise}: {result.message}")


def show_progress(words: str) -> None:
    """Show on a terminal which exercise runs; the next line is written over it."""
    if sys.stderr is not None and sys.stderr.isatty():
        print(f"\r\x1b[K{words}", end="", file=sys.stderr, flush=True)


def sign(is_right: bool) -> str:
    """A check mark or a cross, in letters where a pipe's encoding has neither."""
    try:
        "✓✗".encode(getattr(sys.stdout, "encoding", None) or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return "ok" if is_right else "WRONG"
    return "✓" if is_right else "✗"


def grade(
    chapter: int,
    path: Path,
    only: str = "",
    *,
    limit: float = LIMIT,
    hidden: Path | None = None,
    is_timed: bool = True,
    may_exit: bool = False,
) -> bool:
    """Check the exercises of a chapter, print the results, and return True if all are right.

    An exercise is a function or a class of the student's file; "a and b" are two that are checked together.
    """
    checks = checks_of(chapter, only, hidden)
    student, broken = opened(path, limit, may_exit)
    if student is None:
        print(f"{sign(False)} {path.name}: {broken}\n0 of {len(checks)} right")
        return False
    right = 0
    for result, measure in graded(checks, student, path, limit, may_exit):
        print(f"{sign(result.is_right)} {result.name}{': ' * (not result.is_right)}{result.message}", flush=True)
        right += result.is_right
        if measure is None or not is_timed:
            continue
        try:
            show_progress(f"… the speed of {result.name}")
            with limited(limit, may_exit):
                line = measure()
        except (Exception, SystemExit, TimeOver) as error:
            right -= 1
            line = f"{sign(False)} {result.name} of a larger input: {in_words(error, path.resolve(), limit)}"
        show_progress("")
        print(line, flush=True)
    note = f" (inputs of --seed {State.seed})" if right < len(checks) else ""
    print(f"{right} of {len(checks)} right{note}", flush=True)
    return right == len(checks)


def report(chapter: int, path: Path, only: str = "", *, limit: float = LIMIT, hidden: Path | None = None) -> bool:
    """Print the results as JSON; what the student's code prints goes to the standard error."""
    with contextlib.redirect_stdout(sys.stderr):
        checks = checks_of(chapter, only, hidden)
        student, broken = opened(path, limit, True)
        if student is None:
            results = [Result(name, 0, POINTS.get(name, 1), broken, 0.0) for name in checks]
        else:
            results = [result for result, _ in graded(checks, student, path, limit, True)]
    points, most = (sum(getattr(result, name) for result in results) for name in ("points", "max_points"))
    fields = {"chapter": chapter, "file": path.name, "seed": State.seed, "limit": limit}
    fields |= {"points": points, "max_points": most, "exercises": [asdict(result) for result in results]}
    print(json.dumps(fields, indent=1))
    return points == most


def watch(chapter: int, path: Path, only: str = "", limit: float = LIMIT) -> None:
    """Grade a file each time that it is saved, until Ctrl-C."""
    graded_at = 0.0
    try:
        while True:
            saved_at = path.stat().st_mtime if path.exists() else graded_at
            if saved_at != graded_at:
                graded_at = saved_at
                print(f"\n{time.strftime('%H:%M:%S')} {path.name}", flush=True)
                grade(chapter, path, only, limit=limit)
                sys.stdout.flush()
            time.sleep(0.2)
    except KeyboardInterrupt:
        print()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("chapter", type=int, choices=sorted(CHAPTERS))
    parser.add_argument("--file", type=Path, help="the file with your functions (default: that of the chapter)")
    parser.add_argument("--only", default="", metavar="NAME", help="one exercise of the chapter")
    parser.add_argument("--watch", action="store_true", help="grade again whenever the file is saved")
    parser.add_argument("--json", action="store_true", help="points, messages and seconds as JSON; nothing is timed")
    parser.add_argument("--limit", type=float, default=LIMIT, metavar="SECONDS", help="for each exercise; 0: none")
    parser.add_argument("--seed", type=int, default=State.seed, help="of the inputs that are drawn (default: the date)")
    parser.add_argument("--hidden", type=Path, metavar="FILE", help="more checks, of a file that students do not have")
    options = parser.parse_args()
    State.seed = options.seed
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a pipe of Windows cannot write every character of a message
            stream.reconfigure(errors="backslashreplace")
    path = options.file or HERE / CHAPTERS[options.chapter][0]
    if options.watch:
        watch(options.chapter, path, options.only, options.limit)
        return
    common = {"limit": options.limit, "hidden": options.hidden}
    if options.json:
        is_right = report(options.chapter, path, options.only, **common)
    else:
        is_right = grade(options.chapter, path, options.only, **common, may_exit=True)
    import multiprocessing

    for process in multiprocessing.active_children():
        process.kill()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(not is_right)  # a pool that was not closed, or a thread, would make Python wait for ever


if __name__ == "__main__":
    main()
