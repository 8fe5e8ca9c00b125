"""Token files of conversations: chat_template says how messages become tokens, and which are learned."""

from __future__ import annotations

import bisect
import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lm.chat_template import LEARNED, ChatTemplate, Message, messages_of
from lm.data.token_file import write_tokens
from lm.special_tokens import end_of_text_of


def read(path: str | Path) -> Iterator[tuple[str, list[Message]]]:
    """Each line of JSON lines {"messages": […]}, and its messages. ValueError: a line that is none, by its number."""
    with open(path, encoding="utf-8") as file:
        try:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    found = json.loads(line)
                    if not isinstance(found, dict) or "messages" not in found:
                        raise ValueError('it is no object with "messages" in it')
                    yield line, messages_of(found["messages"])
                except ValueError as error:
                    raise ValueError(f"{path}, line {number}, is no conversation: {error}") from None
        except UnicodeDecodeError:
            raise ValueError(f"{path} is not UTF-8: JSON lines are") from None


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
    if not 0 <= heldout < 1:
        raise ValueError(f"heldout is a share of the conversations, at least 0 and less than 1, and {heldout} is not")
    if context_length < 2:
        raise ValueError(f"context_length must be at least 2, and {context_length} is not")
    out = Path(out)
    if any(out.glob("*.npy")):
        raise FileExistsError(f"{out} has token files in it: choose another folder")
    tokenizer = template.tokenizer
    separator = int(tokenizer.special_tokens[end_of_text_of(tokenizer, end_of_text)])
    dtype = "uint16" if tokenizer.n_vocab <= 1 << 16 else "uint32"
    kept: dict[str, list[Encoded]] = {"train": [], "heldout": []}
    made, silent, too_long = {"train": Made(), "heldout": Made()}, 0, 0
    for path in paths:
        for line, messages in read(path):
            if not any(message.role == LEARNED for message in messages):
                silent += 1
                continue
            number = int.from_bytes(hashlib.blake2b(line.strip().encode(), digest_size=8).digest())
            split = "heldout" if number < heldout * 2**64 else "train"
            found, was_cut = encode_within(template, messages, separator, context_length)
            if found is None:
                too_long += 1
                continue
            kept[split].append(Encoded(np.array(found[0], dtype=dtype), np.array(found[1], dtype=np.uint8)))
            about = made[split]
            about.conversations += 1
            about.learned += sum(found[1])
            about.cut += was_cut
    if not made["train"].conversations:
        raise ValueError(
            f"there is nothing to learn in {', '.join(map(str, paths))}: the assistant says nothing that fits"
        )
    out.mkdir(parents=True, exist_ok=True)
    for split in reversed(made):  # what is trained on last: without it, the folder is none
        if made[split].conversations:
            ids, mask = packed(kept[split], context_length, separator)
            made[split].tokens = len(ids)
            made[split].padding = len(ids) - sum(len(one.ids) for one in kept[split])
            write_tokens(
                out / f"{split}.npy",
                ids,
                dtype=dtype,
                tokenizer=tokenizer.fingerprint,
                end_of_text=separator,
                mask=mask,
                window=context_length,
            )
    return Prepared(made, silent, too_long)


class Encoded(NamedTuple):
    """A conversation: its ids, and 1 for each that is learned."""

    ids: NDArray[Any]
    mask: NDArray[np.uint8]


def encode_within(
    template: ChatTemplate, messages: Sequence[Message], separator: int, most: int
) -> tuple[tuple[list[int], list[bool]] | None, bool]:
    """A conversation of at most so many tokens, and whether it was cut for that; None where no answer of it fits."""
    for end in range(len(messages), 0, -1):
        if end < len(messages) and messages[end - 1].role != LEARNED:
            continue  # it is cut after an answer
        ids, learned = template.encode(messages[:end])
        if ids[:1] != [separator]:
            ids, learned = [separator, *ids], [False, *learned]
        if len(ids) <= most and any(learned):
            return (ids, learned), end < len(messages)
    return None, False


def packed(conversations: Sequence[Encoded], window: int, padding: int) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """Conversations put into windows: each, the longest first, into the fullest window that has room for it.

    The ids of all windows, filled up with padding that is not learned, and the mask.
    """
    order = sorted(range(len(conversations)), key=lambda number: -len(conversations[number].ids))
    windows = list[list[int]]()
    rooms = list[tuple[int, int]]()  # (tokens free, window), in order
    for number in order:
        size = len(conversations[number].ids)
        place = bisect.bisect_left(rooms, (size, -1))
        free, which = rooms.pop(place) if place < len(rooms) else (window, len(windows))
        if which == len(windows):
            windows.append([])
        windows[which].append(number)
        if free > size:
            bisect.insort(rooms, (free - size, which))
    # In the order of their first conversation, so that what stood together in the files stays near.
    windows.sort(key=min)
    ids = np.full((len(windows), window), padding, dtype=conversations[0].ids.dtype)
    mask = np.zeros((len(windows), window), dtype=np.uint8)
    for row, numbers in enumerate(windows):
        at = 0
        for number in sorted(numbers):
            one = conversations[number]
            ids[row, at : at + len(one.ids)], mask[row, at : at + len(one.ids)] = one.ids, one.mask
            at += len(one.ids)
    return ids.reshape(-1), mask.reshape(-1)
