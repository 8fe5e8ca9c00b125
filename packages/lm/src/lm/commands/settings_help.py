"""Every setting of a configuration with its default and its comment in config.py, for `--help` and `lm presets`."""

from __future__ import annotations

import argparse
import dataclasses
import textwrap
import typing
from collections.abc import Mapping
from typing import Any

from lm.config import SECTIONS, comments_of, settable

WIDTH = 100


def describe(name: str, kind: type, values: Mapping[str, Any] | None = None) -> str:
    """The settings of a section, a line or more each: its option, its value (None: its default), and its meaning."""
    comments, hints, lines = comments_of(kind), typing.get_type_hints(kind), list[str]()
    for key, field in settable(kind).items():
        needed = field.default is dataclasses.MISSING
        value = field.default if values is None else values.get(key, field.default)
        shown = "needed" if value is dataclasses.MISSING else spelled(value)
        choices = typing.get_args(hints[key]) if typing.get_origin(hints[key]) is typing.Literal else ()
        changed = values is not None and not needed and value != field.default
        about = [comments.get(key, ""), f"one of {', '.join(choices)}" if choices else ""]
        about += [f"default {spelled(field.default)}"] if changed else []
        head = f"  --{name}.{key} {shown}"
        text = "; ".join(part.removesuffix(".") for part in about if part)
        wrapped = textwrap.wrap(text, WIDTH - 40) or [""]
        lines.append(f"{head:<39} {wrapped[0]}".rstrip() if len(head) < 39 else head)
        rest = wrapped[1:] if len(head) < 39 else wrapped
        lines += [f"{'':<39} {line}" for line in rest if line]
    return "\n".join(lines)


def spelled(value: object) -> str:
    """A value as a command line takes it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


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
