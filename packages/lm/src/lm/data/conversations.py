"""Token files of conversations: chat_template says how messages become tokens, and which are learned."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lm.chat_template import LEARNED, Message, Template, messages_of
from lm.data.token_file import write_tokens


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
    """What a split has: conversations, tokens, and how many of those are learned."""

    conversations: int = 0
    tokens: int = 0
    learned: int = 0


def prepare_conversations(
    paths: Sequence[str | Path], template: Template, out: str | Path, *, heldout: float = 0.05
) -> tuple[dict[str, Made], int]:
    """Writes OUT/train.npy and heldout.npy with their masks; what they have, and how many conversations were left out.

    heldout: the share that is held out, by the hash of the line. Left out are those in which the assistant says nothing.
    ValueError: a line that is no conversation, or nothing to learn. FileExistsError: there are token files in OUT already.
    """
    if not 0 <= heldout < 1:
        raise ValueError(f"heldout is a share of the conversations, at least 0 and less than 1, and {heldout} is not")
    out = Path(out)
    if any(out.glob("*.npy")):
        raise FileExistsError(f"{out} has token files in it: choose another folder")
    tokenizer = template.tokenizer
    dtype = "uint16" if tokenizer.n_vocab <= 1 << 16 else "uint32"
    ids: dict[str, list[NDArray[Any]]] = {"train": [], "heldout": []}
    masks: dict[str, list[NDArray[np.uint8]]] = {"train": [], "heldout": []}
    made, empty = {"train": Made(), "heldout": Made()}, 0
    for path in paths:
        for line, messages in read(path):
            if not any(message.role == LEARNED for message in messages):
                empty += 1
                continue
            number = int.from_bytes(hashlib.blake2b(line.strip().encode(), digest_size=8).digest())
            split = "heldout" if number < heldout * 2**64 else "train"
            tokens, learned = template.encode(messages)
            ids[split].append(np.array(tokens, dtype=dtype))
            masks[split].append(np.array(learned, dtype=np.uint8))
            made[split].conversations += 1
            made[split].tokens += len(tokens)
            made[split].learned += sum(learned)
    if not made["train"].conversations:
        raise ValueError(f"there is nothing to learn in {', '.join(map(str, paths))}: the assistant says nothing")
    out.mkdir(parents=True, exist_ok=True)
    for split in reversed(made):  # what is trained on last: without it, the folder is none
        if made[split].conversations:
            write_tokens(
                out / f"{split}.npy",
                np.concatenate(ids[split]),
                dtype=dtype,
                tokenizer=tokenizer.fingerprint,
                end_of_text=template.end_of_text,
                mask=np.concatenate(masks[split]),
            )
    return made, empty
