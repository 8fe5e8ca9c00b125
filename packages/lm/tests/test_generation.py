"""The cache against the uncached model, sampling against its definition, texts beside each other and alone."""

from __future__ import annotations

import math
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from models import SHAPES, make, needs_compiler, some_ids

from lm.commands.cli import main
from lm.generation.decoder import Decoder
from lm.generation.sampling import History, NoToken, Sampling
from lm.generation.scheduler import Scheduler
from lm.generation.stream import StreamDecoder, generate, generate_batch, stream
from lm.interop.loading import model_text
from lm.ops.cpu.int8 import Int8Linear, quantized
from lm.tokenizer import END_OF_TEXT
from lm.training.run import read

ALL = {"num_kv_heads": 1, "sliding_window": 4, "norm_placement": "post", "bias": True, "qk_norm": True}
MORE_SHAPES = SHAPES | {"all at once": ALL, "exact": {"ffn": "gelu_exact"}, "slowed": {"rope_factor": 3.0}}


@pytest.mark.parametrize("native", [pytest.param(True, marks=needs_compiler), False])
@pytest.mark.parametrize("shape", MORE_SHAPES)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_every_split_of_texts_of_different_lengths_gives_the_uncached_logits(shape, native, data):
    """Each row is cut into parts of its own; runs of one token go through the decoder's steps, all rows together."""
    model, ids = make(**MORE_SHAPES[shape]), some_ids(3)
    decoder = Decoder(model, rows=3, native=native)
    with torch.no_grad():
        whole = model(ids)
    ends = [data.draw(st.integers(1, 6)) for _ in range(3)]
    for row, end in enumerate(ends):
        cut = data.draw(st.integers(0, end - 1))
        for part in (ids[row, :cut], ids[row, cut:end]):
            if len(part):
                logits = decoder.read(row, part.tolist())
        torch.testing.assert_close(logits, whole[row, end - 1], rtol=0, atol=1e-12)
    while max(ends) < 10:
        rows = data.draw(st.integers(1, 3))
        if max(ends[:rows]) == 10:
            break
        logits = decoder.step([int(ids[row, ends[row]]) for row in range(rows)])
        for row in range(rows):
            torch.testing.assert_close(logits[row], whole[row, ends[row]], rtol=0, atol=1e-12)
            ends[row] += 1
        if data.draw(st.booleans()) and ends[0] + 2 <= 10:  # a row may read several again
            logits = decoder.read(0, ids[0, ends[0] : ends[0] + 2].tolist())
            ends[0] += 2
            torch.testing.assert_close(logits, whole[0, ends[0] - 1], rtol=0, atol=1e-12)


def test_steps_in_bfloat16_are_as_near_as_its_numbers_are():
    model, ids = make(dtype=torch.bfloat16, qk_norm=True), some_ids(2)
    decoder = Decoder(model, rows=2)
    with torch.no_grad():
        whole = model(ids)
    for place in range(10):
        logits = decoder.step(ids[:, place].tolist())
    torch.testing.assert_close(logits, whole[:, -1], rtol=0.1, atol=0.1)


def test_a_row_without_room_is_refused():
    decoder = Decoder(make(), rows=1, capacity=2)
    decoder.read(0, [1, 2])
    with pytest.raises(ValueError, match="no room for 1 more"):
        decoder.step([3])
    with pytest.raises(ValueError, match="capacity 11 is more than the context of 10"):
        Decoder(make(), capacity=11)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("prompt", [1, 10, 23])
def test_greedy_generation_is_the_likeliest_token_again_and_again(shape, prompt):
    model = make(**SHAPES[shape])
    text = some_ids(1, prompt)[0].tolist()
    tokens = generate(model, text, max_new_tokens=25, temperature=0)
    assert len(tokens) == 25
    start = max(0, prompt - 10)  # of the window of text that the model reads
    for token in tokens:
        if len(text) - start > 10:
            start = len(text) - 5
        with torch.no_grad():
            assert token == int(model(torch.tensor([text[start:]]))[0, -1].argmax())
        text.append(token)


@settings(max_examples=20, deadline=None)
@given(
    lengths=st.lists(st.integers(1, 14), min_size=1, max_size=6),
    rows=st.integers(1, 4),
    samples=st.integers(1, 2),
    penalty=st.sampled_from([1.0, 1.3]),
)
def test_texts_beside_each_other_are_as_if_alone(lengths, rows, samples, penalty):
    model = make(num_kv_heads=1)
    prompts = [some_ids(1, n, seed=i)[0].tolist() for i, n in enumerate(lengths)]
    how = {"max_new_tokens": 12, "temperature": 1.5, "stop_tokens": [3], "repetition_penalty": penalty}
    tokens = generate_batch(model, prompts, samples=samples, rows=rows, seed=5, **how)
    assert tokens == [[generate(model, prompt, seed=5 + j, **how) for j in range(samples)] for prompt in prompts]


def test_texts_come_and_go_between_steps():
    model = make()
    batch = Scheduler(model, rows=3)
    how = {"max_new_tokens": 14, "sampling": Sampling(temperature=0)}
    alone = {n: generate(model, [n], max_new_tokens=14, temperature=0) for n in (1, 2, 3, 4)}
    first, second = batch.add([1], **how), batch.add([2], **how)
    batch.step()
    third = batch.add([3], **how)
    with pytest.raises(ValueError, match="full, it has 3 rows"):
        batch.add([4], **how)
    batch.step()
    batch.cancel(first)
    batch.cancel(first)
    assert (first.ended, first.tokens) == ("cancelled", alone[1][:2])
    fourth = batch.add([4], **how)
    seen = []
    while batch.sequences:
        seen += batch.step()
    for text, number in ((second, 2), (third, 3), (fourth, 4)):
        assert text.tokens == alone[number]
        assert text.ended == "length"
    assert [token for text, token in seen if text is fourth] == fourth.tokens
    assert batch.step() == []
    # Past the context of 10 each text read its younger half again, once: 10 more of prompt.
    assert batch.tokens_read == 4 + 3 * 5


def test_a_step_reads_short_prompts_together_and_no_more_than_a_chunk():
    scheduler = Scheduler(make(context_length=400), rows=8)
    short = [scheduler.add([number] * 40, max_new_tokens=9) for number in range(4)]
    scheduler.step()
    assert [len(one.tokens) for one in short] == [1, 1, 1, 0]
    scheduler.add([5] * 300, max_new_tokens=9)
    read = [scheduler.tokens_read]
    while len(read) < 5:
        scheduler.step()
        read.append(scheduler.tokens_read)
    assert scheduler.chunk_size == 128
    assert read == [120, 160, 288, 416, 460]


def test_samples_of_one_prompt_read_it_once():
    model = make()
    batch = Scheduler(model, rows=4)
    texts = [batch.add([1, 2, 3], max_new_tokens=2, seed=j) for j in range(4)]
    while batch.sequences:
        batch.step()
    assert batch.tokens_read == 3
    assert [text.tokens for text in texts] == [generate(model, [1, 2, 3], max_new_tokens=2, seed=j) for j in range(4)]


def test_a_seed_gives_the_same_tokens_and_another_seed_others():
    model = make()
    runs = [generate(model, [1, 2], max_new_tokens=30, seed=seed) for seed in (7, np.int64(7), 8)]
    assert runs[0] == runs[1] != runs[2]
    assert len({tuple(generate(model, [1], max_new_tokens=30)) for _ in range(3)}) > 1


def test_stream_ends_at_a_stop_token_and_leaves_no_mode_behind():
    model = make()
    tokens = generate(model, [3], max_new_tokens=30, seed=1)
    stop = tokens[11]
    first = tokens.index(stop)
    running = stream(model, [3], max_new_tokens=30, seed=1, stop_tokens=[stop])
    begun = [next(running)] if first else []
    assert not torch.is_inference_mode_enabled()
    assert begun + list(running) == tokens[:first]


def test_the_end_of_the_context_can_be_the_end_of_the_text():
    model = make()
    slid = generate(model, [3, 4], max_new_tokens=30, seed=1)
    assert generate(model, [3, 4], max_new_tokens=30, seed=1, when_full="end") == slid[:8]
    assert generate(model, [3], max_new_tokens=0) == []


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"ids": []}, "no tokens"),
        ({"ids": [19]}, "token id 19"),
        ({"ids": [-1]}, "token id -1"),
        ({"max_new_tokens": -1}, "max_new_tokens"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": math.nan}, "temperature"),
        ({"top_k": 0}, "top_k"),
        ({"top_p": 0.0}, "top_p"),
        ({"min_p": 1.1}, "min_p"),
        ({"repetition_penalty": 0.0}, "repetition_penalty"),
        ({"when_full": "wrap"}, "'wrap' is unknown"),
        ({"when_full": "refuse", "max_new_tokens": 10}, "context of 10"),
        ({"when_full": "end", "ids": [1] * 10}, "have no room"),
    ],
)
def test_generate_refuses(change, says):
    arguments = {"ids": [1], "max_new_tokens": 5} | change
    with pytest.raises(ValueError, match=says):
        generate(make(), **arguments)


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_weights_that_are_no_numbers_are_said(temperature):
    model = make()
    with torch.no_grad():
        model.final_norm.weight[0] = math.nan
    with pytest.raises(ValueError, match="logits are not numbers"):
        generate(model, [1], max_new_tokens=1, temperature=temperature)


def kept_by(p, top_k=None, top_p=None, min_p=None):
    """The tokens that sampling may choose of those with the probabilities p, by the definitions."""
    order = sorted(range(len(p)), key=lambda i: -p[i])
    if top_k is not None:
        order = order[:top_k]
        p = p / p[order].sum()
    if top_p is not None:
        total, nucleus = 0.0, []
        for i in order:
            nucleus.append(i)
            total += float(p[i])
            if total >= top_p:
                break
        order = nucleus
    if min_p is not None:
        order = [i for i in order if p[i] >= min_p * p[order[0]]]
    return set(order)


@pytest.mark.parametrize(
    "how", [{}, {"top_k": 3}, {"top_p": 0.7}, {"min_p": 0.3}, {"top_k": 4, "top_p": 0.8}, {"top_p": 0.9, "min_p": 0.2}]
)
@pytest.mark.parametrize("temperature", [1.0, 1.5])
def test_sampling_draws_from_what_it_keeps_and_in_proportion(how, temperature):
    logits = torch.tensor([0.3, 2.0, -1.0, 1.1, 1.7, -2.2])
    generator, sampling = torch.Generator().manual_seed(0), Sampling(temperature, **how)
    draws = [sampling.choose(logits, generator=generator) for _ in range(3000)]
    p = (logits / temperature).softmax(0)
    candidates = kept_by(p, **how)
    assert set(draws) == candidates
    for i in candidates:
        share = float(p[i] / p[sorted(candidates)].sum())
        assert draws.count(i) / 3000 == pytest.approx(share, abs=4 * math.sqrt(share * (1 - share) / 3000) + 1e-9)


def test_penalties_count_tokens_as_they_are_defined():
    """A History that grows by a token at a time, against a count of the whole text at each step."""
    draw, size = torch.Generator().manual_seed(0), 30
    settings = {"repetition_penalty": 1.3, "presence_penalty": 0.4, "frequency_penalty": 0.7, "logit_bias": {3: 2.5}}
    sampling, prompt, tokens = Sampling(temperature=0, **settings), [1, 2, 2], []
    history = History(size, prompt, tokens)
    for _ in range(200):
        logits = torch.randn(size, generator=draw)
        expected = logits.clone()
        expected[3] += 2.5
        for token, often in Counter(tokens).items():
            expected[token] -= 0.4 + 0.7 * often
        for token in {*prompt, *tokens}:
            expected[token] *= 1.3 if expected[token] <= 0 else 1 / 1.3
        token = sampling.choose(logits, history=history)
        assert token == int(expected.argmax())
        tokens.append(token)
        history.append(token)
    assert len(set(tokens)) > 10


class Refusal:
    """A constraint that raises an error at the third token."""

    def __init__(self, error, *, when_taken):
        self.error, self.when_taken, self.taken = error, when_taken, 0

    def allow(self, logits):
        if self.taken == 2 and not self.when_taken:
            raise self.error
        return logits

    def take(self, token):
        self.taken += 1
        if self.taken == 3:
            raise self.error
        return False


@pytest.mark.parametrize("native", [None, False])
def test_an_exception_of_one_text_ends_that_text_alone(native):
    model = make(context_length=40)
    batch = Scheduler(model, rows=6, native=native)
    others = [batch.add([1, 2, 3 + seed], max_new_tokens=12, seed=seed) for seed in range(2)]
    errors = RuntimeError("lost"), NoToken("nothing is allowed")
    bad = [
        batch.add([4, 5], max_new_tokens=12, constraint=Refusal(errors[0], when_taken=False)),
        batch.add([4, 6], max_new_tokens=12, constraint=Refusal(errors[1], when_taken=True)),
        batch.add([4, 7], max_new_tokens=12, sampling=Sampling(repetition_penalty=1e-40, temperature=0.5)),
    ]
    results = []
    while batch.sequences:
        results += batch.try_step()
    assert [one.ended for one in (*others, *bad)] == ["length"] * 2 + ["error"] * 3
    assert [one.error for one in bad[:2]] == list(errors)
    assert isinstance(bad[2].error, NoToken)
    assert [(one, None) for one in bad] == sorted(
        [result for result in results if result[0].error is not None and result[1] is None],
        key=lambda r: bad.index(r[0]),
    )
    for seed, one in enumerate(others):
        assert one.tokens == generate(model, [1, 2, 3 + seed], max_new_tokens=12, seed=seed)
    assert batch.room == 6
    batch.add([4, 5], max_new_tokens=12, constraint=Refusal(errors[0], when_taken=False))
    batch.step()
    batch.step()
    with pytest.raises(RuntimeError, match="lost"):
        batch.step()
    assert batch.room == 6


@pytest.mark.parametrize("native", [None, False])
@pytest.mark.parametrize("temperature", [9e-6, 1e-38, 1e-40, 5e-324])
def test_tiny_temperatures_are_greedy(native, temperature):
    model = make(context_length=40)
    greedy = generate(model, [1, 2], max_new_tokens=10, temperature=0)
    for more in ({}, {"top_p": 0.5}, {"repetition_penalty": 1.0001}):
        batch = Scheduler(model, rows=1, native=native)
        one = batch.add([1, 2], max_new_tokens=10, sampling=Sampling(temperature, **more), seed=0)
        while batch.sequences:
            batch.step()
        expected = generate(model, [1, 2], max_new_tokens=10, temperature=0, **more)
        assert one.tokens == expected
        assert more.keys() == {"repetition_penalty"} or expected == greedy


class Letters:
    """A tokenizer of these tokens."""

    def __init__(self, letters):
        self.letters = letters

    def decode_single_token_bytes(self, token):
        return self.letters[token].encode()


@settings(max_examples=200, deadline=None)
@given(
    pieces=st.lists(st.text("abc", max_size=3), max_size=8),
    stop=st.lists(st.text("abc", min_size=1, max_size=3), max_size=2),
)
def test_a_writer_ends_before_the_first_stop_string_wherever_tokens_part(pieces, stop):
    writer = StreamDecoder(Letters(pieces), stop)
    output, came = "", None
    for i in range(len(pieces)):
        output += writer.feed(i)
        if writer.stopped and came is None:
            came = i
    output += writer.finish()
    text = "".join(pieces)
    # The first to be complete ends the text; of those that are complete at the same token, the one that begins first.
    ends = [i for i in range(len(pieces)) if any(s in "".join(pieces[: i + 1]) for s in stop)]
    if not ends:
        assert (output, came) == (text, None)
    else:
        so_far = "".join(pieces[: ends[0] + 1])
        assert output == so_far[: min(so_far.find(s) for s in stop if s in so_far)]
        assert came == ends[0]


def test_a_stop_string_is_a_string_in_a_list():
    for stop in ("ab", [""]):
        with pytest.raises(ValueError, match="list of strings"):
            StreamDecoder(Letters([]), stop)


@pytest.mark.parametrize("shape", ["llama", "gpt2", "valued"])
def test_int8_weights_are_near_and_decode_as_they_read(shape):
    model, ids = make(dtype=torch.float32, **SHAPES[shape]), some_ids()
    small = quantized(model)
    with torch.no_grad():
        want, actual = model(ids), small(ids)
        near = (0.03 if shape == "valued" else 0.02) * float(want.abs().max())  # a soft cap cuts the largest
        assert not torch.equal(actual, want)
        torch.testing.assert_close(actual, want, rtol=0, atol=near)
    decoder = Decoder(small, rows=2)
    for place in range(10):
        logits = decoder.step(ids[:, place].tolist())
    torch.testing.assert_close(logits, actual[:, -1], rtol=0, atol=near)
    assert all(
        torch.equal(p, q)
        for p, q in zip(model.parameters(), make(dtype=torch.float32, **SHAPES[shape]).parameters(), strict=True)
    )


def test_int8_rounds_each_row_to_the_nearest_of_its_own_255_steps():
    weight = torch.tensor([[1.0, -2.0, 0.5], [0.0, 0.0, 0.0], [1e-3, 2e-3, -3e-3]])
    layer = Int8Linear(weight, torch.ones(3))
    step = layer.scale.float()[:3, None]
    assert (layer.weight - weight).abs().le(step / 2 + 1e-12).all()
    x = torch.eye(3)
    torch.testing.assert_close(layer(x), layer.weight.T + 1, rtol=1e-4, atol=1e-6)


@settings(max_examples=60, deadline=None)
@given(inputs=st.integers(1, 200), outputs=st.integers(1, 90), rows=st.integers(1, 9), lead=st.booleans())
def test_int8_layers_of_any_size(inputs, outputs, rows, lead):
    generator = torch.Generator().manual_seed(inputs * 100 + outputs)
    layer = Int8Linear(torch.randn(outputs, inputs, generator=generator))
    x = torch.randn(rows, inputs, generator=generator)
    want = x @ layer.weight.T
    actual, one = layer(x[None] if lead else x), layer(x[0])
    assert actual.shape == ((1,) if lead else ()) + (rows, outputs)
    torch.testing.assert_close(actual.view(rows, outputs), want, rtol=1e-4, atol=1e-3 * inputs**0.5)
    torch.testing.assert_close(one, want[0], rtol=1e-4, atol=1e-3 * inputs**0.5)


def test_every_end_of_text_that_prepare_takes_ends_generation(tmp_path, data):
    """A run stops at the end-of-text of its data, whatever that is called, whose id its configuration keeps."""
    bpe = pytest.importorskip("bpe")
    (tmp_path / "t.jsonl").write_text("".join(f'{{"text": "it is {n}"}}\n' for n in range(400)))
    for name in (*END_OF_TEXT, "<my end>"):
        folder = tmp_path / str(abs(hash(name)))
        folder.mkdir()
        bpe.Tokenizer({i: bytes([i]) for i in range(256)}, [], special_tokens=[name]).save(folder / "tok.json")
        arguments = ["--tokenizer", str(folder / "tok.json")]
        prepare = ["data", "prepare", str(tmp_path / "t.jsonl"), "--out", str(folder / "data"), *arguments]
        assert main([*prepare, "--heldout", "0", *(["--end-of-text", name] if name == "<my end>" else [])]) == 0
        size = {"vocab_size": 257, "context_length": 16, "num_layers": 1, "d_model": 16, "num_heads": 2, "d_ff": 16}
        settings = [f"--model.{key}={value}" for key, value in size.items()]
        settings += ["--train.steps=1", "--train.batch_size=1", "--train.warmup_steps=0", "--train.threads=1"]
        train = ["train", "cpu-demo", "--data", str(folder / "data"), "--out", str(folder / "run"), "--quiet"]
        assert main([*train, *arguments, *settings]) == 0
        assert read(folder / "run").data["end_of_text"] == 256
        assert model_text(folder / "run").stop_tokens == [256]


PLACES = ["", "head", "embedding", "blocks.0", "blocks.1.attention", "blocks.0.ffn.down", "final_norm"]


@pytest.mark.parametrize("native", [None, False])
@pytest.mark.parametrize("place", PLACES)
def test_a_hook_is_called_for_every_token_and_changes_each(place, native):
    model, prompt = make(context_length=24, dtype=torch.float32), [5, 6, 7]
    calls = []
    steer = torch.randn(model.config.vocab_size if place in ("", "head") else model.config.d_model)

    def hook(module, inputs, output):
        calls.append(place)
        return output + 3 * steer

    model.get_submodule(place).register_forward_hook(hook)
    ids, want = list(prompt), []
    with torch.no_grad():
        for _ in range(8):
            want.append(int(model(torch.tensor([ids]))[0, -1].argmax()))
            ids.append(want[-1])
    calls.clear()
    batch = Scheduler(model, rows=1, native=native)
    text = batch.add(prompt, max_new_tokens=8, sampling=Sampling(temperature=0))
    while batch.sequences:
        batch.step()
    assert text.tokens == want
    assert len(calls) == 8


@pytest.mark.parametrize("part", ["", "blocks.1", "blocks.0.attention", "blocks.0.ffn", "embedding"])
@pytest.mark.parametrize("way", ["subclass", "instance"])
def test_a_forward_of_its_own_is_used_for_every_token(part, way):
    model = make(context_length=24, dtype=torch.float32)
    module = model.get_submodule(part)
    plain, calls = type(module), []

    def forward(self, *arguments, **named):
        calls.append(part)
        return plain.forward(self, *arguments, **named)

    if way == "subclass":
        module.__class__ = type("Other", (plain,), {"forward": forward})
    else:
        module.forward = forward.__get__(module)
    generate(model, [1, 2, 3], max_new_tokens=6, temperature=0)
    assert len(calls) == 6


@pytest.mark.parametrize("native", [None, False])
def test_a_model_in_training_generates_without_dropout_and_keeps_its_mode(native):
    model = make(context_length=24, dtype=torch.float32)
    want = generate(model, [1, 2, 3], max_new_tokens=8, temperature=0)
    model.set_dropout(0.5)
    model.train()
    model.blocks[1].eval()
    modes = [module.training for module in model.modules()]
    for _ in range(4):
        batch = Scheduler(model, rows=1, native=native)
        text = batch.add([1, 2, 3], max_new_tokens=8, sampling=Sampling(temperature=0))
        while batch.sequences:
            batch.step()
        assert text.tokens == want
    assert [module.training for module in model.modules()] == modes


@pytest.mark.parametrize(
    ("ids", "more", "error", "words"),
    [
        (torch.tensor([[1, 2, 3]]), {}, TypeError, r"the prompt.*\[1, 2, 3\]"),
        ("hello", {}, TypeError, "expected token ids, got text"),
        ([1, 2.5], {}, TypeError, "2.5"),
        ([1], {"max_new_tokens": 2.5}, TypeError, "max_new_tokens.*2.5"),
        ([1], {"top_k": 1.5}, TypeError, "top_k.*1.5"),
        ([1], {"temperature": None}, TypeError, "temperature to be a number, got None"),
        ([1], {"top_p": "0.9"}, TypeError, "top_p to be a number, got '0.9'"),
        ([1], {"seed": 2**70}, ValueError, "seed to be from"),
        ([1], {"seed": "a"}, TypeError, "seed.*'a'"),
        ([1], {"stop_tokens": 5}, TypeError, "stop_tokens.*5"),
        ([1], {"stop_tokens": "a"}, TypeError, "stop_tokens.*'a'"),
    ],
)
def test_wrong_arguments_are_named(ids, more, error, words):
    with pytest.raises(error, match=words):
        generate(make(), ids, **{"max_new_tokens": 2, **more})
    with pytest.raises(error, match=words):
        generate_batch(make(), [ids], **{"max_new_tokens": 2, **more})


def test_prompts_of_a_batch_are_lists_of_ids():
    for prompts in ([1, 2, 3], "abc", 5):
        with pytest.raises(TypeError, match="token ids"):
            generate_batch(make(), prompts, max_new_tokens=2)
    ids = torch.tensor([1, 2, 3])
    assert generate(make(), ids, max_new_tokens=2, seed=1) == generate(make(), [1, 2, 3], max_new_tokens=2, seed=1)


def test_a_forked_process_generates_and_trains():
    """After threads of OpenMP have run here; the child would wait for them for ever."""
    script = """
import os, signal, sys
import torch, lm
torch.set_num_threads(2)
model = lm.Transformer(lm.ModelConfig(4096, 64, 2, 256, 4, 1024))
tokens = lm.generate(model, [1, 2], max_new_tokens=8, seed=0)
torch.randn(800, 800) @ torch.randn(800, 800)
child = os.fork()
if child == 0:
    signal.alarm(100)
    same = lm.generate(model, [1, 2], max_new_tokens=8, seed=0) == tokens
    model(torch.zeros(2, 64, dtype=torch.long)).sum().backward()
    os._exit(0 if same else 1)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    process = subprocess.run([sys.executable, "-W", "ignore", "-c", script], capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
