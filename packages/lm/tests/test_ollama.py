"""Ollama's Modelfile: its template, run as Go runs it, writes what the chat template writes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from published_templates import CHATML, GEMMA, LLAMA3, MARKED, MISTRAL, QWEN3

from lm.chat_template import ChatTemplate, Message, default_template
from lm.interop.ollama import go_template, modelfile
from lm.tokenizer import BEGINS

bpe = pytest.importorskip("bpe")
NAMES = ["<bos>", "<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TALK = [Message(role, text) for role, text in (("user", "1 yes?"), ("assistant", "sure"), ("user", "so on"))]


def template_of(source, names=NAMES, **variables):
    tokenizer = bpe.Tokenizer({i: bytes([i]) for i in range(256)}, [], special_tokens=names)
    return ChatTemplate(tokenizer, source, (258,), ("\n### end",), {"bos_token": "<bos>", **variables})


def run(source, messages):
    """The text of a Go template that has one range over messages, with a condition for each role."""
    before, loop, after = re.fullmatch(r"(.*?){{ range .Messages }}(.*){{ end }}(.*)", source, re.S).groups()
    cases = dict(re.findall(r'{{ if eq .Role "(\w+)" }}(.*?){{ end }}', loop, re.S))
    return before + "".join(cases[one.role].replace("{{ .Content }}", one.content) for one in messages) + after


def test_the_template_in_go_writes_what_the_chat_template_writes():
    tokenizer = template_of("").tokenizer
    sources = {"chatml": template_of(CHATML), "gemma": template_of(GEMMA), "default": default_template(tokenizer)}
    sources |= {name: template_of(marked) for name, (marked, _) in MARKED.items()}
    written = []
    for name, template in sources.items():
        source = go_template(template)
        if source is None:
            continue
        written.append(name)
        for talk in (TALK, TALK[:1], [Message("system", "be brief"), *TALK]):
            if talk[0].role == "user" or 'eq .Role "system"' in source:
                expected = template.render(talk)
                begin = next((begin for begin in BEGINS if expected.startswith(begin)), "")  # llama.cpp writes it
                assert run(source, talk) == expected.removeprefix(begin), name
    assert {"chatml", "gemma", "default", "llama3"} <= set(written), written


@pytest.mark.parametrize("source", [LLAMA3, QWEN3, MISTRAL, "{{ messages }}", "{{ raise_exception('no') }}"])
def test_a_template_that_does_more_is_said_to_have_none(source):
    text = modelfile(Path("m.gguf"), template_of(source))
    assert "# No TEMPLATE" in text
    assert 'TEMPLATE """' not in text
    assert "FROM ./m.gguf\n" in text
    assert 'PARAMETER stop "<|im_start|>"\nPARAMETER stop "\\n### end"\n' in text
