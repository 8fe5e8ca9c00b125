"""Ollama's Modelfile beside a .gguf: the file, the chat template in Go's language, and what ends an answer."""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path

from lm.chat_template import ChatTemplate, Message
from lm.tokenizer import BEGINS

HEADING = "# written by `lm export`: ollama create NAME -f {}\n"


def modelfile(path: Path, template: ChatTemplate) -> str:
    """The Modelfile of a .gguf whose model has this chat template."""
    source = go_template(template)
    lines = [HEADING.format(path.with_suffix(".Modelfile").name), f"FROM ./{path.name}"]
    if source is None:
        lines.append("# No TEMPLATE: the model's chat template does more than to put text around each message.")
    else:
        lines.append(f'TEMPLATE """{source}"""')
    names = {number: name for name, number in template.tokenizer.special_tokens.items()}
    stops = [names[number] for number in template.stop_tokens if number in names]
    lines += [f"PARAMETER stop {json.dumps(stop, ensure_ascii=False)}" for stop in (*stops, *template.stop)]
    return "\n".join(lines) + "\n"


def go_template(template: ChatTemplate) -> str | None:
    """The template in Go's language, as Ollama has it; None if it does more than to put text around each message."""
    talk = ("user", "assistant", "user", "assistant", "user")
    try:
        alone, answered, again = (pieces(template, *talk[:count]) for count in (1, 2, 3))
        prompt = pieces(template, "user", add_generation_prompt=True)[-1].removeprefix(alone[-1])
    except ValueError:
        return None
    heads = {"assistant": answered[1].removeprefix(alone[-1]), "user": again[2].removeprefix(answered[-1])}
    tails = {"assistant": answered[-1], "user": alone[-1]}
    begin = alone[0].removesuffix(heads["user"])
    try:
        instructed = pieces(template, "system", "user")
        heads["system"] = instructed[0].removeprefix(begin)
        tails["system"] = instructed[1].removesuffix(heads["user"])
    except ValueError:
        pass  # Gemma's template refuses a system's message
    # The parts are right if they make up conversations that they were not taken from.
    for roles in (talk, ("system", *talk[:3])) if "system" in heads else (talk,):
        between = [tails[before] + heads[after] for before, after in itertools.pairwise(roles)]
        joined = [begin + heads[roles[0]], *between, tails[roles[-1]] + prompt]
        try:
            if joined != pieces(template, *roles, add_generation_prompt=True):
                return None
        except ValueError:
            return None
    content = "{{ .Content }}"
    cases = [f'{{{{ if eq .Role "{role}" }}}}{heads[role]}{content}{tails[role]}{{{{ end }}}}' for role in heads]
    begin = "" if begin in BEGINS else begin  # llama.cpp puts it there
    if re.search('{{|}}|"""', "".join((begin, prompt, *heads.values(), *tails.values()))):
        return None
    return f"{begin}{{{{ range .Messages }}}}{''.join(cases)}{{{{ end }}}}{prompt}"


def pieces(template: ChatTemplate, *roles: str, add_generation_prompt: bool = False) -> list[str]:
    """Texts that a template writes before, between and after contents. ValueError: it does not write each once."""
    messages = [Message(role, f"@{number}@") for number, role in enumerate(roles)]
    parts = re.split(r"@(\d+)@", template.render(messages, add_generation_prompt=add_generation_prompt))
    if parts[1::2] != [str(number) for number in range(len(roles))]:
        raise ValueError("the template writes other contents")
    return parts[::2]
