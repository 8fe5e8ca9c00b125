"""Sets to evaluate on, from the files their publishers serve: questions with choices, last words, and texts.

A JSON-lines file is known by the keys of its lines:
HellaSwag             ctx, endings, label (and activity_label, ctx_a, ctx_b)
                      (Zellers et al. 2019, arXiv:1905.07830)
multiple choice       query, choices, gold: PIQA, ARC, COPA, OpenBookQA as llm-foundry has them
last word             context, continuation; or text, where the file's name has "lambada" in it
                      (Paperno et al. 2016, arXiv:1606.06031)
texts                 text
Any other file is text, in documents that end with <|endoftext|>. It is scored as the tokenizer's own end-of-text
token, and counted as part of the text; without such a token it is left out.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

CHOICE, WORD, TEXT = "choice", "word", "text"
SEPARATOR = "<|endoftext|>"  # of documents in a file of text


@dataclass(frozen=True)
class Item:
    """A context and what may follow it, the space between them included; endings[gold] does."""

    context: str
    endings: tuple[str, ...]
    gold: int = 0


@dataclass(frozen=True)
class Task:
    """Items of one kind: "choice" of the likeliest ending, "word" to be predicted, "text" to be scored."""

    name: str
    kind: str
    items: tuple[Item, ...]

    @property
    def fingerprint(self) -> str:
        """SHA-256, in hex, of all that is evaluated."""
        digest = hashlib.sha256(self.kind.encode())
        for item in self.items:
            digest.update(json.dumps([item.context, item.endings, item.gold]).encode())
        return digest.hexdigest()


def read_task(path: str | Path, *, cleaned: bool = True) -> Task:
    """The set in a file, of the kind that its lines show. cleaned: HellaSwag's text as lm_eval cleans it.

    ValueError: a line that is of no known kind or of another than the first, or that has no answer, by its number.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}: name a set to evaluate on")
    data = path.read_bytes()
    if path.suffix not in (".jsonl", ".json"):
        try:
            texts = [text for text in data.decode().split(SEPARATOR) if text.strip()]
        except UnicodeDecodeError as error:
            raise ValueError(f"{path} is not UTF-8 (byte {error.start:,}): unpack it if it is compressed") from None
        items = [Item("", (text,)) for text in texts]
        kinds = {TEXT}
    else:
        items, kinds = [], set()
        for number, line in enumerate(data.splitlines(), 1):
            if not line.strip():
                continue
            try:
                kind, item = item_of(parsed(line), "lambada" in path.name.lower(), cleaned)
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from None
            kinds.add(kind)
            if len(kinds) > 1:
                raise ValueError(f"{path}, line {number}: this line is of another kind than those before it")
            items.append(item)
    if not items:
        raise ValueError(f"{path} is empty: there is nothing in it to evaluate on")
    return Task(path.stem, kinds.pop(), tuple(items))


def parsed(line: bytes) -> dict[str, Any]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"this is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"a JSON object was expected, and this is {type(value).__name__}")
    return value


def item_of(line: Mapping[str, Any], last_word: bool, cleaned: bool) -> tuple[str, Item]:
    """The kind of a line, and its item. ValueError: what is wrong with it."""
    if {"ctx", "endings"} <= line.keys():
        context, endings = hellaswag(line) if cleaned else (text_of(line, "ctx"), texts_of(line, "endings"))
        return CHOICE, Item(context, tuple(f" {ending}" for ending in endings), gold(line, "label", len(endings)))
    if {"query", "choices"} <= line.keys():
        context, endings = text_of(line, "query").strip(), texts_of(line, "choices")
        # Prompts that begin with "Question:" get "Answer:"; others are completed in place.
        context += "\nAnswer:" if context.startswith("Question:") else ""
        return CHOICE, Item(context, tuple(f" {e.strip()}" for e in endings), gold(line, "gold", len(endings)))
    if {"context", "continuation"} <= line.keys():
        return WORD, Item(text_of(line, "context").strip(), (f" {text_of(line, 'continuation').strip()}",))
    if "text" in line:
        text = text_of(line, "text")
        if not last_word:
            return TEXT, Item("", (text,))
        context, _, word = text.rstrip().rpartition(" ")
        if not context:
            raise ValueError("the text has no last word with a text before it")
        return WORD, Item(context, (f" {word}",))
    kinds = "ctx, endings, label (HellaSwag); query, choices, gold; context, continuation; or text"
    raise ValueError(f"expected the keys {kinds}, got {', '.join(sorted(line))}")


def text_of(line: Mapping[str, Any], key: str) -> str:
    value = line[key]
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{key!r} is {value!r}, and should be a text")
    return value


def texts_of(line: Mapping[str, Any], key: str) -> list[str]:
    value = line[key]
    if not isinstance(value, list) or len(value) < 2 or not all(isinstance(one, str) and one.strip() for one in value):
        raise ValueError(f"{key!r} is {value!r}, and should be a list of two texts or more")
    return value


def gold(line: Mapping[str, Any], key: str, count: int) -> int:
    value = line.get(key)
    if value in (None, ""):
        raise ValueError(f"there is no {key!r} to say which is right: test sets are published without, take another")
    try:
        number = int(value)
    except (TypeError, ValueError):
        number = -1
    if not 0 <= number < count:
        raise ValueError(f"{key!r} is {value!r}, and should be a number from 0 to {count - 1}")
    return number


def hellaswag(line: Mapping[str, Any]) -> tuple[str, list[str]]:
    """The context and the endings of a line as lm_eval has them: with the activity, and without WikiHow's markup."""
    context = text_of(line, "ctx")
    if line.get("ctx_b") and isinstance(line["ctx_b"], str) and isinstance(line.get("ctx_a"), str):
        context = f"{line['ctx_a']} {line['ctx_b'].capitalize()}"
    if line.get("activity_label"):
        context = f"{line['activity_label']}: {context}"
    endings = [clean(ending) for ending in texts_of(line, "endings")]
    if not all(ending.strip() for ending in endings):
        raise ValueError("an ending is nothing but markup: evaluate on the text as published")
    return clean(context), endings


def clean(text: str) -> str:
    """As lm_eval does it, which leaves the space that stood behind markup at the beginning."""
    text = text.strip().replace(" [title]", ". ")
    return re.sub(r"\[.*?\]", "", text).replace("  ", " ")
