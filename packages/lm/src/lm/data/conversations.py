"""Token files of conversations, of prompts, and of pairs of two answers.

chat_template says how messages become tokens, and which are learned; PackedSplits takes context_length, end_of_text and
heldout. Each function writes OUT/train.npy and heldout.npy, with masks of what is learned, from `paths`, files or
folders of rows. All raise ValueError for a row of another form, with its number, or where nothing is to be learned, and
FileExistsError where `out` has token files.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lm.chat_template import LEARNED, ChatTemplate, Message
from lm.data.packing import PackedSplits
from lm.data.rows import messages_in, read_messages, read_rows, tools_of

SILENT, TOO_LONG, CUT, ENDLESS = "silent", "too long", "cut", "endless"
Talk = tuple[list[Message], list[Any] | None]  # messages, and the tools that the assistant may call


def prepare_conversations(
    paths: Sequence[str | Path],
    template: ChatTemplate,
    out: str | Path,
    *,
    context_length: int,
    end_of_text: str | None = None,
    heldout: float = 0.05,
) -> PackedSplits:
    """Write conversations, rows in any of the forms of rows.py, each as far as its last answer that fits a window.

    Of what is left out, SILENT are those in which the assistant says nothing, TOO_LONG those whose first exchange does
    not fit a window, and CUT those that lost their end. ENDLESS are in the files, without a learned token that ends an
    answer.
    """
    splits = PackedSplits(
        template.tokenizer, out, context_length=context_length, end_of_text=end_of_text, heldout=heldout
    )
    stops = set(template.stop_tokens)
    for line, (messages, tools) in read_rows(paths, conversation_of, "conversation"):
        if not any(message.role == LEARNED for message in messages):
            splits.left_out[SILENT] += 1
            continue
        for end in range(len(messages), 0, -1):
            if end < len(messages) and messages[end - 1].role != LEARNED:
                continue  # it is cut after an answer
            ids, learned = splits.separated(*template.encode(messages[:end], tools))
            if len(ids) <= splits.window and any(learned):
                splits.add(line, ids, learned)
                splits.left_out[CUT] += end < len(messages)
                splits.left_out[ENDLESS] += bool(stops) and not any(
                    is_learned and number in stops for number, is_learned in zip(ids, learned, strict=True)
                )
                break
        else:
            splits.left_out[TOO_LONG] += 1
    splits.write(paths, "the assistant says nothing that fits")
    return splits


def prepare_prompts(
    paths: Sequence[str | Path],
    template: ChatTemplate,
    out: str | Path,
    *,
    context_length: int,
    end_of_text: str | None = None,
    heldout: float = 0.05,
    key: str = "prompt",
) -> PackedSplits:
    """Write prompts with the other fields of their rows, which rewards read.

    A row has the prompt under `key`: a text, which the user says, or a list of messages. Left out, as TOO_LONG, are
    prompts that leave no room for an answer in a window. ValueError, too: the same prompt with other fields, or a
    template whose answers no special token ends.
    """
    splits = PackedSplits(
        template.tokenizer, out, context_length=context_length, end_of_text=end_of_text, heldout=heldout
    )
    end = end_of_answers(template)
    for line, (messages, fields) in read_rows(paths, lambda value: prompt_of(value, key), "prompt"):
        ids, _ = splits.separated(template.prompt(messages), [])
        if len(ids) >= context_length:
            splits.left_out[TOO_LONG] += 1
        else:
            splits.add(line, [*ids, end], [False] * len(ids) + [True], (ids, [end]), **fields)
    splits.write(paths, "no prompt has room in a window", prompts=True)
    return splits


def end_of_answers(template: ChatTemplate) -> int:
    """Return the id that ends an answer. ValueError: the template marks none as part of an answer."""
    ids, learned = template.encode([Message("user", "a"), Message(LEARNED, "b")])
    last = [number for number, is_learned in zip(ids, learned, strict=True) if is_learned][-1]
    if last not in template.stop_tokens:
        piece = template.tokenizer.decode([last])
        remedy = "train with a tokenizer that has tokens of turns, or put the end inside {% generation %}"
        raise ValueError(f"expected a chat template whose answers end with a special token, got {piece!r}: {remedy}")
    return last


def prompt_of(value: Any, key: str) -> tuple[list[Message], dict[str, Any]]:
    """Return the messages of a line's prompt, and its other fields. ValueError: it has no prompt."""
    if not isinstance(value, dict) or key not in value:
        raise ValueError(f'it is not an object with "{key}" in it')
    messages = read_messages(value[key], "user")
    if messages[-1].role == LEARNED:
        raise ValueError(f'"{key}" ends with an answer: leave it out')
    return messages, {name: item for name, item in value.items() if name != key}


def conversation_of(row: Any) -> Talk:
    """Return the messages of a row, and its tools. ValueError: it has none, or asks for what is not read."""
    return messages_in(row), tools_of(row)


def prepare_preferences(
    paths: Sequence[str | Path],
    template: ChatTemplate,
    out: str | Path,
    *,
    context_length: int,
    end_of_text: str | None = None,
    heldout: float = 0.05,
) -> PackedSplits:
    """Write pairs, two conversations of which the first is preferred. Left out, as TOO_LONG, are those beyond a window.

    A row is {"prompt": …, "chosen": …, "rejected": …}, each a list of messages or a text: the user's as a prompt, the
    assistant's as an answer. Answers that are whole conversations, as UltraFeedback's, do not need the prompt.
    """
    splits = PackedSplits(
        template.tokenizer, out, context_length=context_length, end_of_text=end_of_text, heldout=heldout
    )
    for line, pair in read_rows(paths, pair_of, "pair"):
        both = [encode(template, talk, splits) for talk in pair]
        ids, learned = ([one for part in parts for one in part] for parts in zip(*both, strict=True))
        if len(ids) > context_length:
            splits.left_out[TOO_LONG] += 1
        else:
            splits.add(line, ids, learned)
    splits.write(paths, "no pair fits a window", pairs=True)
    return splits


def pair_of(value: Any) -> tuple[Talk, Talk]:
    """Return the two conversations of a line. ValueError: what it lacks."""
    if not isinstance(value, dict):
        raise ValueError("it is not an object")
    for key in ("chosen", "rejected"):
        if key not in value:
            raise ValueError(f'there is no "{key}" in it')
    prompt = read_messages(value["prompt"], "user") if value.get("prompt") else []
    answers = [read_messages(value[key], LEARNED) for key in ("chosen", "rejected")]
    better, worse = (answer if answer[0].role != LEARNED else [*prompt, *answer] for answer in answers)
    for key, messages in (("chosen", better), ("rejected", worse)):
        if messages[-1].role != LEARNED:
            raise ValueError(f'"{key}" does not end with what the assistant says')
    if better == worse:
        raise ValueError("both answers are the same")
    return (better, tools_of(value)), (worse, tools_of(value))


def encode(template: ChatTemplate, talk: Talk, splits: PackedSplits) -> tuple[list[int], list[bool]]:
    """The ids of a conversation after one separator, and which of them the assistant says.

    Raises:
        ValueError: The template writes the separator inside it, so that its parts would not see each other.
    """
    ids, learned = splits.separated(*template.encode(*talk))
    if splits.separator in ids[1:]:
        raise ValueError(f"the chat template writes {splits.separator}, which separates conversations, inside of one")
    return ids, learned
