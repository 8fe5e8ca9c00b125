"""Grade the exercises of the course: what you wrote beside what it should give, and how fast it is beside ours.

    python grade.py 2                    the exercises of chapter 2, from ex2_bpe.py in this folder
    python grade.py 2 --file mine.py     from another file
    python grade.py 2 --only train_bpe   one exercise
    python grade.py 2 --watch            again whenever the file is saved, until Ctrl-C

Exit status 0 if everything is right.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
import time
import traceback
from pathlib import Path
from types import ModuleType

from grading import Wrong

HERE = Path(__file__).parent
CHAPTERS = {  # the file that a student fills, and the module that checks it
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
}


def load(path: Path) -> ModuleType:
    """A student's file as a module."""
    spec = importlib.util.spec_from_file_location("student", path)
    if spec is None or spec.loader is None or not path.exists():
        raise SystemExit(f"{path}: there is no such file of Python")
    module = sys.modules["student"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def grade(chapter: int, path: Path, only: str = "") -> bool:
    """Check the exercises of a chapter, print what was found, and say whether all are right.

    An exercise is a function or a class of the student's file; "a and b" are two that are checked together.
    """
    if chapter == 8 and "triton" not in sys.modules:
        os.environ["TRITON_INTERPRET"] = "1"  # read when triton is imported: kernels then run on any machine
    tasks = importlib.import_module(CHAPTERS[chapter][1]).CHAPTERS[chapter]
    if only:
        tasks = {name: check for name, check in tasks.items() if only in name.split(" and ")}
        if not tasks:
            raise SystemExit(f"chapter {chapter} has no exercise {only}")
    student = load(path)
    right = 0
    for name, check in tasks.items():
        try:
            for part in name.split(" and "):
                if not hasattr(student, part):
                    raise Wrong(f"There is no {part} in {path.name}.")
            line = check(*(getattr(student, part) for part in name.split(" and ")))
        except Wrong as wrong:
            print(f"✗ {name}: {wrong}")
        except Exception as error:
            places = traceback.extract_tb(error.__traceback__)
            place = next((one for one in reversed(places) if one.filename == str(path)), places[-1])
            print(
                f"✗ {name}: raises {type(error).__name__}: {error} ({Path(place.filename).name}, line {place.lineno})"
            )
        else:
            right += 1
            print(f"✓ {name}")
            if line:
                print(line)
    print(f"{right} of {len(tasks)} right")
    return right == len(tasks)


def watch(chapter: int, path: Path, only: str = "") -> None:
    """Grade a file each time that it is saved, until Ctrl-C."""
    graded_at = 0.0
    try:
        while True:
            saved_at = path.stat().st_mtime if path.exists() else graded_at
            if saved_at != graded_at:
                graded_at = saved_at
                print(f"\n{time.strftime('%H:%M:%S')} {path.name}", flush=True)
                try:
                    grade(chapter, path, only)
                except Exception as error:  # the file is no Python yet, or stops while it is imported
                    print(f"✗ {path.name}: {type(error).__name__}: {error}")
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
    options = parser.parse_args()
    path = options.file or HERE / CHAPTERS[options.chapter][0]
    if options.watch:
        watch(options.chapter, path, options.only)
    else:
        sys.exit(not grade(options.chapter, path, options.only))


if __name__ == "__main__":
    main()
