"""The pages show what their commands print. `UPDATE_PAGES=1 pytest` writes them anew."""

import doctest
import os
import re
import shlex
from pathlib import Path

import pytest

from accounting.commands.parser import main

PACKAGE = Path(__file__).parent.parent
DOCS = PACKAGE.parent.parent / "docs"
PAGES = [PACKAGE / "README.md"]
if DOCS.exists():  # not so where the package is alone
    PAGES += [DOCS / "guides" / "cs336-accounting.md", DOCS / "guides" / "accounting-commands.md"]
BLOCK = re.compile(r"```console\n\$ accounting (.+)\n((?:.*\n)*?)```")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_print_what_the_page_shows(page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def printed(found: re.Match[str]) -> str:
        assert main(shlex.split(found[1])) == 0
        return f"```console\n$ accounting {found[1]}\n{capsys.readouterr().out}```"

    words = page.read_text(encoding="utf-8")
    assert len(BLOCK.findall(words)) == words.count("```console") >= 2
    fresh = BLOCK.sub(printed, words)
    if os.environ.get("UPDATE_PAGES"):
        page.write_text(fresh, encoding="utf-8")
    assert fresh == page.read_text(encoding="utf-8")


def test_the_readme_is_a_page() -> None:
    assert len((PACKAGE / "README.md").read_text(encoding="utf-8").splitlines()) <= 120


def test_python_examples() -> None:
    assert doctest.testfile(str(PACKAGE / "README.md"), module_relative=False, encoding="utf-8").failed == 0
