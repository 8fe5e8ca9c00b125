"""The lines of a run's metrics: read, cut off and written for the terminal."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

from lm.files import atomic_write

METRICS = "metrics.jsonl"
Line = dict[str, Any]


def read_lines(path: Path, until: int | None = None) -> list[str]:
    """Read the lines of a metrics file up to a step; an invalid line, as of an interrupted write, is left out."""
    lines = []
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True):
            with contextlib.suppress(json.JSONDecodeError, KeyError, TypeError):
                step = json.loads(line)["step"]
                if until is None or step <= until:
                    lines.append(line)
    return lines


def truncate(path: Path, step: int) -> None:
    """Drop the lines after a step."""
    if path.exists():
        atomic_write(path, "".join(read_lines(path, step)))


def in_short(line: Line) -> str:
    """Format a line of metrics for the terminal."""
    parts = [f"loss {line['loss']:.3f}" if line["loss"] is not None else "loss NaN"]
    if line["bits_per_byte"] is not None:
        parts.append(f"{line['bits_per_byte']:.3f} bits/byte")
    if "tokens_per_second" in line:
        parts.append(f"{line['tokens_per_second']:,.0f} tokens/s")
    if "mfu" in line:
        parts.append(f"MFU {line['mfu']:.0%}")
    if line["gradient_norm"] is not None:
        parts.append(f"norm {line['gradient_norm']:.2f}")
    return "  ".join(parts)
