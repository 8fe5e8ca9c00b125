"""The server, asked by OpenAI's own client and by hand, over real sockets."""

from __future__ import annotations

import base64
import contextlib
import gc
import hashlib
import http.client
import json
import queue
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

import pytest
from models import random_model
from served import needs_server, served

import lm
from lm import to_huggingface
from lm.chat_template import Message, default_template
from lm.commands.cli import main
from lm.config import to_table
from lm.training import checkpoint

httpx = pytest.importorskip("httpx")
openai = pytest.importorskip("openai")

pytestmark = needs_server
CONTEXT = 256


@pytest.fixture(scope="module")
def model():
    return random_model(259, CONTEXT, 1, 32, 2, 32)


@pytest.fixture(scope="module")
def server(model, tokenizer):
    with served(model, tokenizer) as (address, _):
        yield address


def alone(model, tokenizer, ids, count, **settings):
    """The text that generate() alone writes."""
    ids_written = lm.generate(model, ids, max_new_tokens=count, **settings)
    return tokenizer.decode(ids_written)


def test_models_are_listed(client):
    assert [one.id for one in client.models.list()] == ["small"]
    assert client.models.retrieve("small").owned_by == "groundup"
    with pytest.raises(openai.NotFoundError, match="there is no model 'large'"):
        client.models.retrieve("large")


@pytest.mark.parametrize("stream", [False, True])
def test_completions_are_what_generate_alone_writes(client, model, tokenizer, stream):
    request = {"model": "small", "max_tokens": 30, "temperature": 0.9, "top_p": 0.95, "seed": 5, "n": 2}
    prompts = ["once upon", "é"]
    if stream:
        texts = [""] * 4
        usage = None
        for part in client.completions.create(
            prompt=prompts, stream=True, stream_options={"include_usage": True}, **request
        ):
            usage = part.usage or usage
            for choice in part.choices:
                texts[choice.index] += choice.text
    else:
        answer = client.completions.create(prompt=prompts, **request)
        texts, usage = [choice.text for choice in answer.choices], answer.usage
        assert [choice.index for choice in answer.choices] == [0, 1, 2, 3]
    stop = [256, 258]
    expected = [
        alone(model, tokenizer, list(p.encode()), 30, temperature=0.9, top_p=0.95, seed=5 + j, stop_tokens=stop)
        for p in prompts
        for j in range(2)
    ]
    assert texts == expected
    assert usage.prompt_tokens == 9 + 2
    assert usage.completion_tokens <= 4 * 30
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens


def test_chat_streams_the_same_as_whole(client, model, tokenizer):
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hello"}]
    request = {"model": "small", "messages": messages, "max_tokens": 40, "temperature": 0.7, "seed": 3}
    whole = client.chat.completions.create(**request).choices[0]
    parts = list(client.chat.completions.create(stream=True, **request))
    assert "".join(part.choices[0].delta.content or "" for part in parts) == whole.message.content
    assert parts[0].choices[0].delta.role == "assistant"
    assert parts[-1].choices[0].finish_reason == whole.finish_reason
    template = default_template(tokenizer)
    prompt = template.prompt([Message(one["role"], one["content"]) for one in messages])
    settings = {"temperature": 0.7, "seed": 3, "stop_tokens": template.stop_tokens}
    assert whole.message.content == alone(model, tokenizer, prompt, 40, **settings)
    in_parts = [{"role": "user", "content": [{"type": "text", "text": "hel"}, {"type": "text", "text": "lo"}]}]
    answer = client.chat.completions.create(**{**request, "messages": in_parts}).choices[0].message.content
    assert answer == client.chat.completions.create(**{**request, "messages": messages[1:]}).choices[0].message.content


def test_stop_strings_end_and_are_not_shown(client):
    request = {"model": "small", "prompt": "a", "max_tokens": 60, "seed": 1}
    whole = client.completions.create(**request).choices[0].text
    stop = whole[20:22]
    cut = client.completions.create(stop=stop, **request).choices[0]
    assert cut.text == whole[: whole.index(stop)]
    assert cut.finish_reason == "stop"
    parts = list(client.completions.create(stop=["never", stop], stream=True, **request))
    assert "".join(part.choices[0].text for part in parts) == cut.text
    assert parts[-1].choices[0].finish_reason == "stop"
    assert client.completions.create(**{**request, "max_tokens": 3}).choices[0].finish_reason == "length"


CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
NESTED = {"function": {"name": "f", "arguments": "[" * 20000 + "]" * 20000}}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
WRONG = [
    ({"prompt": ""}, None, 200),
    ({"prompt": []}, "prompt", 400),
    ({"prompt": [1, 999]}, "prompt", 400),
    ({"prompt": {"a": 1}}, "prompt", 400, r'prompt: expected a valid string, got {"a": 1}'),
    ({"prompt": "a", "model": "other"}, "model", 404),
    ({"prompt": "a", "max_tokens": 0}, "max_tokens", 400),
    ({"prompt": "a", "max_tokens": 9, "min_tokens": 10}, "min_tokens", 400),
    ({"prompt": "a", "stop_token_ids": [999]}, "stop_token_ids", 400),
    ({"prompt": "a", "max_tokens": "9"}, "max_tokens", 400, r'max_tokens: expected a valid integer, got "9"'),
    ({"prompt": "a", "max_tokens": 201}, "max_tokens", 400),
    ({"prompt": "a" * 200, "max_tokens": 100}, "prompt", 400),
    ({"prompt": "a" * 300}, "prompt", 400),
    ({"prompt": "a", "temperature": 3}, "temperature", 400, "temperature: expected less than or equal to 2, got 3"),
    ({"prompt": "a", "temperature": True}, "temperature", 400),
    ({"prompt": "a", "top_p": 0}, "top_p", 400),
    ({"prompt": "a", "n": 0}, "n", 400),
    ({"prompt": "a", "n": 1.5}, "n", 400),
    ({"prompt": "a", "n": 9}, None, 429),
    ({"prompt": "a", "seed": 2**64}, "seed", 400),
    ({"prompt": "a", "stop": [""]}, "stop", 400),
    ({"prompt": "a", "stop": ["a"] * 5}, "stop", 400, "stop: expected at most 4 items, got"),
    ({"prompt": "a", "stream": "yes"}, "stream", 400),
    ({"prompt": "a", "stream_options": {}}, "stream_options", 400),
    ({"prompt": "a", "logprobs": 21}, "logprobs", 400),
    ({"prompt": "a", "logprobs": 0, "frequency_penalty": 0, "echo": False}, None, 200),
    ({"prompt": "a", "echo": 1}, "echo", 400),
    ({"prompt": "a", "suffix": "b"}, "suffix", 400),
    ({"prompt": "a", "best_of": 3}, "best_of", 400),
    ({"prompt": "a", "presence_penalty": 2.5}, "presence_penalty", 400),
    ({"prompt": "a", "logit_bias": {"999": 1}}, "logit_bias", 400),
    ({"prompt": "a", "logit_bias": {"1": 101}}, "logit_bias", 400),
    ({"prompt": "a", "logit_bias": {"1" * 5000: 1}}, "logit_bias", 400),
    ({"messages": [{"role": "user", "content": "a"}], "top_logprobs": 2}, "top_logprobs", 400),
    ({"messages": [{"role": "user", "content": "a"}], "response_format": {"type": "xml"}}, "response_format", 400),
    ({"messages": [{"role": "user", "content": "a"}], "tool_choice": "required"}, "tool_choice", 400),
    ({"messages": [{"role": "user", "content": "a"}], "tool_choice": "any"}, "tool_choice", 400),
    ({"messages": [{"role": "user", "content": "a"}], "tool_choice": {"type": "allowed_tools"}}, "tool_choice", 400),
    ({"messages": [{"role": "user", "content": "a", "tool_calls": [CALL]}]}, "messages", 400),
    ({"messages": [{"role": "user", "content": "a" * 200}], "tools": [TOOL]}, "messages", 400),
    ({"messages": [{"role": "user", "content": "a"}], "verbosity": "low"}, "verbosity", 400),
    ({"messages": [{"role": "assistant", "tool_calls": [NESTED]}]}, "messages", 400),
    ({"messages": [{"role": "user", "content": "a"}], "max_tokens": 0}, "max_tokens", 400),
    ({"prompt": "a", "temprature": 1}, "temprature", 400),
    ({"messages": []}, "messages", 400),
    ({"messages": [{"role": "user", "content": "a"}], "tools": [{}]}, "tools", 400),
    (
        {"messages": [{"role": "robot", "content": "a"}]},
        "messages",
        400,
        r"messages\[0\].role: expected one of .* got 'robot'",
    ),
    ({"messages": [{"content": "a"}]}, "messages", 400, r"messages\[0\].role is missing"),
    ({"messages": [{"role": "user"}]}, "messages", 400),
    (
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]},
        "messages",
        400,
        r"messages\[0\].content\[0\].type: expected 'text', 'input_text' or 'output_text', got \"image_url\"",
    ),
    ({"messages": [{"role": "user", "content": "a" * 300}]}, "messages", 400),
]


@pytest.mark.parametrize(("body", "param", "status", "message"), [(*row, ".")[:4] for row in WRONG])
def test_what_is_wrong_is_named_in_openais_shape(server, body, param, status, message):
    path = "chat/completions" if "messages" in body else "completions"
    answer = httpx.post(f"{server}/v1/{path}", json=body, timeout=30)
    assert answer.status_code == status, answer.text
    if status != 200:
        error = answer.json()["error"]
        assert error.keys() == {"message", "type", "param", "code"}
        assert error["param"] == param
        assert (error["code"] == "unknown_parameter") == ("is unknown here" in error["message"])
        assert re.match(message, error["message"]), error["message"]


def test_bodies_that_are_none_and_other_paths(server):
    url, kind = f"{server}/v1/completions", {"Content-Type": "application/json"}
    for content, headers, status in [
        (b"{", kind, 400),
        (b"[]", kind, 400),
        (b"[" * 100_000, kind, 400),
        (b"\xff", kind, 400),
        (b'{"prompt": "a"}', {"Content-Type": "text/plain"}, 415),
        (b" " * ((1 << 20) + 1), kind, 413),
    ]:
        answer = httpx.post(url, content=content, headers=headers, timeout=60)
        assert answer.status_code == status
        assert answer.json()["error"]["type"] == "invalid_request_error"
    assert httpx.get(url, timeout=60).status_code == 405
    assert httpx.get(f"{server}/v1/nothing", timeout=60).json()["error"]["message"]


def test_the_page_is_one_file(server):
    page = httpx.get(server, timeout=60)
    assert page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert "connect-src 'self'" in policy
    (script,) = re.findall("<script>(.*?)</script>", page.text, re.DOTALL)
    assert f"script-src 'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}';" in policy
    assert {"img-src data:", "frame-ancestors 'none'", "form-action 'none'"} <= set(policy.split("; "))
    assert page.headers["x-content-type-options"] == "nosniff"
    assert "/v1/chat/completions" in page.text
    assert "http://" not in page.text
    assert "https://" not in page.text


def test_old_turns_are_left_out_where_that_is_asked_for(server, tokenizer):
    """As the page asks: a conversation that is longer than the context goes on, and how much was left out is said."""
    talk = []
    for turn in range(8):
        talk += [{"role": "user", "content": f"{turn} " + "x" * 20}, {"role": "assistant", "content": "yes"}]
    talk += [{"role": "user", "content": "the last"}]
    body = {"messages": talk, "max_tokens": 5, "stream": True, "temperature": 0}
    url = f"{server}/v1/chat/completions"
    refused = httpx.post(url, json=body, timeout=60)
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == "context_length_exceeded"
    answer = httpx.post(url, json={**body, "truncation": "auto"}, timeout=60)
    assert answer.status_code == 200
    dropped = int(answer.headers["X-Messages-Left-Out"])
    assert dropped % 2 == 0
    assert 0 < dropped < len(talk)
    shorter = httpx.post(url, json={**body, "messages": talk[dropped:]}, timeout=60)
    assert "X-Messages-Left-Out" not in shorter.headers
    texts = [
        "".join(
            json.loads(line[6:])["choices"][0]["delta"].get("content", "")
            for line in answer_stream.text.splitlines()
            if line.startswith("data: {")
        )
        for answer_stream in (answer, shorter)
    ]
    assert texts[0] == texts[1]
    long = httpx.post(
        url, json={**body, "messages": [talk[0] | {"content": "x" * 300}], "truncation": "auto"}, timeout=60
    )
    assert "the last message alone" in long.json()["error"]["message"]


def test_one_talks_on_the_page_in_a_browser(server, tmp_path):
    chromium = pytest.importorskip("chromium")  # of bpe's tests
    if chromium.PATH is None:
        pytest.skip(f"no Chromium found (looked for {', '.join(chromium.NAMES)}; CHROMIUM names another)")

    def wait(browser, expression):
        until(lambda: browser.run(expression))

    with chromium.Chromium(tmp_path / "profile", (500, 350)) as browser:
        browser.call("Page.navigate", url=server)
        wait(browser, "document.readyState === 'complete' && document.title === 'small'")
        browser.run("at('temperature').value = '0', at('text').focus(), 0")
        answers = []
        for words in ("<b>hi</b>", "more"):
            browser.call("Input.insertText", text=words)
            browser.run("at('form').requestSubmit()")
            wait(browser, "asking === null")
            answers.append({"role": "user", "content": words})
            answer = httpx.post(
                f"{server}/v1/chat/completions", json={"messages": answers, "temperature": 0}, timeout=60
            )
            text = answer.json()["choices"][0]["message"]["content"]
            answers.append({"role": "assistant", "content": text})
            assert browser.run("messages") == answers
            assert browser.run("[...at('log').children].map(line => line.textContent)") == [
                m["content"] for m in answers
            ]
        assert browser.run("document.documentElement.scrollHeight > innerHeight + 100")
        assert browser.run("innerHeight + scrollY > document.documentElement.scrollHeight - 40")  # it follows
        browser.call("Input.insertText", text="x" * 400)
        browser.run("at('form').requestSubmit()")
        wait(browser, "asking === null")
        assert "the last message alone" in browser.run("at('log').lastChild.textContent")
        browser.run("at('reset').click()")
        assert browser.run("[messages.length, at('log').children.length]") == [0, 0]


def health(connection):
    """The status of GET /health over a connection, which stays open."""
    connection.request("GET", "/health")
    with connection.getresponse() as answer:
        answer.read()
        return answer.status


def test_the_command_serves_until_ctrl_c_and_says_when_a_port_is_taken(model, tokenizer, tmp_path):
    import tomli_w

    from lm.commands.serve import KEEP_ALIVE

    checkpoint.save(tmp_path / "checkpoints", 0, model, None, {})
    (tmp_path / "config.toml").write_text(tomli_w.dumps({"model": to_table(model.config)}))
    tokenizer.save(tmp_path / "tokenizer.json")
    command = [sys.executable, "-m", "lm", "serve", str(tmp_path), "--name", "mine", "--port"]
    with subprocess.Popen([*command, "0"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            line = process.stdout.readline()
            assert line.startswith("mine answers at http://127.0.0.1:")
            address = line.split()[3]
            body = {"model": "mine", "prompt": "a", "max_tokens": 5, "seed": 1}
            answer = httpx.post(f"{address}/v1/completions", json=body, timeout=60).json()
            expected = alone(model, tokenizer, [97], 5, seed=1, stop_tokens=[256, 258])
            assert answer["choices"][0]["text"] == expected
            port = address.rsplit(":", 1)[1]
            idle = http.client.HTTPConnection("127.0.0.1", int(port), timeout=60)
            assert health(idle) == 200
            first = idle.sock
            second = subprocess.run([*command, port], capture_output=True, text=True)
            assert second.returncode == 1
            assert "is not free or not of this machine: name another with --port" in second.stderr
            assert KEEP_ALIVE > 2 * 5  # seconds for which the OpenAI client keeps a connection
            assert health(idle) == 200
            assert idle.sock is first
            idle.close()
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate()
            assert process.returncode == 130
            assert "Traceback" not in errors
        finally:
            process.kill()


def test_a_server_sends_tokens_at_once_and_keeps_what_is_loaded_out_of_garbage_collections(
    model, tokenizer, tmp_path, monkeypatch, capsys
):
    import uvicorn

    tokenizer.save(tmp_path / "tokenizer.json")
    to_huggingface(model, tmp_path / "model", tokenizer=tmp_path / "tokenizer.json")
    seen = []

    def run(self, sockets):
        seen.append(len(gc.get_objects()))
        for bound in sockets:
            assert bound.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            bound.close()

    monkeypatch.setattr(uvicorn.Server, "run", run)
    before = len(gc.get_objects())
    try:
        assert main(["serve", str(tmp_path / "model"), "--port", "0"]) == 0
        assert gc.get_freeze_count() > before / 2
        assert seen[0] < before / 2
    finally:
        gc.unfreeze()
    output = capsys.readouterr().out
    assert "answers at" in output
    assert "\ndecoding in " in output


class Held:
    """A model's Scheduler that steps only as often as it is let."""

    def __init__(self, engine):
        self.engine, self.step, self.let = engine, engine.batch.try_step, queue.Queue()
        engine.batch.try_step = self

    def __call__(self, seconds):
        while not self.engine.closed:
            with contextlib.suppress(queue.Empty):
                self.let.get(timeout=0.05)
                break
        return self.step()


def until(true):
    while not true():
        time.sleep(0.005)


def test_a_full_queue_answers_429_and_who_leaves_makes_room(model, tokenizer):
    with served(model, tokenizer, rows=1, waiting=1) as (address, engine):
        steps = Held(engine)
        # No token that ends a text comes, so that it goes on until its reader has left.
        body = {"prompt": "a", "max_tokens": 200, "seed": 1, "logit_bias": {"256": -100, "258": -100}}
        with httpx.Client(timeout=60) as first, contextlib.ExitStack() as stack:
            streaming = stack.enter_context(
                first.stream("POST", f"{address}/v1/completions", json={**body, "stream": True})
            )
            until(lambda: engine.running)
            (job,) = engine.running.values()
            second = socket.create_connection(("127.0.0.1", int(address.rsplit(":", 1)[1])))
            text = json.dumps(body)
            second.sendall(
                f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(text)}\r\n\r\n{text}".encode()
            )
            until(lambda: engine.queue)
            with (
                openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0) as client,
                pytest.raises(openai.RateLimitError, match="at most 1 may"),
            ):
                client.completions.create(model="small", prompt="a")
            second.close()  # one that waits leaves
            until(lambda: not engine.queue)
            for _ in range(9):  # a token may be part of a character, and then there is nothing to show yet
                steps.let.put(None)
            lines = streaming.iter_lines()
            assert next(lines).startswith("data: ")
            streaming.close()  # one that is decoded leaves, which is noticed without a step
            until(lambda: job.cancelled)
        until(lambda: not engine.running or steps.let.put(None))
        assert job.sequence.ended == "cancelled"
        assert len(job.sequence.tokens) < 20
        for _ in range(9):
            steps.let.put(None)
        answer = httpx.post(f"{address}/v1/completions", json={"prompt": "a", "max_tokens": 3}, timeout=60)
        assert answer.json()["usage"]["completion_tokens"] <= 3
        for _ in range(9):
            steps.let.put(None)


def connect_and_ask(address, body):
    """A connection over which a completion was asked for."""
    connection = http.client.HTTPConnection("127.0.0.1", int(address.rsplit(":", 1)[1]), timeout=60)
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    return connection


def test_the_end_of_the_grace_cuts_answers_off(model, tokenizer, capfd):
    with contextlib.ExitStack() as stack:
        address, engine = stack.enter_context(served(model, tokenizer, rows=2))
        steps = Held(engine)
        body = {"prompt": "a", "max_tokens": 200, "logit_bias": {"256": -100, "258": -100}}
        whole = connect_and_ask(address, body)
        streaming = connect_and_ask(address, {**body, "stream": True})
        until(lambda: len(engine.running) == 2 or steps.let.put(None))
        for _ in range(9):
            steps.let.put(None)
        stream = streaming.getresponse()
        assert stream.readline().startswith(b"data: ")
        stack.close()
        with whole.getresponse() as answer:
            assert answer.status == 500
        with pytest.raises(http.client.IncompleteRead):
            stream.read()
        whole.close()
        streaming.close()
    assert "Traceback" not in capfd.readouterr().err


def test_a_failure_in_decoding_is_500_and_the_next_request_is_answered(model, tokenizer, capsys):
    with served(model, tokenizer) as (address, engine):
        step = engine.batch.try_step

        def fail(seconds):
            engine.batch.try_step = step
            raise RuntimeError("out of luck")

        engine.batch.try_step = fail
        answer = httpx.post(f"{address}/v1/completions", json={"prompt": "a"}, timeout=60)
        assert answer.status_code == 500
        assert answer.json()["error"]["type"] == "server_error"
        assert httpx.post(f"{address}/v1/completions", json={"prompt": "a"}, timeout=60).status_code == 200
    assert "out of luck" in capsys.readouterr().err


def test_a_reader_who_left_is_noticed_before_the_next_pieces(model, tokenizer, monkeypatch, caplog):
    """Many pieces wait when their reader leaves. asyncio warns on stderr of each write after the fifth that fails."""
    from lm.serving import app

    event, events, gone = app.event, [], threading.Event()

    def noted(body):
        events.append(body)
        if len(events) == 3:
            gone.wait()
        return event(body)

    monkeypatch.setattr(app, "event", noted)
    with served(model, tokenizer) as (address, engine):
        body = json.dumps({"prompt": "a", "max_tokens": 200, "n": 4, "stream": True, "temperature": 0}).encode()
        with socket.create_connection(("127.0.0.1", int(address.rsplit(":", 1)[1]))) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closed, nothing passes it
            head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
            one.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            until(lambda: len(events) == 3 and not engine.running)
        gone.set()
    assert len(events) < 20
    assert not [record.getMessage() for record in caplog.records if record.name == "asyncio"]
