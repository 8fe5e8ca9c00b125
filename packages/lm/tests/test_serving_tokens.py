"""Ids of tokens over HTTP: /tokenize, /detokenize, and those beside the text of an answer."""

from __future__ import annotations

import json

import pytest
from served import needs_server, served

import lm
from lm.chat_template import Message, default_template

httpx = pytest.importorskip("httpx")

pytestmark = needs_server


@pytest.fixture(scope="module")
def server(model, tokenizer):
    with served(model, tokenizer) as (address, _):
        yield address


def ask(server, path, body):
    answer = httpx.post(f"{server}/{path}", json=body, timeout=60)
    return answer.status_code, answer.json()


def test_texts_and_conversations_become_the_ids_of_their_prompts(server, tokenizer):
    text = "é <|im_end|> 語"
    expected = tokenizer.encode(text, allowed_special="all")
    status, answer = ask(server, "tokenize", {"prompt": text, "model": "small", "return_token_strs": True})
    assert (status, answer["tokens"], answer["count"]) == (200, expected, len(expected))
    assert answer["max_model_len"] == 1024
    assert answer["token_strs"].count("<|im_end|>") == 1
    assert ask(server, "tokenize", {"prompt": "", "add_special_tokens": False})[1]["tokens"] == []
    messages = [{"role": "system", "content": "brief"}, {"role": "user", "content": text}]
    prompt = default_template(tokenizer).prompt([Message(**message) for message in messages])
    assert ask(server, "tokenize", {"messages": messages})[1]["tokens"] == prompt
    thoughts = [{"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": ""}]}]
    empty = [Message("assistant", "")]
    count = ask(server, "v1/messages/count_tokens", {"messages": thoughts})[1]
    assert count == {"input_tokens": len(default_template(tokenizer).prompt(empty))}
    assert ask(server, "detokenize", {"tokens": expected})[1] == {"prompt": text}
    assert ask(server, "detokenize", {"tokens": []})[1] == {"prompt": ""}
    assert ask(server, "tokenize", {"prompt": text, "model": "large"})[0] == 404
    assert ask(server, "detokenize", {"tokens": [], "model": "large"})[0] == 404


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("tokenize", {}, "prompt"),
        ("tokenize", {"prompt": "a", "messages": [{"role": "user", "content": "a"}]}, "prompt"),
        ("tokenize", {"messages": [{"role": "nobody", "content": "a"}]}, "messages"),
        ("tokenize", {"prompt": "a", "text": "b"}, "text"),
        ("detokenize", {"tokens": [259]}, "tokens"),
        ("detokenize", {"tokens": ["a"]}, "tokens"),
        ("v1/responses", {"input": "a", "return_token_ids": True}, "return_token_ids"),
        ("v1/responses", {"input": [{"type": "reasoning"}]}, "input"),
    ],
)
def test_mistakes_are_named(server, path, body, param):
    status, answer = ask(server, path, body)
    assert (status, answer["error"]["param"]) == (400, param)


@pytest.mark.parametrize("logprobs", [None, 1])
@pytest.mark.parametrize("stream", [False, True])
def test_answers_have_the_ids_that_were_sampled(server, model, tokenizer, stream, logprobs):
    """Those of generate alone, also of tokens that are no whole characters, and those of prompts."""
    prompts, size = [[97, 98], [200, 201, 202]], 40
    body = {"prompt": prompts, "max_tokens": size, "n": 2, "seed": 3, "return_token_ids": True, "ignore_eos": True}
    body |= {"stream": stream, "logprobs": logprobs}
    answer = httpx.post(f"{server}/v1/completions", json=body, timeout=60)
    ids, of_prompts = [[] for _ in range(4)], {}
    parts = [line[6:] for line in answer.text.splitlines() if line.startswith("data: {")] if stream else [answer.text]
    for part in parts:
        for choice in json.loads(part)["choices"]:
            ids[choice["index"]] += choice["token_ids"]
            if "prompt_token_ids" in choice:
                assert choice["index"] not in of_prompts
                of_prompts[choice["index"]] = choice["prompt_token_ids"]
    assert of_prompts == {0: prompts[0], 1: prompts[0], 2: prompts[1], 3: prompts[1]}
    assert ids == [lm.generate(model, prompt, max_new_tokens=size, seed=3 + j) for prompt in prompts for j in range(2)]


def test_a_chat_has_the_ids_of_its_prompt_and_of_its_answer(server, model, tokenizer):
    messages = [{"role": "user", "content": "hi"}]
    body = {"messages": messages, "max_tokens": 20, "seed": 1, "return_token_ids": True}
    template = default_template(tokenizer)
    (choice,) = ask(server, "v1/chat/completions", body)[1]["choices"]
    prompt = template.prompt([Message("user", "hi")])
    assert choice["prompt_token_ids"] == prompt
    assert choice["token_ids"] == lm.generate(
        model, prompt, max_new_tokens=20, seed=1, stop_tokens=template.stop_tokens
    )
    (without,) = ask(server, "v1/chat/completions", {**body, "return_token_ids": False})[1]["choices"]
    assert without.keys() == choice.keys() - {"token_ids", "prompt_token_ids"}
