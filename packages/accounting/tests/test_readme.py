"""The README shows what its commands print. `UPDATE_README=1 pytest` writes it anew."""

import doctest
import os
import re
from pathlib import Path

import pytest

from accounting.commands.parser import main

README = Path(__file__).parent.parent / "README.md"
BLOCK = re.compile(r"```\n\$ accounting (.+)\n((?:.*\n)*?)```")


def test_commands_print_what_the_readme_shows(capsys: pytest.CaptureFixture[str]) -> None:
    def printed(found: re.Match[str]) -> str:
        command, _, head = found[1].partition(" | head -")
        assert main(command.split()) == 0
        lines = capsys.readouterr().out.splitlines()
        return f"```\n$ accounting {found[1]}\n" + "\n".join(lines[: int(head) if head else None]) + "\n```"

    words = README.read_text(encoding="utf-8")
    assert len(BLOCK.findall(words)) == 8
    fresh = BLOCK.sub(printed, words)
    if os.environ.get("UPDATE_README"):
        README.write_text(fresh, encoding="utf-8")
    assert fresh == README.read_text(encoding="utf-8")


def test_python_examples() -> None:
    assert doctest.testfile(str(README), module_relative=False, encoding="utf-8").failed == 0
