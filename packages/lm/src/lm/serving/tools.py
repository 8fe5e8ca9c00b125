"""Calls of tools in what a model writes: as Hermes and Qwen do, as Llama 3.1 does, or as Mistral does."""

from __future__ import annotations

import functools
import json
import re
import secrets
import string
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from lm.chat_template import ChatTemplate, compiled

Format = Literal["hermes", "llama", "mistral"]
HERMES = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|$)", re.DOTALL)
MISTRAL = "[TOOL_CALLS]"
# What llguidance reads beside a schema: JSON is written as templates write it.
SPACES = {"x-guidance": {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}}
# What begins a call's name, and its arguments, in each format.
PARTS: dict[Format, tuple[str, str]] = {
    "hermes": ('{"name": ', ', "arguments": '),
    "llama": ('{"name": ', ', "parameters": '),
    "mistral": ('{"name": ', ', "arguments": '),
}


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


def calls_in(text: str, template: ChatTemplate) -> tuple[str, list[dict[str, Any]]]:
    """The text and the tool calls, as in OpenAI's API, of a model's answer.

    An incomplete call stays in the text.
    """
    form, parsed_calls, calls = format_of(template.source), list[Any](), list[dict[str, Any]]()
    words = text
    if form == "hermes":
        parsed_calls = [parsed(match) for match in HERMES.findall(text)]
        words = HERMES.sub("", text).strip()
    elif form == "mistral":
        words, mark, after = text.partition(MISTRAL)
        several = parsed(after.strip()) if mark else []
        parsed_calls, words = (several if isinstance(several, list) else [several]), words.strip() if mark else words
    else:
        whole = parsed(text.strip().removeprefix("<|python_tag|>"))
        if whole is not None:
            parsed_calls, words = [whole], ""
    for one in parsed_calls:
        arguments = None if not isinstance(one, dict) else one.get("arguments", one.get("parameters"))
        if arguments is None or not isinstance(one.get("name"), str):
            return text, []
        arguments_text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        function = {"name": one["name"], "arguments": arguments_text}
        calls.append({"id": new_id(form), "type": "function", "function": function})
    return words, calls


def new_id(form: Format | None) -> str:
    if form == "mistral":  # whose templates refuse any other
        return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(9))
    return f"call_{secrets.token_hex(12)}"


def grammar_of(functions: Sequence[Mapping[str, Any]], template: ChatTemplate, *, several: bool) -> str:
    """The grammar, in llguidance's dialect of Lark, of an answer that calls one of these functions and says nothing
    else.

    Args:
        functions: Names and parameters, as OpenAI's clients describe them.
        template: The model's, which says how a call is written.
        several: Whether more than one call may be made, where the format has it.
    """
    form, special = format_of(template.source), template.tokenizer.special_tokens
    assert form is not None

    def written(*parts: str) -> str:
        """Special tokens by their ids, and other text as it is."""
        return " ".join(f"<[{special[part]}]>" if part in special else json.dumps(part) for part in parts)

    if form == "hermes":
        begin, between, end = written("<tool_call>", "\n"), written("\n"), written("\n", "</tool_call>")
        start = f"{begin} call {end}" + (f" ({between} {begin} call {end})*" if several else "")
    elif form == "mistral":
        more = f" ({written(', ')} call)*" if several else ""
        start = f"{written(MISTRAL, '[')} call{more} {written(']')}"
    else:
        start = "call"
    head, middle = PARTS[form]
    calls = [
        f"call_{number}: {json.dumps(head + json.dumps(one['name']) + middle)} arguments_{number} {written('}')}\n"
        f"arguments_{number}: %json {json.dumps({**(one.get('parameters') or {'type': 'object'}), **SPACES})}"
        for number, one in enumerate(functions)
    ]
    names = " | ".join(f"call_{number}" for number in range(len(functions)))
    return "\n".join([f"start: {start}", f"call: {names}", *calls]) + "\n"


def parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
