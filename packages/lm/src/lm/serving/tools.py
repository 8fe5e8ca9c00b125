"""Calls of tools in what a model writes: as Hermes and Qwen do, or as Llama 3.1 does."""

from __future__ import annotations

import functools
import json
import re
import secrets
from typing import Any, Literal

from lm.chat_template import ChatTemplate, compiled

Format = Literal["hermes", "llama"]
HERMES = re.compile(r"<tool_call>\s*(.*?)\s*(?:</tool_call>|$)", re.DOTALL)


@functools.lru_cache(maxsize=16)
def format_of(source: str) -> Format | None:
    """How a chat template has tools called; None: it has no tools."""
    from jinja2 import meta

    environment = compiled(source).environment
    if "tools" not in meta.find_undeclared_variables(environment.parse(source)):
        return None
    if "<tool_call>" in source:
        return "hermes"
    return "llama" if '"parameters"' in source or "ipython" in source else None


def calls_in(text: str, template: ChatTemplate) -> tuple[str, list[dict[str, Any]]]:
    """What a model wrote: its words, and the calls of tools in it as OpenAI's clients know them.

    What looks like a call and is none, as where it was cut off, stays in the words.
    """
    found, calls = list[Any](), list[dict[str, Any]]()
    words = text
    if format_of(template.source) == "hermes":
        found = [parsed(match) for match in HERMES.findall(text)]
        words = HERMES.sub("", text).strip()
    else:
        whole = parsed(text.strip().removeprefix("<|python_tag|>"))
        if whole is not None:
            found, words = [whole], ""
    for one in found:
        arguments = None if not isinstance(one, dict) else one.get("arguments", one.get("parameters"))
        if arguments is None or not isinstance(one.get("name"), str):
            return text, []
        given = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        made = {"name": one["name"], "arguments": given}
        calls.append({"id": f"call_{secrets.token_hex(12)}", "type": "function", "function": made})
    return words, calls


def parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None
