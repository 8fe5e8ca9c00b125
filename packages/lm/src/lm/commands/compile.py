"""`lm compile`: lm's C compiled ahead, for images and machines without a compiler."""

from __future__ import annotations

import argparse
from pathlib import Path

from lm.commands.cli import Commands, add


def register(commands: Commands) -> None:
    parser = add(commands, "compile", compile, "compile lm's C ahead, for machines without a compiler")
    parser.description = (
        "Compile lm's C for every level of this kind of processor. A machine without a compiler uses the folder that "
        "its environment variable LM_LIBRARIES names, and takes the widest level that its processor has."
    )
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="the folder of the libraries")


def compile(options: argparse.Namespace) -> None:
    from lm.ops.cpu.build import compile_ahead

    paths = compile_ahead(options.to)
    size = sum(path.stat().st_size for path in paths)
    print(f"{len(paths)} libraries, {size / 1e6:.1f} MB: set LM_LIBRARIES={options.to.resolve()} where they are used")
