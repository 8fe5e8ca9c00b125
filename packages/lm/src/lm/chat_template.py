"""Chat templates: how messages become tokens, and which of those tokens a model learns.

A template is a Jinja program that writes a conversation as one text, which the tokenizer then encodes: the convention
of transformers and llama.cpp. A model that came with a template keeps it. A tokenizer that has none gets
`default_template`, whose turns are marked by the special tokens that the tokenizer has: ChatML's, as Qwen uses them,

    <|im_start|>role⏎content<|im_end|>⏎

or Llama 3's; and by ordinary text, which a content could imitate, where it has neither:

    ### role⏎content⏎### end⏎

Special tokens that stand in a message are encoded as text, so that a message cannot end its own turn.
"""

from __future__ import annotations

import dataclasses
import datetime
import functools
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lm.extras import need
from lm.special_tokens import BEGINS, end_of_text_of

ROLES = ("system", "user", "assistant")
LEARNED = "assistant"
MARK = re.compile("\ue000([0-9]+)\ue001")  # stands for a content while the places of contents are looked for


@dataclass(frozen=True)
class Message:
    """What one of ROLES, or of a server's TOOL_ROLES, says.

    Attributes:
        role: Who says it.
        content: What is said.
        more: What else the template is given of it, as the calls of tools.
    """

    role: str
    content: str
    more: Mapping[str, Any] = field(default_factory=dict)


def messages_of(found: Any) -> list[Message]:
    """Reads the messages of a conversation out of JSON.

    Args:
        found: A list of objects with the strings "role" and "content".

    Raises:
        ValueError: What is wrong with it, with the number of the message.
    """
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


@dataclass(frozen=True)
class ChatTemplate:
    """A chat template with the tokenizer that encodes what it writes.

    Attributes:
        tokenizer: A bpe.Tokenizer.
        source: The Jinja template.
        stop_tokens: The ids that end an assistant's answer.
        stop: The strings that end one, for a template whose turns no special token ends.
        names: What the template may ask for by name: bos_token, eos_token and so on.
        is_default: Whether it is `default_template`'s, and not the model's own.

    >>> from bpe import Tokenizer
    >>> tokenizer = Tokenizer({i: bytes([i]) for i in range(256)}, [], special_tokens=["<|endoftext|>"])
    >>> template = default_template(tokenizer)
    >>> print(template.render([Message("user", "hello")]))
    <|endoftext|>### user
    hello
    ### end
    ### assistant
    <BLANKLINE>
    """

    tokenizer: Any
    source: str
    stop_tokens: tuple[int, ...]
    stop: tuple[str, ...] = ()
    names: Mapping[str, str] = None  # type: ignore[assignment]
    is_default: bool = False

    def render(
        self,
        messages: Iterable[Message],
        *,
        add_generation_prompt: bool = True,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> str:
        """Writes a conversation as text.

        Args:
            messages: The conversation.
            add_generation_prompt: Whether the beginning of the assistant's next answer follows.
            tools: The functions that the assistant may call, as OpenAI's clients describe them.

        Raises:
            ValueError: The template is no Jinja template, or refuses these messages.
        """
        import jinja2

        table = [{"role": message.role, "content": message.content, **message.more} for message in messages]
        try:
            given = {**(self.names or {}), "messages": table, "tools": tools, "documents": None}
            return str(compiled(self.source).render(given, add_generation_prompt=add_generation_prompt))
        except jinja2.TemplateError as error:
            raise ValueError(f"the chat template refuses the conversation: {error}") from None
        except (TypeError, KeyError, AttributeError, IndexError, OverflowError) as error:
            raise ValueError(f"the chat template fails on the conversation: {error!r}") from None

    def prompt(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None = None) -> list[int]:
        """The ids after which the assistant's next answer comes; tools: see render."""
        text = self.render(messages, tools=tools)
        return self._encode(text, lambda: self._places(messages, text, prompt=True, tools=tools), messages)[0]

    def encode(self, messages: Sequence[Message]) -> tuple[list[int], list[bool]]:
        """A whole conversation to train on.

        Returns:
            Its ids, and of each whether it is learned: those of the assistant's contents and of what ends them.

        Raises:
            ValueError: The template changes the contents, so that what is learned cannot be told.
        """
        text = self.render(messages, add_generation_prompt=False)
        places = self._places(messages, text, prompt=False)
        if places is None:
            raise ValueError(
                "the chat template changes what the messages say, so that what the assistant said cannot be found in it"
            )
        ids, begins = self._encode(text, lambda: places, messages)
        spans = list(self._learned(messages, text, places))
        return ids, [any(begin <= at < end for begin, end in spans) for at in begins]

    def fit(
        self, messages: Sequence[Message], most: int, tools: Sequence[Mapping[str, Any]] | None = None
    ) -> tuple[list[int], int]:
        """The prompt of a conversation that has to be short: its oldest messages are left out.

        The system's message stays, and what is left begins with a user's.

        Args:
            messages: The conversation.
            most: How many tokens the prompt may have.
            tools: See render.

        Returns:
            The prompt's ids, and how many messages were left out.

        Raises:
            ValueError: The last message alone is too long.
        """
        first = int(bool(messages) and messages[0].role == "system")
        begins = [n for n in range(first, len(messages)) if n == first or messages[n].role == "user"] or [first]
        for begin in begins:
            ids = self.prompt([*messages[:first], *messages[begin:]], tools)
            if len(ids) <= most:
                return ids, begin - first
        raise ValueError(
            f"the last message alone makes a prompt of {len(ids)} tokens, and {most} have room: shorten it"
        )

    def _encode(self, text: str, places: Any, messages: Sequence[Message]) -> tuple[list[int], list[int]]:
        """The ids of a text that the template wrote, and the character at which each begins."""
        known = self.tokenizer.special_tokens
        said = [message.content for message in messages if self.is_default or message.role != LEARNED]
        if not any(name in content for content in said for name in known):
            return self._encode_part(text, "all")
        found = places()
        if found is None:
            raise ValueError("a message holds the name of a special token, and the chat template changes messages")
        kept = [(begin, end) for number, begin, end in found if self.is_default or messages[number].role != LEARNED]
        ids, begins, at = list[int](), list[int](), 0
        names = re.compile("|".join(map(re.escape, sorted(known, key=len, reverse=True))))
        for name in [*names.finditer(text), None]:
            begin, end = (len(text), len(text)) if name is None else name.span()
            if name is not None and any(start < end and begin < stop for start, stop in kept):
                continue  # it stands in a message
            some, places_of = self._encode_part(text[at:begin], frozenset())
            ids += some
            begins += [at + place for place in places_of]
            if name is not None:
                ids.append(known[name[0]])
                begins.append(begin)
            at = end
        return ids, begins

    def _encode_part(self, text: str, allowed: Any) -> tuple[list[int], list[int]]:
        ids, begins = self.tokenizer.encode_with_offsets(text, allowed_special=allowed, disallowed_special=())
        return list(map(int, ids)), list(map(int, begins))

    def _places(
        self,
        messages: Sequence[Message],
        text: str,
        *,
        prompt: bool,
        tools: Sequence[Mapping[str, Any]] | None = None,
    ) -> list[tuple[int, int, int]] | None:
        """Where the contents stand in the text that the template wrote: (number of the message, begin, end), in order.

        The template writes the conversation again with a mark instead of each content. None: what it writes then is not
        the text with the marks in place of the contents, as where it takes the reasoning out of an answer.
        """
        marked = [dataclasses.replace(one, content=f"\ue000{number}\ue001") for number, one in enumerate(messages)]
        parts = MARK.split(self.render(marked, add_generation_prompt=prompt, tools=tools))
        found, at = list[tuple[int, int, int]](), 0
        for index in range(0, len(parts), 2):
            if not text.startswith(parts[index], at):
                return None
            at += len(parts[index])
            if index + 1 == len(parts):
                break
            number, after = int(parts[index + 1]), parts[index + 2]
            content = messages[number].content
            ways = (
                content,
                content.strip(),
                content.lstrip(),
                content.rstrip(),
                content.lstrip("\n"),
                content.strip("\n"),
            )
            said = next((way for way in ways if text.startswith(way + after, at)), None)
            if said is None:
                return None
            found.append((number, at, at + len(said)))
            at += len(said)
        return found if at == len(text) else None

    def _learned(
        self, messages: Sequence[Message], text: str, places: Sequence[tuple[int, int, int]]
    ) -> Iterator[tuple[int, int]]:
        """What of a text is learned: from where a prompt ends to the end of the turn."""
        user = [Message("user", "\ue000")]
        before, after = (self.render(user, add_generation_prompt=prompt) for prompt in (False, True))
        head = after.removeprefix(before) if after.startswith(before) else ""
        ids = set(self.stop_tokens)
        names = [name for name, number in self.tokenizer.special_tokens.items() if number in ids]
        ends = re.compile(r"\s*(?:" + "|".join(map(re.escape, (*names, *self.stop))) + ")")
        last = 0
        for number, begin, end in places:
            if messages[number].role == LEARNED:
                written = self.render(messages[:number])
                if text.startswith(written) and last <= len(written) <= begin:
                    begin = len(written)
                elif head and (at := text.rfind(head, last, begin)) >= 0:
                    begin = at + len(head)
                else:  # the space before an answer, which is one token with its first word
                    begin -= len(text[last:begin]) - len(text[last:begin].rstrip(" "))
                found = ends.match(text, end)
                yield begin, end if found is None else found.end()
            last = end


@dataclass(frozen=True)
class Turns:
    """How turns are written: what stands before a content, with {role} in it, the mark that ends it, and what
    follows."""

    head: str
    end: str
    gap: str


CHATML = Turns("<|im_start|>{role}\n", "<|im_end|>", "\n")
LLAMA3 = Turns("<|start_header_id|>{role}<|end_header_id|>\n\n", "<|eot_id|>", "")
DEEPSEEK = Turns("### {role}\n", "<|EOT|>", "\n")
PLAIN = Turns("### {role}\n", "\n### end", "\n")


def default_template(tokenizer: Any, end_of_text: str | None = None) -> ChatTemplate:
    """The template for a tokenizer that came with none.

    Args:
        tokenizer: A bpe.Tokenizer.
        end_of_text: The special token that ends a text, if it is not one of the usual names.

    Raises:
        ValueError, KeyError: The tokenizer has no end-of-text token (of that name).
    """
    known = tokenizer.special_tokens
    end = end_of_text_of(tokenizer, end_of_text)
    begin = end if end_of_text is not None else next((name for name in BEGINS if name in known), end)
    usual = (CHATML, LLAMA3, DEEPSEEK)
    turns = next(
        (one for one in usual if all(name in known for name in re.findall(r"<[^<>]+>", one.head + one.end))), PLAIN
    )
    head, gap = turns.head.split("{role}"), turns.end + turns.gap
    said = f'{json.dumps(head[0])} + message["role"] + {json.dumps(head[1])} + message["content"] + {json.dumps(gap)}'
    source = (
        f"{{{{ {json.dumps(begin, ensure_ascii=False)} }}}}"
        f"{{% for message in messages %}}{{{{ {said} }}}}{{% endfor %}}"
        f"{{% if add_generation_prompt %}}{{{{ {json.dumps(turns.head.format(role=LEARNED))} }}}}{{% endif %}}"
    )
    stops = dict.fromkeys([int(known[end]), *([int(known[turns.end])] if turns is not PLAIN else [])])
    return ChatTemplate(
        tokenizer, source, tuple(stops), () if turns is not PLAIN else (turns.end,), {}, is_default=True
    )


@functools.lru_cache(maxsize=16)
def compiled(source: str) -> Any:
    """A Jinja template, compiled in the sandbox; as environment()."""
    return environment().from_string(source)


@functools.cache
def environment() -> Any:
    """Jinja's sandbox with the filters and functions that transformers gives chat templates.

    MissingExtra: Jinja2 is not installed.
    """
    jinja2 = need("jinja2", "a chat template", "groundup-lm")
    from jinja2 import ext, sandbox

    class Generation(ext.Extension):
        """{% generation %} … {% endgeneration %}, which marks what is learned and writes what stands in it."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("written"), [], [], body).set_lineno(line)

        def written(self, caller: Any) -> Any:
            return caller()

    def refuse(message: str) -> str:
        raise jinja2.TemplateError(message)

    def as_json(
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def now(pattern: str) -> str:
        return datetime.datetime.now().strftime(pattern)

    sandboxed = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, ext.loopcontrols]
    )
    sandboxed.filters["tojson"] = as_json
    sandboxed.globals |= {"raise_exception": refuse, "strftime_now": now}
    return sandboxed
