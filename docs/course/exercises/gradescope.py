"""Grade a submission for Gradescope: its results.json, from the chapters whose files a student has handed in.

    python gradescope.py /autograder/submission /autograder/results/results.json [--hidden FILE] [--limit SECONDS]

Gradescope runs a script run_autograder, which calls this; the page for teachers has it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from grade import CHAPTERS, HERE, LIMIT, POINTS, checks_of


def tests_of(chapter: int, path: Path, options: list[str]) -> list[dict[str, Any]]:
    """The exercises of a chapter as Gradescope's tests, graded in a process of their own."""
    command = [sys.executable, str(HERE / "grade.py"), str(chapter), "--json", "--file", str(path), *options]
    ran = subprocess.run(command, capture_output=True, text=True)
    try:
        exercises = json.loads(ran.stdout)["exercises"]
    except (ValueError, KeyError, TypeError):  # the process has ended before it printed anything
        words = f"The grader was ended by this file (status {ran.returncode}). {ran.stderr[-2000:]}"
        exercises = [{"name": name, "points": 0, "message": words} for name in checks_of(chapter)]
    return [
        {
            "name": f"{chapter}. {exercise['name']}",
            "score": exercise["points"],
            "max_score": POINTS.get(exercise["name"], 1),
            "status": "failed" if exercise["message"] else "passed",
            "output": exercise["message"] or "right",
        }
        for exercise in exercises
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("submission", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--chapters", type=int, nargs="+", metavar="N", help="count these, handed in or not")
    parser.add_argument("--hidden", type=Path, metavar="FILE", help="more checks, of a file that students do not have")
    parser.add_argument("--limit", type=float, default=LIMIT, metavar="SECONDS", help="for each exercise")
    options = parser.parse_args()
    arguments = ["--limit", str(options.limit)]
    if options.hidden is not None:
        arguments += ["--hidden", str(options.hidden)]
    tests = []
    for chapter, (name, _) in CHAPTERS.items():
        path = options.submission / name
        if path.is_file():
            tests += tests_of(chapter, path, arguments)
        elif chapter in (options.chapters or ()):
            points = sum(POINTS.get(exercise, 1) for exercise in checks_of(chapter))
            tests.append({"name": f"{chapter}. {name}", "score": 0, "max_score": points, "output": "not handed in"})
    options.results.write_text(json.dumps({"tests": tests}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
