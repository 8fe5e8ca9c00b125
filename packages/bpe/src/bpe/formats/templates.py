"""The steps of a tokenizer.json, and its post-processors: the special tokens that stand around one text or two.

A template is a list of names of special tokens and of the numbers 0 and 1, which are the texts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, NamedTuple

from bpe.expressions.step_options import checked, step
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
    parts = (texts[part] if isinstance(part, int) else [tokenizer.special_tokens[str(part)]] for part in template)
    return [*chain.from_iterable(parts)]


def read_post_processor(value: Any, special: dict[str, int], path: StrPath) -> Around:
    """Return the template of a post-processor; ValueError if it is not supported."""
    around = None
    trim_offsets: list[str] = []
    for processor in read_steps("processors", value, path):
        if processor.get("trim_offsets"):
            trim_offsets.append("prefix" if processor["add_prefix_space"] else "plain")
        if processor["type"] == "ByteLevel":
            continue  # it moves offsets only
        if around is not None:
            refuse(path, "more than one template around a text is not supported")
        read = _read_template if processor["type"] == "TemplateProcessing" else _read_pair_of
        around = read(processor, special, path)
    return (around or Around())._replace(trim_offsets=tuple(trim_offsets))


def _read_template(processor: dict[str, Any], special: dict[str, int], path: StrPath) -> Around:
    single = _template(processor, "single", special, path)
    if single.count(0) != 1 or 1 in single:
        refuse(path, "a TemplateProcessing whose template for one text does not hold that text once")
    prefix, suffix = (tuple(map(str, part)) for part in (single[: single.index(0)], single[single.index(0) + 1 :]))
    if processor["pair"] is None:
        return Around(prefix, suffix, (*prefix, 0, *suffix, *prefix, 1, *suffix))
    pair = _template(processor, "pair", special, path)
    if sorted(part for part in pair if isinstance(part, int)) != [0, 1]:
        refuse(path, "a TemplateProcessing whose template for two texts does not hold each of them once")
    return Around(prefix, suffix, pair)


def _template(processor: dict[str, Any], key: str, special: dict[str, int], path: StrPath) -> Template:
    parts: list[str | int] = []
    for part in processor[key]:
        if isinstance(part, dict) and "Sequence" in part:
            parts.append(1 if isinstance(part["Sequence"], dict) and part["Sequence"].get("id") == "B" else 0)
            continue
        try:
            name: str = part["SpecialToken"]["id"]
            is_known = processor["special_tokens"][name]["ids"] == [special[name]]
        except (KeyError, TypeError, IndexError):
            is_known = False
        if not is_known:
            refuse(path, f"the template puts {str(part)[:80]} around a text, which is no special token of the file")
        parts.append(name)
    return tuple(parts)


def _read_pair_of(processor: dict[str, Any], special: dict[str, int], path: StrPath) -> Around:
    """The token before a text ("cls") and that after it ("sep"), each given as [name, id]."""
    kind, named = processor["type"], [*map(list, special.items())]
    for key in ("cls", "sep"):
        if processor[key] not in named:
            refuse(path, f"{kind} puts {str(processor[key])[:80]} around a text, which is no special token of the file")
    begin, end = processor["cls"][0], processor["sep"][0]
    middle = (end, end) if kind == "RobertaProcessing" else (end,)
    return Around((begin,), (end,), (begin, 0, *middle, 1, end))


def post_processor(tokenizer: TokenizerData) -> dict[str, Any] | None:
    """The post-processor that says a tokenizer's templates, beside the step that byte-level files have."""
    kinds = tokenizer.trim_offsets or ("",) * (tokenizer.characters is None)
    steps = [
        step("processors", "ByteLevel", add_prefix_space=kind != "plain", trim_offsets=bool(kind)) for kind in kinds
    ]
    if len(steps) < 2 and not tokenizer.prefix and not tokenizer.suffix and tokenizer.pair == (0, 1):
        return steps[0] if steps else None
    ids = tokenizer.special_tokens | tokenizer.added_tokens
    template = template_step((*tokenizer.prefix, 0, *tokenizer.suffix), tokenizer.pair, ids)
    return {"type": "Sequence", "processors": [*steps, template]}


def template_step(single: Template, pair: Template, ids: Mapping[str, int]) -> dict[str, Any]:
    """The TemplateProcessing of one text and of two, with special tokens of these ids."""

    def pieces(template: Template) -> list[dict[str, Any]]:
        kind, items = 0, []
        for part in template:
            if isinstance(part, int):
                kind = part
                items.append({"Sequence": {"id": "AB"[part], "type_id": part}})
            else:
                items.append({"SpecialToken": {"id": part, "type_id": kind}})
        return items

    names = sorted({part for part in (*single, *pair) if isinstance(part, str)})
    special = {name: {"id": name, "ids": [ids[name]], "tokens": [name]} for name in names}
    return step("processors", "TemplateProcessing", single=pieces(single), pair=pieces(pair), special_tokens=special)


def read_steps(part: str, value: Any, path: StrPath) -> list[dict[str, Any]]:
    """Return a step of a file, or the steps of its Sequence, as a flat list. part: a key of STEPS."""
    if value is None:
        return []
    if not isinstance(value, dict) or value.get("type") != "Sequence":
        try:
            return [checked(part, value)]
        except ValueError as error:
            refuse(path, str(error))
    steps = value.get(part)
    if not isinstance(steps, list):
        refuse(path, f'a Sequence without "{part}"')
    return [inner for item in steps for inner in read_steps(part, item, path)]
