"""What a run was made with: versions and machine, kept in the run for its report."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import time
from importlib import metadata
from pathlib import Path

import torch

from lm.files import atomic_write


def environment(device: torch.device | str = "cpu") -> dict[str, str | int]:
    """Versions, system, processor and device, in words."""
    known: dict[str, str | int] = {
        "Python": platform.python_version(),
        "torch": torch.__version__,
        "system": platform.platform(terse=True),
        "processor": processor(),
        "processors": os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
    }
    with contextlib.suppress(metadata.PackageNotFoundError):  # where it is imported from its source
        known["groundup-lm"] = metadata.version("groundup-lm")
    if torch.device(device).type == "cuda":
        known["device"] = torch.cuda.get_device_name(device)
        known["CUDA"] = torch.version.cuda or "unknown"
    return known


def record(folder: Path, device: torch.device | str = "cpu") -> None:
    """Writes RUN/environment.json at the first start of a run; a continuation leaves it."""
    path = folder / "environment.json"
    if path.exists():
        return
    known = {**environment(device), "begun": time.strftime("%Y-%m-%d %H:%M %z")}
    atomic_write(path, json.dumps(known, indent=1) + "\n")


def processor() -> str:
    """The processor's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
