"""Run and check the pages: every command and code block of docs/ and of the READMEs, their links and the names they
use.

    python tools/pages.py                          every page
    python tools/pages.py docs/guides packages/bpe/README.md     some of them
    python tools/pages.py --together               the guides in the site's order, in one folder, as a reader would

The packages have to be installed. Each page is run from top to bottom in a temporary folder of its own, by one process:

- ```python blocks share one namespace; blocks with >>> prompts are doctests, and what they print is compared.
- ```sh blocks are run by bash and have to succeed.
- ```console blocks hold commands after `$ ` and what they print, which is compared; a line of `...` stands for any
lines.
- ```json and ```toml blocks have to parse; ```text, ```cython and ```c blocks are only shown.

The folder holds `corpus.txt`, 400 kB of English (the help texts of Python), and `heldout.txt`, 30 kB more of it. A
comment in front of a block says what is needed besides, or why the block is not run; $GROUNDUP is the repository there:

    <!-- not run: the weights are a download of 500 MB -->
    <!-- before: bpe train corpus.txt --vocab-size 1000 --out tok.json -->

A block that quotes the code names the file in front, and has to stand there word for word, whatever its indentation:

    <!-- from: packages/lm/src/lm/model.py -->

Names in backticks that begin with a package's name (`lm.generate`) have to exist, and so do paths (`tools/pages.py`).
"""

from __future__ import annotations

import argparse
import contextlib
import doctest
import importlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
import textwrap
import time
import tomllib
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).parent.parent
PACKAGES = ("accounting", "bpe", "lm")
READMES = ("README.md", *(f"packages/{name}/README.md" for name in PACKAGES))
SHOWN = ("text", "cython", "c", "yaml")
LONGEST = 600  # seconds that a page may take


class Fault(Exception):
    """A fault of a page: the file, the line, and a sentence."""


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, the line of the page where its text begins, and the comments in front of
    it."""

    language: str
    text: str
    line: int
    not_run: str
    before: str
    source: str


def blocks(page: Path) -> Iterator[Block]:
    """The fenced blocks of a page, in order."""
    not_run = before = source = ""
    lines = iter(enumerate(page.read_text(encoding="utf-8").splitlines(), 1))
    for number, line in lines:
        if match := re.fullmatch(r"\s*<!-- not run: (.+) -->", line):
            not_run = match[1]
        elif match := re.fullmatch(r"\s*<!-- before: (.+) -->", line):
            before += match[1] + "\n"
        elif match := re.fullmatch(r"\s*<!-- from: (.+) -->", line):
            source = match[1]
        elif match := re.match(r"(\s*)(```+)([\w+-]*)", line):
            indent, fence, language = match.groups()
            text = []
            for _, inner in lines:
                if inner.strip() == fence:
                    break
                text.append(inner.removeprefix(indent))
            else:
                raise Fault(f"{page}:{number}: this block is not closed")
            if not language:
                raise Fault(f"{page}:{number}: say the language of this block (text, if it is none)")
            yield Block(language, "\n".join(text) + "\n", number + 1, not_run, before, source)
            not_run = before = source = ""
        elif line.strip() and (not_run or before or source):
            raise Fault(f"{page}:{number}: a comment about a block stands directly in front of it")


def quoted(block: Block, where: str) -> None:
    """Compare a block with the file that it is from."""
    code = (ROOT / block.source).read_text(encoding="utf-8")
    if not any(textwrap.indent(block.text, " " * depth) in code for depth in (0, 4, 8)):
        raise Fault(f"{where}: this does not stand in {block.source}")


def shell(command: str, where: str) -> str:
    """Run a command by bash, and return what it prints."""
    run = ["bash", "-euo", "pipefail", "-c", command]
    ran = subprocess.run(run, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=LONGEST)
    if ran.returncode:
        raise Fault(f"{where}: exit status {ran.returncode} of\n{command}\n{ran.stdout[-4000:]}")
    return ran.stdout


def console(block: Block, where: str) -> None:
    """Run the commands of a console block one by one, and compare what they print with what stands below them."""
    for part in re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]:
        command, _, expected = part.partition("\n")
        while command.endswith("\\"):
            more, _, expected = expected.partition("\n")
            command += "\n" + more.removeprefix("> ")
        printed = shell(command, where)
        pattern = "".join(
            r"(?:.*\n)*" if line == "..." else re.escape(line) + "\n" for line in expected.strip("\n").splitlines()
        )
        lines = "\n".join(line.rstrip() for line in printed.strip("\n").splitlines()) + "\n"
        if not re.fullmatch(pattern, lines if pattern else ""):
            raise Fault(f"{where}: $ {command}\nprints\n{printed}\nand the page says\n{expected}")


def python(block: Block, where: str, namespace: dict[str, object]) -> None:
    """Run a block of Python in the page's namespace, as a doctest if it has prompts."""
    if re.search(r"^>>> ", block.text, re.MULTILINE):
        example = doctest.DocTestParser().get_doctest(block.text, namespace, where, where, block.line - 1)
        output = io.StringIO()
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE)
        if runner.run(example, out=output.write, clear_globs=False).failed:
            raise Fault(f"{where}:\n{output.getvalue()}")
        namespace |= example.globs
        return
    code = compile("\n" * (block.line - 1) + block.text, where.partition(":")[0], "exec")
    with contextlib.redirect_stdout(io.StringIO()):
        exec(code, namespace)


def furnish(folder: Path) -> None:
    """Write the small corpus that pages may use: `corpus.txt`, and `heldout.txt`, which is none of it."""
    from pydoc_data.topics import topics

    texts = [topics[name] for name in sorted(topics)]
    (folder / "corpus.txt").write_text("\n".join(text for i, text in enumerate(texts) if i % 10), encoding="utf-8")
    (folder / "heldout.txt").write_text("\n".join(texts[::10]), encoding="utf-8")


def run_page(page: Path) -> tuple[int, list[str]]:
    """Run a page's blocks in the current folder; how many were run, and why the others were not."""
    ran, reasons = 0, []
    namespace: dict[str, object] = {"__name__": "__main__"}
    for block in blocks(page):
        where = f"{page.relative_to(ROOT)}:{block.line}"
        if block.not_run:
            reasons.append(f"{where}: not run: {block.not_run}")
            continue
        if block.source:
            quoted(block, where)
            ran += 1
            continue
        if block.before:
            shell(block.before, where)
        match block.language:
            case "python":
                python(block, where, namespace)
            case "sh":
                shell(block.text, where)
            case "console":
                console(block, where)
            case "json":
                json.loads(block.text)
            case "toml":
                tomllib.loads(block.text)
            case language if language in SHOWN:
                continue
            case language:
                raise Fault(f"{where}: nothing is known about blocks in {language}: see {Path(__file__).name}")
        ran += 1
    return ran, reasons


def prose(page: Path) -> Iterator[tuple[int, str]]:
    """The numbered lines of a page outside its blocks."""
    fence = ""
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if match := re.match(r"\s*(```+)", line):
            fence = "" if fence == match[1] else fence or match[1]
        elif not fence:
            yield number, line


def exists(name: str) -> bool:
    """True if a dotted name is a module, or can be reached from one by attributes."""
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            value: object = importlib.import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        for attribute in parts[cut:]:
            fields = getattr(value, "__dataclass_fields__", {})
            if attribute not in fields and not hasattr(value, attribute):
                return False
            value = getattr(value, attribute, None)
        return True
    return False


def unknown_names(page: Path) -> Iterator[str]:
    """A sentence for each name or path in backticks that does not exist."""
    dotted = rf"(?:{'|'.join(PACKAGES)})(?:\.\w+)+(?<!\.py)(?<!\.json)(?<!\.toml)"
    for number, line in prose(page):
        for name in re.findall(r"`([^`]+)`", line):
            called = name.partition("(")[0]
            if re.fullmatch(dotted, called) and not exists(called):
                yield f"{page.relative_to(ROOT)}:{number}: there is no {called}"
            elif re.fullmatch(r"(?:packages|tools|tests|docs)/[\w./-]+", name) and not (ROOT / name).exists():
                yield f"{page.relative_to(ROOT)}:{number}: there is no file {name}"


def wrong_links(page: Path) -> Iterator[str]:
    """A sentence for each link to no file, or to an address that cannot be one; nothing is asked of the network."""
    for number, line in prose(page):
        for target in re.findall(r"\]\(<?([^)\s>]+)", line):
            place = f"{page.relative_to(ROOT)}:{number}: {target}"
            parts = urlsplit(target)
            if parts.scheme:
                if parts.scheme not in ("https", "mailto") or (parts.scheme == "https" and "." not in parts.netloc):
                    yield f"{place} is no address"
            elif parts.path and not (page.parent / parts.path).exists():
                yield f"{place}: there is no such file"


def pages(names: list[str]) -> list[Path]:
    """The pages to check: all, or the files and folders that are named."""
    every = [ROOT / name for name in READMES] + sorted((ROOT / "docs").rglob("*.md"))
    every = [page for page in every if page != ROOT / "docs/index.md"]  # the README again
    paths = [Path(name).resolve() for name in names]
    for path in paths:
        if not path.exists():
            raise SystemExit(f"{path}: there is no such file or folder")
    return [page for page in every if not paths or any(page == path or path in page.parents for path in paths)]


def guides() -> list[Path]:
    """The guides in the order of the site."""
    names = re.findall(r'"(guides/[\w-]+\.md)"', (ROOT / "zensical.toml").read_text("utf-8"))
    return [ROOT / "docs" / name for name in dict.fromkeys(names)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("pages", nargs="*", help="files or folders; all pages if none is named")
    parser.add_argument("--together", action="store_true", help="the guides, in the site's order and in one folder")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)  # run one page in the current folder
    options = parser.parse_args()
    if options.inside:
        try:
            ran, reasons = run_page(Path(options.pages[0]))
        except Fault as fault:
            raise SystemExit(str(fault)) from None
        except Exception:
            raise SystemExit(f"{options.pages[0]}:\n{traceback.format_exc(limit=-2)}") from None
        print(f"{ran} blocks run", *reasons, sep="\n  ")
        return
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "HF_HUB_OFFLINE": "1", "GROUNDUP": str(ROOT)}
    faults = []
    shared = tempfile.TemporaryDirectory() if options.together else None
    for page in guides() if options.together else pages(options.pages):
        faults += [*unknown_names(page), *wrong_links(page)]
        began = time.monotonic()
        with contextlib.nullcontext(shared.name) if shared else tempfile.TemporaryDirectory() as folder:
            if not Path(folder, "corpus.txt").exists():
                furnish(Path(folder))
            command = [sys.executable, __file__, "--inside", str(page)]
            done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
        seconds = time.monotonic() - began
        outcome = "fails" if done.returncode else done.stdout.strip()
        print(f"{page.relative_to(ROOT)}: {seconds:.1f} s: {outcome}", flush=True)
        if done.returncode:
            faults.append(done.stderr.strip())
    if faults:
        raise SystemExit("\n\n".join(faults))


if __name__ == "__main__":
    main()
