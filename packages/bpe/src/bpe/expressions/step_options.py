"""The options of the steps of a pre-tokenizer in tokenizer.json: see bpe.expressions.steps.

This file imports nothing that reads expressions: most files hold a published pattern, which is known without.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bpe.expressions.cursor import Refused

Step = Mapping[str, Any]

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"  # the expression of ByteLevel
BEHAVIOURS = ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous")
_OPTIONS: dict[str, dict[str, tuple[type, Any]]] = {  # of each step: their types and defaults
    "Split": {"pattern": (dict, None), "behavior": (str, None), "invert": (bool, False)},
    "Digits": {"individual_digits": (bool, False)},
    "Punctuation": {"behavior": (str, "Isolated")},
    "Whitespace": {},
    "WhitespaceSplit": {},
    "CharDelimiterSplit": {"delimiter": (str, None)},
    "BertPreTokenizer": {},
    "UnicodeScripts": {},
    "ByteLevel": {"add_prefix_space": (bool, True), "use_regex": (bool, True)},
}


def checked(step: Step) -> dict[str, Any]:
    """The step with what it says and nothing else. Refused where it is unknown or wrong, but for its expression, which
    steps.tree_of() reads.
    """
    kind = step.get("type")
    if kind not in _OPTIONS:
        raise Refused(f"the pre-tokenizer {kind!r} is not supported: only {', '.join(_OPTIONS)} are")
    options: dict[str, Any] = {"type": kind}
    for option, (type_of, default) in _OPTIONS[kind].items():
        value = step.get(option)
        value = default if value is None else value
        if not isinstance(value, type_of):
            raise Refused(f'{kind} with "{option}": {value!r}, which should be a {type_of.__name__}')
        options[option] = value
    if options.get("behavior", "Isolated") not in BEHAVIOURS:
        raise Refused(f"{kind} with the behaviour {options['behavior']!r}: it is one of {', '.join(BEHAVIOURS)}")
    if kind == "CharDelimiterSplit" and len(options["delimiter"]) != 1:
        raise Refused(f"CharDelimiterSplit with the delimiter {options['delimiter']!r}: it is one character")
    if kind == "Split":
        options["pattern"] = _checked_pattern(options["pattern"])
    return options


def _checked_pattern(pattern: dict[str, Any]) -> dict[str, str]:
    for key in ("Regex", "String"):
        if isinstance(pattern.get(key), str):
            if not pattern[key]:
                raise Refused("a Split by nothing")
            return {key: pattern[key]}
    raise Refused(f"a Split without a pattern: {str(pattern)[:80]}")
