"""A tree as an expression of `regex`, whatever Unicode the installed `regex` follows: every set is spelled out."""

from __future__ import annotations

from bpe.expressions.sets import EVERYTHING, CharSet
from bpe.expressions.tree import Node, written
from bpe.native.lazy_imports import regex


def spelled(node: Node) -> str:
    """The expression of `regex`, without flags, that matches as the tree says."""
    return written(node, _set, "(?>{})".format, (r"\A", r"\Z"))


def _set(chars: CharSet) -> str:
    if not chars:
        return "(?!)"
    if chars == EVERYTHING:
        return "(?s:.)"
    if len(chars) == 1 and chars[0][0] == chars[0][1]:
        return str(regex.escape(chr(chars[0][0])))
    return "[" + "".join(rf"\U{first:08x}-\U{last:08x}" for first, last in chars) + "]"
