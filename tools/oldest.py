"""Write the oldest versions of the dependencies that the packages allow, as constraints for pip.

    python tools/oldest.py oldest.txt

torch is that of constraints.txt where pip finds no CPU build of the oldest.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parent.parent


def lower_bounds() -> dict[str, str]:
    """Return the version after >= of each dependency of the packages and their extras, the greatest of several."""
    bounds: dict[str, str] = {}
    for path in sorted(ROOT.glob("packages/*/pyproject.toml")):
        project = tomllib.loads(path.read_text(encoding="utf-8"))["project"]
        extras = project.get("optional-dependencies", {}).values()
        for requirement in map(Requirement, [*project["dependencies"], *(line for extra in extras for line in extra)]):
            if requirement.name.startswith("groundup-") or (requirement.marker and not requirement.marker.evaluate()):
                continue
            for specifier in requirement.specifier:
                if specifier.operator == ">=":
                    versions = [specifier.version, bounds.get(requirement.name, "0")]
                    bounds[requirement.name] = max(versions, key=Version)
    return bounds


def main() -> None:
    bounds = lower_bounds()
    trial = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-deps", f"torch=={bounds['torch']}.0+cpu"]
    if subprocess.run(trial, capture_output=True).returncode:
        print("torch is the version of constraints.txt, not the oldest: pip finds no CPU build of the oldest")
        constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8")
        bounds["torch"] = re.findall(r"^torch==(.+)$", constraints, re.MULTILINE)[0]
    lines = (f"{name}=={version}\n" for name, version in bounds.items())
    Path(sys.argv[1]).write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
