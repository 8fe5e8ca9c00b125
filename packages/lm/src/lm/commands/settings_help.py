"""Every setting of a configuration with its default and what stands beside it in config.py, for `--help` and `lm
presets`."""

from __future__ import annotations

import argparse
import ast
import dataclasses
import inspect
import io
import textwrap
import tokenize
import typing
from collections.abc import Mapping
from typing import Any

from lm.config import ModelConfig, TrainConfig, settable

SECTIONS: dict[str, type] = {"model": ModelConfig, "train": TrainConfig}
WIDTH = 100


def comments_of(kind: type) -> dict[str, str]:
    """The comment of each field of a configuration: those on lines of their own above it, and those on its own
    lines."""
    source = textwrap.dedent(inspect.getsource(kind))
    beside = {
        token.start[0]: token.string.lstrip("# ")
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT
    }
    body = ast.parse(source).body[0]
    assert isinstance(body, ast.ClassDef)
    found = {}
    for node in body.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            first, last = node.lineno, node.end_lineno or node.lineno
            lines = source.splitlines()
            while first > 1 and lines[first - 2].lstrip().startswith("#"):
                first -= 1
            found[node.target.id] = " ".join(beside[line] for line in range(first, last + 1) if line in beside)
    return found


def describe(name: str, kind: type, values: Mapping[str, Any] | None = None) -> str:
    """The settings of a section, a line or more each: how it is set, its value or default, and what it means.

    Args:
        name: The section.
        kind: Its configuration.
        values: The values to show; None for the defaults.
    """
    comments, hints, lines = comments_of(kind), typing.get_type_hints(kind), list[str]()
    for key, field in settable(kind).items():
        needed = field.default is dataclasses.MISSING
        value = field.default if values is None else values.get(key, field.default)
        shown = "needed" if value is dataclasses.MISSING else said(value)
        choices = typing.get_args(hints[key]) if typing.get_origin(hints[key]) is typing.Literal else ()
        changed = values is not None and not needed and value != field.default
        about = [comments.get(key, ""), f"one of {', '.join(choices)}" if choices else ""]
        about += [f"default {said(field.default)}"] if changed else []
        head = f"  --{name}.{key} {shown}"
        text = "; ".join(part.removesuffix(".") for part in about if part)
        wrapped = textwrap.wrap(text, WIDTH - 40) or [""]
        lines.append(f"{head:<39} {wrapped[0]}".rstrip() if len(head) < 39 else head)
        rest = wrapped[1:] if len(head) < 39 else wrapped
        lines += [f"{'':<39} {line}" for line in rest if line]
    return "\n".join(lines)


def said(value: object) -> str:
    """A value as a command line takes it."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) else str(value)


def all_settings() -> str:
    """Every setting of both sections with its default."""
    return "\n".join(
        [
            "settings, with their defaults:",
            *(f"\n[{name}]\n{describe(name, kind)}" for name, kind in SECTIONS.items()),
        ]
    )


class WithSettings(argparse.RawDescriptionHelpFormatter):
    """Puts every setting below a command's help; not below the usage alone, which stands above an error."""

    is_usage = True

    def start_section(self, heading: str | None) -> None:
        self.is_usage = False
        super().start_section(heading)

    def format_help(self) -> str:
        text = super().format_help()
        return text if self.is_usage else f"{text}\n{all_settings()}\n"
