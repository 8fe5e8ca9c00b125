"""Token files of conversations, and of pairs of two answers: chat_template says how messages become tokens, and which
are learned."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lm.chat_template import LEARNED, ChatTemplate, Message, messages_of
from lm.data.packing import PackedSplits, json_lines

TOOL_KEYS = ("tools", "functions", "parallel_tool_calls")  # of a line, beside which other fields are notes
SILENT, TOO_LONG, CUT = "silent", "too long", "cut"
Pair = tuple[list[Message], list[Message]]  # the conversation with the better answer, and with the other


def prepare_conversations(
    paths: Sequence[str | Path],
    template: ChatTemplate,
    out: str | Path,
    *,
    context_length: int,
    end_of_text: str | None = None,
    heldout: float = 0.05,
) -> PackedSplits:
    """Write conversations as OUT/train.npy and heldout.npy, with masks of what is learned (see PackedSplits).

    Of what is left out, SILENT are those in which the assistant says nothing, TOO_LONG those whose first exchange does
    not fit a window, and CUT those that lost their end: a longer conversation is cut after the last answer that fits.

    Args:
        paths: Files of JSON lines, {"messages": [{"role": …, "content": …}]}.
        template: The chat template of the model that is to learn them.
        out, context_length, end_of_text, heldout: See PackedSplits.

    Raises:
        ValueError: A line that is not a conversation, with its number; or nothing to learn.
        FileExistsError: There are token files in `out`.
    """
    splits = PackedSplits(
        template.tokenizer, out, context_length=context_length, end_of_text=end_of_text, heldout=heldout
    )
    for path in paths:
        for line, messages in json_lines(path, conversation_of, "conversation"):
            if not any(message.role == LEARNED for message in messages):
                splits.left_out[SILENT] += 1
                continue
            for end in range(len(messages), 0, -1):
                if end < len(messages) and messages[end - 1].role != LEARNED:
                    continue  # it is cut after an answer
                ids, learned = splits.separated(*template.encode(messages[:end]))
                if len(ids) <= splits.window and any(learned):
                    splits.add(line, ids, learned)
                    splits.left_out[CUT] += end < len(messages)
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
    """Write prompts as OUT/train.npy and heldout.npy, with the other fields of their rows, which rewards read.

    Left out, as TOO_LONG, are prompts that leave no room for an answer in a window.

    Args:
        paths: Files of JSON lines, {"prompt": …}: a text, which the user says, or a list of messages.
        template: The chat template of the model that is to answer them.
        out, context_length, end_of_text, heldout: See PackedSplits.
        key: The field with the prompt.

    Raises:
        ValueError: A line without a prompt, with its number; the same prompt with other fields; no line that fits; or a
            template whose answers no special token ends.
        FileExistsError: There are token files in `out`.
    """
    splits = PackedSplits(
        template.tokenizer, out, context_length=context_length, end_of_text=end_of_text, heldout=heldout
    )
    end = end_of_answers(template)
    for path in paths:
        for line, (messages, fields) in json_lines(path, lambda value: prompt_of(value, key), "prompt"):
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
        raise ValueError(f'it is no object with "{key}" in it')
    messages = messages_of(as_messages(value[key], "user"))
    if messages[-1].role == LEARNED:
        raise ValueError(f'"{key}" ends with an answer: leave it out')
    return messages, {name: item for name, item in value.items() if name != key}


def conversation_of(value: Any) -> list[Message]:
    """Return the messages of a line. ValueError: it has none."""
    if not isinstance(value, dict) or "messages" not in value:
        raise ValueError('it is no object with "messages" in it')
    return messages_to_learn(value, value["messages"])


def messages_to_learn(line: dict[str, Any], messages: Any) -> list[Message]:
    """Return the messages of a line. ValueError: the line or a message asks for what no template here is given."""
    for key in TOOL_KEYS:
        if line.get(key):
            raise ValueError(f'"{key}" is not read: leave it out, and write the tools into the system\'s message')
    for number, message in enumerate(messages if isinstance(messages, list) else []):
        for key, value in message.items() if isinstance(message, dict) else ():
            if key == "weight" and value != 1:
                raise ValueError(f"messages[{number}] has the weight {value!r}: end the conversation before it")
            if key not in ("role", "content", "weight") and value is not None:
                raise ValueError(f'messages[{number}] has "{key}", which is not read: leave it out')
    return messages_of(messages)


def prepare_preferences(
    paths: Sequence[str | Path],
    template: ChatTemplate,
    out: str | Path,
    *,
    context_length: int,
    end_of_text: str | None = None,
    heldout: float = 0.05,
) -> PackedSplits:
    """Write pairs as OUT/train.npy and heldout.npy, with masks of the answers (see PackedSplits).

    A pair is two conversations, the preferred one first. Left out, as TOO_LONG, are pairs that do not fit a window.

    Args:
        paths: Files of JSON lines, {"prompt": …, "chosen": …, "rejected": …}. Each is a list of messages, or a
            text: the user's as a prompt, the assistant's as an answer. Without a prompt, both answers are whole
            conversations.
        template: The chat template of the model that is to learn them.
        out, context_length, end_of_text, heldout: See PackedSplits.

    Raises:
        ValueError: A line that is not a pair, with its number; or nothing to learn.
        FileExistsError: There are token files in `out`.
    """
    splits = PackedSplits(
        template.tokenizer, out, context_length=context_length, end_of_text=end_of_text, heldout=heldout
    )
    for path in paths:
        for line, pair in json_lines(path, pair_of, "pair"):
            both = [encode(template, messages, splits) for messages in pair]
            ids, learned = ([one for part in parts for one in part] for parts in zip(*both, strict=True))
            if len(ids) > context_length:
                splits.left_out[TOO_LONG] += 1
            else:
                splits.add(line, ids, learned)
    splits.write(paths, "no pair fits a window", pairs=True)
    return splits


def pair_of(value: Any) -> Pair:
    """Return the two conversations of a line. ValueError: what it lacks."""
    if not isinstance(value, dict):
        raise ValueError("it is no object")
    for key in ("chosen", "rejected"):
        if key not in value:
            raise ValueError(f'there is no "{key}" in it')
    prompt = as_messages(value.get("prompt", []), "user")
    answers = (as_messages(value[key], LEARNED) for key in ("chosen", "rejected"))
    better, worse = (messages_to_learn(value, [*prompt, *answer]) for answer in answers)
    for key, messages in (("chosen", better), ("rejected", worse)):
        if not messages or messages[-1].role != LEARNED:
            raise ValueError(f'"{key}" does not end with what the assistant says')
    if better == worse:
        raise ValueError("both answers are the same")
    return better, worse


def as_messages(value: Any, role: str) -> list[Any]:
    """A text as one message of this role; a list of messages as it is."""
    if isinstance(value, str):
        return [{"role": role, "content": value}]
    if not isinstance(value, list):
        raise ValueError(f"{value!r} is neither a text nor a list of messages")
    return value


def encode(template: ChatTemplate, messages: Sequence[Message], splits: PackedSplits) -> tuple[list[int], list[bool]]:
    """The ids of a conversation after one separator, and which of them the assistant says.

    Raises:
        ValueError: The template writes the separator inside it, so that its parts would not see each other.
    """
    ids, learned = splits.separated(*template.encode(messages))
    if splits.separator in ids[1:]:
        raise ValueError(f"the chat template writes {splits.separator}, which separates conversations, inside of one")
    return ids, learned
