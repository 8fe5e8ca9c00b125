"""Token files of conversations, of prompts, and of pairs of two answers, from rows in any of the forms of rows.py.

chat_template says how messages become tokens, and which of them are learned.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from lm.chat_template import LEARNED, ChatTemplate, Message
from lm.data.packing import PackedSplits
from lm.data.rows import messages_in, read_messages, read_rows, tools_of

SILENT, TOO_LONG, CUT, ENDLESS = "silent", "too long", "cut", "endless"
Talk = tuple[list[Message], list[Any] | None]  # messages, and the tools that the assistant may call
Kind = Literal["conversation", "prompt", "pair"]


def prepare_rows(
    kind: Kind,
    paths: Sequence[str | Path],
    template: ChatTemplate,
    out: str | Path,
    *,
    context_length: int,
    end_of_text: str | None = None,
    heldout: float = 0.05,
    key: str = "prompt",
) -> PackedSplits:
    """Write OUT/train.npy and heldout.npy, with masks of the tokens to learn.

    Args:
        kind: "conversation": each is written as far as its last answer that fits a window. left_out counts as SILENT
            those without an answer, as TOO_LONG those whose first exchange fits no window, as CUT those that lost their
            end; ENDLESS are in the files, and no learned token of theirs ends an answer. "prompt": with the other
            fields of its row, which rewards read; TOO_LONG are those that leave no room for an answer. "pair": two
            conversations, the preferred one first; TOO_LONG are those beyond a window.
        paths: Files or folders of rows.
        template: The chat template of the tokenizer.
        out: The folder.
        context_length, end_of_text, heldout: See PackedSplits.
        key: The field of a prompt: a text, which the user says, or a list of messages.

    Raises:
        ValueError: A row of another form, with its number; nothing is to be learned; the same prompt has other fields;
            or no special token ends the answers to prompts.
        FileExistsError: `out` has token files.
    """
    splits = PackedSplits(
        template.tokenizer, out, context_length=context_length, end_of_text=end_of_text, heldout=heldout
    )
    if kind == "conversation":
        for line, talk in read_rows(paths, conversation_of, kind):
            add_conversation(splits, template, line, *talk)
        splits.write(paths, "the assistant says nothing that fits")
    elif kind == "prompt":
        end = end_of_answers(template)
        for line, (messages, fields) in read_rows(paths, lambda value: prompt_of(value, key), kind):
            ids, _ = splits.separated(template.prompt(messages), [])
            if len(ids) >= context_length:
                splits.left_out[TOO_LONG] += 1
            else:
                splits.add(line, [*ids, end], [False] * len(ids) + [True], (ids, [end]), **fields)
        splits.write(paths, "no prompt has room in a window", prompts=True)
    else:
        for line, pair in read_rows(paths, pair_of, kind):
            both = [encode(template, talk, splits) for talk in pair]
            ids, learned = ([one for part in parts for one in part] for parts in zip(*both, strict=True))
            if len(ids) > context_length:
                splits.left_out[TOO_LONG] += 1
            else:
                splits.add(line, ids, learned)
        splits.write(paths, "no pair fits a window", pairs=True)
    return splits


def add_conversation(
    splits: PackedSplits, template: ChatTemplate, line: str, messages: list[Message], tools: list[Any] | None
) -> None:
    """Add a conversation as far as its last answer that fits a window."""
    answers = [end for end in range(len(messages), 0, -1) if messages[end - 1].role == LEARNED]
    if not answers:
        splits.left_out[SILENT] += 1
        return
    for end in dict.fromkeys((len(messages), *answers)):
        ids, learned = splits.separated(*template.encode(messages[:end], tools))
        if len(ids) <= splits.window and any(learned):
            splits.add(line, ids, learned)
            splits.left_out[CUT] += end < len(messages)
            stops = set(template.stop_tokens)
            ends = any(is_learned and id in stops for id, is_learned in zip(ids, learned, strict=True))
            splits.left_out[ENDLESS] += bool(stops) and not ends
            return
    splits.left_out[TOO_LONG] += 1


def end_of_answers(template: ChatTemplate) -> int:
    """Return the id that ends an answer. ValueError: the template marks none as part of an answer."""
    ids, learned = template.encode([Message("user", "a"), Message(LEARNED, "b")])
    last = [number for number, is_learned in zip(ids, learned, strict=True) if is_learned][-1]
    if last not in template.stop_tokens:
        piece = template.tokenizer.decode([last])
        remedy = "train with a tokenizer that has tokens of turns, or put the end inside {% generation %}"
        raise ValueError(f"expected a chat template whose answers end with a special token, got {piece!r}: {remedy}")
    return last


def conversation_of(row: Any) -> Talk:
    """Return the messages of a row, and its tools. ValueError: it has none, or asks for what is not read."""
    return messages_in(row), tools_of(row)


def prompt_of(value: Any, key: str) -> tuple[list[Message], dict[str, Any]]:
    """Return the messages of a row's prompt, and its other fields. ValueError: it has no prompt."""
    if not isinstance(value, dict) or key not in value:
        raise ValueError(f'it is not an object with "{key}" in it')
    messages = read_messages(value[key], "user")
    if messages[-1].role == LEARNED:
        raise ValueError(f'"{key}" ends with an answer: leave it out')
    return messages, {name: item for name, item in value.items() if name != key}


def pair_of(value: Any) -> tuple[Talk, Talk]:
    """Return the two conversations of a row. ValueError: what it lacks.

    {"prompt": …, "chosen": …, "rejected": …}, each a list of messages or a text: the user's as a prompt, the
    assistant's as an answer. Answers that are whole conversations, as UltraFeedback's, do not need the prompt.
    """
    if not isinstance(value, dict):
        raise ValueError("it is not an object")
    prompt, talks = read_messages(value["prompt"], "user") if value.get("prompt") else [], list[list[Message]]()
    for key in ("chosen", "rejected"):
        if key not in value:
            raise ValueError(f'there is no "{key}" in it')
        answer = read_messages(value[key], LEARNED)
        talks.append([*prompt, *answer] if answer[0].role == LEARNED else answer)
        if answer[-1].role != LEARNED:
            raise ValueError(f'"{key}" does not end with what the assistant says')
    if talks[0] == talks[1]:
        raise ValueError("both answers are the same")
    tools = tools_of(value)
    return (talks[0], tools), (talks[1], tools)


def encode(template: ChatTemplate, talk: Talk, splits: PackedSplits) -> tuple[list[int], list[bool]]:
    """The ids of a conversation after one separator, and True for each that the assistant says.

    ValueError: the template writes the separator inside it, so that its parts would not see each other.
    """
    ids, learned = splits.separated(*template.encode(*talk))
    if splits.separator in ids[1:]:
        raise ValueError(f"the chat template writes {splits.separator}, which separates conversations, inside of one")
    return ids, learned
