"""The normalizers of tokenizer.json, as tokenizers runs them, each by the Unicode of that step's own tables."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bpe import encoding, expressions, patterns
from bpe.encoding.normal_forms import normalized, normalized_with_origins
from bpe.encoding.offsets import characters_of_bytes
from bpe.expressions import step_options
from bpe.native.lazy_imports import json, regex
from bpe.native.lazy_imports import numpy as np

Offsets = Any  # where each character of a text comes from, an array of int64; None where nobody needs to know
Change = Callable[[str, Offsets], tuple[str, Offsets]]

FORMS = ("NFC", "NFD", "NFKC", "NFKD")
_CHARACTER_BY_CHARACTER = {"NFC", "NFD", "Lowercase", "StripAccents", "Nmt"}  # and an ASCII space stays one


def checked(steps: Sequence[Mapping[str, Any]]) -> str | None:
    """The steps as a tokenizer keeps them: None, the name of one of FORMS, or JSON. ValueError for a wrong one."""
    read = [step_options.checked("normalizers", step) for step in steps]
    for step in read:
        if step["type"] == "Replace":
            _expression_of(step["pattern"])
    if not read:
        return None
    return read[0]["type"] if len(read) == 1 and read[0]["type"] in FORMS else json.dumps(read, ensure_ascii=False)


def steps_of(normalizer: str | None) -> list[dict[str, Any]]:
    """The steps that checked() was given."""
    if normalizer is None:
        return []
    if normalizer in FORMS:
        return [{"type": normalizer}]
    if not normalizer.startswith("["):
        raise ValueError(f"the normalizer {normalizer!r} is not supported: use {', '.join(FORMS)} or steps")
    steps: list[dict[str, Any]] = json.loads(normalizer)
    return steps


def _expression_of(pattern: Mapping[str, Any]) -> regex.Pattern[str]:
    """The expression of a Replace. ValueError for one that can match the empty string."""
    if "String" in pattern:
        return regex.compile(regex.escape(pattern["String"], literal_spaces=True))
    expression = regex.compile(expressions.tree.spelled(patterns.tree_of(pattern["Regex"], "oniguruma")))
    if expression.search(""):
        raise ValueError(f"the normalizer Replace with {pattern['Regex']!r}, which can match the empty string")
    return expression


def normalizer_of(normalizer: str | None) -> Callable[[str], str]:
    """The function that a normalizer is."""
    return lambda text: normalize(normalizer, text, None)[0]


def normalize(normalizer: str | None, text: str, offsets: Offsets, continued: bool = False) -> tuple[str, Offsets]:
    """Normalize a text, and move the positions of its characters with them, as tokenizers does for its offsets.

    continued: the text goes on where another was cut, so nothing is put before it.
    """
    for change in _changes(normalizer, continued):
        text, offsets = change(text, offsets)
    return text, offsets


@functools.lru_cache(maxsize=256)
def _changes(normalizer: str | None, continued: bool) -> list[Change]:
    steps = [step for step in steps_of(normalizer) if not (continued and step["type"] == "Prepend")]
    return [change for step in steps for change in _changes_of(step)]


def _changes_of(step: Mapping[str, Any]) -> list[Change]:
    kind = step["type"]
    if kind in FORMS:
        return [functools.partial(_to_form, kind)]
    if kind == "Lowercase":
        return [_each(_lowercase)]
    if kind == "Prepend":
        return [functools.partial(put_before, step["prepend"])]
    if kind == "Replace":
        return [_replacing(step)]
    if kind == "Strip":
        return [_stripping(step)]
    if kind == "StripAccents":
        return [_translating(_each_to("ACCENTS", None))]
    if kind == "Nmt":
        return [_translating({**_each_to("NMT_REMOVED", None), **_each_to("NMT_SPACES", " ")})]
    changes = []
    if step["clean_text"]:
        changes.append(_translating({**_each_to("BERT_REMOVED", None), **_each_to("BERT_SPACES", " ")}))
    if step["handle_chinese_chars"]:
        changes.append(_translating({code: f" {chr(code)} " for code in _codes("BERT_SPACED")}))
    if step["lowercase"] if step["strip_accents"] is None else step["strip_accents"]:
        changes += [functools.partial(_to_form, "NFD"), _translating(_each_to("BERT_ACCENTS", None))]
    return [*changes, _each(_lowercase)] if step["lowercase"] else changes


def put_before(before: str, text: str, offsets: Offsets) -> tuple[str, Offsets]:
    """Put a text before another that is not empty; it gets the position of the other's first character."""
    if not text:
        return text, offsets
    return before + text, None if offsets is None else np.concatenate([np.repeat(offsets[:1], len(before)), offsets])


def _each(change_text: Callable[[str], str]) -> Change:
    """A change of each character by itself."""

    def change(text: str, offsets: Offsets) -> tuple[str, Offsets]:
        if offsets is None:
            return change_text(text), None
        parts = list(map(change_text, text))
        return "".join(parts), np.repeat(offsets, np.fromiter(map(len, parts), dtype=np.int64, count=len(parts)))

    return change


def _translating(table: Mapping[int, str | None]) -> Change:
    return _each(lambda text: text.translate(table))


def _to_form(form: str, text: str, offsets: Offsets) -> tuple[str, Offsets]:
    """A text in one of FORMS, as tokenizers has it."""
    if text.isascii():
        return text, offsets
    data = text.encode("utf-8", "surrogatepass")
    if offsets is None:
        changed = normalized(data, form)
        return text if changed is None else changed.decode("utf-8", "surrogatepass"), None
    result = normalized_with_origins(data, form)
    if result is None:
        return text, offsets
    changed, parts = result
    begins = np.flatnonzero(np.frombuffer(changed, dtype=np.uint8) & 0xC0 != 0x80)
    part = parts[np.searchsorted(parts[:, 0] >> 1, begins, "right") - 1]
    origins = part[:, 1] + np.where(part[:, 0] & 1, begins - (part[:, 0] >> 1), 0)
    return changed.decode("utf-8", "surrogatepass"), offsets[characters_of_bytes(data)[origins]]


def _replacing(step: Mapping[str, Any]) -> Change:
    literal, expression, content = step["pattern"].get("String"), _expression_of(step["pattern"]), step["content"]

    def change(text: str, offsets: Offsets) -> tuple[str, Offsets]:
        if offsets is None:
            return text.replace(literal, content) if literal else expression.sub(lambda _: content, text), None
        parts, offset_parts, end = [], [], 0
        for match in expression.finditer(text):
            begin, after = match.span()
            parts += [text[end:begin], content]
            # A replacement has the position of the last character of its match.
            offset_parts += [offsets[end:begin], np.repeat(offsets[after - 1 : after], len(content))]
            end = after
        return "".join([*parts, text[end:]]), np.concatenate([*offset_parts, offsets[end:]])

    return change


def _stripping(step: Mapping[str, Any]) -> Change:
    spaces = "".join(
        chr(code) for first, last in expressions.properties.white_space() for code in range(first, last + 1)
    )

    def change(text: str, offsets: Offsets) -> tuple[str, Offsets]:
        begin = len(text) - len(text.lstrip(spaces)) if step["strip_left"] else 0
        text = text[begin:].rstrip(spaces) if step["strip_right"] else text[begin:]
        return text, None if offsets is None else offsets[begin : begin + len(text)]

    return change


def cuts_at_spaces(normalizer: str | None) -> bool:
    """Return True if a text may be cut before an ASCII space after an ASCII character, and its parts normalized."""
    return all(step["type"] in _CHARACTER_BY_CHARACTER for step in steps_of(normalizer))


def marks_spaces_only(normalizer: str | None) -> bool:
    """Return True if all it does is to write spaces as SentencePiece's marks and to put one in front."""
    return all(
        step["type"] == "Prepend" or (step["type"] == "Replace" and step["pattern"] == {"String": " "})
        for step in steps_of(normalizer)
    )


def _lowercase(text: str) -> str:
    return text.lower() if text.isascii() else text.translate(_lower())


def _codes(name: str) -> list[int]:
    ranges = expressions.properties.parse_ranges(getattr(encoding.normalizer_tables, name))
    return [code for first, last in ranges for code in range(first, last + 1)]


@functools.cache
def _each_to(name: str, replacement: str | None) -> dict[int, str | None]:
    return dict.fromkeys(_codes(name), replacement)


@functools.cache
def _lower() -> dict[int, str]:
    groups = expressions.properties.parse_groups(encoding.normalizer_tables.LOWERCASE)
    return {code: "".join(map(chr, lower)) for code, *lower in groups}
