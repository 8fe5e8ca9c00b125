"""A tree as an expression of `regex`, whatever Unicode the installed `regex` follows: every set is spelled out."""

from __future__ import annotations

from bpe.expressions.sets import EVERYTHING, CharSet
from bpe.expressions.tree import Atomic, Chars, Choice, Edge, Look, Node, Repeat, Sequence
from bpe.native.lazy_imports import regex

_GREED = {"greedy": "", "lazy": "?", "possessive": "+"}


def spelled(node: Node) -> str:
    """The expression of `regex`, without flags, that matches as the tree says."""
    if isinstance(node, Chars):
        return _set(node.chars)
    if isinstance(node, Sequence):
        return "(?:" + "".join(map(spelled, node.parts)) + ")" if node.parts else "(?:)"
    if isinstance(node, Choice):
        return "(?:" + "|".join(map(spelled, node.branches)) + ")"
    if isinstance(node, Repeat):
        most = "" if node.most is None else node.most
        inner = f"(?:{spelled(node.part)}){{{node.least},{most}}}"
        return f"(?>{inner})" if node.greed == "possessive" else inner + _GREED[node.greed]
    if isinstance(node, Atomic):
        return f"(?>{spelled(node.part)})"
    if isinstance(node, Look):
        return f"(?{'' if node.ahead else '<'}{'=' if node.positive else '!'}{spelled(node.part)})"
    assert isinstance(node, Edge)
    return r"\Z" if node.end else r"\A"


def _set(chars: CharSet) -> str:
    if not chars:
        return "(?!)"
    if chars == EVERYTHING:
        return "(?s:.)"
    if len(chars) == 1 and chars[0][0] == chars[0][1]:
        return str(regex.escape(chr(chars[0][0])))
    return "[" + "".join(map(_range, chars)) + "]"


def _range(ends: tuple[int, int]) -> str:
    first, last = ends
    return rf"\U{first:08x}" if first == last else rf"\U{first:08x}-\U{last:08x}"
