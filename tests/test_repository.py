"""The repository's statements about itself agree with each other: versions, pins, pages that name files."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import inspect
import re
import tomllib
from pathlib import Path

import pytest
import settings

ROOT = Path(__file__).parent.parent
PINS = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if line and line[0] != "#")


PACKAGES = ("bpe", "lm", "accounting")


def project(package: str) -> dict[str, list[str]]:
    return tomllib.loads((ROOT / "packages" / package / "pyproject.toml").read_text())["project"]


def test_one_version() -> None:
    versions = {importlib.import_module(package).__version__ for package in PACKAGES}
    assert len(versions) == 1
    (version,) = versions
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text()
    assert re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE).group(1).strip(",") == version
    major, minor, _ = map(int, version.split("."))
    assert f"groundup-accounting>={major}.{minor},<{major}.{minor + 1}" in project("lm")["dependencies"]


@pytest.mark.parametrize("package", PACKAGES)
def test_the_installed_version_is_that_of_the_source(package: str) -> None:
    assert "version" in project(package)["dynamic"]
    assert importlib.metadata.version(f"groundup-{package}") == importlib.import_module(package).__version__


def test_hooks_use_the_versions_of_the_sessions() -> None:
    text = (ROOT / ".pre-commit-config.yaml").read_text()
    pinned = re.findall(r"\[([\w-]+)==([\w.]+)\]", text)
    assert len(pinned) == text.count("additional_dependencies")
    for name, version in pinned:
        assert PINS[name] == version


def test_workflows_use_the_versions_of_the_sessions() -> None:
    text = "".join(path.read_text() for path in (ROOT / ".github/workflows").glob("*.yml"))
    pinned = re.findall(r"pip install ([\w-]+)==([\w.]+)", text)
    assert {"cibuildwheel"} == {name for name, _ in pinned}
    hashed = re.findall(r"^([\w-]+)==([\w.]+) ", (ROOT / ".github/release.txt").read_text(), re.MULTILINE)
    assert {"build", "cython", "numpy", "setuptools"} < {name for name, _ in hashed}
    pins = {name.lower(): version for name, version in PINS.items()}
    for name, version in pinned + hashed:
        assert pins.get(name, version) == version


def sessions() -> set[str]:
    return set(re.findall(r"^@nox\.session.*\ndef (\w+)", (ROOT / "noxfile.py").read_text(), re.MULTILINE))


@pytest.mark.parametrize(
    "page", ["CONTRIBUTING.md", "RELEASING.md", "SECURITY.md", "README.md", ".github/pull_request_template.md"]
)
def test_pages_name_sessions_that_exist(page: str) -> None:
    named = re.findall(r"nox -s ((?:\w+ ?)+)", (ROOT / page).read_text())
    assert {name for names in named for name in names.split()} <= sessions()


def test_workflows_name_sessions_that_exist() -> None:
    for path in (ROOT / ".github/workflows").glob("*.yml"):
        named = re.findall(r"session: (\[[^]]*\]|\w+)", path.read_text())
        assert set(re.findall(r"\w+", " ".join(named))) <= sessions(), path


def test_the_wheels_are_tested_by_files_that_exist() -> None:
    text = (ROOT / "packages/bpe/pyproject.toml").read_text()
    named = set(re.findall(r"\{package\}/tests/(test_\w+\.py)", text))
    assert named
    assert named <= {path.name for path in (ROOT / "packages/bpe/tests").iterdir()}


def test_the_guarantees_name_tests_that_exist() -> None:
    """Each row of a table of promises names tests, and they are there."""
    package = ""
    for line in (ROOT / "docs/design/guarantees.md").read_text().splitlines():
        package = line[3:] if line.startswith("## ") else package
        if not line.startswith("| ") or "test" not in line.split("|")[-2] or line.startswith("| promise"):
            continue
        named = re.findall(r"`((?:[\w/]+/)?test_\w+\.py)::(test_\w+)`", line.split("|")[-2])
        assert named, line
        for path, function in named:
            file = ROOT / path if "/" in path else ROOT / "packages" / package / "tests" / path
            assert f"def {function}(" in file.read_text(), f"{path} {function}: {line}"


def test_the_page_of_settings_is_that_of_the_sources_and_each_has_a_meaning() -> None:
    assert settings.PAGE.read_text("utf-8") == settings.page(), "run python tools/settings.py"
    for kind, *_ in settings.SECTIONS:
        names = {field.name for field in dataclasses.fields(kind)}
        assert names - settings.meanings(kind).keys() == set()
        assert all(settings.meanings(kind)[name] for name in names)
        assert names <= set(re.findall(r"^ {4}(\w+): ", inspect.getdoc(kind) or "", re.MULTILINE)), "help() has them"
