"""How messages become tokens, and which of those are learned.

A conversation begins with the end-of-text token, so that packed ones are told apart as documents are. A tokenizer that has the
special tokens <|im_start|> and <|im_end|> writes ChatML (OpenAI's markup, as Qwen uses it), a turn being

    <|im_start|>role⏎content<|im_end|>⏎

and one that does not writes the same in ordinary text, which a content could imitate:

    ### role⏎content⏎### end⏎

Marks and contents are encoded each by itself, so a prompt's tokens are the beginning of what was trained on. Learned are
the assistant's contents and the marks that end them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from lm.data.prepare import end_of_text_of

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
