"""Every setting of a configuration with its default and its comment in config.py, for `--help` and `lm presets`."""

from __future__ import annotations

import argparse
import dataclasses
import textwrap
import typing
from collections.abc import Mapping
from itertools import zip_longest
from typing import Any

from lm.config import SECTIONS, comments_of, settable

WIDTH, COLUMN = 100, 40


def describe(name: str, kind: type, values: Mapping[str, Any] | None = None) -> str:
    """The settings of a section, a line or more each: its option, its value (None: its default), and its meaning."""
    comments, hints, lines = comments_of(kind), typing.get_type_hints(kind), list[str]()
    for key, field in settable(kind).items():
        value = field.default if values is None else values.get(key, field.default)
        about = [comments.get(key, "").removesuffix(".")]
        if typing.get_origin(hints[key]) is typing.Literal:
            about.append(f"one of {', '.join(typing.get_args(hints[key]))}")
        if values is not None and value != field.default is not dataclasses.MISSING:
            about.append(f"default {spelled(field.default)}")
        head = f"  --{name}.{key} {'needed' if value is dataclasses.MISSING else spelled(value)}"
        wrapped = textwrap.wrap("; ".join(filter(None, about)), WIDTH - COLUMN) or [""]
        if len(head) >= COLUMN:
            lines.append(head)
            head = ""
        lines += [f"{before:<{COLUMN}}{line}".rstrip() for before, line in zip_longest([head], wrapped, fillvalue="")]
    return "\n".join(lines)


def spelled(value: object) -> str:
    """A value as a command line takes it."""
    return (
        f"{value:g}" if isinstance(value, float) else str(value).lower() if value in (None, True, False) else str(value)
    )


class WithSettings(argparse.RawDescriptionHelpFormatter):
    """Puts every setting below a command's help; not below the usage alone, which stands above an error."""

    is_usage = True

    def start_section(self, heading: str | None) -> None:
        self.is_usage = False
        super().start_section(heading)

    def format_help(self) -> str:
        text = super().format_help()
        sections = (f"\n[{name}]\n{describe(name, kind)}\n" for name, kind in SECTIONS.items())
        return text if self.is_usage else f"{text}\nsettings, with their defaults:\n{''.join(sections)}"
