"""Constraints that install the oldest versions of the dependencies that the packages allow.

    python tools/oldest.py > oldest.txt        what `nox -s tests_minimum` installs with

Each dependency with a lower bound in a pyproject.toml (`numpy>=1.26`), extras included, is pinned to that bound, or to
the greatest of several. What these depend on in turn is left to pip: the versions of constraints.txt would be too new
for some of them.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent


def lower_bounds(requirements: list[str]) -> dict[str, str]:
    """The version after >= of each requirement that has one, by normalised name; the greatest of several.

    Example:
        >>> lower_bounds(["numpy>=1.26", "lm_eval>=0.4.9; python_version < '4'", "groundup-bpe"])
        {'numpy': '1.26', 'lm-eval': '0.4.9'}
        >>> lower_bounds(["tokenizers>=0.22", "tokenizers>=0.9"])
        {'tokenizers': '0.22'}
    """
    found: dict[str, str] = {}
    for text in requirements:
        requirement = Requirement(text)
        if requirement.marker is not None and not requirement.marker.evaluate():
            continue
        for specifier in requirement.specifier:
            name = canonicalize_name(requirement.name)
            if specifier.operator == ">=" and Version(specifier.version) >= Version(found.get(name, "0")):
                found[name] = specifier.version
    return found


def pyproject_requirements(path: Path) -> list[str]:
    """The dependencies of a package, those of its extras included."""
    project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
    extras = project.get("optional-dependencies", {}).values()
    return [*project["dependencies"], *(requirement for extra in extras for requirement in extra)]


def oldest() -> dict[str, str]:
    """The version to pin each dependency of the three packages to, by name."""
    pages = sorted(ROOT.glob("packages/*/pyproject.toml"))
    bounds = lower_bounds([requirement for path in pages for requirement in pyproject_requirements(path)])
    return {name: version for name, version in bounds.items() if not name.startswith("groundup-")}


if __name__ == "__main__":
    sys.stdout.writelines(f"{name}=={version}\n" for name, version in sorted(oldest().items()))
