"""Calls of tools in what a model writes: Llama 3.1's, Mistral's, or Hermes' and Qwen's, also for other templates."""

from __future__ import annotations

import functools
import json
import re
import secrets
import string
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from lm.chat_template import ChatTemplate, Message, compiled
from lm.serving.grammar import SPACES, parse_json

Format = Literal["hermes", "llama", "mistral"]
HERMES = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|$)", re.DOTALL)
MISTRAL = "[TOOL_CALLS]"
# The description of tools for a template without them, as Hermes' has it.
DESCRIPTION = """You may call functions. Their signatures, as JSON:
<tools>
{tools}
</tools>
To call one, answer with its name and arguments as JSON in tags:
<tool_call>
{{"name": "…", "arguments": {{…}}}}
</tool_call>"""


@functools.lru_cache(maxsize=16)
def format_of(source: str) -> Format | None:
    """The format of tool calls in a chat template; None if it has no tools, or another format."""
    from jinja2 import meta

    environment = compiled(source).environment
    if "tools" not in meta.find_undeclared_variables(environment.parse(source)):
        return None
    if "<tool_call>" in source:
        return None if "<function=" in source else "hermes"
    if MISTRAL in source:
        return None if "[ARGS]" in source else "mistral"
    return "llama" if '"parameters"' in source or "ipython" in source else None


def render_tools_as_text(
    messages: Sequence[Message], tools: Sequence[Mapping[str, Any]], template: ChatTemplate
) -> tuple[list[Message], Sequence[Mapping[str, Any]] | None]:
    """Return the messages and tools to give to a template.

    Where it has no tools, or calls in an unknown format, tools, calls and their results become text in Hermes' format,
    the tools in the system's message (in the user's first, if the template has no system).
    """
    if format_of(template.source) is not None:
        return [*messages], tools or None
    result = list[Message]()
    for message in messages:
        role, content = message.role, message.content
        for call in message.more.get("tool_calls", ()):
            content += f"\n<tool_call>\n{json.dumps(call['function'], ensure_ascii=False)}\n</tool_call>"
        if role == "tool":
            role, content = "user", f"<tool_response>\n{content}\n</tool_response>"
            if result and result[-1].role == "user":
                content = f"{result.pop().content}\n{content}"
        result.append(Message(role, content.lstrip("\n") if message.more else content))
    if tools:
        lines = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
        text, first = DESCRIPTION.format(tools=lines), result[0]
        if first.role == "system":
            result[0] = Message("system", f"{first.content}\n\n{text}")
            return result, None
        try:
            template.render([Message("system", text), Message("user", "a")])
            result.insert(0, Message("system", text))
        except ValueError:  # the template has no system
            result[0] = Message(first.role, f"{text}\n\n{first.content}")
    return result, None


def calls_in(text: str, template: ChatTemplate) -> tuple[str, list[dict[str, Any]]]:
    """The text and the tool calls, as in OpenAI's API, of a model's answer; an incomplete call stays in the text."""
    form, parsed_calls, calls = format_of(template.source) or "hermes", list[Any](), list[dict[str, Any]]()
    words = text
    if form == "hermes":
        parsed_calls = [parse_json(match) for match in HERMES.findall(text)]
        words = HERMES.sub("", text).strip()
    elif form == "mistral":
        words, mark, after = text.partition(MISTRAL)
        several = parse_json(after.strip()) if mark else []
        parsed_calls, words = (several if isinstance(several, list) else [several]), words.strip() if mark else words
    else:
        whole = parse_json(text.strip().removeprefix("<|python_tag|>"))
        if whole is not None:
            parsed_calls, words = [whole], ""
    for call in parsed_calls:
        arguments = None if not isinstance(call, dict) else call.get("arguments", call.get("parameters"))
        if arguments is None or not isinstance(call.get("name"), str):
            return text, []
        arguments_text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        function = {"name": call["name"], "arguments": arguments_text}
        calls.append({"id": new_id(form), "type": "function", "function": function})
    return words, calls


def new_id(form: Format | None) -> str:
    if form == "mistral":  # whose templates refuse any other
        return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(9))
    return f"call_{secrets.token_hex(12)}"


def grammar_of(functions: Sequence[Mapping[str, Any]], template: ChatTemplate, *, several: bool) -> str:
    """The grammar, in llguidance's Lark, of an answer that only calls a function; several: or more, in some formats."""
    form, special = format_of(template.source) or "hermes", template.tokenizer.special_tokens

    def literal(*parts: str) -> str:
        """Special tokens by their ids, and other text quoted."""
        return " ".join(f"<[{special[part]}]>" if part in special else json.dumps(part) for part in parts)

    if form == "hermes":
        begin, between, end = literal("<tool_call>", "\n"), literal("\n"), literal("\n", "</tool_call>")
        start = f"{begin} call {end}" + (f" ({between} {begin} call {end})*" if several else "")
    elif form == "mistral":
        more = f" ({literal(', ')} call)*" if several else ""
        start = f"{literal(MISTRAL, '[')} call{more} {literal(']')}"
    else:
        start = "call"
    arguments = "parameters" if form == "llama" else "arguments"
    heads = [f'{{"name": {json.dumps(function["name"])}, "{arguments}": ' for function in functions]
    calls = [
        f"call_{number}: {json.dumps(heads[number])} arguments_{number} {literal('}')}\n"
        f"arguments_{number}: %json {json.dumps({**(function.get('parameters') or {'type': 'object'}), **SPACES})}"
        for number, function in enumerate(functions)
    ]
    names = " | ".join(f"call_{number}" for number in range(len(functions)))
    return "\n".join([f"start: {start}", f"call: {names}", *calls]) + "\n"
