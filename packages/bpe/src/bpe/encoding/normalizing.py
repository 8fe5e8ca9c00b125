"""The normalizers of tokenizer.json, as tokenizers runs them, each by the Unicode of that step's own tables."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from bpe.encoding.normal_forms import normalized
from bpe.native.lazy_imports import import_lock, regex

FORMS = ("NFC", "NFD", "NFKC", "NFKD")
_OPTIONS: dict[str, dict[str, tuple[type | tuple[type, ...], Any]]] = {  # their types, and what is meant without them
    **{form: {} for form in FORMS},
    "Lowercase": {},
    "Prepend": {"prepend": (str, None)},
    "Replace": {"pattern": (dict, None), "content": (str, None)},
    "Strip": {"strip_left": (bool, True), "strip_right": (bool, True)},
    "StripAccents": {},
    "Nmt": {},
    "BertNormalizer": {
        "clean_text": (bool, True),
        "handle_chinese_chars": (bool, True),
        "strip_accents": ((bool, type(None)), None),
        "lowercase": (bool, True),
    },
}
_CHARACTER_BY_CHARACTER = {"NFC", "NFD", "Lowercase", "StripAccents", "Nmt"}  # and an ASCII space stays one


def checked(steps: Sequence[Mapping[str, Any]]) -> str | None:
    """The steps as a tokenizer keeps them: None, the name of one of FORMS, or JSON. ValueError for a wrong one."""
    read = [_checked_step(step) for step in steps]
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
        raise ValueError(f"the normalizer {normalizer!r} is not supported: only {', '.join(_OPTIONS)} are")
    steps: list[dict[str, Any]] = json.loads(normalizer)
    return steps


def _checked_step(step: Mapping[str, Any]) -> dict[str, Any]:
    kind = step.get("type")
    if kind not in _OPTIONS:
        raise ValueError(f"the normalizer {kind!r} is not supported: only {', '.join(_OPTIONS)} are")
    checked_step: dict[str, Any] = {"type": kind}
    for option, (types, default) in _OPTIONS[kind].items():
        value = step.get(option, default)
        if not isinstance(value, types):
            raise ValueError(f'the normalizer {kind} with "{option}": {value!r}')
        checked_step[option] = value
    if kind == "Replace":
        _replaced(checked_step)
    return checked_step


def matches_of(step: Mapping[str, Any], text: str) -> Iterator[tuple[int, int]]:
    """Return where in a text the matches of a Replace begin and end."""
    return (match.span() for match in _expression_of(step["pattern"]).finditer(text))


def _expression_of(pattern: Mapping[str, Any]) -> regex.Pattern[str]:
    """The expression of a Replace. ValueError where it has none, or one that can match the empty string."""
    with import_lock:
        from bpe import patterns
        from bpe.expressions.spelling import spelled

    if isinstance(pattern.get("String"), str) and pattern["String"]:
        return regex.compile(regex.escape(pattern["String"], literal_spaces=True))
    if not isinstance(pattern.get("Regex"), str) or not pattern["Regex"]:
        raise ValueError(f"the normalizer Replace without a pattern: {str(pattern)[:80]}")
    expression = regex.compile(spelled(patterns.tree_of(pattern["Regex"], "oniguruma")))
    if expression.search(""):
        raise ValueError(f"the normalizer Replace with {pattern['Regex']!r}, which can match the empty string")
    return expression


def _replaced(step: Mapping[str, Any]) -> Callable[[str], str]:
    pattern, content = step["pattern"], step["content"]
    if isinstance(pattern.get("String"), str) and pattern["String"]:
        text = pattern["String"]
        return lambda whole: whole.replace(text, content)
    expression = _expression_of(pattern)
    return lambda whole: expression.sub(lambda _: content, whole)


@functools.lru_cache(maxsize=256)
def normalizer_of(normalizer: str | None, continued: bool = False) -> Callable[[str], str]:
    """The function that a normalizer is. continued: of a text that goes on where another was cut."""
    steps = steps_of(normalizer)
    functions = [function_of(step) for step in steps if not (continued and step["type"] == "Prepend")]

    def normalize(text: str) -> str:
        for function in functions:
            text = function(text)
        return text

    return normalize


def cuts_at_spaces(normalizer: str | None) -> bool:
    """Return True if a text may be cut before an ASCII space after an ASCII character, and its parts normalized."""
    return all(step["type"] in _CHARACTER_BY_CHARACTER for step in steps_of(normalizer))


def marks_spaces_only(normalizer: str | None) -> bool:
    """Return True if all it does is to write spaces as SentencePiece's marks and to put one in front."""
    return all(
        step["type"] == "Prepend" or (step["type"] == "Replace" and step["pattern"] == {"String": " "})
        for step in steps_of(normalizer)
    )


def function_of(step: Mapping[str, Any]) -> Callable[[str], str]:
    """The function that one step is."""
    kind = step["type"]
    if kind in FORMS:
        return functools.partial(_to_form, form=kind)
    if kind == "Lowercase":
        return _lowercase
    if kind == "Prepend":
        before = step["prepend"]
        return lambda text: before + text if text else text
    if kind == "Replace":
        return _replaced(step)
    if kind == "Strip":
        spaces = "".join(map(chr, _codes_of_white_space()))
        return lambda text: _strip(text, spaces, step["strip_left"], step["strip_right"])
    if kind == "StripAccents":
        return lambda text: text.translate(_removing("ACCENTS"))
    if kind == "Nmt":
        return lambda text: text.translate({**_removing("NMT_REMOVED"), **_spaces("NMT_SPACES")})
    return functools.partial(_bert, step=step)


def _bert(text: str, step: Mapping[str, Any]) -> str:
    for form, change in bert_stages(step):
        text = _to_form(text, form) if form else change(text)
    return text


def bert_stages(step: Mapping[str, Any]) -> list[tuple[str, Callable[[str], str]]]:
    """The steps of a BertNormalizer, one after another: a normal form, or where it is "" a change of each character."""
    stages: list[tuple[str, Callable[[str], str]]] = []
    if step["clean_text"]:
        cleaned = {**_removing("BERT_REMOVED"), **_spaces("BERT_SPACES")}
        stages.append(("", lambda text: text.translate(cleaned)))
    if step["handle_chinese_chars"]:
        stages.append(("", lambda text: text.translate(_spaced())))
    if step["lowercase"] if step["strip_accents"] is None else step["strip_accents"]:
        stages += [("NFD", str), ("", lambda text: text.translate(_removing("BERT_ACCENTS")))]
    return [*stages, ("", _lowercase)] if step["lowercase"] else stages


def _strip(text: str, spaces: str, left: bool, right: bool) -> str:
    text = text.lstrip(spaces) if left else text
    return text.rstrip(spaces) if right else text


def _lowercase(text: str) -> str:
    return text.lower() if text.isascii() else text.translate(_lower())


def _to_form(text: str, form: str) -> str:
    """A text in one of FORMS, as tokenizers has it."""
    if text.isascii():
        return text
    data = normalized(text.encode("utf-8", "surrogatepass"), form)
    return text if data is None else data.decode("utf-8", "surrogatepass")


def _codes(name: str) -> list[int]:
    with import_lock:
        from bpe.encoding import normalizer_tables
        from bpe.expressions.properties import parse_ranges

    return [code for first, last in parse_ranges(getattr(normalizer_tables, name)) for code in range(first, last + 1)]


def _codes_of_white_space() -> list[int]:
    with import_lock:
        from bpe.expressions.properties import white_space

    return [code for first, last in white_space() for code in range(first, last + 1)]


@functools.cache
def _removing(name: str) -> dict[int, None]:
    return dict.fromkeys(_codes(name))


@functools.cache
def _spaces(name: str) -> dict[int, str]:
    return dict.fromkeys(_codes(name), " ")


@functools.cache
def _spaced() -> dict[int, str]:
    return {code: f" {chr(code)} " for code in _codes("BERT_SPACED")}


@functools.cache
def _lower() -> dict[int, str]:
    with import_lock:
        from bpe.encoding.normalizer_tables import LOWERCASE
        from bpe.expressions.properties import parse_groups

    return {code: "".join(map(chr, lower)) for code, *lower in parse_groups(LOWERCASE)}
