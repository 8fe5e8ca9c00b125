"""A regular expression of any language as a tree whose leaves are sets of code points."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from bpe.expressions.sets import EVERYTHING, CharSet
from bpe.native.lazy_imports import regex

Greed = Literal["greedy", "lazy", "possessive"]


@dataclass(frozen=True)
class Chars:
    """One character of a set."""

    chars: CharSet


@dataclass(frozen=True)
class Sequence:
    """One after another; of none, the empty text."""

    parts: tuple[Node, ...]


@dataclass(frozen=True)
class Choice:
    """The first of the branches with which all matches."""

    branches: tuple[Node, ...]


@dataclass(frozen=True)
class Repeat:
    """From `least` to `most` times (None: without end)."""

    part: Node
    least: int
    most: int | None
    greed: Greed = "greedy"


@dataclass(frozen=True)
class Atomic:
    """A part that is not matched in another way when the rest fails."""

    part: Node


@dataclass(frozen=True)
class Look:
    """A position that the part does, or does not, match from (ahead) or up to (behind)."""

    part: Node
    ahead: bool
    positive: bool


@dataclass(frozen=True)
class Edge:
    """The beginning or the end of the text."""

    end: bool


Node = Chars | Sequence | Choice | Repeat | Atomic | Look | Edge

EMPTY = Sequence(())


def sequence(parts: list[Node]) -> Node:
    """The parts one after another."""
    return parts[0] if len(parts) == 1 else Sequence(tuple(parts))


def choice(branches: list[Node]) -> Node:
    """The first branch that leads to a match."""
    return branches[0] if len(branches) == 1 else Choice(tuple(branches))


def look_behind(chars: CharSet, positive: bool = True) -> Node:
    """A position after a character of the set, or after none such."""
    return Look(Chars(chars), False, positive)


def look_ahead(chars: CharSet, positive: bool = True) -> Node:
    """A position before a character of the set, or before none such."""
    return Look(Chars(chars), True, positive)


def written(node: Node, one_of: Callable[[CharSet], str], atomic: Callable[[str], str], edges: tuple[str, str]) -> str:
    """The expression of an engine that spells a set, an atomic group, and the begin and the end of a text so."""

    def write(node: Node) -> str:
        if isinstance(node, Chars):
            return one_of(node.chars)
        if isinstance(node, Sequence):
            return f"(?:{''.join(map(write, node.parts))})"
        if isinstance(node, Choice):
            return f"(?:{'|'.join(map(write, node.branches))})"
        if isinstance(node, Repeat):
            text = f"(?:{write(node.part)}){{{node.least},{'' if node.most is None else node.most}}}"
            return atomic(text) if node.greed == "possessive" else text + "?" * (node.greed == "lazy")
        if isinstance(node, Atomic):
            return atomic(write(node.part))
        if isinstance(node, Look):
            return f"(?{'' if node.ahead else '<'}{'=' if node.positive else '!'}{write(node.part)})"
        return edges[node.end]

    return write(node)


def spelled(node: Node) -> str:
    """The expression of `regex` that matches as the tree says; sets are spelled out, whatever Unicode it follows."""
    return written(node, _one_of_regex, "(?>{})".format, (r"\A", r"\Z"))


def _one_of_regex(chars: CharSet) -> str:
    if not chars:
        return "(?!)"
    if chars == EVERYTHING:
        return "(?s:.)"
    if len(chars) == 1 and chars[0][0] == chars[0][1]:
        return str(regex.escape(chr(chars[0][0])))
    return "[" + "".join(rf"\U{first:08x}-\U{last:08x}" for first, last in chars) + "]"
