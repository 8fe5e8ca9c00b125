"""Requests of other clients: Anthropic's messages, embeddings, structured outputs, thoughts, adapters by name."""

from __future__ import annotations

import json
import threading

import pytest
import torch
from safetensors.torch import save_file
from test_serving import pytestmark, served  # noqa: F401
from test_serving_api import TALK, WEATHER

import lm
from lm.chat_template import ChatTemplate
from lm.interop.peft import beside, from_peft

anthropic = pytest.importorskip("anthropic")
THINKING = """{% for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}{# <tool_call> <think></think> #}{% if tools %}{{ tools | tojson }}{% endif %}"""


@pytest.fixture(scope="module")
def adapter(model, tmp_path_factory):
    """Adapters of the query and of down, as PEFT writes them."""
    folder, draw = tmp_path_factory.mktemp("adapter"), torch.Generator().manual_seed(1)
    shapes = {"self_attn.q_proj": (32, 32), "self_attn.v_proj": (32, 32), "mlp.down_proj": (32, 32)}
    tensors = {}
    for name, (rows, columns) in shapes.items():
        prefix = f"base_model.model.model.layers.0.{name}"
        tensors[f"{prefix}.lora_A.weight"] = torch.randn(4, columns, generator=draw)
        tensors[f"{prefix}.lora_B.weight"] = torch.randn(rows, 4, generator=draw)
    save_file(tensors, folder / "adapter_model.safetensors")
    about = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, "target_modules": [], "base_model_name_or_path": "x"}
    (folder / "adapter_config.json").write_text(json.dumps(about))
    return folder


@pytest.fixture(scope="module")
def server(model, tokenizer, adapter):
    template = ChatTemplate(tokenizer, THINKING, (258,))
    adapters = {"tuned": beside(adapter, model)}
    with served(model, tokenizer, template=template, adapters=adapters) as (address, engine):
        yield address, engine


@pytest.fixture(scope="module")
def messages(server):
    with anthropic.Anthropic(base_url=server[0], api_key="none", max_retries=0) as client:
        yield client.messages


def bias_of(text):
    """The settings by which a model without sense writes a text of different letters, and ends."""
    return {"structured_outputs": {"choice": [text]}, "temperature": 0}


def test_adapters_are_chosen_by_name_and_share_the_base(client, server, model, adapter):
    tuned = server[1].models["tuned"]
    shared = {p.data_ptr() for p in model.parameters()} & {p.data_ptr() for p in tuned.parameters()}
    assert len(shared) == len(list(model.parameters()))
    ids = torch.arange(1, 30)[None]
    merged = from_peft(adapter, lm.Transformer(model.config))
    merged.load_state_dict(model.state_dict())
    from_peft(adapter, merged)
    torch.testing.assert_close(tuned(ids), merged(ids))
    assert not torch.allclose(tuned(ids), model(ids), atol=1e-2)
    assert [one.id for one in client.models.list()] == ["small", "tuned"]
    request = {"prompt": [1, 2, 3], "max_tokens": 8, "temperature": 0, "extra_body": {"return_token_ids": True}}
    answers = {name: client.completions.create(model=name, **request) for name in ("small", "tuned")}
    for name, of_model in (("small", model), ("tuned", merged)):
        assert answers[name].model == name
        expected = lm.generate(of_model, [1, 2, 3], max_new_tokens=8, temperature=0, stop_tokens=[256, 258])
        assert answers[name].choices[0].token_ids == expected
    with pytest.raises(Exception, match="it is 'small' or 'tuned'"):
        client.completions.create(model="other", **request)


def test_a_message_and_its_stream(messages, client):
    request = {"model": "small", "max_tokens": 9, "messages": TALK, "system": "be brief", "extra_body": {"seed": 4}}
    answer = messages.create(**request)
    talk = [{"role": "system", "content": "be brief"}, *TALK]
    chat = client.chat.completions.create(model="small", messages=talk, max_tokens=9, seed=4)
    assert answer.content[0].text == chat.choices[0].message.content
    assert (answer.stop_reason, answer.role, answer.usage.output_tokens) == ("max_tokens", "assistant", 9)
    count = messages.count_tokens(model="small", messages=TALK, system="be brief").input_tokens
    assert answer.usage.input_tokens + answer.usage.cache_read_input_tokens == count == chat.usage.prompt_tokens
    with messages.stream(**request) as stream:
        kinds = [event.type for event in stream if event.type != "text"]
        whole = stream.get_final_message()
    assert whole.content[0].text == answer.content[0].text
    assert whole.usage.output_tokens == 9
    assert kinds[:2] == ["message_start", "content_block_start"]
    assert kinds[-3:] == ["content_block_stop", "message_delta", "message_stop"]
    assert set(kinds[2:-3]) == {"content_block_delta"}


def test_a_stop_sequence_is_named(messages):
    request = {"model": "small", "max_tokens": 50, "messages": TALK, "stop_sequences": ["zz", "lo"]}
    answer = messages.create(**request, extra_body=bias_of("hello"))
    assert (answer.stop_reason, answer.stop_sequence, answer.content[0].text) == ("stop_sequence", "lo", "hel")
    answer = messages.create(**request, extra_body=bias_of("he"))
    assert (answer.stop_reason, answer.stop_sequence) == ("end_turn", None)


@pytest.mark.parametrize("stream", [False, True])
def test_tools_are_called_and_their_results_are_read(messages, stream):
    tool = {"name": "weather", "input_schema": WEATHER["function"]["parameters"]}
    request = {"model": "small", "max_tokens": 200, "tools": [tool], "tool_choice": {"type": "tool", "name": "weather"}}
    more = {"temperature": 0, "logit_bias": {"125": 50, "34": 20}}
    if stream:
        with messages.stream(messages=TALK, **request, extra_body=more) as events:
            answer = events.get_final_message()
    else:
        answer = messages.create(messages=TALK, **request, extra_body=more)
    (call,) = answer.content
    assert (call.type, call.name, answer.stop_reason) == ("tool_use", "weather", "tool_use")
    assert isinstance(call.input, dict)
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "rain"}]}
    talk = [*TALK, {"role": "assistant", "content": [call.model_dump()]}, {"role": "user", "content": [result]}]
    assert messages.create(messages=talk, model="small", max_tokens=2, tools=[tool]).usage.output_tokens <= 2


@pytest.mark.parametrize("stream", [False, True])
def test_arguments_of_a_call_are_an_object_whatever_the_model_writes(messages, stream):
    tool = {"name": "weather", "input_schema": {"type": "object"}}
    more = bias_of('<tool_call>{"name": "weather", "arguments": "rain"}</tool_call>')
    request = {"model": "small", "max_tokens": 99, "messages": TALK, "tools": [tool], "extra_body": more}
    if stream:
        with messages.stream(**request) as events:
            (call,) = events.get_final_message().content
    else:
        (call,) = messages.create(**request).content
    assert call.input == {"arguments": "rain"}


def test_mistakes_are_anthropics_errors(messages):
    with pytest.raises(anthropic.BadRequestError, match=r"messages\[0\].role: expected .*user.* or .*assistant"):
        messages.create(model="small", max_tokens=2, messages=[{"role": "robot", "content": "a"}])
    with pytest.raises(anthropic.NotFoundError, match="no model") as error:
        messages.create(model="other", max_tokens=2, messages=TALK)
    assert error.value.body["type"] == "error"
    assert error.value.body["error"]["type"] == "not_found_error"


def test_anthropics_key_opens_the_server(model, tokenizer):
    with served(model, tokenizer, guards={"key": "secret"}) as (address, _):
        for key, fails in (("secret", False), ("other", True)):
            with anthropic.Anthropic(base_url=address, api_key=key, max_retries=0) as client:
                if fails:
                    with pytest.raises(anthropic.AuthenticationError):
                        client.messages.count_tokens(model="small", messages=TALK)
                else:
                    assert client.messages.count_tokens(model="small", messages=TALK).input_tokens


def test_embeddings_are_means_of_the_last_states(client, model):
    answer = client.embeddings.create(model="small", input=["once", [1, 2, 3]])  # the client asks for base64
    plain = client.embeddings.create(model="small", input=["once", [1, 2, 3]], encoding_format="float")
    for one, ids in zip(answer.data, ([*b"once"], [1, 2, 3]), strict=True):
        with torch.no_grad():
            mean = model.hidden(torch.tensor([ids]))[0].mean(0)
        assert one.embedding == pytest.approx((mean / mean.norm()).tolist(), abs=1e-5)
        assert one.embedding == pytest.approx(plain.data[one.index].embedding, abs=1e-6)
    assert answer.usage.prompt_tokens == 7
    short = client.embeddings.create(model="small", input="once", dimensions=8).data[0].embedding
    assert sum(value**2 for value in short) == pytest.approx(1)
    tuned = client.embeddings.create(model="tuned", input="once").data[0].embedding
    assert tuned != answer.data[0].embedding
    for bad in ({"input": ""}, {"input": "a" * 2000}, {"input": [300]}, {"input": "a", "dimensions": 33}):
        with pytest.raises(Exception, match=r"expected|context|vocabulary"):
            client.embeddings.create(model="small", **bad)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ({"regex": "a{3}b"}, "aaab"),
        ({"choice": ["yes"]}, "yes"),
        ({"grammar": 'start: "x" "y"'}, "xy"),
        ({"json": {"const": 7}}, "7"),
        ({"json": '{"const": 7}'}, "7"),
    ],
)
def test_structured_outputs_of_each_kind(client, form, text):
    more = {"extra_body": {"structured_outputs": form}, "max_tokens": 50}
    assert client.chat.completions.create(model="small", messages=TALK, **more).choices[0].message.content == text
    choice = client.completions.create(model="small", prompt="a", **more).choices[0]
    assert (choice.text, choice.finish_reason) == (text, "stop")


@pytest.mark.parametrize(
    "form",
    [{}, {"regex": "a", "choice": ["a"]}, {"regex": "("}, {"grammar": "x"}, {"json": "["}, {"json": "[" * 60_000}],
)
def test_structured_outputs_that_are_none_are_refused(client, form):
    with pytest.raises(Exception, match=r"400.*structured_outputs"):
        client.completions.create(model="small", prompt="a", extra_body={"structured_outputs": form})


def test_prompt_logprobs_are_the_models(client, model):
    ids = [5, 60, 7, 90]
    more = {"extra_body": {"prompt_logprobs": 2}, "max_tokens": 3, "seed": 1}
    choice = client.completions.create(model="small", prompt=ids, logprobs=1, **more).choices[0]
    with torch.no_grad():
        logs = model(torch.tensor([ids]))[0].log_softmax(-1)
    first, *rest = choice.prompt_logprobs
    assert first is None
    for at, scored in enumerate(rest):
        top = logs[at].topk(2)
        assert scored[str(ids[at + 1])]["logprob"] == pytest.approx(float(logs[at, ids[at + 1]]), abs=1e-4)
        assert {str(token) for token in top.indices.tolist()} <= set(scored)
        assert scored[str(int(top.indices[0]))]["rank"] == 1
    assert len(choice.logprobs.tokens) == 3
    assert all(len(top) == 1 for top in choice.logprobs.top_logprobs)
    chat = client.chat.completions.create(model="small", messages=TALK, **more)
    assert len(chat.prompt_logprobs) == chat.usage.prompt_tokens
    assert chat.choices[0].logprobs is None


THOUGHTS = {
    "<think>\nhm</think>\n\nyes": ("hm", "yes"),
    "<think>hm</think>": ("hm", ""),
    "<thin": ("", "<thin"),
    "no <think>x</think>": ("", "no <think>x</think>"),
    "<think>cut </thi": ("cut </thi", ""),
}


@pytest.mark.parametrize("written", THOUGHTS)
@pytest.mark.parametrize("stream", [False, True])
def test_thoughts_stand_apart_from_the_text(client, messages, written, stream):
    reasoning, text = THOUGHTS[written]
    request = {"model": "small", "messages": TALK, "max_tokens": 50, "extra_body": bias_of(written)}
    if stream:
        parts = [part.choices[0].delta for part in client.chat.completions.create(**request, stream=True)]
        assert "".join(getattr(part, "reasoning_content", "") or "" for part in parts) == reasoning
        assert "".join(part.content or "" for part in parts) == text
        events = list(client.responses.create(model="small", input=TALK, extra_body=bias_of(written), stream=True))
        assert "".join(one.delta for one in events if one.type == "response.reasoning_text.delta") == reasoning
        assert events[-1].response.output_text == text
        with messages.stream(**request) as blocks:
            content = blocks.get_final_message().content
    else:
        message = client.chat.completions.create(**request).choices[0].message
        assert (getattr(message, "reasoning_content", ""), message.content) == (reasoning, text)
        content = messages.create(**request).content
    expected = [("thinking", reasoning), ("text", text)]
    assert [(one.type, getattr(one, one.type)) for one in content] == [pair for pair in expected if pair[1]]


def test_a_response_under_way_is_cancelled(client, server, monkeypatch):
    """At the first of its tokens; the next ones are decoded when the cancel has come."""
    batch, cancel, let = server[1].batch, server[1].cancel, threading.Event()
    step = batch.try_step
    monkeypatch.setattr(batch, "try_step", lambda seconds: (not batch.sequences[0].tokens or let.wait(60), step())[1])
    under_way = batch.sequences  # an earlier test's response, whose end cancels its jobs late, is not among these
    monkeypatch.setattr(server[1], "cancel", lambda jobs: (cancel(jobs), jobs[0].sequence in under_way and let.set()))
    more = {"logit_bias": {"256": -100, "258": -100, "65": 100}}
    events, cancelled = [], None
    stream = client.responses.create(model="small", input=TALK, max_output_tokens=200, stream=True, extra_body=more)
    for event in stream:
        events.append(event)
        if event.type == "response.output_text.delta" and cancelled is None:
            cancelled = client.responses.cancel(events[0].response.id)
    assert cancelled.status == events[-1].response.status == "cancelled"
    assert events[-1].response.output_text == "A"
    with pytest.raises(Exception, match="none is stored"):
        client.responses.cancel(events[0].response.id)
