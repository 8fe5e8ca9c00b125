"""Grade the exercises of the course: what you wrote beside what it should give, and how fast it is beside ours.

    python grade.py 2                    the exercises of chapter 2, from ex2_bpe.py in this folder
    python grade.py 2 --file mine.py     from another file

Exit status 0 if everything is right.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType

from grading import Wrong

HERE = Path(__file__).parent
FILES = {1: "ex1_utf8.py", 2: "ex2_bpe.py", 3: "ex3_judge.py"}


def load(path: Path) -> ModuleType:
    """A student's file as a module."""
    spec = importlib.util.spec_from_file_location("student", path)
    if spec is None or spec.loader is None or not path.exists():
        raise SystemExit(f"{path}: there is no such file of Python")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def grade(chapter: int, path: Path) -> bool:
    """Check every exercise of a chapter, print what was found, and say whether all are right."""
    import checks

    student = load(path)
    right = 0
    tasks = checks.CHAPTERS[chapter]
    for name, check in tasks.items():
        try:
            if not hasattr(student, name):
                raise Wrong(f"There is no {name} in {path.name}.")
            line = check(getattr(student, name))
        except Wrong as wrong:
            print(f"✗ {name}: {wrong}")
        except Exception as error:
            place = traceback.extract_tb(error.__traceback__)[-1]
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("chapter", type=int, choices=sorted(FILES))
    parser.add_argument("--file", type=Path, help="the file with your functions (default: that of the chapter)")
    options = parser.parse_args()
    sys.exit(not grade(options.chapter, options.file or HERE / FILES[options.chapter]))


if __name__ == "__main__":
    main()
