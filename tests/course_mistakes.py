"""Solutions that students write: wrong ones, which the grader has to catch, and right ones, which it has to accept.

    python tests/course_mistakes.py wrong [FILE …] [--every N]      grade those of course_wrong.txt
    python tests/course_mistakes.py right [FILE …] [--every N]      and those of course_right.txt

Each is a change of a solution in course_solutions. It prints those that the grader judges wrongly.
"""

from __future__ import annotations

import argparse
import ast
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import course_mutants
from course_mutants import SOLUTIONS, Mutant

TABLES = {kind: Path(__file__).with_name(f"course_{kind}.txt") for kind in ("wrong", "right")}


def changed(kind: str) -> Iterator[Mutant]:
    """The solutions of a table, each with the exercise that it changes."""
    file = ""
    for line in TABLES[kind].read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            file = line.strip("[]")
            solution = (SOLUTIONS / file).read_text(encoding="utf-8")
            exercises = __import__(course_mutants.grader.CHAPTERS[int(file[2:].partition("_")[0])][1]).CHAPTERS
            names = [name for chapter in exercises.values() for name in chapter]
        elif line and not line.startswith("#"):
            exercise, _, change = line.partition(" | ")
            if change.startswith("+ "):
                source = f"{solution}\n\n{change[2:]}\n".replace("⏎", "\n")
            else:
                old, arrow, new = change.replace("⏎", "\n").partition(" => ")
                if not arrow or old not in solution:
                    raise SystemExit(f"{TABLES[kind].name}: not in {file}: {line}")
                source = solution.replace(old, new)
            try:
                ast.parse(source)
            except SyntaxError as error:
                raise SystemExit(f"{TABLES[kind].name}: {error.msg}, {error.text}: {line}") from None
            whole = next((name for name in names if exercise in name.split(" and ")), "")
            if not whole:
                raise SystemExit(f"{TABLES[kind].name}: there is no exercise {exercise}: {line}")
            yield Mutant(line, file, source, (whole,))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kind", choices=sorted(TABLES))
    parser.add_argument("files", nargs="*", help="files of solutions (default: all)")
    parser.add_argument("--every", type=int, default=1, help="grade one of this many")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    solutions = [one for one in changed(options.kind) if not options.files or one.file in options.files]
    solutions = solutions[:: options.every]
    count = 0
    with tempfile.TemporaryDirectory() as folder:
        for number, solution in enumerate(solutions):
            if course_mutants.is_caught(solution, Path(folder), number) != (options.kind == "wrong"):
                count += 1
                print(
                    f"{'passes' if options.kind == 'wrong' else 'refused'}: {solution.file}: {solution.name}",
                    flush=True,
                )
    print(f"{len(solutions) - count} of {len(solutions)} {options.kind} solutions are judged as they should be")
    sys.exit(count > 0)


if __name__ == "__main__":
    main()
