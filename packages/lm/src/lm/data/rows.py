"""Rows of conversations as people keep them: JSON lines, JSON arrays and Parquet, compressed or not, also in folders;
and the forms of a conversation that are in use.

    {"messages": [{"role": …, "content": …}], "tools": […]}                   OpenAI's, transformers', trl's
    {"conversations": [{"from": "human", "value": …}], "system": …}           ShareGPT's
    {"prompt": …, "completion": …}                                            trl's; texts or lists of messages
    {"instruction": …, "input": …, "output": …}                               Alpaca's
    {"instruction": …, "context": …, "response": …}                           Dolly's
    {"question": …, "answer": …}                                              GSM8K's
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from lm.chat_template import LEARNED, Message
from lm.extras import MissingExtra, need

Row = TypeVar("Row")
ENDINGS = (".jsonl", ".ndjson", ".json", ".parquet")
COMPRESSED = (".gz", ".xz", ".zst")
ROLES = {
    **dict.fromkeys(("system",), "system"),
    **dict.fromkeys(("user", "human"), "user"),
    **dict.fromkeys(("assistant", "gpt", "chatgpt", "model", "bot"), LEARNED),
    **dict.fromkeys(("tool", "observation", "function_response"), "tool"),
    **dict.fromkeys(("function_call", "tool_call"), "call"),
}
# The fields of a request, of what it is about, and of the answer.
QUESTIONS = (
    ("instruction", "input", "output"),
    ("instruction", "context", "response"),
    ("question", "context", "answer"),
)
MORE = ("tool_calls", "name", "tool_call_id", "reasoning_content")  # of a message, which templates read


def ending_of(path: Path) -> str:
    """The ending of a file's name, without that of its compression, in lower case."""
    return Path(path.stem).suffix.lower() if path.suffix.lower() in COMPRESSED else path.suffix.lower()


def files_in(paths: Sequence[str | Path], endings: Sequence[str] = ENDINGS) -> list[Path]:
    """Return the files, and those within the folders that have one of the endings. FileNotFoundError: there is none."""
    files = list[Path]()
    for path in map(Path, paths):
        inside = sorted(one for one in path.rglob("*") if one.is_file() and ending_of(one) in endings)
        if path.is_dir() and not inside:
            raise FileNotFoundError(f"there is no file that ends in {', '.join(endings)} in {path}")
        if not path.exists():
            raise FileNotFoundError(f"there is no file {path}")
        files += inside if path.is_dir() else [path]
    return files


def read_rows(paths: Sequence[str | Path], parse: Callable[[Any], Row], kind: str) -> Iterator[tuple[str, Row]]:
    """Yield each row as JSON, and what parse() makes of it. ValueError: a row is no `kind`, by its number."""
    for path in files_in(paths):
        word = "row" if ending_of(path) == ".parquet" else "line"
        try:
            for number, line in parquet_rows(path) if word == "row" else json_rows(path):
                try:
                    yield line, parse(json.loads(line))
                except ValueError as error:
                    raise ValueError(f"{path}, {word} {number}, is no {kind}: {error}") from None
        except UnicodeDecodeError:
            raise ValueError(f"{path} is not UTF-8: JSON lines are") from None
        except ImportError as error:
            raise MissingExtra(str(error)) from None


def json_rows(path: Path) -> Iterator[tuple[int, str]]:
    """The objects of JSON lines, or of one array, with their numbers from 1."""
    compressed = need("bpe.corpus.compressed", "text", "groundup-lm[text]")
    with compressed.reader(path) as file:
        for number, line in enumerate(file, 1):
            if number == 1 and line.lstrip().startswith(b"["):
                rows = json.loads(b"".join(chain([line], file)))
                yield from enumerate((json.dumps(row, ensure_ascii=False) for row in rows), 1)
                return
            if line.strip():
                yield number, line.decode()


def parquet_rows(path: Path) -> Iterator[tuple[int, str]]:
    """The rows of a Parquet file as JSON, with their numbers from 1; without the fields that are null."""
    sources = need("bpe.corpus.sources", "text", "groundup-lm[text]")
    with sources.open_parquet(str(path), []) as parquet:
        number = 0
        for batch in parquet.iter_batches(batch_size=256):
            for row in batch.to_pylist():
                number += 1
                yield number, json.dumps(without_nulls(row), ensure_ascii=False, default=str)


def without_nulls(value: Any) -> Any:
    """A copy of a value without the fields that are None: Arrow gives every struct the fields of all."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


def messages_in(row: Any) -> list[Message]:
    """Return the messages of a row in any of the forms. ValueError: it is in none, or a message is wrong."""
    if not isinstance(row, dict):
        raise ValueError("it is not a JSON object")
    if "messages" in row or "conversations" in row:
        messages = read_messages(row.get("messages", row.get("conversations")))
        before = [Message("system", row["system"])] if row.get("system") and messages[0].role != "system" else []
        return before + messages
    if "prompt" in row and "completion" in row:
        return [*read_messages(row["prompt"], "user"), *read_messages(row["completion"], LEARNED)]
    for request, more, answer in QUESTIONS:
        if request in row and answer in row:
            parts = [row[request], *([row[more]] if row.get(more) else [])]
            return [*read_messages("\n\n".join(map(str, parts)), "user"), *read_messages(row[answer], LEARNED)]
    forms = '"messages", "conversations", "prompt" with "completion", or "instruction" with "output"'
    raise ValueError(f"expected an object with {forms} in it, got one with {', '.join(row) or 'nothing'}")


def read_messages(value: Any, role: str | None = None) -> list[Message]:
    """Return a text as one message of this role, or the messages of a list. ValueError: an error, with its number."""
    if isinstance(value, str) and role is not None:
        return [Message(role, value)]
    if not isinstance(value, list) or not value:
        raise ValueError("messages must be a list of at least one message")
    messages = list[Message]()
    for number, one in enumerate(value):
        try:
            messages.append(read_message(one))
        except ValueError as error:
            raise ValueError(f"messages[{number}] {error}") from None
        if messages[-1].role == "system" and number:
            raise ValueError(f"messages[{number}] has the role 'system', which only the first message may have")
    return messages


def read_message(one: Any) -> Message:
    """Return a message of OpenAI's or ShareGPT's form. ValueError: its error."""
    if not isinstance(one, dict):
        raise ValueError("must be an object with a role and a content")
    name, content = one.get("role", one.get("from")), one.get("content", one.get("value"))
    calls = one.get("tool_calls")
    if isinstance(content, list):  # parts
        objects = [part if isinstance(part, dict) else {} for part in content]
        texts = [part.get("text") if part.get("type") == "text" else None for part in objects]
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("has a content with parts that are no text, which no model here reads")
        content = "".join(map(str, texts))
    if not isinstance(name, str) or not isinstance("" if content is None and calls else content, str):
        raise ValueError("must have a role and a content, both strings")
    if name not in ROLES:
        raise ValueError(f"has the role {name!r}: use one of {', '.join(ROLES)}")
    if one.get("weight", 1) != 1:
        raise ValueError(f"has the weight {one['weight']!r}: end the conversation before it")
    for key, value in one.items():
        if key not in ("role", "from", "content", "value", "weight", *MORE) and value is not None:
            raise ValueError(f'has "{key}", which is not read: leave it out')
    more = {key: one[key] for key in MORE if one.get(key) is not None}
    if ROLES[name] == "call":
        calls, content = [{"type": "function", "function": as_object(content)}], ""
    if calls:
        functions = [as_object(call.get("function")) if isinstance(call, dict) else {} for call in calls]
        if not all({"name", "arguments"} <= one.keys() for one in functions):
            raise ValueError('has a call without a function\'s "name" and "arguments"')
        functions = [{**function, "arguments": as_object(function["arguments"])} for function in functions]
        more["tool_calls"] = [
            {"type": "function", **call, "function": function} for call, function in zip(calls, functions, strict=True)
        ]
        return Message(LEARNED, content or "", more)
    return Message(ROLES[name], content or "", more)


def as_object(value: Any) -> dict[str, Any]:
    """Return an object, or the one in a text of JSON. ValueError: it is none."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except json.JSONDecodeError:
            raise ValueError(f"has arguments that are not JSON: {value[:60]!r}") from None
    if not isinstance(value, dict):
        raise ValueError(f"has a call that is not an object: {value!r}")
    return value


def tools_of(row: Any) -> list[Any] | None:
    """Return the tools of a row, which may be a text of JSON; None if it has none. ValueError: it asks for others."""
    for key in ("functions", "parallel_tool_calls"):
        if row.get(key):
            raise ValueError(f'"{key}" is not read: leave it out, or write "tools"')
    tools = row.get("tools")
    tools = json.loads(tools) if isinstance(tools, str) and tools else tools
    if tools and not isinstance(tools, list):
        raise ValueError('"tools" is no list')
    return tools or None
