"""The steps of a tokenizer.json: the options of each, their types, and the values assumed where a file has none.

One table reads the steps (checked()), writes them (step()) and makes the classes of bpe.trainers. This file imports
nothing that reads expressions: most files hold a published pattern, which is known without.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bpe.native.printable import SPACE_MARK

Step = Mapping[str, Any]

GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"  # the expression of ByteLevel
BEHAVIOURS = ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous")
SCHEMES = ("always", "first", "never")
REQUIRED: Any = ...

_TEXT_OR_NONE = (str, type(None))
_BYTE_LEVEL = {"add_prefix_space": (bool, True), "trim_offsets": (bool, True), "use_regex": (bool, True)}
_METASPACE = {"replacement": (str, SPACE_MARK), "prepend_scheme": (str, "always"), "split": (bool, True)}
_REPLACE = {"pattern": (dict, REQUIRED), "content": (str, REQUIRED)}
_AROUND = {"sep": (list, REQUIRED), "cls": (list, REQUIRED)}

# By the name that the list of a Sequence of such steps has, in the order of the options in files.
STEPS: dict[str, dict[str, dict[str, tuple[Any, Any]]]] = {
    "normalizers": {
        **{form: {} for form in ("NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt")},
        "Strip": {"strip_left": (bool, True), "strip_right": (bool, True)},
        "Prepend": {"prepend": (str, REQUIRED)},
        "Replace": _REPLACE,
        "BertNormalizer": {
            "clean_text": (bool, True),
            "handle_chinese_chars": (bool, True),
            "strip_accents": ((bool, type(None)), None),
            "lowercase": (bool, True),
        },
    },
    "pretokenizers": {
        "Split": {"pattern": (dict, REQUIRED), "behavior": (str, REQUIRED), "invert": (bool, False)},
        "Digits": {"individual_digits": (bool, False)},
        "Punctuation": {"behavior": (str, "Isolated")},
        "Whitespace": {},
        "WhitespaceSplit": {},
        "CharDelimiterSplit": {"delimiter": (str, REQUIRED)},
        "BertPreTokenizer": {},
        "UnicodeScripts": {},
        "ByteLevel": _BYTE_LEVEL,
        "Metaspace": _METASPACE,
    },
    "decoders": {
        "ByteLevel": _BYTE_LEVEL,
        "ByteFallback": {},
        "Fuse": {},
        "Metaspace": _METASPACE,
        "Replace": _REPLACE,
        "Strip": {"content": (str, " "), "start": (int, 0), "stop": (int, 0)},
        "BPEDecoder": {"suffix": (str, "</w>")},
    },
    "processors": {
        "ByteLevel": _BYTE_LEVEL,
        "TemplateProcessing": {
            "single": (list, REQUIRED),
            "pair": ((list, type(None)), None),
            "special_tokens": (dict, {}),
        },
        "BertProcessing": _AROUND,
        "RobertaProcessing": {**_AROUND, "trim_offsets": (bool, True), "add_prefix_space": (bool, True)},
    },
    "models": {
        "BPE": {
            "dropout": ((float, int, type(None)), None),
            "unk_token": (_TEXT_OR_NONE, None),
            "continuing_subword_prefix": (_TEXT_OR_NONE, None),
            "end_of_word_suffix": (_TEXT_OR_NONE, None),
            "fuse_unk": (bool, False),
            "byte_fallback": (bool, False),
            "ignore_merges": (bool, False),
            "vocab": (dict, REQUIRED),
            "merges": (list, REQUIRED),
        }
    },
}
_NAMES = dict(zip(STEPS, ("normalizer", "pre-tokenizer", "decoder", "post-processor", "model"), strict=True))
_EXPECTED = {bool: "true or false", str: "a text", dict: "an object", list: "a list", type(None): "null"}
_EXPECTED |= {int: "a whole number", float: "a number"}


class Refused(ValueError):
    """A step or an expression that is wrong, or uses a construct that is not read here."""


def step(part: str, kind: str, **options: Any) -> dict[str, Any]:
    """Return a step as a file has it. part: a key of STEPS. options: values other than the defaults."""
    defaults = {option: default for option, (_, default) in STEPS[part][kind].items()}
    return {"type": kind, **defaults, **options}


def checked(part: str, value: Any) -> dict[str, Any]:
    """Return a step of a file with all options of its kind and nothing else. part: a key of STEPS.

    Refused where the kind is unknown or an option is wrong, but for expressions, which steps.tree_of() reads.
    """
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        raise Refused(f"a {_NAMES[part]} without a type: {str(value)[:80]}")
    kind = value["type"]
    if kind not in STEPS[part]:
        raise Refused(f"the {_NAMES[part]} {kind!r} is not supported: only {', '.join(STEPS[part])} are")
    options: dict[str, Any] = {"type": kind}
    if kind == "Metaspace" and value.get("prepend_scheme") is None:  # as files of older releases have it
        before = value.get("add_prefix_space", True)
        value = {**value, "prepend_scheme": {True: "always", False: "never"}[before] if type(before) is bool else ""}
    for option, (types, default) in STEPS[part][kind].items():
        content = value.get(option)
        content = default if content is None and default is not REQUIRED else content
        if not isinstance(content, types):
            expected = " or ".join(_EXPECTED[one] for one in (types if isinstance(types, tuple) else (types,)))
            raise Refused(f'the {_NAMES[part]} {kind} has "{option}": {content!r:.80}, expected {expected}')
        options[option] = content
    if options.get("behavior", "Isolated") not in BEHAVIOURS:
        raise Refused(f"{kind} with the behaviour {options['behavior']!r}: it is one of {', '.join(BEHAVIOURS)}")
    if len(options.get("delimiter", "x")) != 1:
        raise Refused(f"{kind} with the delimiter {options['delimiter']!r}: it is one character")
    if kind == "Metaspace" and (options["replacement"] != SPACE_MARK or options["prepend_scheme"] not in SCHEMES):
        raise Refused(f"Metaspace with a replacement other than {SPACE_MARK}, or not one of {', '.join(SCHEMES)}")
    if "pattern" in options:
        ((key, text), *others) = options["pattern"].items() or [("", "")]
        if others or key not in ("Regex", "String") or not isinstance(text, str) or not text:
            raise Refused(f"{kind} without a pattern: {str(options['pattern'])[:80]}")
    return options


def checked_split(value: Any) -> dict[str, Any]:
    """Return a step that splits, of a pre-tokenizer, without what moves offsets only. Refused as by checked()."""
    options = checked("pretokenizers", value)
    if options["type"] == "Metaspace":
        raise Refused('the pre-tokenizer Metaspace is supported alone, or beside "byte_fallback"')
    options.pop("trim_offsets", None)
    return options
