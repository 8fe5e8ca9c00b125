"""Write a Jupyter notebook for each chapter of the course, from its page, and run their cells.

    python tools/notebooks.py [CHAPTER …] [--run]      writes docs/course/notebooks/, which git ignores

Prose becomes Markdown cells with their pictures inside, each Python example a code cell without its prompt, and shell
commands become %%bash cells. The first cell writes corpus.txt and heldout.txt. `nox -s docs` runs it with --run: each
notebook from top to bottom in a folder of its own, in one process.
"""

from __future__ import annotations

import argparse
import base64
import doctest
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pages

COURSE = pages.ROOT / "docs" / "course"
NOTEBOOKS = COURSE / "notebooks"
PREPARATION = """\
# The texts of this course: the help texts of your Python.
from pathlib import Path
from pydoc_data.topics import topics

texts = [topics[name] for name in sorted(topics)]
Path("corpus.txt").write_text("\\n".join(text for i, text in enumerate(texts) if i % 10), encoding="utf-8")
Path("heldout.txt").write_text("\\n".join(texts[::10]), encoding="utf-8")
"""


def cell(kind: str, text: str) -> dict[str, Any]:
    """A cell of a notebook: "markdown" or "code"."""
    common = {"cell_type": kind, "metadata": {}, "source": text.strip("\n").splitlines(keepends=True)}
    return common | ({"outputs": [], "execution_count": None} if kind == "code" else {})


def code(block: pages.Block) -> list[str]:
    """A block as code cells without prompts and what they print, one for each example: a cell shows one value."""
    if block.language in ("sh", "console"):
        commands = [line[2:] if line.startswith("$ ") else line for line in block.text.splitlines()]
        if block.language == "console":
            commands = [line[2:] for line in block.text.splitlines() if line.startswith("$ ")]
        return ["%%bash\n" + "\n".join(commands)]
    if ">>> " not in block.text:
        return [block.text]
    cells, silent = [], ""
    for example in doctest.DocTestParser().get_examples(block.text):
        source = example.source
        if example.exc_msg is not None:
            source = f"try:\n{indented(source)}except Exception as error:\n    print(error)\n"
        silent += source
        if example.want or example.exc_msg is not None:  # what shows nothing belongs to the next one that does
            cells.append(silent)
            silent = ""
    return [*cells, *([silent] if silent else [])]


def indented(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


def markdown(lines: list[str], folder: Path) -> dict[str, Any]:
    """Prose as a cell of Jupyter's Markdown: answers fold, pictures are inside of the notebook, frames are links."""
    attachments: dict[str, dict[str, str]] = {}

    def picture(match: re.Match[str]) -> str:
        kind = {".svg": "image/svg+xml", ".png": "image/png"}[Path(match[2]).suffix]
        path = folder / match[2]
        if not path.is_file():  # a picture of the live pages, before the site is built
            return match[0]
        attachments[path.name] = {kind: base64.b64encode(path.read_bytes()).decode()}
        return f"![{match[1]}](attachment:{path.name})"

    out: list[str] = []
    is_folded = False
    for line in lines:
        if is_folded and line.strip() and not line.startswith("    "):
            out.append("</details>\n")
            is_folded = False
        if match := re.match(r'(?:\?\?\?|!!!) \w+(?: "(.*)")?$', line):
            out.append(f"<details><summary>{match[1] or 'Note'}</summary>\n")
            is_folded = True
            continue
        line = line.removeprefix("    ") if is_folded else line
        line = re.sub(r"!\[([^\]]*)\]\((?!https?:)([^)]+\.(?:svg|png))\)", picture, line)
        line = re.sub(r'<iframe[^>]* src="([^"]+)" title="([^"]+)"[^>]*></iframe>', r"[\2](../\1)", line)
        line = line.replace("{ target=_blank }", "")
        out.append(re.sub(r"\]\((?!https?:|#|attachment:|\.\./live)([^)]+)\)", r"](../\1)", line))
    if is_folded:
        out.append("</details>")
    return cell("markdown", "\n".join(out)) | ({"attachments": attachments} if attachments else {})


def notebook(page: Path) -> dict[str, Any]:
    """The notebook of a page."""
    cells = [cell("code", PREPARATION)]
    blocks = pages.blocks(page)
    prose: list[str] = []
    fence = ""
    for line in page.read_text(encoding="utf-8").splitlines():
        if fence:
            fence = "" if line.strip() == fence else fence
        elif opened := re.match(r"\s*(```+)", line):
            fence = opened[1]
            block = next(blocks)
            if block.language in ("python", "sh", "console") and not block.not_run and not block.source:
                cells.append(markdown(prose, page.parent))
                prose = []
                if block.before:
                    cells.append(cell("code", "%%bash\n" + block.before))
                cells += [cell("code", text) for text in code(block)]
            else:
                prose += ["", f"```{block.language}", *block.text.splitlines(), "```"]
        elif not line.strip().startswith("<!-- "):
            prose.append(line)
    cells.append(markdown(prose, page.parent))
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    cells = [one for one in cells if one["source"]]
    return {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 4}


def run(path: Path) -> None:
    """Run the cells of a notebook in the current folder."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for number, one in enumerate(json.loads(path.read_text(encoding="utf-8"))["cells"]):
        text = "".join(one["source"])
        if one["cell_type"] != "code":
            continue
        if text.startswith("%%bash"):
            pages.shell(text.partition("\n")[2], f"{path.name}, cell {number}")
        else:
            exec(compile(text, f"{path.name}, cell {number}", "exec"), namespace)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("chapters", nargs="*", type=int)
    parser.add_argument("--run", action="store_true", help="run each notebook too")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)  # run one notebook in the current folder
    options = parser.parse_args()
    if options.inside:
        run(options.inside)
        return
    NOTEBOOKS.mkdir(exist_ok=True)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "GROUNDUP": str(pages.ROOT)}
    for page in sorted(COURSE.glob("[0-9]*.md"), key=lambda page: int(page.name.partition("-")[0])):
        if options.chapters and int(page.name.partition("-")[0]) not in options.chapters:
            continue
        out = NOTEBOOKS / page.with_suffix(".ipynb").name
        out.write_text(json.dumps(notebook(page), indent=1, ensure_ascii=False), encoding="utf-8")
        if options.run:
            with tempfile.TemporaryDirectory() as folder:
                command = [sys.executable, __file__, "--inside", str(out)]
                subprocess.run(command, cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL)
        print(f"{out.relative_to(pages.ROOT)}{': run' if options.run else ''}", flush=True)


if __name__ == "__main__":
    main()
