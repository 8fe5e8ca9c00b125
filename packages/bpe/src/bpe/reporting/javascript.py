"""A tokenizer for assets/encoder.js: the split pattern as a JavaScript expression, the vocabulary as compact bytes.

Every class of characters is spelled out in ranges of Unicode 16, so that the browser's version does not matter.
Possessive quantifiers and atomic groups, which JavaScript lacks, become a lookahead that captures and a reference back
to it, since a lookahead is never entered again.
"""

from __future__ import annotations

import base64
import functools
import itertools
import json
import unicodedata
import zlib

from bpe.encoding.preparing import Preparation
from bpe.expressions import steps
from bpe.expressions.sets import LAST, CharSet, difference
from bpe.expressions.tree import Node, written
from bpe.formats import TokenizerData
from bpe.formats.vocabulary import MARK, encoder_tables, merges_of
from bpe.patterns import Pattern, tree_of

SURROGATES = ((0xD800, 0xDFFF),)


def packed(data: TokenizerData) -> bytes:
    """Return the tokenizer as encoder.js reads it: base64 of a zlib stream. ValueError for what encoder.js does not do.

    The stream is a line of JSON, and the bytes of all symbols. Ids, and the symbols that merges make, are differences
    to the one before plus one, which zlib makes small.
    """
    space = _check(data)
    characters = data.characters
    # SentencePiece's kind merges bytes too, at first within each character
    tokens, ids, rows, _ = encoder_tables(data if characters is None else data._replace(merges=merges_of(data)))
    pairs = [] if rows is None else [(tokens[left], tokens[right]) for left, right, _ in rows.tolist()]
    merges = [pair for pair in pairs if not characters or pair[0] + pair[1] != MARK]  # encoder.js puts spaces for marks
    numbered = zip(tokens, ids.tolist(), strict=True)
    symbols = sorted((item for item in numbered if item[0] != MARK or not characters), key=lambda item: item[1])
    index = {token: i for i, (token, _) in enumerate(symbols)}
    classes: dict[str, int] = {}
    normalizer = None if characters else data.normalizer
    about = {
        "tokens": len(data.vocab),
        "lengths": [len(token) for token, _ in symbols],
        "ids": _differences([number for _, number in symbols]),
        "by_rank": data.merges is None and characters is None,
        "made": _differences([index[left + right] for left, right in merges]),  # by each merge
        "left": [len(left) for left, _ in merges],  # bytes of the left half
        "ignore_merges": data.ignore_merges,
        "normalizer": normalizer,
        "unassigned": _unassigned() if normalizer else "",
        "special": data.special_tokens,
        "added": data.added_tokens,
        "pattern": [] if data.pattern.is_none else [javascript(tree, classes) for tree in _trees(data.pattern)],
        "classes": list(classes),
        # of SentencePiece's kind: which texts get a space in front, the ids of the 256 bytes, and the first of the ids
        # that stand for several bytes
        "space": space,
        "byte_ids": characters and characters.byte_ids,
        "first_partial": max(data.vocab) + 1,
    }
    line = json.dumps(about, separators=(",", ":")).encode()
    return base64.b64encode(zlib.compress(line + b"\n" + b"".join(token for token, _ in symbols), 9))


def _check(data: TokenizerData) -> str:
    """Return which texts get a space in front. ValueError for settings that encoder.js does not have."""
    preparation = Preparation(data)
    if data.characters is None and data.normalizer not in (None, "NFC"):
        raise ValueError(f"this page's encoder does not normalize to {data.normalizer}")
    if data.characters is not None and preparation.form is None:
        raise ValueError(f"this page's encoder does not normalize by {data.normalizer}")
    if data.add_prefix_space:
        raise ValueError("this page's encoder does not put a space before a text (add_prefix_space)")
    flagged = data.normalized | data.lstrip | data.rstrip | data.single_word
    if flagged:
        raise ValueError(f"this page's encoder does not know the options of the token {sorted(flagged)[0]!r}")
    return preparation.space


def _differences(numbers: list[int]) -> list[int]:
    return [number - last - 1 for last, number in itertools.pairwise([-1, *numbers])]


def javascript(node: Node, classes: dict[str, int]) -> str:
    """Return a tree as an expression of JavaScript with the flag u, where §n§ stands for the nth class.

    classes: every class so far and its number, added to.
    """
    captures = itertools.count(1)

    def atomic(text: str) -> str:
        name = f"a{next(captures)}"
        return f"(?:(?=(?<{name}>{text}))\\k<{name}>)"

    def one_of(chars: CharSet) -> str:
        return f"§{classes.setdefault(_class(chars), len(classes))}§"

    return written(node, one_of, atomic, ("(?<![^])", "(?![^])"))


def _trees(pattern: Pattern) -> list[Node]:
    """Return the trees whose matches are isolated one after another."""
    if pattern.steps:
        stages = steps.stages(tuple(json.loads(pattern.steps)))
        if stages is None or any(stage.drops or stage.in_bytes for stage in stages):
            raise ValueError(f"this page's encoder does not run the steps {pattern.steps}")
        return [stage.tree for stage in stages]
    if pattern.language == "regex":
        raise ValueError(f"this page's encoder does not run the pattern {pattern}, which fancy-regex does not read")
    return [tree_of(expression, pattern.language) for expression in pattern.expressions]


def _class(chars: CharSet) -> str:
    """Return the inside of a JavaScript class of the code points of a set, without surrogates."""

    def literal(code: int) -> str:
        return chr(code) if code < 128 and chr(code).isalnum() else f"\\u{{{code:x}}}"

    return "".join(
        literal(first) if first == last else f"{literal(first)}-{literal(last)}"
        for first, last in difference(chars, SURROGATES)
    )


@functools.cache
def _unassigned() -> str:
    """Return the class of what Python's Unicode leaves alone when it normalizes, as a newer browser might not."""
    unassigned = (unicodedata.category(chr(code)) == "Cn" for code in range(LAST + 1))
    runs = itertools.groupby(enumerate(unassigned), key=lambda item: item[1])
    ranges = [list(run) for outside, run in runs if outside]
    return _class(tuple((run[0][0], run[-1][0]) for run in ranges))
