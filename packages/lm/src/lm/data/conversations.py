"""Token files of conversations, of prompts, and of pairs of two answers, from rows in any of the forms of rows.py."""

from __future__ import annotations

import bisect
import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from lm.chat_template import LEARNED, ChatTemplate, Message
from lm.data.problems import Fields, Problem, key_of
from lm.data.rows import messages_in, read_messages, read_rows, tools_of
from lm.data.token_file import write_tokens
from lm.tokenizer import BEGINS, END_OF_TEXT, end_of_text_of

SILENT, TOO_LONG, CUT, ENDLESS = "silent", "too long", "cut", "endless"
SPLITS = ("heldout", "train")  # train is written last: without it, the folder is none
Example = tuple[NDArray[Any], NDArray[np.uint8]]  # ids to be packed, and 1 for each that is learned
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
        context_length, heldout: See PackedSplits.
        end_of_text: The special token before each example; None for the one of separator_of.
        key: The field of a prompt: a text, which the user says, or a list of messages.

    Raises:
        ValueError: A row of another form, with its number; nothing is to be learned; the same prompt has other fields;
            no special token ends the answers to prompts; or the template writes end_of_text inside of an example.
        FileExistsError: `out` has token files.
    """
    separator = separator_of(template, end_of_text)
    splits = PackedSplits(template.tokenizer, out, context_length=context_length, separator=separator, heldout=heldout)
    if kind == "conversation":
        for line, talk in read_rows(paths, lambda row: (messages_in(row), tools_of(row)), kind):
            add_conversation(splits, template, line, *talk)
        splits.write(paths, "the assistant says nothing that fits")
    elif kind == "prompt":
        end = end_of_answers(template)
        for line, (messages, fields) in read_rows(paths, lambda value: prompt_of(value, key), kind):
            prompt = template.prompt(messages)
            ids, learned = splits.separated([*prompt, end], [False] * len(prompt) + [True])
            if len(ids) > context_length:
                splits.left_out[TOO_LONG] += 1
            else:
                splits.add(line, ids, learned, (ids[:-1], [end]), **fields)
        splits.write(paths, "no prompt has room in a window", prompts=True)
    else:
        for line, pair in read_rows(paths, pair_of, kind):
            both = [splits.separated(*template.encode(*talk)) for talk in pair]
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
            own = {id for id, is_learned in zip(ids, learned, strict=True) if is_learned}
            splits.left_out[ENDLESS] += bool(template.stop_tokens) and own.isdisjoint(template.stop_tokens)
            return
    splits.left_out[TOO_LONG] += 1


def end_of_answers(template: ChatTemplate) -> int:
    """Return the id that ends an answer. ValueError: the template marks none as part of an answer."""
    ids, learned = template.encode([Message("user", "a"), Message(LEARNED, "b")])
    own = [number for number, is_learned in zip(ids, learned, strict=True) if is_learned]
    if not (ends := [number for number in own if number in template.stop_tokens]):
        remedy = "train with a tokenizer that has tokens of turns, or put the end inside {% generation %}"
        text = template.tokenizer.decode(own)
        raise ValueError(f"expected a chat template whose answers end with a special token, got {text!r}: {remedy}")
    return ends[-1]


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


def separator_of(template: ChatTemplate, name: str | None = None) -> int:
    """Return the id before each example: of the token `name`, or of the first usual one that is inside of none.

    Many templates write the token that ends a text after each turn, as </s>: it would cut a conversation into documents
    that do not see each other. ValueError: every usual one is inside.
    """
    special, talk = template.tokenizer.special_tokens, [Message("user", "a"), Message(LEARNED, "b")]
    if name is not None:
        return int(special[end_of_text_of(template.tokenizer, name)])
    texts = [template.render(one, add_generation_prompt=False) for one in (talk, [*talk, Message("user", "c")])]
    own = (str(template.names.get(use)) for use in ("bos_token", "pad_token", "unk_token"))
    for usual in (*END_OF_TEXT, *BEGINS, *own):
        if usual in special and not any(usual in text.removeprefix(usual) for text in texts):
            return int(special[usual])
    raise ValueError("the chat template writes every usual special token: name another one with --end-of-text")


@dataclass
class Count:
    """The examples, tokens, learned tokens and padding of a split."""

    examples: int = 0
    tokens: int = 0
    learned: int = 0
    padding: int = 0


class PackedSplits:
    """Examples of two splits, train and heldout, which become token files with their masks.

    Packed whole: the file is cut into windows of context_length tokens, no example crosses a border, and the rest of a
    window is filled with the separator. Each begins with it, so that `document_masking` keeps them apart. heldout: the
    share of examples that is held out, by the hash of the line.
    """

    def __init__(self, tokenizer: Any, out: str | Path, *, context_length: int, separator: int, heldout: float) -> None:
        if not 0 <= heldout < 1:
            raise ValueError(f"heldout is a share, expected at least 0 and less than 1, got {heldout}")
        if context_length < 2:
            raise ValueError(f"expected a context_length of at least 2, got {context_length}")
        self.out = Path(out)
        if any(self.out.glob("*.npy")):
            raise FileExistsError(f"{out} has token files in it: choose another folder")
        self.window, self.separator, self.heldout = context_length, separator, heldout
        self.name, self.dtype = tokenizer.decode([separator]), "uint16" if tokenizer.n_vocab <= 1 << 16 else "uint32"
        about = {"tokenizer": tokenizer.fingerprint, "end_of_text": separator, "window": context_length}
        self.about: dict[str, Any] = {**about, "dtype": self.dtype}
        self.examples: dict[str, list[Example]] = {split: [] for split in SPLITS}
        self.counts = {split: Count() for split in reversed(SPLITS)}
        self.left_out = Counter[str]()
        self.fields: dict[str, dict[str, Fields]] = {split: {} for split in SPLITS}  # of problems, by key

    def separated(self, ids: list[int], learned: list[bool]) -> tuple[list[int], list[bool]]:
        """Ids that begin with the separator, and True for each that is learned. ValueError: it is inside of them."""
        if ids[:1] != [self.separator]:
            ids, learned = [self.separator, *ids], [False, *learned]
        if self.separator in ids[1:]:
            raise ValueError(f"the chat template writes {self.name} inside of examples: name another by --end-of-text")
        return ids, learned

    def add(
        self, line: str, ids: Sequence[int], learned: Sequence[bool], problem: Problem | None = None, **fields: Any
    ) -> None:
        """Add an example to the split of its line's hash. ValueError: a problem has other fields in two lines."""
        number = int.from_bytes(hashlib.blake2b(line.strip().encode(), digest_size=8).digest())
        split = "heldout" if number < self.heldout * 2**64 else "train"
        self.examples[split].append((np.array(ids, dtype=self.dtype), np.array(learned, dtype=np.uint8)))
        self.counts[split].examples += 1
        self.counts[split].learned += sum(learned)
        if problem is not None and self.fields[split].setdefault(key_of(problem), fields) != fields:
            raise ValueError(f"two lines have one prompt and other fields: leave one of them out: {line[:200]}")

    def write(self, paths: Sequence[str | Path], lack: str, **kind: Any) -> None:
        """Write the files. kind: pairs or prompts. ValueError: nothing to train on is in the paths, for `lack`."""
        if not self.examples["train"]:
            raise ValueError(f"there is nothing to learn in {', '.join(map(str, paths))}: {lack}")
        self.out.mkdir(parents=True, exist_ok=True)
        for split, examples in self.examples.items():
            if examples:
                ids, mask = packed(examples, self.window, self.separator)
                count = self.counts[split]
                count.tokens, count.padding = len(ids), len(ids) - sum(len(own) for own, _ in examples)
                write_tokens(self.out / f"{split}.npy", ids, mask=mask, fields=self.fields[split], **self.about, **kind)


def packed(examples: Sequence[Example], window: int, padding: int) -> tuple[NDArray[Any], NDArray[np.uint8]]:
    """The ids and the mask of all windows, each example, the longest first, in the fullest that has room for it."""
    windows, rooms = list[list[int]](), list[tuple[int, int]]()  # rooms: (tokens free, window), in order
    for number in sorted(range(len(examples)), key=lambda number: -len(examples[number][0])):
        size = len(examples[number][0])
        place = bisect.bisect_left(rooms, (size, -1))
        free, which = rooms.pop(place) if place < len(rooms) else (window, len(windows))
        if which == len(windows):
            windows.append([])
        windows[which].append(number)
        if free > size:
            bisect.insort(rooms, (free - size, which))
    # In the order of their first example, so that what stood together in the files stays near.
    windows.sort(key=min)
    ids = np.full((len(windows), window), padding, dtype=examples[0][0].dtype)
    mask = np.zeros((len(windows), window), dtype=np.uint8)
    for row, numbers in enumerate(windows):
        own, learned = (np.concatenate(parts) for parts in zip(*(examples[n] for n in sorted(numbers)), strict=True))
        ids[row, : len(own)], mask[row, : len(own)] = own, learned
    return ids.reshape(-1), mask.reshape(-1)
