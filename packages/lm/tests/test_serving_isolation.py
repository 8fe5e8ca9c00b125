"""Clients beside one another: a request that fails, or takes long, leaves the others as they are."""

from __future__ import annotations

import asyncio
import threading

import pytest
from served import needs_server, served

import lm
from lm.chat_template import ChatTemplate
from lm.generation.scheduler import Sequence

httpx = pytest.importorskip("httpx")

pytestmark = needs_server


def form(schema):
    chat = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 20}
    return chat | {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}}


ITSELF = {"$ref": "#"}
EACH_OTHER = {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
ENDLESS = {"type": "object", "properties": {"a": ITSELF}, "required": ["a"]}
ODD = [
    ({"prompt": "What", "max_tokens": 4, "temperature": 1e-40}, 200, None),
    ({"prompt": "What", "max_tokens": 4, "temperature": 5e-324, "top_p": 1e-300, "presence_penalty": 1}, 200, None),
    ({"prompt": "What", "max_tokens": 4, "min_tokens": 2, "stop_token_ids": list(range(259))}, 400, "min_tokens"),
    (form(ITSELF), 400, "response_format"),
    (form({"anyOf": [ITSELF]}), 400, "response_format"),
    (form(EACH_OTHER), 400, "response_format"),
    (form(ENDLESS), 400, None),  # its first token is allowed
    ({"prompt": "broken", "max_tokens": 4}, 500, None),
    ({"prompt": "broken", "max_tokens": 4, "stream": True}, 200, None),
]


def test_a_request_that_fails_leaves_its_neighbours_as_they_are(model, tokenizer, monkeypatch, capfd):
    append = Sequence.append

    def broken(self, logits, token=None):
        if self.prompt == list(b"broken"):
            raise RuntimeError("a defect")
        return append(self, logits, token)

    monkeypatch.setattr(Sequence, "append", broken)
    texts, count = {}, 150
    with served(model, tokenizer) as (address, engine):

        def client(number):
            body = {"prompt": f"text {number}", "max_tokens": count, "seed": number, "ignore_eos": True}
            texts[number] = []
            while not over.is_set():
                answer = httpx.post(f"{address}/v1/completions", json=body, timeout=60)
                assert answer.status_code == 200, answer.text
                texts[number].append(answer.json()["choices"][0]["text"])

        over = threading.Event()
        threads = [threading.Thread(target=client, args=(number,)) for number in range(6)]  # two of them wait for a row
        for thread in threads:
            thread.start()
        try:
            for body, status, param in ODD:
                path = "completions" if "prompt" in body else "chat/completions"
                answer = httpx.post(f"{address}/v1/{path}", json=body, timeout=60)
                assert answer.status_code == status, (body, answer.text)
                if status != 200:
                    assert answer.json()["error"]["param"] == param, answer.text
                elif body.get("stream"):
                    assert "decoding failed" in answer.text
            assert "can follow" in httpx.post(f"{address}/v1/chat/completions", json=form(ENDLESS), timeout=60).text
        finally:
            over.set()
            for thread in threads:
                thread.join()
        assert not engine.running
    log = capfd.readouterr().err
    assert log.count("RuntimeError: a defect") == 2
    assert "NoToken" not in log
    for number, those in texts.items():
        ids = list(f"text {number}".encode())
        assert set(those) == {tokenizer.decode(lm.generate(model, ids, max_new_tokens=count, seed=number))}


def test_neither_bodies_nor_grammars_nor_answers_are_computed_on_the_event_loop(model, tokenizer, monkeypatch):
    """The functions that take long, each called in a request, say whether a loop runs on their thread."""
    from lm.serving import answers, app, grammar, requests

    calls = {}

    def watched(owner, name):
        function = getattr(owner, name)

        def call(*args, **more):
            try:
                asyncio.get_running_loop()
                calls[name] = True
            except RuntimeError:
                calls.setdefault(name, False)
            return function(*args, **more)

        monkeypatch.setattr(owner, name, call)

    for owner, name in (
        (app, "parse"),
        (requests, "prompt_of"),
        (grammar.Grammars, "grammar"),
        (grammar.Grammar, "allowed"),
        (ChatTemplate, "_written"),
        (answers.Answer, "whole"),
    ):
        watched(owner, name)
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    with served(model, tokenizer, waiting=16) as (address, _):
        for path, body in (
            ("completions", {"prompt": "a" * 5000, "max_tokens": 4}),
            ("chat/completions", {**form({"type": "object"}), "n": 8}),
            ("chat/completions", {**form({"type": "object"}), "response_format": None, "tools": [tool]}),
            ("responses", {"input": "hi", "max_output_tokens": 4}),
        ):
            answer = httpx.post(f"{address}/v1/{path}", json=body, timeout=60)
            assert answer.status_code == 200 or "context" in answer.text, answer.text
    assert len(calls) == 6
    assert not any(calls.values()), calls


def test_many_embeddings_leave_threads_to_others(model, tokenizer, monkeypatch):
    from lm.serving import app

    release = threading.Event()
    body, function = app.FUNCTIONS["/v1/embeddings"]
    monkeypatch.setitem(app.FUNCTIONS, "/v1/embeddings", (body, lambda *args: release.wait() and function(*args)))

    async def talk(address):
        async with httpx.AsyncClient(base_url=address, timeout=60, limits=httpx.Limits(max_connections=None)) as client:
            ask = {"input": "a"}
            waiting = [
                asyncio.create_task(client.post("/v1/embeddings", json=ask)) for _ in range(33)
            ]  # the pool has 32
            await asyncio.sleep(0.5)
            try:
                answer = await client.post("/v1/completions", json={"prompt": "a", "max_tokens": 1}, timeout=10)
            finally:
                release.set()
            return [answer, *await asyncio.gather(*waiting)]

    with served(model, tokenizer) as (address, _):
        assert [answer.status_code for answer in asyncio.run(talk(address))] == [200] * 34
