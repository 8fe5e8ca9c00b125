"""`accounting page`: the page that computes."""

from __future__ import annotations

import argparse
from pathlib import Path

from accounting.commands.tables import Answer
from accounting.page import page as content


def page(options: argparse.Namespace) -> Answer:
    """Write the page; its path and size."""
    path, text = Path(options.out), content()
    temporary = path.with_name(f".{path.name}.partial")
    try:
        temporary.write_text(text, encoding="utf-8")
        temporary.replace(path)
    except OSError as error:  # a write names no file
        temporary.unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from None
    size = len(text.encode())
    return Answer(f"{path}: {size / 1e3:,.0f} kB; open it in a browser", [{"path": str(path), "bytes": size}])
