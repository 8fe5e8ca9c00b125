"""The rules of the house: which packages keep apart, and what every file keeps to."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

PACKAGES = ("bpe", "accounting", "lm")

FOREIGN = {"bpe": {"lm", "accounting"}, "accounting": {"bpe", "lm"}, "lm": set()}


def files(package: str) -> list[Path]:
    source = ROOT / "packages" / package / "src" / package
    return sorted(path for kind in ("py", "pyx", "pxd") for path in source.rglob(f"*.{kind}"))


def imported(path: Path) -> set[str]:
    """The modules that a file imports, as far as can be read off its lines (a .pyx is no Python)."""
    text = path.read_text()
    if path.suffix == ".py":
        names = set()
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                names |= {name.name for name in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names |= {f"{node.module}.{name.name}" for name in node.names}
        return names
    lines = re.findall(r"^\s*from ([\w.]+) c?import (.*)$", text, re.MULTILINE)
    return {f"{module}.{name.strip()}" for module, names in lines for name in names.strip("()").split(",")}


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_keep_apart(package: str) -> None:
    for path in files(package):
        for name in imported(path):
            assert name.split(".")[0] not in FOREIGN[package], f"{path} imports {name}"


@pytest.mark.parametrize("package", PACKAGES)
def test_every_compiled_module_has_its_stub(package: str) -> None:
    for path in files(package):
        if path.suffix == ".pyx":
            assert path.with_suffix(".pyi").exists(), f"{path} has no stub"


def test_users_mistakes_are_no_assertions() -> None:
    # An assert says what cannot be; what a caller can get wrong is a ValueError or TypeError that says what to do.
    for package in PACKAGES:
        for path in files(package):
            for line in path.read_text().splitlines():
                assert "raise AssertionError" not in line, path
                assert "NotImplementedError" not in line, path


# What ruff does not measure, which holds Python to 120 characters.
OTHER_LANGUAGES = ("pyx", "pxd", "pxi", "h", "c", "js", "css", "toml", "sh")
GENERATED = {
    "packages/accounting/src/accounting/page/formulas.js",
    "packages/bpe/src/bpe/encoding/normalization_tables.h",
    "packages/bpe/src/bpe/expressions/unicode_sets.py",
    "packages/bpe/src/bpe/scanning/unicode.h",
}

# Libraries of others, as their bundler writes them.
LIBRARIES = {"packages/lm/src/lm/page/assets/jinja.min.js"}

# Most of it is docstrings, in which a user looks things up.
ONE_CLASS = {"packages/bpe/src/bpe/tokenizer.py"}


def tracked(*suffixes: str) -> list[str]:
    patterns = [f"*.{suffix}" for suffix in suffixes]
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return listed.stdout.split()


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="asks git which files there are")
def test_no_line_is_too_long_to_read() -> None:
    for name in {*tracked(*OTHER_LANGUAGES)} - GENERATED - LIBRARIES:
        for number, line in enumerate((ROOT / name).read_text(encoding="utf-8").splitlines(), start=1):
            assert len(line) <= 120, f"{name}, line {number}"


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="asks git which files there are")
def test_no_file_of_bpe_is_too_long_to_read() -> None:
    for name in tracked("py", *OTHER_LANGUAGES):
        if name.startswith("packages/bpe/") and name not in GENERATED:
            lines = (ROOT / name).read_text(encoding="utf-8").count("\n")
            most = 1200 if name in ONE_CLASS else 500
            assert lines <= most, f"{name} has {lines} lines"


def test_there_is_no_drawer_for_odds_and_ends() -> None:
    for package in PACKAGES:
        assert not [path for path in files(package) if path.stem in ("utils", "helpers", "misc", "common")]
