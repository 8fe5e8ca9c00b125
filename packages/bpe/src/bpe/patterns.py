"""The split patterns by name, and the slow splitter that serves any regular expression."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from bpe import expressions
from bpe.expressions.step_options import GPT2, Refused, checked_split
from bpe.native.lazy_imports import import_lock, json, regex
from bpe.native.once import made_once
from bpe.scanning import scanner

if TYPE_CHECKING:
    from bpe.expressions.automaton import Automaton
    from bpe.expressions.character_sets import Language
    from bpe.expressions.steps import Splitting
    from bpe.expressions.tree import Node

# Spelled so that `regex`, fancy-regex (tiktoken) and Oniguruma (tokenizers) read them alike. `$` and `{1,3}+` mean
# other things in Oniguruma, so cl100k says "to the end of the text" as (?!\s|\S) and does without possessive
# quantifiers, which change no match here. Sources: tiktoken's openai_public, and the tokenizer.json of each model.
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_NEWLINES_AND_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"

PATTERNS: dict[str, tuple[str, ...]] = {
    # also r50k and p50k
    "gpt2": (GPT2,),
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
        "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+"
        "| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
    ),
}

_ALIASES = {
    **dict.fromkeys(("r50k", "r50k_base", "p50k", "p50k_base", "p50k_edit"), "gpt2"),
    **{"cl100k_base": "cl100k", "o200k_base": "o200k", "o200k_harmony": "o200k", "qwen3": "qwen2"},
}

# How tiktoken 0.14 spells two of them: in fancy-regex, and with the same meaning in `regex`.
_OTHER_SPELLINGS = {
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s": "gpt2",
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s": "cl100k",
}

_NAME_OF: dict[tuple[str, ...], str] = {sequence: name for name, sequence in PATTERNS.items()}

# Digests of automata of the named patterns (bpe.expressions.automaton.digest), so that a file which writes one of them
# in another way is served by the same scanner, two to five times faster than its automata. cl100k has a second digest,
# for tiktoken's way of writing it.
SCANNED_BY_DIGEST = {
    "9d7b1f590fc99e56e6de2170": "gpt2",
    "d6c42db168cb938a1ccc43e8": "cl100k",
    "a2f708cf2774e2999358173a": "o200k",
    "399f57e96ac713dd58ab8b30": "llama3",
    "360d216aba2f03d90d639e72": "qwen2",
    "591adb1855a9341b182ee83b": "qwen3.5",
    "f4ed06555520110c0d017840": "deepseek-v3",
    "5e51b9142464bd6333c2ff1b": "cl100k",
}

# An expression that can match nothing usually does so here: beside letters, digits, marks, signs, spaces and the ends.
_PROBES = ("", "aB1 é2\t\n.'s中\u0301-_ \r\n\n  <|x|>😀٣ ")


class Pattern(NamedTuple):
    """A resolved split pattern.

    Attributes:
        name: the name in PATTERNS, or None for a pattern that is not one of those.
        expressions: applied in sequence, each to every piece that the one before it left; empty if the text is not
            split.
        language: the language of the expressions. PATTERNS are spelled so that it does not matter. "regex" only where
            fancy-regex does not read one of them.
        steps: instead of expressions, the steps of a tokenizer.json's pre-tokenizer that do more than isolate matches,
            as JSON (see bpe.expressions.steps).
    """

    name: str | None
    expressions: tuple[str, ...]
    language: Language = "fancy-regex"
    steps: str = ""

    @property
    def is_none(self) -> bool:
        """True if the text is not split."""
        return not self.expressions and not self.steps

    @property
    def argument(self) -> SplitPattern:
        """The argument that resolves to this pattern: its name, its expressions, None, or the pattern itself."""
        if self.name or self.is_none:
            return self.name
        if self.steps or self.language == "oniguruma":
            return self
        return self.expressions[0] if len(self.expressions) == 1 else self.expressions

    def __str__(self) -> str:
        return self.name or self.steps or " then ".join(map(repr, self.expressions)) or "no split"


SplitPattern = str | tuple[str, ...] | Pattern | None


def resolve(pattern: SplitPattern, language: Literal["oniguruma", "fancy-regex"] | None = None) -> Pattern:
    """Return the Pattern of a name, a regular expression, several in sequence, or None for no split.

    An expression that is one of the named patterns, as published, gets its name. A plain word that is not a name is an
    error, not an expression.

    Args:
        pattern: the name, the expressions, None, or a Pattern, which is returned.
        language: of the expressions: "oniguruma", as a tokenizer.json has them, or "fancy-regex", as tiktoken has
            them. If None, fancy-regex where it reads all of them, else the language of the Python package `regex`.

    Raises:
        ValueError: the pattern is unknown, empty, does not compile, is not supported, or can match the empty string.
        TypeError: it is not a str.
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
            with import_lock:
                import difflib  # only a mistake needs it

            near = difflib.get_close_matches(pattern, [*PATTERNS, *_ALIASES], n=1)
            raise ValueError(
                f"no split pattern is named {pattern!r}{f' (did you mean {near[0]!r}?)' if near else ''}: it is one of "
                f"{', '.join(PATTERNS)}, a regular expression (a plain word would be written '(?:{pattern})'), or None "
                "for no split"
            )
        sequence: tuple[str, ...] = (pattern,)
    elif isinstance(pattern, (tuple, list)) and all(isinstance(part, str) for part in pattern):
        sequence = tuple(map(str, pattern))
    else:
        raise TypeError(f"a split pattern is a str, a tuple of str or None, not {pattern!r}")
    named = _NAME_OF.get(sequence)
    if named is None and language != "oniguruma" and len(sequence) == 1:
        named = _OTHER_SPELLINGS.get(sequence[0])
    if named is not None:
        return Pattern(named, PATTERNS[named])
    if not sequence:
        return Pattern(None, ())
    if language is None:
        readable = all(map(_read_by_fancy_regex, sequence))
        return _checked(Pattern(None, sequence, "fancy-regex" if readable else "regex"))
    return _checked(Pattern(None, sequence, language))


def _checked(pattern: Pattern) -> Pattern:
    for expression in pattern.expressions:
        # An automaton is proof that the expression compiles and never matches the empty string.
        language = pattern.language
        if not expression or language == "regex" or isinstance(_automaton_of(expression, language), str):
            _compile(expression, language)
    return pattern


def _read_by_fancy_regex(expression: str) -> bool:
    try:
        tree_of(expression, "fancy-regex")
    except ValueError:
        return False
    return True


def slow_warning(pattern: Pattern) -> str:
    """Return the warning about a pattern that `regex` splits by, with what would have it compiled."""
    return (
        f"no compiled scanner serves the pattern {pattern}: texts are split by `regex` in one thread, some thirty "
        f"times slower, because {_obstacle(pattern)}. Expressions of fancy-regex that look at most one character "
        "ahead, and not behind, are compiled"
    )


def _obstacle(pattern: Pattern) -> str:
    most = f"more than {scanner.MOST_IN_SEQUENCE} expressions in sequence are not compiled"
    if pattern.steps:
        stages = expressions.steps.stages(tuple(json.loads(pattern.steps)))
        return most if stages and len(stages) > scanner.MOST_IN_SEQUENCE else "its steps do more than isolate matches"
    for expression in pattern.expressions:
        try:
            automaton = _automaton_of(expression, "fancy-regex" if pattern.language == "regex" else pattern.language)
        except ValueError as error:
            return str(error)
        if isinstance(automaton, str):
            return automaton
    return most


def _is_word(pattern: str) -> bool:
    """True if this looks like a name rather than an expression."""
    return pattern[:1].isascii() and pattern[:1].isalpha() and all(one.isalnum() or one in "_.-" for one in pattern)


def of_steps(steps: Sequence[Mapping[str, Any]]) -> Pattern:
    """Return the pattern of the steps of a tokenizer.json's pre-tokenizer. ValueError where one is not supported.

    If the steps only isolate matches before ByteLevel, the pattern holds their expressions, else the steps.
    """
    options = [checked_split(step) for step in steps]
    *before, last = options
    if all(_splits(step) for step in before) and last == {**last, "type": "ByteLevel", "add_prefix_space": False}:
        sequence = tuple(step["pattern"]["Regex"] for step in before)
        if last["use_regex"]:
            sequence += PATTERNS["gpt2"]
        isolates = all(step["behavior"] == "Isolated" for step in before)
        if not isolates and sequence in _NAME_OF:  # a named pattern matches every character: nothing is removed
            return Pattern(_NAME_OF[sequence], sequence)
        try:
            if isolates:
                return resolve(sequence or None, "oniguruma")
        except ValueError as error:
            if "can match the empty string" not in str(error):
                raise
    for step in options:
        if step["type"] == "Split":  # the others have no expression that could be refused
            expressions.steps.tree_of(step)
    return Pattern(None, (), "oniguruma", json.dumps(options, ensure_ascii=False))


def _splits(step: Mapping[str, Any]) -> bool:
    """True for a Split that makes each match of an expression a piece."""
    ways = ("Isolated", False), ("Isolated", True), ("Removed", True)
    return step["type"] == "Split" and "Regex" in step["pattern"] and (step["behavior"], step["invert"]) in ways


def to_plain(pattern: Pattern) -> Any:
    """Return a pattern as JSON has it: a name, a list of expressions, or an object. See from_plain()."""
    if pattern.name is not None:
        return pattern.name
    if pattern.steps:
        return {"steps": json.loads(pattern.steps)}
    if pattern.language == "oniguruma":
        return {"language": pattern.language, "expressions": list(pattern.expressions)}
    return list(pattern.expressions)


def from_plain(value: Any) -> Pattern:
    """Return the pattern that to_plain() wrote. Raises ValueError for any other value."""
    language: Any = None
    if isinstance(value, dict) and value.keys() == {"steps"} and isinstance(value["steps"], list):
        if value["steps"] and all(isinstance(step, dict) for step in value["steps"]):
            return of_steps(value["steps"])
    elif isinstance(value, dict) and value.keys() == {"language", "expressions"}:
        language, value = value["language"], value["expressions"]
    if language in (None, "oniguruma", "fancy-regex") and isinstance(value, list):
        value = tuple(value)
        if all(isinstance(expression, str) for expression in value):
            return resolve(value or None, language)
    if not isinstance(value, str):
        raise ValueError(f"expected a split pattern, got {str(value)[:80]}")
    return resolve(value)


def scanner_of(pattern: Pattern) -> int:
    """Return the number of a pattern's compiled scanner, made if need be, or -1 where only `regex` serves."""
    if pattern.name is not None:
        return scanner.SCANNED.get(pattern.name, -1)
    return scanner.SCANNED[None] if pattern.is_none else _scanner_of_automata(pattern)


@made_once
def _scanner_of_automata(pattern: Pattern) -> int:
    automata = []
    if pattern.steps:
        stages = expressions.steps.stages(tuple(json.loads(pattern.steps)))
        if stages is None:
            return -1
        for stage in stages:
            compiled = expressions.automaton.compile_tree(stage.tree)
            if isinstance(compiled, str) or (stage.drops and expressions.automaton.leaves_gaps(compiled)):
                return -1
            automata.append((compiled, stage.in_bytes))
    elif pattern.language == "regex":
        return -1
    else:
        for expression in pattern.expressions:
            compiled = _automaton_of(expression, pattern.language)
            if isinstance(compiled, str):
                return -1
            automata.append((compiled, False))
    if not automata:
        return scanner.SCANNED[None]
    if len(automata) > scanner.MOST_IN_SEQUENCE:
        return -1
    named = SCANNED_BY_DIGEST.get(expressions.automaton.digest(automata))
    if named is not None:
        return scanner.SCANNED[named]
    return scanner.register_splitter(
        [expressions.automaton.scanner_level(compiled, in_bytes) for compiled, in_bytes in automata]
    )


@functools.lru_cache(maxsize=16)  # called by resolve(), and then by scanner_of()
def _automaton_of(expression: str, language: Language) -> Automaton | str:
    """Return the automaton of an expression, or why it has none. ValueError where the expression is not supported."""
    return expressions.automaton.compile_tree(tree_of(expression, language))


def tree_of(expression: str, language: Language) -> Node:
    """Return the tree of an expression of Oniguruma or fancy-regex. Raises ValueError where it is not supported."""
    try:
        return expressions.parsing.parse(expression, language)
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
    which tiktoken and tokenizers follow, and so do expressions of any language but `regex`; `\\s` leaves out U+001C to
    U+001F, which `re` and str.isspace count as space. Raises ValueError where an expression matches the empty string.
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
    """As split(), in an alias of the text whose characters `regex` classes as the compiled scanners do."""
    characters = text.decode("utf-8", "surrogateescape")
    pieces = [characters.translate(_stand_ins())] if characters else []
    for expression in pattern.expressions:
        pieces = [part for piece in pieces for part in _isolate(piece, expression, "regex")]
    ends = list(itertools.accumulate(map(len, pieces), initial=0))
    return [characters[begin:end].encode("utf-8", "surrogateescape") for begin, end in itertools.pairwise(ends)]


@functools.cache
def _stand_ins() -> dict[int, int]:
    """For each character that `regex` and the compiled tables put into different categories: one that both agree on."""
    every = "".join(map(chr, range(0x110000)))
    compiled = scanner.categories()
    categories = bytearray(len(compiled))
    for number, category in enumerate(expressions.properties.CATEGORIES):
        for match in regex.finditer(rf"\p{{{category}}}+", every):
            categories[match.start() : match.end()] = bytes([number]) * (match.end() - match.start())
    space_codes = [match.start() for match in regex.finditer(r"\s", every)]
    for code in space_codes:
        categories[code] |= 0x80
    if compiled == categories:
        return {}
    agreed = {value: code for code, value in enumerate(compiled) if categories[code] == value}  # the last of each
    return {code: agreed[category] for code, category in enumerate(compiled) if categories[code] != category}


@functools.lru_cache(maxsize=256)
def _splitting(steps: str) -> Splitting:
    return expressions.steps.Splitting(tuple(json.loads(steps)))


def _isolate(text: str, expression: str, language: Language) -> list[str]:
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


@functools.lru_cache(maxsize=256)
def _compile(expression: str, language: Language) -> regex.Pattern[str]:
    if not expression:
        raise ValueError("the split pattern '' is empty: use None for no split")
    if language != "regex":
        plain = expressions.tree.spelled(tree_of(expression, language))
    else:
        plain = expression
    try:
        compiled = regex.compile(plain)
    except (regex.error, OverflowError, RecursionError) as error:
        raise ValueError(f"the split pattern {expression!r} does not compile: {error}") from None
    if any(match.start() == match.end() for probe in _PROBES for match in compiled.finditer(probe)):
        raise ValueError(_matches_nothing(expression))
    return compiled


def _matches_nothing(expression: str) -> str:
    return f"the split pattern {expression!r} can match the empty string: every match must hold a character"
