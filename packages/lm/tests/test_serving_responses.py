"""/v1/responses by OpenAI's own client, every object and event checked against its types."""

from __future__ import annotations

import json

import pytest
from test_serving_api import TALK, WEATHER, pytestmark, server, template  # noqa: F401

FUNCTION = {"type": "function", **WEATHER["function"], "strict": False}
SCHEMA = {"type": "object", "properties": {"b": {"type": "boolean"}}, "required": ["b"], "additionalProperties": False}


def strict(thing):
    """The object, validated by its own type: the client itself checks nothing."""
    return type(thing).model_validate(thing.model_dump(by_alias=True, exclude_unset=True), strict=False)


def test_a_text_is_that_of_a_chat(client):
    talk = [{"role": "system", "content": "be brief"}, *TALK]
    chat = client.chat.completions.create(model="small", messages=talk, max_tokens=9, seed=4).choices[0]
    request = {"model": "small", "max_output_tokens": 9, "extra_body": {"seed": 4}, "store": False}
    response = strict(client.responses.create(input="hello", instructions="be brief", **request))
    assert response.output_text == chat.message.content
    assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    assert response.usage.output_tokens == 9
    parts = [{"role": "developer", "content": [{"type": "input_text", "text": "be brief"}]}, *TALK]
    assert client.responses.create(input=parts, **request).output_text == chat.message.content
    answered = [*parts, *response.to_dict()["output"], {"role": "user", "content": "and?"}]
    longer = client.responses.create(
        input=answered, include=["message.output_text.logprobs"], top_logprobs=2, **request
    )
    assert longer.usage.input_tokens > response.usage.input_tokens
    logprobs = strict(longer).output[0].content[0].logprobs
    assert len(logprobs) == 9
    assert all(len(one.top_logprobs) == 2 for one in logprobs)


def events_of(client, **settings):
    events = [strict(event) for event in client.responses.create(model="small", stream=True, **settings)]
    assert [event.sequence_number for event in events] == list(range(len(events)))
    return events


def test_a_stream_has_each_event_of_a_text(client):
    request = {"input": TALK, "max_output_tokens": 9, "extra_body": {"seed": 4}}
    whole = client.responses.create(model="small", **request)
    events = events_of(client, **request)
    kinds = [event.type.removeprefix("response.") for event in events]
    deltas = [event.delta for event in events if event.type == "response.output_text.delta"]
    assert kinds[:4] == ["created", "in_progress", "output_item.added", "content_part.added"]
    assert kinds[4:-4] == ["output_text.delta"] * len(deltas)
    assert kinds[-4:] == ["output_text.done", "content_part.done", "output_item.done", "incomplete"]
    assert "".join(deltas) == events[-4].text == events[-1].response.output_text == whole.output_text
    assert len({event.item_id for event in events if hasattr(event, "item_id")}) == 1
    with client.responses.stream(model="small", **request) as stream:  # puts the events together itself
        assert [event.type for event in stream] == [event.type for event in events]
        assert stream._state is not None


def test_functions_are_called_and_answered(client):
    request: dict = {"input": TALK, "tools": [FUNCTION], "tool_choice": {"type": "function", "name": "weather"}}
    request |= {"max_output_tokens": 200, "temperature": 0, "extra_body": {"logit_bias": {"125": 50, "34": 20}}}
    response = strict(client.responses.create(model="small", **request))
    (call,) = response.output
    assert (call.type, call.name, response.status) == ("function_call", "weather", "completed")
    assert isinstance(json.loads(call.arguments), dict)
    events = events_of(client, **request)
    kinds = [event.type.removeprefix("response.") for event in events[2:]]
    arguments = ["function_call_arguments.delta", "function_call_arguments.done"]
    assert kinds == ["output_item.added", *arguments, "output_item.done", "completed"]
    assert events[3].delta == events[4].arguments == call.arguments
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
    talk = [*TALK, call.to_dict(), result]
    again = client.responses.create(model="small", input=talk, tools=[FUNCTION], max_output_tokens=3)
    assert again.usage.input_tokens > response.usage.input_tokens


def test_json_of_a_schema(client):
    text = {"format": {"type": "json_schema", "name": "it", "schema": SCHEMA, "strict": True}}
    response = strict(client.responses.create(model="small", input="hello", text=text, max_output_tokens=50))
    assert json.loads(response.output_text).keys() == {"b"}
    assert response.text.format.name == "it"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input": "a", "previous_response_id": "resp_1"}, "previous_response_id"),
        ({"input": "a", "max_output_tokens": 0}, "max_output_tokens"),
        ({"input": "a", "max_output_tokens": 10**6}, "max_output_tokens"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input"),
        ({"input": [{"role": "robot", "content": "a"}]}, "input"),
        ({"input": "a", "tools": [{"type": "web_search"}]}, "tools"),
        ({"input": "a", "text": {"format": {"type": "json_schema", "schema": {"type": "nothing"}}}}, "text"),
        ({"input": "a", "tools": [FUNCTION], "tool_choice": {"type": "function", "name": "a b"}}, "tool_choice"),
        ({}, "input"),
    ],
)
def test_mistakes_name_the_parameter(server, body, param):  # noqa: F811
    import httpx

    answer = httpx.post(f"{server[0]}/v1/responses", json=body, timeout=60)
    assert answer.status_code == 400, answer.text
    assert answer.json()["error"]["param"] == param
