"""A tree as an expression of `regex`, whatever Unicode the installed `regex` follows: every set is spelled out."""

from __future__ import annotations

from collections.abc import Callable

from bpe.expressions.sets import EVERYTHING, CharSet
from bpe.expressions.tree import Atomic, Chars, Choice, Look, Node, Repeat, Sequence
from bpe.native.lazy_imports import regex


def spelled(node: Node) -> str:
    """The expression of `regex`, without flags, that matches as the tree says."""
    return written(node, _set, "(?>{})".format, (r"\A", r"\Z"))


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


def _set(chars: CharSet) -> str:
    if not chars:
        return "(?!)"
    if chars == EVERYTHING:
        return "(?s:.)"
    if len(chars) == 1 and chars[0][0] == chars[0][1]:
        return str(regex.escape(chr(chars[0][0])))
    return "[" + "".join(rf"\U{first:08x}-\U{last:08x}" for first, last in chars) + "]"
