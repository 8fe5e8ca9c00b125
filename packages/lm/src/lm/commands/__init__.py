"""The commands of `lm`, a file each, found by being here.

A file has register(commands), which adds its parser with add(), and a function that gets the parsed options. What is heavy
(torch, the model) it imports in that function, so that every other command and `--help` answer at once.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


class Ended(Exception):
    """What ends a command without being a mistake in what was asked, as a stopped or diverged run: with an exit status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def add(
    commands: Commands, name: str, run: Callable[[argparse.Namespace], None], text: str, *, takes_settings: bool = False
) -> argparse.ArgumentParser:
    """A command's parser, to add arguments to. takes_settings: `--section.key value` are left in options.settings."""
    made = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
    made.set_defaults(command=run, takes_settings=takes_settings)
    return made
