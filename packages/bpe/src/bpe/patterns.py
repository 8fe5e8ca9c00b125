"""The split patterns by name, and the slow splitter that serves any regular expression."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bpe.native.lazy_imports import regex
from bpe.native.once import made_once
from bpe.scanning import scanner

if TYPE_CHECKING:
    from bpe.expressions.automaton import Automaton
    from bpe.expressions.cursor import Language
    from bpe.expressions.steps import Splitting
    from bpe.expressions.tree import Node

# Spelled so that `regex`, fancy-regex (tiktoken) and Oniguruma (tokenizers) read them alike. `$` and `{1,3}+` mean
# other things in Oniguruma, so cl100k says "to the end of the text" as (?!\s|\S) and does without possessive
# quantifiers, which change no match here. Sources: tiktoken's openai_public, and the tokenizer.json of each model.
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_NEWLINES_AND_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"

PATTERNS: dict[str, tuple[str, ...]] = {
    # also r50k and p50k
    "gpt2": (r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+",),
    # white space that ends the text is one pretoken, line ends and all: this is what sets it apart from llama3
    "cl100k": (
        _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
        r"|\s+(?!\s|\S)|" + _NEWLINES_AND_SPACES,
    ),
    "o200k": (
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+" + _CONTRACTIONS + "?"
        r"|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*" + _CONTRACTIONS + "?"
        r"|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|" + _NEWLINES_AND_SPACES,
    ),
    "llama3": (
        _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _NEWLINES_AND_SPACES,
    ),
    # also Qwen 2.5 and 3; the model puts the text in NFC first, which is not the pattern's business
    "qwen2": (_CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _NEWLINES_AND_SPACES,),
    # qwen2 with combining marks as letters
    "qwen3.5": (
        _CONTRACTIONS
        + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|"
        + _NEWLINES_AND_SPACES,
    ),
    # three splits in sequence: numbers, then Han and kana, then the rest
    "deepseek-v3": (
        r"\p{N}{1,3}",
        "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
        r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^"""
        "\r\n"
        r"""\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+["""
        "\r\n"
        r"""]*|\s*["""
        "\r\n"
        r"""]+|\s+(?!\S)|\s+""",
    ),
}

# The general categories in the order of scanning/unicode.h.
CATEGORIES = (
    "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Cs Co Cn".split()  # noqa: SIM905
)

_ALIASES = {
    "r50k": "gpt2",
    "r50k_base": "gpt2",
    "p50k": "gpt2",
    "p50k_base": "gpt2",
    "p50k_edit": "gpt2",
    "cl100k_base": "cl100k",
    "o200k_base": "o200k",
    "o200k_harmony": "o200k",
    "qwen3": "qwen2",
}

# How tiktoken 0.14 spells two of them: in fancy-regex, and with the same meaning in `regex`.
_OTHER_SPELLINGS = {
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s": "gpt2",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s": "cl100k",
}

_NAME_OF: dict[tuple[str, ...], str] = {expressions: name for name, expressions in PATTERNS.items()}

# The digest of what the automata of a pattern do, for those that a scanner of another kind serves faster.
_SAME_AS: dict[str, str] = {}

# An expression that can match nothing usually does so here: beside letters, digits, marks, signs, spaces and the ends.
_PROBES = ("", "aB1 é2\t\n.'s中\u0301-_ \r\n\n  <|x|>😀٣ ")


class Pattern(NamedTuple):
    """A resolved split pattern.

    name: the name in PATTERNS, or None where it is not one of those. expressions: applied in sequence, each to every
    piece the one before it left; none at all means that the text is not split. language: that of the expressions;
    PATTERNS are spelled so that it does not matter. steps: instead of expressions, the steps of a tokenizer.json's
    pre-tokenizer where they do more than isolate matches, as JSON (see bpe.expressions.steps).
    """

    name: str | None
    expressions: tuple[str, ...]
    language: Language = "regex"
    steps: str = ""

    @property
    def whole(self) -> bool:
        """Whether the text is not split."""
        return not self.expressions and not self.steps

    @property
    def given(self) -> SplitPattern:
        """What a tokenizer is given for this pattern: its name, its expressions of `regex`, None, or the pattern."""
        if self.name or self.whole:
            return self.name
        if self.language != "regex":
            return self
        return self.expressions[0] if len(self.expressions) == 1 else self.expressions

    def __str__(self) -> str:
        return self.name or self.steps or " then ".join(map(repr, self.expressions)) or "no split"


SplitPattern = str | tuple[str, ...] | Pattern | None


def resolve(pattern: SplitPattern, language: Language = "regex") -> Pattern:
    """The Pattern meant by a name, a regular expression, several in sequence, or None for no split.

    An expression that is one of the named patterns, as published, gets its name. A plain word that is no name is an
    error, not an expression. language: of which the expressions are: "regex", the Python package; "oniguruma", as a
    tokenizer.json has them; "fancy-regex", as tiktoken has them. Raises ValueError naming the pattern where it is
    unknown, empty, does not compile, asks for what is not supported, or can match the empty string; TypeError where it
    is no str.
    """
    if isinstance(pattern, Pattern):
        return pattern
    if pattern is None:
        return Pattern(None, ())
    if isinstance(pattern, str):
        name = _ALIASES.get(pattern, pattern)
        if name in PATTERNS:
            return Pattern(name, PATTERNS[name])
        if _is_word(pattern):
            import difflib  # only a mistake needs it

            near = difflib.get_close_matches(pattern, [*PATTERNS, *_ALIASES], n=1)
            raise ValueError(
                f"no split pattern is named {pattern!r}{f' (did you mean {near[0]!r}?)' if near else ''}: it is one of "
                f"{', '.join(PATTERNS)}, a regular expression (a plain word would be written '(?:{pattern})'), or None "
                "for no split"
            )
        expressions: tuple[str, ...] = (pattern,)
    elif isinstance(pattern, (tuple, list)) and all(isinstance(part, str) for part in pattern):
        expressions = tuple(map(str, pattern))
    else:
        raise TypeError(f"a split pattern is a str, a tuple of str or None, not {pattern!r}")
    known = _NAME_OF.get(expressions)
    if known is None and language != "oniguruma":
        known = _OTHER_SPELLINGS.get(expressions[0]) if len(expressions) == 1 else None
    if known is not None:
        return Pattern(known, PATTERNS[known])
    for expression in expressions:
        if language == "regex" or not expression or _automaton_of(expression, language) is None:
            _compile(expression, language)
    return Pattern(None, expressions, language if expressions else "regex")


def _is_word(pattern: str) -> bool:
    """Whether this looks like a name rather than an expression."""
    return pattern[:1].isascii() and pattern[:1].isalpha() and all(one.isalnum() or one in "_.-" for one in pattern)


def of_steps(steps: Sequence[Mapping[str, Any]]) -> Pattern:
    """The pattern of a tokenizer.json's pre-tokenizer: its steps in order, those of a Sequence side by side.

    Where all that the steps do is to isolate matches before ByteLevel, their expressions, else the steps. Raises
    ValueError where a step is not supported.
    """
    import json

    from bpe.expressions.step_options import checked

    made = [checked(step) for step in steps]
    *before, last = made
    isolate = all(_isolates(step) for step in before)
    if isolate and last == {**last, "type": "ByteLevel", "add_prefix_space": False}:
        expressions = tuple(step["pattern"]["Regex"] for step in before)
        if last["use_regex"]:
            expressions += PATTERNS["gpt2"]
        try:
            return resolve(expressions or None, "oniguruma")
        except ValueError as error:
            if "can match the empty string" not in str(error):
                raise
    from bpe.expressions.steps import tree_of

    for step in made:
        if step["type"] == "Split":  # the others have no expression that could be refused
            tree_of(step)
    return Pattern(None, (), "oniguruma", json.dumps(made, ensure_ascii=False))


def _isolates(step: Mapping[str, Any]) -> bool:
    return step["type"] == "Split" and step["behavior"] == "Isolated" and "Regex" in step["pattern"]


def to_plain(pattern: Pattern) -> Any:
    """A pattern as JSON has it: a name, a list of expressions of `regex`, or an object. See from_plain()."""
    if pattern.name is not None:
        return pattern.name
    if pattern.steps:
        import json

        return {"steps": json.loads(pattern.steps)}
    if pattern.language != "regex":
        return {"language": pattern.language, "expressions": list(pattern.expressions)}
    return list(pattern.expressions)


def from_plain(value: Any) -> Pattern:
    """The pattern that to_plain() wrote. Raises ValueError where it is none."""
    language: Any = "regex"
    if isinstance(value, dict) and value.keys() == {"steps"} and isinstance(value["steps"], list):
        if value["steps"] and all(isinstance(step, dict) for step in value["steps"]):
            return of_steps(value["steps"])
    elif isinstance(value, dict) and value.keys() == {"language", "expressions"}:
        language, value = value["language"], value["expressions"]
    if language in ("regex", "oniguruma", "fancy-regex") and isinstance(value, list):
        value = tuple(value)
        if all(isinstance(expression, str) for expression in value):
            return resolve(value or None, language)
    if not isinstance(value, str):
        raise ValueError(f"no split pattern: {str(value)[:80]}")
    return resolve(value)


def scanner_of(pattern: Pattern) -> int:
    """The number of the compiled scanner that serves a pattern, made if need be, or -1 where only `regex` does."""
    if pattern.name is not None:
        return scanner.SCANNED.get(pattern.name, -1)
    return scanner.SCANNED[None] if pattern.whole else _made_scanner(pattern)


@made_once
def _made_scanner(pattern: Pattern) -> int:
    """That of the automata of a pattern which has no name, or of the named pattern that does the same."""
    import json

    from bpe.expressions import automaton, steps

    made = []
    if pattern.steps:
        levels = steps.levels(tuple(json.loads(pattern.steps)))
        if levels is None:
            return -1
        for level in levels:
            compiled = automaton.compile_tree(level.tree)
            if compiled is None or (level.drops and automaton.leaves_gaps(compiled)):
                return -1
            made.append((compiled, level.in_bytes))
    elif pattern.language == "regex":
        return -1
    else:
        for expression in pattern.expressions:
            compiled = _automaton_of(expression, pattern.language)
            if compiled is None:
                return -1
            made.append((compiled, False))
    if not made:
        return scanner.SCANNED[None]
    known = _SAME_AS.get(automaton.digest(made))
    if known is not None:
        return scanner.SCANNED[known]
    return scanner.register_splitter([automaton.scanner_level(compiled, in_bytes) for compiled, in_bytes in made])


@functools.lru_cache(maxsize=16)  # resolve() asks for it, and then _made_scanner()
def _automaton_of(expression: str, language: Language) -> Automaton | None:
    """The automaton of an expression, which then matches no empty text; None where there is none.

    ValueError where the expression is not supported.
    """
    from bpe.expressions import automaton

    return automaton.compile_tree(tree_of(expression, language))


def tree_of(expression: str, language: Language) -> Node:
    """The tree of an expression of Oniguruma or fancy-regex. Raises ValueError where it is not supported."""
    from bpe.expressions.cursor import Refused
    from bpe.expressions.parsing import parse

    try:
        return parse(expression, language)
    except Refused as refused:
        engine = "Oniguruma" if language == "oniguruma" else language
        raise ValueError(
            f"the pattern {expression!r}, an expression of {engine}: {refused}, is not supported"
        ) from None


def split(text: bytes, pattern: Pattern) -> list[bytes]:
    """The pretokens of text, in order; joined, they are text again.

    Each expression isolates its matches, as tokenizers' Split does: a match is a piece, and so is the text between two
    matches, where there is any. A byte that is no part of well-formed UTF-8 is one character of no category (no letter,
    no number, no mark, no space), so negated classes match it. The named patterns class characters as Unicode 16 does,
    which tiktoken and tokenizers follow, any other as the installed `regex` does; `\\s` leaves out U+001C to U+001F,
    which `re` and str.isspace count as space. Raises ValueError where an expression matches the empty string.
    """
    if pattern.name is not None:
        return _split_as_compiled(text, pattern)
    if pattern.steps:
        return _splitting(pattern.steps).split(text)
    pieces = [text.decode("utf-8", "surrogateescape")] if text else []
    for expression in pattern.expressions:
        pieces = [part for piece in pieces for part in _isolate(piece, expression, pattern.language)]
    return [piece.encode("utf-8", "surrogateescape") for piece in pieces]


def _split_as_compiled(text: bytes, pattern: Pattern) -> list[bytes]:
    """As split(), in an alias of the text in which `regex` classes every character as the compiled scanners do."""
    whole = text.decode("utf-8", "surrogateescape")
    pieces = [whole.translate(_stand_ins())] if whole else []
    for expression in pattern.expressions:
        pieces = [part for piece in pieces for part in _isolate(piece, expression)]
    ends = list(itertools.accumulate(map(len, pieces), initial=0))
    return [whole[begin:end].encode("utf-8", "surrogateescape") for begin, end in itertools.pairwise(ends)]


@functools.cache
def _stand_ins() -> dict[int, int]:
    """For each character whose category differs between `regex` and the compiled tables: one of which it does not."""
    every = "".join(map(chr, range(0x110000)))
    ours = scanner.categories()
    theirs = bytearray(len(ours))
    for number, category in enumerate(CATEGORIES):
        for found in regex.finditer(rf"\p{{{category}}}+", every):
            theirs[found.start() : found.end()] = bytes([number]) * (found.end() - found.start())
    theirs_spaces = [found.start() for found in regex.finditer(r"\s", every)]
    for code in theirs_spaces:
        theirs[code] |= 0x80
    if ours == theirs:
        return {}
    agreed = {category: code for code, category in enumerate(ours) if theirs[code] == category}  # the last of each
    return {code: agreed[category] for code, category in enumerate(ours) if theirs[code] != category}


@functools.cache
def _splitting(steps: str) -> Splitting:
    import json

    from bpe.expressions.steps import Splitting

    return Splitting(tuple(json.loads(steps)))


def _isolate(text: str, expression: str, language: Language = "regex") -> list[str]:
    parts = []
    end = 0
    for match in _compile(expression, language).finditer(text):
        if match.start() == match.end():
            raise ValueError(_matches_nothing(expression))
        if match.start() > end:
            parts.append(text[end : match.start()])
        parts.append(match.group())
        end = match.end()
    if end < len(text):
        parts.append(text[end:])
    return parts


@functools.cache
def _compile(expression: str, language: Language = "regex") -> regex.Pattern[str]:
    if not expression:
        raise ValueError("the split pattern '' is empty: use None for no split")
    if language != "regex":
        from bpe.expressions.spelling import spelled

        meant = spelled(tree_of(expression, language))
    else:
        meant = expression
    try:
        compiled = regex.compile(meant)
    except (regex.error, OverflowError, RecursionError) as error:
        raise ValueError(f"the split pattern {expression!r} does not compile: {error}") from None
    if any(match.start() == match.end() for probe in _PROBES for match in compiled.finditer(probe)):
        raise ValueError(_matches_nothing(expression))
    return compiled


def _matches_nothing(expression: str) -> str:
    return f"the split pattern {expression!r} can match the empty string: every match must hold a character"
