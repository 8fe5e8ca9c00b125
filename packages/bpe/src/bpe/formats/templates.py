"""The post-processors of a tokenizer.json: the special tokens that stand around one text or two.

A template is a list of names of special tokens and of the numbers 0 and 1, which are the texts.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from bpe.formats import TokenizerData, refuse
from bpe.native.atomic_file import StrPath

Template = tuple[str | int, ...]


class Around(NamedTuple):
    """prefix, suffix: the special tokens around one text. pair: the template of two. trim_offsets: of TokenizerData."""

    prefix: tuple[str, ...] = ()
    suffix: tuple[str, ...] = ()
    pair: Template = (0, 1)
    trim_offsets: tuple[str, ...] = ()


def filled(tokenizer: TokenizerData, ids: Iterable[int], pair: Iterable[int] | None) -> list[int]:
    """The ids of a text, or of two, with the special tokens that the template puts around them."""
    template = (*tokenizer.prefix, 0, *tokenizer.suffix) if pair is None else tokenizer.pair
    texts = ids, pair or ()
    result: list[int] = []
    for part in template:
        result.extend(texts[part] if isinstance(part, int) else [tokenizer.special_tokens[str(part)]])
    return result


def read_post_processor(value: Any, special: dict[str, int], path: StrPath) -> Around:
    """Return the template of a post-processor; ValueError if it is not supported."""
    around = None
    trim_offsets: list[str] = []
    for step in parts_of(value, "processors", path):
        if step["type"] in ("ByteLevel", "RobertaProcessing") and flag(step, "trim_offsets", True, path):
            trim_offsets.append("prefix" if flag(step, "add_prefix_space", True, path) else "plain")
        if step["type"] == "ByteLevel":
            continue  # it moves offsets only
        if around is not None:
            refuse(path, "more than one template around a text is not supported")
        if step["type"] == "TemplateProcessing":
            around = _read_template(step, special, path)
        elif step["type"] in ("RobertaProcessing", "BertProcessing"):
            around = _read_pair_of(step, special, path)
        else:
            refuse(
                path,
                f"the post-processor {step['type']!r} is not supported: only ByteLevel, TemplateProcessing, "
                "RobertaProcessing and BertProcessing are",
            )
    return (around or Around())._replace(trim_offsets=tuple(trim_offsets))


def _read_template(step: dict[str, Any], special: dict[str, int], path: StrPath) -> Around:
    single = _template(step, "single", special, path)
    if single.count(0) != 1 or 1 in single:
        refuse(path, "a TemplateProcessing whose template for one text does not hold that text once")
    at = single.index(0)
    prefix = tuple(str(name) for name in single[:at])
    suffix = tuple(str(name) for name in single[at + 1 :])
    if step.get("pair") is None:
        return Around(prefix, suffix, (*prefix, 0, *suffix, *prefix, 1, *suffix))
    pair = _template(step, "pair", special, path)
    if sorted(part for part in pair if isinstance(part, int)) != [0, 1]:
        refuse(path, "a TemplateProcessing whose template for two texts does not hold each of them once")
    return Around(prefix, suffix, pair)


def _template(step: dict[str, Any], key: str, special: dict[str, int], path: StrPath) -> Template:
    parts: list[str | int] = []
    template, meanings = step.get(key), step.get("special_tokens") or {}
    for part in template if isinstance(template, list) else []:
        if isinstance(part, dict) and "Sequence" in part:
            parts.append(1 if isinstance(part["Sequence"], dict) and part["Sequence"].get("id") == "B" else 0)
            continue
        try:
            name: str = part["SpecialToken"]["id"]
            is_known = meanings[name]["ids"] == [special[name]]
        except (KeyError, TypeError, IndexError):
            is_known = False
        if not is_known:
            refuse(path, f"the template puts {str(part)[:80]} around a text, which is no special token of the file")
        parts.append(name)
    return tuple(parts)


def _read_pair_of(step: dict[str, Any], special: dict[str, int], path: StrPath) -> Around:
    """The token before a text ("cls") and that after it ("sep"), each given as [name, id]."""
    names = []
    for key in ("cls", "sep"):
        token = step.get(key)
        if not isinstance(token, list) or token not in map(list, special.items()):
            refuse(path, f"{step['type']} puts {str(token)[:80]} around a text, which is no special token of the file")
        names.append(token[0])
    begin, end = names
    middle = (end, end) if step["type"] == "RobertaProcessing" else (end,)
    return Around((begin,), (end,), (begin, 0, *middle, 1, end))


def post_processor(tokenizer: TokenizerData) -> dict[str, Any] | None:
    """The post-processor that says a tokenizer's templates, beside the step that byte-level files have."""
    kinds = tokenizer.trim_offsets or ("",) * (tokenizer.characters is None)
    steps: list[dict[str, Any]] = [
        {"type": "ByteLevel", "add_prefix_space": kind != "plain", "trim_offsets": bool(kind), "use_regex": True}
        for kind in kinds
    ]
    if len(steps) < 2 and not tokenizer.prefix and not tokenizer.suffix and tokenizer.pair == (0, 1):
        return steps[0] if steps else None
    ids = tokenizer.special_tokens | tokenizer.added_tokens

    def parts(template: Template) -> list[dict[str, Any]]:
        kind, items = 0, []
        for part in template:
            if isinstance(part, int):
                kind = part
                items.append({"Sequence": {"id": "AB"[part], "type_id": part}})
            else:
                items.append({"SpecialToken": {"id": part, "type_id": kind}})
        return items

    named = sorted({name for name in (*tokenizer.prefix, *tokenizer.suffix, *tokenizer.pair) if isinstance(name, str)})
    return {
        "type": "Sequence",
        "processors": [
            *steps,
            {
                "type": "TemplateProcessing",
                "single": parts((*tokenizer.prefix, 0, *tokenizer.suffix)),
                "pair": parts(tokenizer.pair),
                "special_tokens": {name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in named},
            },
        ],
    }


def flag(holder: dict[str, Any], key: str, default: bool, path: StrPath) -> bool:
    value = holder.get(key)
    if value is not None and not isinstance(value, bool):
        refuse(path, f'"{key}" is {value!r}: it should be true or false')
    return default if value is None else value


def parts_of(value: Any, kind: str, path: StrPath) -> list[dict[str, Any]]:
    """Return a step, or the steps of a Sequence, as a flat list. kind: the key of a Sequence's steps."""
    if value is None:
        return []
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        refuse(path, f"a step of {kind} without a type: {str(value)[:80]}")
    if value["type"] != "Sequence":
        return [value]
    steps = value.get(kind)
    if not isinstance(steps, list):
        refuse(path, f'a Sequence without "{kind}"')
    return [part for step in steps for part in parts_of(step, kind, path)]
