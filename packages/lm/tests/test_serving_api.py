"""Requests of OpenAI's clients beside those for text, and keys: over real sockets."""

from __future__ import annotations

import json
import math
import re

import pytest
import torch
from models import random_model
from served import served
from talks import MARKS
from talks import tokenizer as of_bytes
from test_serving import pytestmark  # noqa: F401

import lm
from lm.chat_template import ChatTemplate, Message, default_template
from lm.generation.stream import StreamDecoder

httpx = pytest.importorskip("httpx")
openai = pytest.importorskip("openai")

HERMES = """{%- if tools %}<|im_start|>system
{% for tool in tools %}{{ tool | tojson }}
{% endfor %}<tool_call>{"name": …, "arguments": …}</tool_call><|im_end|>
{% endif %}{%- for message in messages %}<|im_start|>{{ message.role }}
{% if message.tool_calls %}{% for call in message.tool_calls %}<tool_call>
{{ {"name": call.function.name, "arguments": call.function.arguments} | tojson }}
</tool_call>{% endfor %}{% else %}{{ message.content }}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}{% if enable_thinking is false %}<think></think>{% endif %}{{ reasoning_effort }}"""
LLAMA = """{% if tools %}{{ tools | tojson }} {"name": …, "parameters": …}{% endif %}{% for message in messages %}
{{ message.role }}: {{ message.content }}{% endfor %}"""
MISTRAL = """{% for message in messages %}{% if tools and loop.last %}[AVAILABLE_TOOLS]{{ tools | tojson }}{% endif %}
[INST]{{ message.content }}[/INST]{% endfor %}{# answered by [TOOL_CALLS][{"name": …, "arguments": …}] #}"""
GEMMA = """{% if messages[0].role == "system" %}{{ raise_exception("none") }}{% endif %}{% for message in messages %}
{{ message.role }}: {{ message.content }}{% endfor %}"""
WEATHER: dict = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}},
}
TALK = [{"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def template(tokenizer):
    return ChatTemplate(tokenizer, HERMES, (258,))


@pytest.fixture(scope="module")
def server(model, tokenizer, template):
    with served(model, tokenizer, template=template) as (address, engine):
        yield address, engine


def test_logprobs_are_those_of_the_model(client, model):
    request = {"model": "small", "prompt": [1, 2, 3], "max_tokens": 5, "temperature": 0.7, "seed": 1}
    plain = client.completions.create(**request).choices[0]
    scored_choice = client.completions.create(**request, logprobs=2).choices[0]
    assert (scored_choice.text, plain.logprobs) == (plain.text, None)
    ids = lm.generate(model, [1, 2, 3], max_new_tokens=5, temperature=0.7, seed=1, stop_tokens=[256, 258])
    with torch.no_grad():
        logs = model(torch.tensor([[1, 2, 3, *ids]]))[0, 2:-1].log_softmax(-1)
    assert scored_choice.logprobs.token_logprobs == pytest.approx(
        [float(logs[n, i]) for n, i in enumerate(ids)], abs=1e-4
    )
    for n, likely in enumerate(scored_choice.logprobs.top_logprobs):
        assert sorted(likely.values()) == pytest.approx(sorted(logs[n].topk(2).values.tolist()), abs=1e-4)


@pytest.mark.parametrize("stream", [False, True])
def test_logprobs_of_a_chat(client, stream):
    request = {"model": "small", "messages": TALK, "max_tokens": 6, "seed": 2, "logprobs": True, "top_logprobs": 3}
    if stream:
        parts = [part.choices[0] for part in client.chat.completions.create(**request, stream=True)]
        content = [one for part in parts if part.logprobs for one in part.logprobs.content]
        text = "".join(part.delta.content or "" for part in parts)
    else:
        whole = client.chat.completions.create(**request).choices[0]
        content, text = whole.logprobs.content, whole.message.content
    assert bytes(byte for one in content for byte in one.bytes).decode(errors="replace") == text
    assert all(len(one.top_logprobs) == 3 and one.logprob <= one.top_logprobs[0].logprob for one in content)


def scored(model, ids):
    """log p of each id after the first, from one call of the model."""
    with torch.no_grad():
        logs = model(torch.tensor([ids]))[0, :-1].log_softmax(-1)
    return [float(logs[at, token]) for at, token in enumerate(ids[1:])]


@pytest.mark.parametrize("length", [2, 128, 300])
def test_an_echo_scores_the_prompt_as_evaluators_ask(client, model, length):
    """As lm_eval's local-completions: it takes all but the last of the logprobs, also where a stop token came last."""
    ids = torch.randint(0, 256, (length,), generator=torch.Generator().manual_seed(length)).tolist()
    request = {"model": "small", "temperature": 0, "max_tokens": 1, "logprobs": 1, "seed": 1234, "echo": True}
    for bias in ({"65": 100}, {"256": 100}):
        answer = client.completions.create(prompt=[ids, ids[:2]], logit_bias=bias, **request)
        for choice, prompt in zip(answer.choices, (ids, ids[:2]), strict=True):
            logprobs = choice.logprobs
            assert logprobs.token_logprobs[0] is None
            assert logprobs.top_logprobs[0] is None
            assert logprobs.token_logprobs[1:-1] == pytest.approx(scored(model, prompt), abs=1e-5)
            assert all(len(top) == 1 for top in logprobs.top_logprobs[1:])
            prompt_text = bytes(prompt).decode(errors="replace")
            assert choice.text == (prompt_text + "A" if "65" in bias else prompt_text)
    streamed = list(client.completions.create(prompt=ids, stream=True, **request))
    logprobs_streamed = [value for part in streamed for value in part.choices[0].logprobs.token_logprobs]
    assert logprobs_streamed[1:length] == logprobs_of(client, ids)[1:] == pytest.approx(scored(model, ids), abs=1e-5)


def logprobs_of(client, ids):
    """Those of a prompt alone."""
    request = {"model": "small", "prompt": ids, "max_tokens": 0, "logprobs": 0, "echo": True}
    (choice,) = client.completions.create(**request).choices
    assert (choice.finish_reason, choice.text) == ("length", bytes(ids).decode(errors="replace"))
    return choice.logprobs.token_logprobs


def test_an_echo_without_logprobs_is_the_prompt_and_what_follows(client):
    request = {"model": "small", "prompt": "once é", "seed": 3}
    text = client.completions.create(**request).choices[0].text
    assert client.completions.create(**request, echo=True).choices[0].text == "once é" + text
    assert client.completions.create(**request, echo=True, max_tokens=0).choices[0].text == "once é"


# The bodies of vLLM's and SGLang's benchmark clients and of guidellm, with their own spelling of absent values.
LOAD = [
    {"prompt": "ab", "temperature": 0.0, "repetition_penalty": 1.0, "max_tokens": 12, "logprobs": None},
    {"prompt": "ab", "temperature": 0.0, "best_of": 1, "max_tokens": 12, "top_k": -1, "min_p": 0.0},
    {"prompt": "ab", "max_tokens": 12, "stop": None},
    {"prompt": "ab", "max_tokens": 12, "min_tokens": 12, "skip_special_tokens": False, "stop_token_ids": []},
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "ab"}]}], "max_completion_tokens": 12},
    {"messages": TALK, "max_tokens": 12, "temperature": 0.0, "chat_template_kwargs": {"enable_thinking": False}},
]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("body", LOAD)
def test_load_testers_get_as_many_tokens_as_they_ask_for(server, body, stream):
    body = {**body, "model": "small", "ignore_eos": True, "logit_bias": {"258": 30}, "stream": stream}
    if stream:
        body["stream_options"] = {"include_usage": True, "continuous_usage_stats": True}
    path = "chat/completions" if "messages" in body else "completions"
    answer = httpx.post(f"{server[0]}/v1/{path}", json=body, timeout=60)
    assert answer.status_code == 200, answer.text
    last = [line for line in answer.text.splitlines() if line.startswith("data: {")][-1][6:] if stream else answer.text
    assert json.loads(last)["usage"]["completion_tokens"] == 12


def test_what_ends_a_text_and_what_is_hidden_in_it(client):
    request = {"model": "small", "prompt": "ab", "max_tokens": 8, "temperature": 0}

    def tokens(bias, **more):
        answer = client.completions.create(**request, logit_bias=bias, extra_body=more)
        return answer.usage.completion_tokens, answer.choices[0]

    ends = {"256": 100, "65": 90}
    assert tokens(ends)[0] == 0
    count, choice = tokens(ends, min_tokens=5)
    assert (count, choice.text, choice.finish_reason) == (5, "AAAAA", "stop")
    assert tokens(ends, ignore_eos=True)[0] == 8
    count, choice = tokens({"65": 90}, stop_token_ids=[65])
    assert (count, choice.finish_reason) == (0, "stop")
    assert tokens({"65": 90}, stop="AA", min_tokens=3)[1].text == "AAA"
    assert tokens({"257": 90})[1].text == "<|im_start|>" * 8
    assert tokens({"257": 90}, skip_special_tokens=True)[1].text == ""


def test_names_for_the_template_change_the_prompt(client):
    def prompt_tokens(**more):
        request = {"model": "small", "messages": TALK, "max_tokens": 1, **more}
        return client.chat.completions.create(**request).usage.prompt_tokens

    plain = prompt_tokens()
    assert prompt_tokens(extra_body={"chat_template_kwargs": {"enable_thinking": False}}) == plain + len(
        "<think></think>"
    )
    assert prompt_tokens(reasoning_effort="high") == plain + len("high")


@pytest.mark.parametrize(("presence", "frequency"), [(0.0, 0.0), (1.5, 0.0), (0.0, 0.7), (-0.5, 1.2)])
def test_penalties_and_biases_are_openais(client, model, presence, frequency):
    bias = {str(token): 50.0 - token % 7 / 3 for token in range(65, 75)}
    request = {"model": "small", "prompt": [65], "max_tokens": 30, "temperature": 0, "logit_bias": bias}
    text = client.completions.create(**request, presence_penalty=presence, frequency_penalty=frequency).choices[0].text
    penalties = {"presence_penalty": presence, "frequency_penalty": frequency}
    bias = {int(token): more for token, more in bias.items()}
    ((ids,),) = lm.generate_batch(model, [[65]], max_new_tokens=30, temperature=0, logit_bias=bias, **penalties)
    assert text == bytes(ids).decode()


@pytest.mark.parametrize("seed", range(3))
def test_json_of_a_schema_is_what_a_model_without_sense_writes(client, seed):
    schema = {
        "type": "object",
        "properties": {"colour": {"enum": ["red", "green"]}, "sizes": {"type": "array", "items": {"type": "boolean"}}},
        "required": ["colour", "sizes"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "it", "schema": schema, "strict": True}}
    request = {"model": "small", "messages": TALK, "seed": seed, "max_tokens": 150, "response_format": form}
    choice = client.chat.completions.create(**request, logit_bias={"93": 5.0}).choices[0]
    assert choice.finish_reason == "stop"
    value = json.loads(choice.message.content)
    assert value.keys() == {"colour", "sizes"}
    assert value["colour"] in ("red", "green")
    assert all(type(size) is bool for size in value["sizes"])
    free = client.chat.completions.create(**{**request, "response_format": {"type": "json_object"}}).choices[0]
    assert free.message.content.lstrip()[:1] == "{"


@pytest.mark.parametrize("form", [{"type": "json_object"}, {"type": "json_schema", "json_schema": {"name": "it"}}])
def test_json_has_no_endless_space(client, form):
    """A model that would rather write line ends than anything else."""
    schema = {"type": "object", "properties": {"b": {"type": "boolean"}, "c": {"type": "null"}}, "required": ["b", "c"]}
    if "json_schema" in form:
        form = {**form, "json_schema": {"name": "it", "schema": {**schema, "additionalProperties": False}}}
    request = {"model": "small", "messages": TALK, "max_tokens": 30, "temperature": 0, "response_format": form}
    choice = client.chat.completions.create(**request, logit_bias={"10": 100, "32": 90, "125": 80}).choices[0]
    assert choice.finish_reason == "stop"
    assert "\n" not in choice.message.content
    assert json.loads(choice.message.content) is not None


def test_a_schema_that_is_none_is_refused_by_name(client):
    for schema in ({"type": "nothing"}, {"type": "string", "pattern": "(?=a)b"}):
        form = {"type": "json_schema", "json_schema": {"name": "it", "schema": schema}}
        with pytest.raises(openai.BadRequestError, match=r"response_format: the schema is not"):
            client.chat.completions.create(model="small", messages=TALK, response_format=form)


def test_tools_are_written_by_the_template_and_found_in_the_answer(client, server, monkeypatch):
    """The model has learned nothing: its words are put in its mouth."""
    written_call = '<tool_call>\n{"name": "weather", "arguments": {"city": "Ulm"}}\n</tool_call>'
    prompts, add = [], server[1].batch.add

    def noted(ids, **more):
        prompts.append(bytes(i if i < 256 else 0 for i in ids).decode())
        return add(ids, **{**more, "max_new_tokens": 1})

    monkeypatch.setattr(server[1].batch, "add", noted)
    monkeypatch.setattr(StreamDecoder, "feed", lambda decoder, token: written_call)
    call = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Ulm"}'}}
    talk = [
        *TALK,
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "rain"},
    ]
    request = {"model": "small", "messages": talk, "tools": [WEATHER], "max_tokens": 1, "temperature": 0}
    request["logit_bias"] = {"90": 100}
    choice = client.chat.completions.create(**request).choices[0]
    tool = request["tools"][0]
    assert json.dumps(tool) in prompts[0]
    assert '<tool_call>\n{"name": "weather", "arguments": {"city": "Ulm"}}\n</tool_call>' in prompts[0]
    assert "tool\nrain" in prompts[0]
    (first_call,) = choice.message.tool_calls
    assert (first_call.function.name, json.loads(first_call.function.arguments)) == ("weather", {"city": "Ulm"})
    assert choice.message.content is None
    parts = list(client.chat.completions.create(**request, stream=True))
    assert parts[0].choices[0].delta.tool_calls[0].function.name == "weather"
    # "length": it was cut after its one token here
    assert {choice.finish_reason, parts[-1].choices[0].finish_reason} == {"length"}
    plain = client.chat.completions.create(**request, tool_choice="none").choices[0]
    assert plain.message.content == written_call


@pytest.mark.parametrize(
    ("source", "text", "words", "calls"),
    [
        (HERMES, "plain", "plain", []),
        (HERMES, 'so <tool_call>{"name": "a", "arguments": {}}</tool_call>', "so", [("a", "{}")]),
        (
            HERMES,
            '<tool_call>{"name": "a", "arguments": {}}</tool_call>\n<tool_call>{"name": "b", "arguments": {"x": 1}}',
            "",
            [("a", "{}"), ("b", '{"x": 1}')],
        ),
        (HERMES, '<tool_call>{"name": "a", "argu', '<tool_call>{"name": "a", "argu', []),
        (MISTRAL, 'so [TOOL_CALLS] [{"name": "a", "arguments": {}}]', "so", [("a", "{}")]),
        (MISTRAL, '[TOOL_CALLS][{"name": "a", "arg', '[TOOL_CALLS][{"name": "a", "arg', []),
        (MISTRAL, "plain ", "plain ", []),
        (LLAMA, '{"name": "a", "parameters": {"x": "é"}}', "", [("a", '{"x": "é"}')]),
        (LLAMA, '<|python_tag|>{"name": "a", "parameters": {}}', "", [("a", "{}")]),
        (LLAMA, '{"name": 3, "parameters": {}}', '{"name": 3, "parameters": {}}', []),
        (LLAMA, "{}", "{}", []),
        (LLAMA, "7", "7", []),
    ],
)
def test_calls_in_what_a_model_writes(tokenizer, source, text, words, calls):
    from lm.serving.tools import calls_in

    found_words, found_calls = calls_in(text, ChatTemplate(tokenizer, source, ()))
    assert found_words == words
    assert [(one["function"]["name"], one["function"]["arguments"]) for one in found_calls] == calls


ENUM = {"$defs": {"City": {"enum": ["Ulm", "Zürich"]}}, "type": "object", "additionalProperties": False}
ENUM |= {"properties": {"city": {"$ref": "#/$defs/City"}, "days": {"enum": [1, 2]}}, "required": ["city", "days"]}
TOOLS = [
    {"type": "function", "function": {"name": "weather", "description": "…", "parameters": ENUM}},
    {"type": "function", "function": {"name": "time.now"}},
    {"type": "function", "function": {"name": "forecast-2", "parameters": ENUM, "strict": True}},
]
TOOLS[1]["function"]["parameters"] = {"type": "object", "additionalProperties": False}


SPECIAL = ["<tool_call>", "</tool_call>", "[TOOL_CALLS]"]


@pytest.mark.parametrize(
    ("source", "marks"),
    [(HERMES, []), (HERMES, SPECIAL), (LLAMA, []), (MISTRAL, []), (MISTRAL, SPECIAL), (GEMMA, SPECIAL)],
)
def test_a_tool_that_must_be_called_is_called(source, marks):
    """A model of random weights calls it too: what is no call is masked."""
    tokenizer = of_bytes(MARKS + marks)
    model = random_model(256 + len(MARKS + marks), 2048, 1, 32, 2, 32)
    functions, names = {tool["function"]["name"]: tool["function"] for tool in TOOLS}, set()
    with (
        served(model, tokenizer, template=ChatTemplate(tokenizer, source, (258,)), max_tokens=400) as (address, _),
        openai.OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0, timeout=60) as client,
    ):

        def calls(tool_choice, **more):
            request = {"model": "small", "messages": TALK, "tools": TOOLS, "max_tokens": 400, **more}
            choice = client.chat.completions.create(tool_choice=tool_choice, **request).choices[0]
            assert choice.finish_reason in ("tool_calls", "length")
            for call in choice.message.tool_calls or []:
                arguments = json.loads(call.function.arguments)
                assert set(arguments) == set(functions[call.function.name]["parameters"].get("properties", ()))
                assert arguments.get("city", "Ulm") in ("Ulm", "Zürich")
                assert source is not MISTRAL or re.fullmatch("[a-zA-Z0-9]{9}", call.id)
            return choice

        for seed in range(4):
            choice = calls("required", seed=seed, parallel_tool_calls=False)
            assert choice.finish_reason == "tool_calls"
            assert choice.message.content is None
            (call,) = choice.message.tool_calls
            names.add(call.function.name)
        calls("required", seed=0)
        assert len(names) > 1
        for name in functions:
            choice = calls({"type": "function", "function": {"name": name}}, seed=1)
            assert [call.function.name for call in choice.message.tool_calls] == [name]
        streamed = client.chat.completions.create(
            model="small",
            messages=TALK,
            tools=TOOLS[:1],
            tool_choice="required",
            parallel_tool_calls=False,
            stream=True,
        )
        (part,) = list(streamed)
        assert part.choices[0].delta.tool_calls[0].function.name == "weather"
        assert part.choices[0].finish_reason == "tool_calls"
        with pytest.raises(openai.BadRequestError, match="there is no tool 'other'"):
            calls({"type": "function", "function": {"name": "other"}})
        odd = {"name": "odd", "parameters": {"type": "object", "properties": {"x": {"type": "nothing"}}}}
        with pytest.raises(openai.BadRequestError, match="the grammar is not"):
            calls("required", tools=[{"type": "function", "function": odd}])


def test_a_template_without_tools_gets_them_as_text(tokenizer):
    from lm.serving.tools import calls_in, render_tools_as_text

    call = {"id": "1", "type": "function", "function": {"name": "weather", "arguments": {"city": "Ulm"}}}
    written_call = '<tool_call>\n{"name": "weather", "arguments": {"city": "Ulm"}}\n</tool_call>'
    talk = [
        Message("user", "hello"),
        Message("assistant", "", {"tool_calls": [call]}),
        Message("tool", "rain", {"tool_call_id": "1"}),
        Message("tool", "wind", {"tool_call_id": "2"}),
    ]
    plain = default_template(tokenizer)
    for template, has_system in ((plain, True), (ChatTemplate(tokenizer, GEMMA, ()), False)):
        messages, tools = render_tools_as_text(talk, [WEATHER], template)
        assert tools is None
        assert [one.role for one in messages] == ["system"] * has_system + ["user", "assistant", "user"]
        assert json.dumps(WEATHER) in messages[0].content
        assert messages[-2].content == written_call
        assert messages[-1].content == (
            "<tool_response>\nrain\n</tool_response>\n<tool_response>\nwind\n</tool_response>"
        )
        template.prompt(messages)
        assert calls_in(written_call, template)[1][0]["function"] == {"name": "weather", "arguments": '{"city": "Ulm"}'}
    first = render_tools_as_text([Message("system", "be brief"), *talk], [WEATHER], plain)[0][0]
    assert (first.role, first.content[:9]) == ("system", "be brief\n")
    assert render_tools_as_text(talk[:1], [], plain) == (talk[:1], None)


@pytest.mark.parametrize("separator", ["\n", "\r", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029"])
def test_an_event_is_one_line_for_every_client(server, monkeypatch, separator):
    monkeypatch.setattr(StreamDecoder, "feed", lambda decoder, token: f"a{separator}b")
    body = {"prompt": "a", "max_tokens": 1, "stream": True, "logit_bias": {"90": 100}}
    with httpx.stream("POST", f"{server[0]}/v1/completions", json=body, timeout=60) as answer:
        lines = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    assert lines[-1] == "[DONE]"
    assert "".join(json.loads(line)["choices"][0]["text"] for line in lines[:-1]) == f"a{separator}b"


def test_health_and_metrics(server, client):
    client.completions.create(model="small", prompt="abc", max_tokens=3, temperature=0, logit_bias={"90": 100})
    assert httpx.get(f"{server[0]}/health", timeout=60).json() == {"status": "ok"}
    lines = httpx.get(f"{server[0]}/metrics", timeout=60).text.splitlines()
    values = dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    assert float(values["lm_generated_tokens_total"]) >= 3
    assert float(values['lm_texts_total{ended="length"}']) >= 1
    first = [float(values[name]) for name in values if name.startswith("lm_first_token_seconds_bucket")]
    assert first == sorted(first)
    assert first[-1] == float(values["lm_first_token_seconds_count"])
    assert math.isfinite(float(values["lm_cache_used_bytes"]))
    assert float(values["lm_texts_running"]) == 0


def test_who_may_ask(model, tokenizer):
    guards = {"hosts": ["box.lan"], "origins": ["https://good.example"], "key": "secret"}
    with served(model, tokenizer, guards=guards) as (address, _):
        body, key = {"prompt": "a", "max_tokens": 1}, {"Authorization": "Bearer secret"}

        def post(**headers):
            return httpx.post(f"{address}/v1/completions", json=body, headers=headers, timeout=60)

        assert post().status_code == 401
        assert post(Authorization="Bearer other").json()["error"]["code"] == "invalid_api_key"
        assert post(**key).status_code == 200
        for host, status in [("evil.example", 400), ("box.lan:8000", 200), ("10.1.2.3", 200), ("[::1]:9", 200)]:
            assert post(**key, Host=host).status_code == status, host
        assert post(**key, Origin="https://evil.example").status_code == 403
        assert post(**key, Origin="null").status_code == 403
        assert post(**key, Origin=address).status_code == 200
        good = post(**key, Origin="https://good.example")
        assert good.headers["access-control-allow-origin"] == "https://good.example"
        asking = {"Origin": "https://good.example", "Access-Control-Request-Method": "POST"}
        asking["Access-Control-Request-Headers"] = "authorization,content-type"
        before = httpx.options(f"{address}/v1/completions", headers=asking, timeout=60)
        assert before.status_code == 200
        assert "authorization" in before.headers["access-control-allow-headers"].lower()
        assert httpx.get(f"{address}/health", timeout=60).status_code == 200
