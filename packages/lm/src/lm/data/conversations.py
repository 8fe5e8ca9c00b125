"""Conversations: how messages become tokens, which of those are learned, and token files of them.

A conversation begins with the end-of-text token, so that packed ones are told apart as documents are. A tokenizer that has the
special tokens <|im_start|> and <|im_end|> writes ChatML (OpenAI's markup, as Qwen uses it), a turn being

    <|im_start|>role⏎content<|im_end|>⏎

and one that does not writes the same in ordinary text, which a content could imitate:

    ### role⏎content⏎### end⏎

Marks and contents are encoded each by itself, so a prompt's tokens are the beginning of what was trained on. Learned are
the assistant's contents and the marks that end them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lm.data.prepare import end_of_text_of
from lm.data.token_file import write_tokens

ROLES = ("system", "user", "assistant")
BEGIN, END = "<|im_start|>", "<|im_end|>"
LEARNED = "assistant"


@dataclass(frozen=True)
class Message:
    """What one of ROLES says."""

    role: str
    content: str


def messages_of(found: Any) -> list[Message]:
    """Messages out of JSON: a list of {"role", "content"}. ValueError: what is wrong with it, by its number."""
    if not isinstance(found, list) or not found:
        raise ValueError("messages must be a list of at least one message")
    messages = []
    for number, one in enumerate(found):
        if not isinstance(one, dict) or not isinstance(one.get("role"), str) or not isinstance(one.get("content"), str):
            raise ValueError(f"messages[{number}] must have a role and a content, both strings")
        if one["role"] not in ROLES:
            raise ValueError(f"messages[{number}] has the role {one['role']!r}: use one of {', '.join(ROLES)}")
        if one["role"] == "system" and number:
            raise ValueError(f"messages[{number}] has the role 'system', which only the first message may have")
        messages.append(Message(one["role"], one["content"]))
    return messages


class Template:
    """How a tokenizer writes conversations. ValueError, KeyError: it has no end-of-text token (of that name).

    stop_tokens, stop: the ids and strings that end an assistant's answer.
    """

    def __init__(self, tokenizer: Any, end_of_text: str | None = None) -> None:
        self.tokenizer, known = tokenizer, tokenizer.special_tokens
        self.begins_with = end_of_text_of(tokenizer, end_of_text)
        self.end_of_text = int(known[self.begins_with])
        self.marked = BEGIN in known and END in known
        self.stop_tokens = [self.end_of_text]
        self.stop: list[str] = []
        if self.marked:
            self.stop_tokens.append(int(known[END]))
        else:
            self.stop.append("\n### end")
        self.end = [int(known[END])] if self.marked else self.plain("\n### end")
        self.gap = self.plain("\n")
        self.begin = [int(known[BEGIN])] if self.marked else []

    def plain(self, text: str) -> list[int]:
        """The ids of a text, in which nothing is a special token."""
        return [int(token) for token in self.tokenizer.encode(text, allowed_special=set(), disallowed_special=())]

    def head(self, role: str) -> list[int]:
        return self.begin + self.plain(f"{role}\n" if self.marked else f"### {role}\n")

    def encode(self, messages: Iterable[Message]) -> tuple[list[int], list[bool]]:
        """The ids of a conversation, and which of them are learned."""
        ids, learned = [self.end_of_text], [False]
        for message in messages:
            head, said = self.head(message.role), self.plain(message.content) + self.end
            ids += head + said + self.gap
            learned += [False] * len(head) + [message.role == LEARNED] * len(said) + [False] * len(self.gap)
        return ids, learned

    def jinja(self) -> str | None:
        """The same as the Jinja template of transformers and llama.cpp, which write a conversation as one text and encode that.

        The ids are the same where no content begins with white space (or, where no special tokens mark turns, ends so) or
        spells a special token. None: this tokenizer may join marks and contents, so that other ids came of the whole.
        """
        turn = (BEGIN, END + "\n") if self.marked else ("### ", "\n### end\n")
        marks = {self.begins_with, BEGIN, END} & set(self.tokenizer.special_tokens)
        for said in ("Hello", "yes!", "\u00e9"):
            text = f"{turn[0]}user\n{said}{turn[1]}{turn[0]}{LEARNED}\n"
            whole = self.tokenizer.encode(self.begins_with + text, allowed_special=marks, disallowed_special=())
            if list(whole) != self.prompt([Message("user", said)]):
                return None
        for token in self.tokenizer.vocab.values():  # a line's end in one token with what is beside it
            if token.strip() and (token.startswith(b"\n") or (token.endswith(b"\n") and not self.marked)):
                return None
        begin, end, head = (json.dumps(part) for part in (*turn, f"{turn[0]}{LEARNED}\n"))
        return (
            f"{{{{ {json.dumps(self.begins_with)} }}}}{{% for message in messages %}}"
            f'{{{{ {begin} + message["role"] + "\\n" + message["content"] + {end} }}}}{{% endfor %}}'
            f"{{% if add_generation_prompt %}}{{{{ {head} }}}}{{% endif %}}"
        )

    def prompt(self, messages: Iterable[Message]) -> list[int]:
        """The ids after which the assistant's next answer comes."""
        return self.encode(messages)[0] + self.head(LEARNED)

    def fit(self, messages: Sequence[Message], most: int) -> tuple[list[int], int]:
        """The prompt of a conversation in at most so many tokens, and how many of its oldest messages that leaves out.

        The system's message stays, and what is left begins with a user's. ValueError: the last message alone is too long.
        """
        first = int(bool(messages) and messages[0].role == "system")
        begins = [n for n in range(first, len(messages)) if n == first or messages[n].role == "user"] or [first]
        for begin in begins:
            ids = self.prompt([*messages[:first], *messages[begin:]])
            if len(ids) <= most:
                return ids, begin - first
        raise ValueError(
            f"the last message alone makes a prompt of {len(ids)} tokens, and {most} have room: shorten it"
        )


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
