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

from course_mutants import SOLUTIONS, Mutant, is_caught

TABLES = {kind: Path(__file__).with_name(f"course_{kind}.txt") for kind in ("wrong", "right")}


def changed(kind: str) -> Iterator[Mutant]:
    """The solutions of a table, each with the exercise that it changes."""
    file = solution = ""
    for line in TABLES[kind].read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            file = line.strip("[]")
            solution = (SOLUTIONS / file).read_text(encoding="utf-8")
        elif line and not line.startswith("#"):
            exercise, _, change = line.partition(" | ")
            change, _, verdict = change.replace("⏎", "\n").partition(" ✗ ")
            if change.startswith("+ "):
                source = f"{solution}\n\n{change[2:]}\n"
            else:
                old, arrow, new = change.partition(" => ")
                if not arrow or old not in solution:
                    raise SystemExit(f"{TABLES[kind].name}: not in {file}: {line}")
                source = solution.replace(old, new)
            yield Mutant(line, file, source, (exercise,), verdict)


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
            ast.parse(solution.source, solution.name)  # a syntax error would be a wrong solution too
            if is_caught(solution, Path(folder), number) != (options.kind == "wrong"):
                count += 1
                print(
                    f"{'passes' if options.kind == 'wrong' else 'refused'}: {solution.file}: {solution.name}",
                    flush=True,
                )
    print(f"{len(solutions) - count} of {len(solutions)} {options.kind} solutions are judged as they should be")
    sys.exit(count > 0)


if __name__ == "__main__":
    main()
