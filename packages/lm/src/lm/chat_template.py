"""Chat templates: how messages become tokens, and which of those tokens a model learns.

A template is a Jinja program that writes a conversation as one text, which the tokenizer then encodes: the convention
of transformers and llama.cpp. A model that came with a template keeps it. A tokenizer that has none gets
`default_template`, whose turns are marked by the special tokens that the tokenizer has, of ChatML, Llama 3 or
DeepSeek; and by ordinary text, which a content could imitate, where it has none of them.

Special and added tokens that stand in a message, in a tool's description or in a call are encoded as text, so that
none of these can end its turn or begin another.
"""

from __future__ import annotations

import bisect
import dataclasses
import datetime
import functools
import itertools
import json
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from lm.extras import need
from lm.tokenizer import BEGINS, END_OF_TEXT, end_of_text_of

ROLES = ("system", "user", "assistant")
LEARNED = "assistant"
GENERATION = re.compile(r"{%-?\s*generation\b")
# Between templates and tokenizer, these stand for the names of special and added tokens in messages and tools, which
# are encoded as text, and for {% generation %} and {% endgeneration %}.
NAME, BEGIN, END = "\ue000{}\ue001", "\ue002", "\ue003"
NOT_ASCII = re.compile("[^\\0-\x7f\ue000\ue001]")  # but the marks of names
Tools = Sequence[Mapping[str, Any]] | None  # the functions that the assistant may call, as OpenAI's clients have them
TEMPLATE_ERRORS = (TypeError, KeyError, AttributeError, IndexError, OverflowError)


@dataclass(frozen=True)
class Message:
    """A message of one of ROLES, or of a server's role for tools."""

    role: str
    content: str
    more: Mapping[str, Any] = field(default_factory=dict)  # other fields that a template reads, as the calls of tools


@dataclass(frozen=True)
class ChatTemplate:
    """A chat template with the tokenizer that encodes its text.

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

    tokenizer: Any  # a bpe.Tokenizer
    source: str  # in Jinja
    stop_tokens: tuple[int, ...]  # the ids that end an assistant's answer
    stop: tuple[str, ...] = ()  # strings that end one, for a template whose turns no special token ends
    names: Mapping[str, Any] = field(default_factory=dict)  # the template's variables: bos_token, eos_token and so on
    is_default: bool = False  # True if it is `default_template`'s, not the model's own

    def render(self, messages: Sequence[Message], *, add_generation_prompt: bool = True, tools: Tools = None) -> str:
        """Write a conversation as text. ValueError: it is not a Jinja template, or refuses these messages.

        add_generation_prompt: True to end with the beginning of the assistant's next answer. tools: the functions that
        the assistant may call, as OpenAI's clients describe them.
        """
        return self._written(messages, add_generation_prompt, tools).text

    def prompt(self, messages: Sequence[Message], tools: Tools = None) -> list[int]:
        """Return the ids after which the assistant's next answer comes; tools: see render."""
        written = self._written(messages, True, tools)
        return list(map(int, self.tokenizer.encode_segments(self._segments(written))))

    def encode(self, messages: Sequence[Message], tools: Tools = None) -> tuple[list[int], list[bool]]:
        """Encode a whole conversation to train on: its ids, and for each True if it is learned.

        Learned are the ids between the template's {% generation %} marks; without marks, those after the prompt of each
        answer, with the token that ends it. ValueError: a template without marks changes the contents, or is the
        default one, which writes no tools.
        """
        if self.is_default and (tools or any(message.more for message in messages)):
            raise ValueError("the tokenizer has no chat template, and the default one writes no tools: give it one")
        rendered = self._written(messages, False, tools)
        ids, begins = self._encode(rendered)
        has_marks = GENERATION.search(self.source)
        spans = rendered.learned if has_marks else list(self._answers(messages, rendered.text, tools))
        return ids, [any(begin <= at < end for begin, end in spans) for at in begins]

    def fit(self, messages: Sequence[Message], most: int, tools: Tools = None) -> tuple[list[int], int]:
        """Return a prompt of at most `most` tokens, and the number of oldest messages that were left out for it.

        The system's message stays, and the rest begins with a user's. ValueError: the last message alone is too long.
        """
        first = int(bool(messages) and messages[0].role == "system")
        begins = [n for n in range(first, len(messages)) if n == first or messages[n].role == "user"] or [first]
        ids_from = functools.cache(lambda begin: self.prompt([*messages[:first], *messages[begin:]], tools))
        begin = begins[0]
        if len(ids_from(begin)) > most:  # each message that is left out makes the prompt shorter
            begin = begins[bisect.bisect_left(begins[:-1], True, key=lambda begin: len(ids_from(begin)) <= most)]
        if len(ids := ids_from(begin)) > most:
            raise ValueError(f"the last message alone makes {len(ids)} tokens, and {most} have room: shorten it")
        return ids, begin - first

    def with_names(self, names: Mapping[str, Any]) -> ChatTemplate:
        """Return the template with more variables, of a client: the names of tokens in them are text."""
        return dataclasses.replace(self, names={**self.names, **set_apart(names, self._all_names)})

    @functools.cached_property
    def _token_names(self) -> tuple[str, ...]:
        """The names that the tokenizer has ids for: of special tokens, and of added ones, as DeepSeek's turns are."""
        added = self.tokenizer.data.added_tokens
        return *self.tokenizer.special_tokens, *(name for name in added if not name.isspace())

    @property
    def _all_names(self) -> tuple[str, ...]:
        return *self._token_names, NAME[0], NAME[-1], BEGIN, END

    @functools.cached_property
    def read_in_answers(self) -> frozenset[str]:
        """Names that the model's own template looks for in answers, as <think>: they stay tokens there."""
        import jinja2

        names = alternatives(self._token_names)
        if self.is_default:
            return frozenset()
        try:
            names_read = {name for text in texts_sought(self.source) for name in names.findall(text)}
            talk = [{"role": "user", "content": "a"}]
            variables = {**self.names, "messages": talk, "tools": None, "documents": None}
            turn = str(compiled(self.source).render(variables, add_generation_prompt=False)) if names_read else ""
        except (jinja2.TemplateError, *TEMPLATE_ERRORS):
            return frozenset()
        stops = {name for name, number in self.tokenizer.special_tokens.items() if number in self.stop_tokens}
        return frozenset(names_read - stops - {*names.findall(turn)})

    def _written(self, messages: Sequence[Message], prompt: bool, tools: Tools = None) -> Written:
        """Render a conversation, with the names of tokens in messages and tools set apart from the template's own."""
        import jinja2

        names = self._all_names
        table = [
            {
                "role": message.role,
                "content": set_apart(message.content, names, self.read_in_answers if message.role == LEARNED else ()),
                **set_apart(message.more, names),
            }
            for message in messages
        ]
        try:
            variables = {**self.names, "messages": table, "tools": set_apart(tools, names), "documents": None}
            marked = str(compiled(self.source).render(variables, add_generation_prompt=prompt))
        except jinja2.TemplateError as error:
            raise ValueError(f"the chat template refuses the conversation: {error}") from None
        except TEMPLATE_ERRORS as error:
            raise ValueError(f"the chat template fails on the conversation: {error!r}") from None
        text, at, opened, learned = "", 0, 0, []
        special: list[tuple[int, int]] = []
        for match in re.finditer(f"{NAME.format('([0-9]+)')}|{alternatives(names).pattern}", marked):
            text += marked[at : match.start()]
            at = match.end()
            if match[1]:
                text += names[int(match[1])]
            elif match[0] == BEGIN:
                opened = len(text)
            elif match[0] == END:
                learned.append((opened, len(text)))
            else:
                special.append((len(text), len(text) + len(match[0])))
                text += match[0]
        return Written(text + marked[at:], special, learned)

    def _segments(self, written: Written) -> list[tuple[str, bool]]:
        """The text in segments; the names of tokens that the template wrote are trusted."""
        segments, at = list[tuple[str, bool]](), 0
        for begin, end in written.special:
            segments += [(written.text[at:begin], False), (written.text[begin:end], True)]
            at = end
        return [*segments, (written.text[at:], False)]

    def _encode(self, written: Written) -> tuple[list[int], list[int]]:
        """Return the ids of a text that the template wrote, and the character at which each begins."""
        text, tokenizer = written.text, self.tokenizer
        if len(alternatives(self._token_names).findall(text)) == len(written.special):
            ids, begins = tokenizer.encode_with_offsets(text, allowed_special="all", disallowed_special=())
            return list(map(int, ids)), list(map(int, begins))
        ids = list(map(int, tokenizer.encode_segments(self._segments(written))))
        pieces, data = [tokenizer.decode_single_token_bytes(id) for id in ids], text.encode("utf-8", "replace")
        if b"".join(pieces) == data:
            characters = np.cumsum((np.frombuffer(data, dtype=np.uint8) & 0xC0) != 0x80) - 1  # of each byte
            return ids, characters[np.cumsum([0, *map(len, pieces[:-1])])].tolist()
        # The tokenizer changes texts before it encodes them: their parts tell where their tokens begin.
        ids, begins = [], []
        at = 0
        for part, trusted in self._segments(written):
            names = () if trusted else alternatives(self._token_names).finditer(part)
            cuts = [0, *(name.start() + 1 for name in names), len(part)]  # so that a name is not whole in any
            for begin, end in itertools.pairwise(cuts):
                new, places = tokenizer.encode_with_offsets(
                    part[begin:end], allowed_special="all" if trusted else frozenset(), disallowed_special=()
                )
                ids += map(int, new)
                begins += [at + begin + int(place) for place in places]
            at += len(part)
        return ids, begins

    def _answers(self, messages: Sequence[Message], text: str, tools: Tools) -> Iterator[tuple[int, int]]:
        """Yield the part of a text after the prompt of each answer, up to the stop that ends it. The template writes
        marks in place of the answers; between them, the text must be the same. An answer with calls of tools, or with
        its reasoning, is what the template writes for it between two beginnings of the text."""
        plain = [number for number, one in enumerate(messages) if one.role == LEARNED and not one.more]
        numbered = [
            dataclasses.replace(one, content=f"{BEGIN}{number}{END}") if number in plain else one
            for number, one in enumerate(messages)
        ]
        parts = re.split(f"{BEGIN}([0-9]+){END}", self.render(numbered, add_generation_prompt=False, tools=tools))
        answers = [messages[int(number)].content.strip() for number in parts[1::2]]
        parts[1::2] = [rf"(\s*{re.escape(answer)}\s*)" for answer in answers]
        parts[::2] = map(re.escape, parts[::2])
        match = re.fullmatch("".join(parts), text)
        remedy = "mark the answers in it with {% generation %} and {% endgeneration %}"
        if match is None or len(answers) != len(plain):
            raise ValueError(f"the chat template changes what the messages say: {remedy}")
        names = [name for name, number in self.tokenizer.special_tokens.items() if number in self.stop_tokens]
        stops = re.compile(rf"\s*(?:{alternatives((*names, *self.stop)).pattern})")
        last = 0
        for number in (number for number, one in enumerate(messages) if one.role == LEARNED):
            prompt = self.render(messages[:number], tools=tools)
            if number not in plain:
                whole = self.render(messages[: number + 1], add_generation_prompt=False, tools=tools)
                if not text.startswith(whole) or not whole.startswith(prompt):
                    raise ValueError(f"the chat template writes calls of tools in another way in the end: {remedy}")
                ends = [stop.end() for stop in stops.finditer(whole, len(prompt))] if names or self.stop else []
                last = ends[-1] if ends else len(whole)
                yield len(prompt), last
                continue
            begin, end = match.span(plain.index(number) + 1)
            is_prefix = text.startswith(prompt) and last <= len(prompt) <= begin
            # A space before an answer is one token with its first word.
            begin = len(prompt) if is_prefix else max(last, len(text[:begin].rstrip(" ")))
            stop = stops.match(text, end) if names or self.stop else None
            last = end if stop is None else stop.end()
            yield begin, last


@functools.lru_cache(maxsize=16)
def alternatives(names: tuple[str, ...]) -> re.Pattern[str]:
    """A pattern of any of the names, the longest first; without names, one that matches nothing."""
    return re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))) or "(?!)")


def set_apart(value: Any, names: tuple[str, ...], but: Collection[str] = ()) -> Any:
    """A copy of a value of JSON with marks in place of the names in its strings, at any depth; but: names that stay."""
    if isinstance(value, str):
        return alternatives(names).sub(lambda it: it[0] if it[0] in but else NAME.format(names.index(it[0])), value)
    if isinstance(value, Mapping):
        return {set_apart(key, names): set_apart(item, names) for key, item in value.items()}
    return [set_apart(item, names) for item in value] if isinstance(value, list | tuple) else value


@functools.lru_cache(maxsize=16)
def texts_sought(source: str) -> frozenset[str]:
    """The texts that a template compares something with, or looks for by a method, a filter or a test."""
    from jinja2 import nodes

    operands = list[nodes.Node]()
    for node in environment().parse(source).find_all((nodes.Compare, nodes.Call, nodes.Filter, nodes.Test)):
        if isinstance(node, nodes.Compare):
            operands += [node.expr, *(operand.expr for operand in node.ops)]
        elif not isinstance(node, nodes.Call) or isinstance(node.node, nodes.Getattr):
            operands += node.args
    return frozenset(one.value for one in operands if isinstance(one, nodes.Const) and isinstance(one.value, str))


class Written(NamedTuple):
    """A conversation as text, and the characters of the template's special tokens and of its {% generation %} parts."""

    text: str
    special: list[tuple[int, int]]
    learned: list[tuple[int, int]]


class Turns(NamedTuple):
    """The text before a content, with {role} in it, the mark that ends it, and the text after."""

    head: str
    end: str
    gap: str


CHATML = Turns("<|im_start|>{role}\n", "<|im_end|>", "\n")
LLAMA3 = Turns("<|start_header_id|>{role}<|end_header_id|>\n\n", "<|eot_id|>", "")
DEEPSEEK = Turns("### {role}\n", "<|EOT|>", "\n")
PLAIN = Turns("### {role}\n", "\n### end", "\n")


def default_template(tokenizer: Any, end_of_text: str | None = None) -> ChatTemplate:
    """The template for a tokenizer that came with none; end_of_text: its token, if it is not one of the usual names."""
    special = tokenizer.special_tokens
    end = end_of_text_of(tokenizer, end_of_text)
    begin = next((name for name in BEGINS if name in special and end in END_OF_TEXT), end)
    usual = (CHATML, LLAMA3, DEEPSEEK)
    fitting = (one for one in usual if all(name in special for name in re.findall(r"<[^<>]+>", one.head + one.end)))
    turns = next(fitting, PLAIN)
    head, gap = turns.head.split("{role}"), turns.end + turns.gap
    turn = f'{json.dumps(head[0])} + message["role"] + {json.dumps(head[1])} + message["content"] + {json.dumps(gap)}'
    source = (
        f"{{{{ {json.dumps(begin, ensure_ascii=False)} }}}}"
        f"{{% for message in messages %}}{{{{ {turn} }}}}{{% endfor %}}"
        f"{{% if add_generation_prompt %}}{{{{ {json.dumps(turns.head.format(role=LEARNED))} }}}}{{% endif %}}"
    )
    # A base model that has written its text begins another one: that token ends an answer, too.
    ends = [end] if turns is PLAIN else [end, turns.end]
    ends += [name for name in BEGINS if name in special]
    stops = tuple(dict.fromkeys(int(special[name]) for name in ends))
    return ChatTemplate(tokenizer, source, stops, (turns.end,) if turns is PLAIN else (), is_default=True)


@functools.lru_cache(maxsize=16)
def compiled(source: str) -> Any:
    """A Jinja template, compiled in the sandbox; as environment()."""
    return environment().from_string(source)


@functools.cache
def environment() -> Any:
    """Jinja's sandbox with the filters and functions of transformers' chat templates. MissingExtra: without Jinja2."""
    jinja2 = need("jinja2", "a chat template", "groundup-lm")
    from jinja2 import ext, sandbox

    class Generation(ext.Extension):
        """{% generation %} … {% endgeneration %}, which marks text to learn."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return jinja2.nodes.CallBlock(self.call_method("between_marks"), [], [], body).set_lineno(line)

        def between_marks(self, caller: Any) -> str:
            return f"{BEGIN}{caller()}{END}"

    def refuse(message: str) -> str:
        raise jinja2.TemplateError(message)

    def as_json(
        value: Any,
        ensure_ascii: bool = False,
        indent: int | None = None,
        separators: tuple[str, str] | None = None,
        sort_keys: bool = False,
    ) -> str:
        text = json.dumps(value, ensure_ascii=False, indent=indent, separators=separators, sort_keys=sort_keys)
        return NOT_ASCII.sub(lambda match: json.dumps(match[0])[1:-1], text) if ensure_ascii else text

    sandboxed = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, ext.loopcontrols]
    )
    sandboxed.filters["tojson"] = as_json
    sandboxed.globals["raise_exception"] = refuse
    sandboxed.globals["strftime_now"] = lambda pattern: datetime.datetime.now().strftime(pattern)
    return sandboxed
