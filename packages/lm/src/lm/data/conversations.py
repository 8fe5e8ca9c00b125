"""Token files of conversations: chat_template says how messages become tokens, and which are learned."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lm.chat_template import LEARNED, ChatTemplate, Message, messages_of
from lm.data.packing import PackedSplits, json_lines

SILENT, TOO_LONG, CUT = "silent", "too long", "cut"


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
    options: dict[str, Any] = {"context_length": context_length, "end_of_text": end_of_text, "heldout": heldout}
    splits = PackedSplits(template.tokenizer, out, **options)
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


def conversation_of(value: Any) -> list[Message]:
    """Return the messages of a line. ValueError: it has none."""
    if not isinstance(value, dict) or "messages" not in value:
        raise ValueError('it is no object with "messages" in it')
    return messages_of(value["messages"])
