"""Write docs/reference/settings.md: every setting with its type, its default and its meaning, from the sources.

python tools/settings.py            write the page
python tools/settings.py --check    fail if it is not what would be written
"""

from __future__ import annotations

import dataclasses
import inspect
import re
import sys
import typing
from pathlib import Path

import accounting
import lm
from lm.config import comments_of

PAGE = Path(__file__).parent.parent / "docs" / "reference" / "settings.md"
HEAD = """# Settings

Every setting of a model, of its training, and of a budget, from the sources (`python tools/settings.py`). In Python
`help(lm.TrainConfig)` says the same; on a command line `lm train --help`, where a setting is `--model.NAME VALUE` or
`--train.NAME VALUE`.
"""
SECTIONS = (
    (lm.ModelConfig, "A model", "the table `[model]` of a run's `config.toml`"),
    (lm.TrainConfig, "Training", "the table `[train]`"),
    (accounting.TransformerShape, "The shape of a budget", "what `accounting` counts"),
    (accounting.Policy, "The policy of a budget", "how a step is computed"),
)


def meanings(kind: type) -> dict[str, str]:
    """The meaning of each field: the comment beside it, or its line under Args in the docstring."""
    if kind.__module__.startswith("lm."):
        return comments_of(kind)
    arguments = re.search(r"^Args:\n(.*?)(?=^\S|\Z)", inspect.getdoc(kind) or "", re.DOTALL | re.MULTILINE)
    entries = re.findall(r"^ {4}(\w+): (.*?)(?=^ {4}\w+: |\Z)", arguments[1] if arguments else "", re.DOTALL | re.M)
    return {name: " ".join(text.split()) for name, text in entries}


def spelled(hint: object) -> str:
    """A type as a reader writes its values."""
    if typing.get_origin(hint) is typing.Literal:
        return ", ".join(f"`{choice}`" for choice in typing.get_args(hint))
    return f"`{hint.__name__ if isinstance(hint, type) else str(hint).replace('typing.', '')}`".replace("|", "\\|")


def table(kind: type) -> str:
    """The settings of a class as a Markdown table."""
    hints, lines = typing.get_type_hints(kind), ["| setting | type | default | meaning |", "|---|---|---|---|"]
    for field in dataclasses.fields(kind):
        default = "needed" if field.default is dataclasses.MISSING else f"`{field.default!r}`"
        if field.default is dataclasses.MISSING and field.default_factory is not dataclasses.MISSING:
            default = f"`{field.default_factory()!r}`"
        meaning = meanings(kind).get(field.name, "").replace("|", "\\|")
        lines.append(
            f"| `{field.name}` | {spelled(hints[field.name])} | {default} | {meaning} |".replace("|  |", "| |")
        )
    return "\n".join(lines)


def page() -> str:
    parts = [HEAD]
    for kind, title, about in SECTIONS:
        name = f"{kind.__module__.partition('.')[0]}.{kind.__name__}"
        parts.append(f"## {title}\n\n`{name}`: {about}.\n\n{table(kind)}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    if "--check" in sys.argv[1:]:
        sys.exit(PAGE.read_text("utf-8") != page() and f"{PAGE} is not of these sources: run tools/settings.py")
    PAGE.write_text(page(), "utf-8")
