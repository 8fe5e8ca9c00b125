"""Write the exercises of a chapter as a notebook for nbgrader: a cell to fill for each, and a graded cell behind it.

    python assignment.py 6 source/chapter6/chapter6.ipynb

nbgrader hands out the folder of a notebook: put a copy of this one beside it, as `exercises`. Chapters 8 and 9 are
graded as files, since Triton and several processes read the source from one.
"""

from __future__ import annotations

import argparse
import ast
import json
from pathlib import Path
from typing import Any

from grade import CHAPTERS, HERE, POINTS, checks_of

AS_FILES = (8, 9)
START = """\
import sys

sys.path.insert(0, "exercises")  # the folder that is handed out with this notebook
from grade import check
"""


def cell(kind: str, text: str, **marks: Any) -> dict[str, Any]:
    """A cell of a notebook, with what nbgrader has to know of it."""
    grading = {"nbgrader": {"schema_version": 3, "task": False, **marks}} if marks else {}
    common = {"cell_type": kind, "metadata": grading, "source": text.strip("\n").splitlines(keepends=True)}
    return common | ({"outputs": [], "execution_count": None} if kind == "code" else {})


def notebook(chapter: int) -> dict[str, Any]:
    """The notebook of a chapter."""
    if chapter in AS_FILES:
        raise SystemExit(f"chapter {chapter} is graded as a file: hand out {CHAPTERS[chapter][0]}")
    text = (HERE / CHAPTERS[chapter][0]).read_text(encoding="utf-8")
    tree, lines = ast.parse(text), text.splitlines()
    waiting = {name: name.split(" and ") for name in checks_of(chapter)}
    cells = [cell("markdown", ast.get_docstring(tree) or ""), cell("code", START)]
    for part in tree.body[1:]:
        decorators = getattr(part, "decorator_list", [])
        source = "\n".join(lines[(decorators[0] if decorators else part).lineno - 1 : part.end_lineno])
        name = getattr(part, "name", "")
        # an ordinary cell: nbgrader would empty one that is marked as a solution, docstring and all
        cells.append(cell("code", source))
        for exercise, parts in list(waiting.items()):
            if name == parts[-1]:
                del waiting[exercise]
                marks = {"grade": True, "solution": False, "locked": True, "points": POINTS.get(exercise, 1)}
                call = f"check({chapter}, {exercise!r}, globals())"
                cells.append(cell("code", call, grade_id=f"test_{parts[0]}", **marks))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 4}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("chapter", type=int, choices=sorted(CHAPTERS))
    parser.add_argument("out", type=Path)
    options = parser.parse_args()
    options.out.write_text(json.dumps(notebook(options.chapter), indent=1, ensure_ascii=False), encoding="utf-8")


if __name__ == "__main__":
    main()
