"""Token files of conversations: chat_template says how messages become tokens, and which are learned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm.chat_template import LEARNED, ChatTemplate, Message, messages_of
from lm.data.packing import PackedSplits, json_lines


def read(path: str | Path) -> Iterator[tuple[str, list[Message]]]:
    """Each line of JSON lines {"messages": […]}, and its messages. ValueError: a line that is none, by its number."""
    return json_lines(path, conversation_of, "conversation")


def conversation_of(found: Any) -> list[Message]:
    """The messages of a line. ValueError: it has none."""
    if not isinstance(found, dict) or "messages" not in found:
        raise ValueError('it is no object with "messages" in it')
    return messages_of(found["messages"])


@dataclass
class Made:
    """What a split has: conversations, tokens, how many of the tokens are learned, and how many are padding."""

    conversations: int = 0
    tokens: int = 0
    learned: int = 0
    padding: int = 0
    cut: int = 0  # conversations that are longer than a window, and lost their end


@dataclass(frozen=True)
class Prepared:
    """What prepare_conversations made.

    Attributes:
        splits: "train" and "heldout", with what each has.
        silent: Conversations that were left out, because the assistant says nothing in them.
        too_long: Conversations that were left out, because not even their first exchange fits a window.
    """

    splits: dict[str, Made]
    silent: int
    too_long: int


def prepare_conversations(
    paths: Sequence[str | Path],
    template: ChatTemplate,
    out: str | Path,
    *,
    context_length: int,
    end_of_text: str | None = None,
    heldout: float = 0.05,
) -> Prepared:
    """Writes conversations as OUT/train.npy and heldout.npy, with the masks that say what of them is learned.

    Conversations are packed whole: the file is cut into windows of context_length tokens, none of them crosses a
    border, and what is left of a window is filled with end-of-text tokens. Each begins with the end-of-text token, so
    that `document_masking` keeps them apart.

    Args:
        paths: Files of JSON lines, {"messages": [{"role": …, "content": …}]}.
        template: The chat template of the model that is to learn them.
        out: The folder, which must hold no token files.
        context_length: The windows that the model is trained on. A conversation that is longer is cut after the last
            answer that fits.
        end_of_text: The special token that separates conversations, if it is not one of the usual names.
        heldout: The share of conversations that is held out, by the hash of the line.

    Raises:
        ValueError: A line that is no conversation, with its number; or nothing to learn.
        FileExistsError: There are token files in `out`.
    """
    splits = PackedSplits(
        template.tokenizer, out, context_length=context_length, end_of_text=end_of_text, heldout=heldout
    )
    made, silent, too_long = {"train": Made(), "heldout": Made()}, 0, 0
    for path in paths:
        for line, messages in read(path):
            if not any(message.role == LEARNED for message in messages):
                silent += 1
                continue
            found, was_cut = encode_within(template, messages, splits)
            if found is None:
                too_long += 1
                continue
            ids, learned = found
            split = splits.split_of(line)
            splits.add(split, ids, learned)
            about = made[split]
            about.conversations += 1
            about.tokens += len(ids)
            about.learned += sum(learned)
            about.cut += was_cut
    if not made["train"].conversations:
        raise ValueError(
            f"there is nothing to learn in {', '.join(map(str, paths))}: the assistant says nothing that fits"
        )
    for split, tokens in splits.write().items():
        made[split].padding = tokens - made[split].tokens
        made[split].tokens = tokens
    return Prepared(made, silent, too_long)


def encode_within(
    template: ChatTemplate, messages: Sequence[Message], splits: PackedSplits
) -> tuple[tuple[list[int], list[bool]] | None, bool]:
    """A conversation that fits a window, and whether it was cut for that; None where no answer of it fits."""
    for end in range(len(messages), 0, -1):
        if end < len(messages) and messages[end - 1].role != LEARNED:
            continue  # it is cut after an answer
        ids, learned = splits.separated(*template.encode(messages[:end]))
        if len(ids) <= splits.window and any(learned):
            return (ids, learned), end < len(messages)
    return None, False
