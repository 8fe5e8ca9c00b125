"""The rules of the house: who may import whom, and what every file keeps to.

import-linter reads the Python files, by the contracts in pyproject.toml, and these tests the compiled ones.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("bpe", "accounting", "lm")
CONTRACTS = ROOT / "pyproject.toml"


def contracts() -> list[dict[str, list[str]]]:
    rows: list[dict[str, list[str]]] = tomllib.loads(CONTRACTS.read_text(encoding="utf-8"))["tool"]["importlinter"][
        "contracts"
    ]
    return rows


def layers(package: str) -> dict[str, int]:
    """Return the height of each room of a package, 0 the lowest."""
    (rows,) = (contract["layers"] for contract in contracts() if contract.get("containers") == [package])
    return {room: height for height, row in enumerate(reversed(rows)) for room in re.findall(r"\w+", row)}


def files(package: str) -> list[Path]:
    source = ROOT / "packages" / package / "src" / package
    return sorted(path for kind in ("py", "pyx", "pxd") for path in source.rglob(f"*.{kind}"))


def modules(path: Path) -> Iterator[str]:
    """The modules that a file imports when it runs, or is compiled, by their whole names; names imported from them
    too."""
    text = path.read_text()
    if path.suffix != ".py":  # no Python: its lines are read
        for module, names in re.findall(r"^\s*from ([\w.]+) c?import ([^#\n]*)", text, re.MULTILINE):
            yield module
            yield from (f"{module}.{name}" for name in re.findall(r"\w+", names))
        return
    waiting: list[ast.AST] = [ast.parse(text)]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            waiting += node.orelse
            continue
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)
        waiting += ast.iter_child_nodes(node)


LINT = "import sys; from importlinter.cli import lint_imports; sys.exit(lint_imports(sys.argv[1], no_cache=True))"


def test_contracts() -> None:
    """The contracts of pyproject.toml; a failure shows import-linter's own report.

    In a process of its own, since import-linter turns off the loggers that there are.
    """
    linted = subprocess.run([sys.executable, "-c", LINT, str(CONTRACTS)], capture_output=True, text=True)
    assert not linted.returncode, linted.stdout + linted.stderr


@pytest.mark.parametrize(("package", "others"), [("bpe", "lm|accounting"), ("accounting", "lm|bpe")])
def test_packages_keep_apart(package: str, others: str) -> None:
    """Compiled modules, and what is imported for types alone, which import-linter does not read."""
    for path in files(package):
        assert not re.search(rf"^\s*(from|c?import) ({others})\b", path.read_text(), re.MULTILINE), path


@pytest.mark.parametrize("package", PACKAGES)
def test_compiled_modules_keep_to_the_layers(package: str) -> None:
    """import-linter sees no .pyx or .pxd, neither what they import nor who imports them."""
    height = layers(package)
    source = ROOT / "packages" / package / "src"
    for path in files(package):
        here = path.relative_to(source / package).with_suffix("").parts[0]
        for module in modules(path):
            compiled = path.suffix != ".py" or source.joinpath(*module.split(".")).with_suffix(".pyx").exists()
            there = module.removeprefix(f"{package}.").split(".")[0]
            if compiled and module.startswith(f"{package}.") and here in height and there in height:
                assert height[there] <= height[here], f"{path} imports {module}, which is in a layer above it"


def test_satellites_use_the_public_modules_of_bpe() -> None:
    """The exceptions that pyproject.toml names, each in use, are all there are, compiled modules among them."""
    (contract,) = (each for each in contracts() if each.get("source_modules", [])[:1] == ["bpe.cluster"])
    source = ROOT / "packages" / "bpe" / "src"
    imports = set()
    for path in files("bpe"):
        here = ".".join(path.relative_to(source).with_suffix("").parts)
        if here.startswith(tuple(f"{room}." for room in contract["source_modules"])):
            for module in modules(path):
                folder = source.joinpath(*module.split("."))
                exists = folder.is_dir() or any(folder.with_suffix(kind).exists() for kind in (".py", ".pyx"))
                if exists and module.startswith(tuple(contract["forbidden_modules"])):
                    imports.add(f"{here} -> {module}")
    packages = {each for each in imports if source.joinpath(*each.split(" -> ")[1].split(".")).is_dir()}
    assert imports - packages <= set(contract["ignore_imports"]) <= imports


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
