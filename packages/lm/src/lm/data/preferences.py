"""Token files of preferences: pairs of two answers to one prompt, of which the first is the better one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm.chat_template import LEARNED, ChatTemplate, Message, messages_of
from lm.data.packing import PackedSplits, json_lines

Pair = tuple[list[Message], list[Message]]  # the conversation with the better answer, and with the other


@dataclass(frozen=True)
class Prepared:
    """What prepare_preferences made.

    Attributes:
        pairs: How many pairs each split has.
        too_long: Pairs that were left out, because both answers together do not fit a window.
    """

    pairs: dict[str, int]
    too_long: int


def prepare_preferences(
    paths: Sequence[str | Path],
    template: ChatTemplate,
    out: str | Path,
    *,
    context_length: int,
    end_of_text: str | None = None,
    heldout: float = 0.05,
) -> Prepared:
    """Writes pairs as OUT/train.npy and heldout.npy, with the masks that say what of them the answers are.

    A pair is two conversations, the preferred one first. Pairs are packed whole into windows of context_length tokens,
    as conversations are (see prepare_conversations), so that `document_masking` keeps all of them apart.

    Args:
        paths: Files of JSON lines, {"prompt": …, "chosen": …, "rejected": …}. Each is a list of messages, or a
            text: the user's as a prompt, the assistant's as an answer. Without a prompt, both answers are whole
            conversations.
        template: The chat template of the model that is to learn them.
        out: The folder, which must hold no token files.
        context_length: The windows that the model is trained on.
        end_of_text: The special token that separates conversations, if it is not one of the usual names.
        heldout: The share of pairs that is held out, by the hash of the line.

    Raises:
        ValueError: A line that is no pair, with its number; or nothing to learn.
        FileExistsError: There are token files in `out`.
    """
    splits = PackedSplits(
        template.tokenizer, out, context_length=context_length, end_of_text=end_of_text, heldout=heldout
    )
    too_long = 0
    for path in paths:
        for line, pair in read(path):
            both = [encode(template, messages, splits) for messages in pair]
            ids, learned = ([one for part in parts for one in part] for parts in zip(*both, strict=True))
            if len(ids) > context_length:
                too_long += 1
            else:
                splits.add(splits.split_of(line), ids, learned)
    pairs = {split: len(splits.examples[split]) for split in ("train", "heldout")}
    if not pairs["train"]:
        raise ValueError(f"there is nothing to learn in {', '.join(map(str, paths))}: no pair fits a window")
    splits.write(pairs=True)
    return Prepared(pairs, too_long)


def read(path: str | Path) -> Iterator[tuple[str, Pair]]:
    """Each line of JSON lines, and its pair. ValueError: a line that is none, by its number."""
    return json_lines(path, pair_of, "pair")


def pair_of(found: Any) -> Pair:
    """The two conversations of a line. ValueError: what it lacks."""
    if not isinstance(found, dict):
        raise ValueError("it is no object")
    for key in ("chosen", "rejected"):
        if key not in found:
            raise ValueError(f'there is no "{key}" in it')
    prompt = as_messages(found.get("prompt", []), "user")
    better, worse = (messages_of([*prompt, *as_messages(found[key], LEARNED)]) for key in ("chosen", "rejected"))
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
        raise ValueError(
            f"the chat template writes the token {splits.separator}, which separates conversations, inside of one"
        )
    return ids, learned
