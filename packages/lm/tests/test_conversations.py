"""Conversations: their template, what of them is learned, and training on them, down to the gradients."""

from __future__ import annotations

import collections
import dataclasses
import gzip
import importlib.util
import itertools
import json
import re

import numpy as np
import pytest
import torch
from models import random_model
from published_templates import ENDS_INSIDE, FAMILIES
from runs import CONFIG, assert_continues, metrics, run
from talks import MARKS, TALK, lines, tokenizer

import lm
from lm.chat_template import ChatTemplate, Message, default_template
from lm.commands.cli import main
from lm.data import open_data, open_tokens, write_tokens
from lm.data.conversations import ENDLESS, pair_of, prepare_rows
from lm.data.problems import problems_of
from lm.data.rows import messages_in, read_messages, tools_of
from lm.documents import IGNORE, document_ids_of
from lm.training.validation import evaluate

bpe_only = pytest.mark.skipif(importlib.util.find_spec("bpe") is None, reason="the package bpe is not installed")


def masked(folder, mask, name="train", seed=0):
    ids = np.random.default_rng(seed).integers(4, 50, len(mask))
    ids[::20] = 3
    write_tokens(folder / f"{name}.npy", ids, tokenizer="t", end_of_text=3, mask=np.array(mask))
    return folder


@bpe_only
@pytest.mark.parametrize("special", [MARKS, MARKS[:1]])
def test_the_assistants_part_alone_is_learned_and_prompts_are_what_was_trained_on(special):
    tok = tokenizer(special)
    template, talk = default_template(tok), read_messages(TALK)
    ids, learned = template.encode(talk)
    answers = tok.decode([i for i, is_learned in zip(ids, learned, strict=True) if is_learned])
    end = "\n### end" if template.stop else "<|im_end|>"
    assert answers == f"4 é{end}yes{end}"
    assert ids.count(tok.special_tokens["<|endoftext|>"]) == 1
    if not template.stop:
        assert tok.decode(ids) == "<|endoftext|>" + "".join(
            f"<|im_start|>{m.role}\n{m.content}<|im_end|>\n" for m in talk
        )
        assert ids.count(tok.special_tokens["<|im_end|>"]) == len(talk)  # the one in a content is text
    for at in (2, 4):
        prompt = template.prompt(talk[:at])
        assert ids[: len(prompt)] == prompt
        assert learned[len(prompt) - 1 : len(prompt) + 1] == [False, True]


@bpe_only
def test_what_does_not_fit_loses_its_oldest_turns(monkeypatch):
    template, talk = default_template(tokenizer()), read_messages(TALK[:4])
    whole = template.prompt(talk)
    assert template.fit(talk, len(whole)) == (whole, 0)
    short = template.prompt([talk[0], talk[3]])
    assert template.fit(talk, len(whole) - 1) == (short, 2)
    with pytest.raises(ValueError, match="the last message alone"):
        template.fit(talk, len(short) - 1)
    # Of a long talk few prompts are made: a client may send any number of short messages.
    prompts, prompt = list[int](), ChatTemplate.prompt
    monkeypatch.setattr(ChatTemplate, "prompt", lambda *args: prompts.append(0) or prompt(*args))
    ids, dropped = template.fit([talk[0], *talk[1:3] * 500, talk[3]], len(whole) + 1)
    assert (ids, dropped, len(prompts) < 20) == (whole, 998, True)


@bpe_only
@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("nonsense", "line 2, is no conversation"),
        ("7", "it is not a JSON object"),
        ('{"text": "x"}', 'expected an object with "messages"'),
        ('{"messages": []}', "at least one message"),
        ('{"messages": [{"role": "user"}]}', r"messages\[0\] must have a role and a content"),
        ('{"messages": [{"role": "critic", "content": "x"}]}', "the role 'critic': use one of system, user, human"),
        ('{"messages": [{"role": "user", "content": "x"}, {"role": "system", "content": "x"}]}', "only the first"),
    ],
)
def test_lines_that_are_no_conversations_are_named(tmp_path, capsys, line, says):
    tokenizer().save(tmp_path / "tok.json")
    lines(tmp_path / "talks.jsonl", TALK)
    with open(tmp_path / "talks.jsonl", "a") as file:
        file.write(line + "\n")
    arguments = ["--tokenizer", str(tmp_path / "tok.json"), "--out", str(tmp_path / "out"), "--context", "64"]
    assert main(["data", "chat", str(tmp_path / "talks.jsonl"), *arguments]) == 2
    assert re.search(says, capsys.readouterr().err)
    assert not (tmp_path / "out").exists()


@bpe_only
def test_a_model_learns_to_answer(tmp_path, capsys):
    """From lines of JSON to an imported run that answers as it was taught: by command alone."""
    tokenizer().save(tmp_path / "tok.json")
    ask = [
        [{"role": "user", "content": str(n)}, {"role": "assistant", "content": f"{'ab'[n % 2] * 3}"}] for n in range(8)
    ]
    lines(tmp_path / "talks.jsonl", *ask, ask[0][:1])
    data, base, chat = (str(tmp_path / name) for name in ("data", "base", "chat"))
    arguments = ["--tokenizer", str(tmp_path / "tok.json")]
    talks = ["data", "chat", str(tmp_path / "talks.jsonl"), "--out", data, *arguments]
    assert main([*talks, "--heldout", "0"]) == 2
    assert "give --context" in capsys.readouterr().err
    talks += ["--context", "64"]
    assert main([*talks, "--heldout", "0"]) == 0
    stdout = capsys.readouterr().out
    assert "8 conversations" in stdout
    assert "left out, because the assistant says nothing in them: 1" in stdout
    assert main(["data", "verify", data, *arguments]) == 0
    (tmp_path / "small.toml").write_text(
        "[model]\nvocab_size = 259\ncontext_length = 64\nnum_layers = 2\nd_model = 32\nnum_heads = 2\nd_ff = 64\n"
        "[train]\nsteps = 1\nbatch_size = 8\nlearning_rate = 1e-2\nwarmup_steps = 0\nthreads = 1\nprecision = 'fp32'\n"
        "compile = 'off'\n"
    )
    train = ["train", str(tmp_path / "small.toml"), "--quiet", "--data", data, "--train.objective", "sft", *arguments]
    assert main([*train, "--out", base]) == 0
    assert main(["import", base, "--out", chat]) == 0
    more = ["--train.steps", "120", "--train.document_masking", "true"]
    assert main([*train, "--out", chat, *more]) == 0
    template, model = default_template(tokenizer()), lm.load(chat)
    for n in range(8):
        prompt = template.prompt([Message("user", str(n))])
        answer = lm.generate(model, prompt, max_new_tokens=9, temperature=0, stop_tokens=template.stop_tokens)
        assert bytes(answer).decode() == "ab"[n % 2] * 3
    assert main(talks) == 2
    assert "has token files in it" in capsys.readouterr().err


def test_targets_that_are_not_learned_are_ignored(tmp_path):
    mask = np.random.default_rng(1).integers(0, 2, 400)
    data = open_data(masked(tmp_path, mask))
    plain = dataclasses.replace(data.parts[0].tokens, mask=None)
    for step in range(40):
        inputs, targets = data.batch(0, step, 0, 1, 4, 16)
        same_inputs, all_targets = lm.data.batch(plain.ids, 0, step, 0, 1, 4, 16)
        assert torch.equal(inputs, same_inputs)
        hidden = targets == IGNORE
        assert torch.equal(targets[~hidden], all_targets[~hidden])
        for row, hides in zip(all_targets.tolist(), hidden.tolist(), strict=True):
            ids = data.parts[0].tokens.ids.tolist()  # type: ignore[attr-defined]
            at = next(n for n in range(400) if [ids[(n + k) % 400] for k in range(16)] == row)
            assert hides == [mask[(at + k) % 400] == 0 for k in range(16)]


def test_the_loss_is_the_mean_over_what_is_learned_and_a_step_without_any_changes_nothing(tmp_path):
    mask = np.zeros(200, dtype=int)
    mask[60:70] = 1
    data = open_data(masked(tmp_path, mask))
    config = dataclasses.replace(CONFIG, steps=8, batch_size=2, micro_batch_size=1, eval_every=0, objective="sft")
    shape = lm.ModelConfig(50, 16, 1, 16, 2, 24)
    lm.train(shape, config, tmp_path, tmp_path / "run", progress=False)
    logged = metrics(tmp_path / "run")
    without = 0
    for line in logged:
        _, first = data.batch(0, 2 * line["step"] - 2, 0, 1, 1, 16)
        _, second = data.batch(0, 2 * line["step"] - 1, 0, 1, 1, 16)
        learned = int((torch.cat([first, second]) != IGNORE).sum())
        assert ("skipped" in line) == (not learned)
        without += not learned
        if learned:
            assert line["loss"] == pytest.approx(np.log(50), rel=0.4)
            assert line["gradient_norm"] > 0
        else:
            assert line["skipped"] == "every target is masked"
            assert "loss" not in line
    assert 0 < without < len(logged)
    assert all(torch.isfinite(p).all() for p in lm.load(tmp_path / "run").parameters())


def test_a_run_on_conversations_resumes_to_the_bit(tmp_path):
    mask = np.random.default_rng(1).integers(0, 2, 1000)
    masked(tmp_path, mask)
    masked(tmp_path, mask[:200], "heldout", 1)
    config = dataclasses.replace(CONFIG, document_masking=True, steps=10, objective="sft")
    shape = lm.ModelConfig(50, 16, 1, 16, 2, 24)
    assert_continues(tmp_path, tmp_path, config, shape, step=5)
    marks = 1 - np.asarray(open_tokens(tmp_path / "train.npy").mask)
    write_tokens(tmp_path / "train.npy", np.load(tmp_path / "train.npy"), tokenizer="t", end_of_text=3, mask=marks)
    with pytest.raises(ValueError, match="mask"):
        run(tmp_path, tmp_path / "whole", config, shape)


@pytest.mark.parametrize("documents", [False, True])
def test_scoring_counts_what_is_learned_alone(tmp_path, documents):
    mask = np.random.default_rng(1).integers(0, 2, 100)
    tokens = open_tokens(masked(tmp_path, mask) / "train.npy")
    model = random_model(50, 128, 1, 16, 2, 24)
    score = evaluate(model, tokens, document_masking=documents)
    inputs = torch.tensor([[3, *tokens.ids[:-1].tolist()]])
    with torch.no_grad():
        groups = document_ids_of(inputs, 3) if documents else None
        logs = model.logits(model.hidden(inputs, groups))[0].double().log_softmax(-1)
    nats = -logs[torch.arange(100), torch.tensor(tokens.ids.astype(np.int64))]  # type: ignore[attr-defined]
    assert score.tokens == mask.sum()
    assert score.nats == pytest.approx(float(nats[torch.from_numpy(mask == 1)].sum()), rel=1e-5)
    empty = open_tokens(masked(tmp_path, [0] * 100, "none") / "none.npy")
    with pytest.raises(ValueError, match="nothing to score"):
        evaluate(model, empty)


def test_a_mask_that_is_gone_or_altered_is_named(tmp_path):
    masked(tmp_path, [0, 1] * 50)
    path = tmp_path / "train.mask"
    whole = path.read_bytes()
    path.write_bytes(whole[:-1] + b"\0")
    with pytest.raises(ValueError, match=r"train\.mask is damaged"):
        open_tokens(tmp_path / "train.npy")
    path.write_bytes(whole[:-1])
    with pytest.raises(ValueError, match="not a mask that can be read"):
        open_tokens(tmp_path / "train.npy")
    path.unlink()
    with pytest.raises(FileNotFoundError, match=r"there is no .*train\.mask"):
        open_tokens(tmp_path / "train.npy")


def test_files_with_and_without_masks_are_one(tmp_path):
    masked(tmp_path, [0, 1] * 50, "train-0")
    write_tokens(tmp_path / "train-1.npy", np.arange(4, 40), tokenizer="t", end_of_text=3)
    both = open_tokens([tmp_path / "train-0.npy", tmp_path / "train-1.npy"])
    assert both.mask[:].tolist() == [0, 1] * 50 + [1] * 36


def talk_of(number, turns, words):
    """A conversation whose every answer names it, so that a window shows whose tokens it holds."""
    messages = [{"role": "system", "content": f"system {number}"}]
    for turn in range(turns):
        messages.append({"role": "user", "content": f"{number} asks {turn} " + "x" * words})
        messages.append({"role": "assistant", "content": f"{number} says {turn}"})
    return messages


def chat(folder):
    """The command that packs the conversations of a folder."""
    places = [str(folder / "talks.jsonl"), "--tokenizer", str(folder / "tok.json")]
    return ["data", "chat", *places, "--heldout", "0"]


@bpe_only
def test_no_conversation_loses_its_beginning_at_the_border_of_a_window(tmp_path, capsys):
    """Every row of every batch holds whole conversations: what is learned has its whole beginning before it."""
    tok, context = tokenizer(), 192
    tok.save(tmp_path / "tok.json")
    talks = [talk_of(n, 1 + n % 3, 5 * (n % 4)) for n in range(30)]
    long = talk_of(99, 9, 10)  # longer than a window: cut after an answer
    huge = talk_of(77, 1, 400)  # not even its first exchange has room
    lines(tmp_path / "talks.jsonl", *talks, long, huge)
    assert main([*chat(tmp_path), "--context", str(context), "--out", str(tmp_path / "data")]) == 0
    stdout = capsys.readouterr().out
    assert "31 conversations" in stdout
    assert f"longer than {context} tokens, and cut after the last answer that fits: 1" in stdout
    assert f"no room in {context} tokens: 1" in stdout
    data = open_data(tmp_path / "data")
    assert data.parts[0].tokens.window == context
    windows = len(data.parts[0].tokens) // context
    template, seen = default_template(tok), []
    end = tok.special_tokens["<|endoftext|>"]
    for epoch in range(3):
        for index in range(windows):
            inputs, targets = data.batch(5, epoch * windows + index, 0, 1, 1, context)
            ids, labels = inputs[0].tolist(), targets[0].tolist()
            assert ids[0] == end
            starts = [at for at, token in enumerate(ids) if token == end] + [context]
            for begin, stop in itertools.pairwise(starts):
                if stop - begin > 1:
                    seen.append(tuple(ids[begin:stop]))
                    learned = [w for w in labels[begin : stop - 1] if w != IGNORE]
                    assert learned[-1:] == [tok.special_tokens["<|im_end|>"]]
            assert labels[-1] == IGNORE or labels[-1] == tok.special_tokens["<|im_end|>"]
    expected = [template.encode(read_messages(talk))[0] for talk in [*talks, long]]
    cut = next(
        ids
        for ids in map(list, set(seen))
        if ids[: len(ids)] == expected[-1][: len(ids)] and tok.decode(ids).count("99")
    )
    assert len(cut) <= context < len(expected[-1])
    assert tok.decode(cut).endswith("<|im_end|>\n")
    counts = collections.Counter(seen)
    assert counts == {**{tuple(ids): 3 for ids in expected[:-1]}, tuple(cut): 3}


@bpe_only
@pytest.mark.parametrize("kind", ["conversation", "prompt", "pair"])
@pytest.mark.parametrize("family", [*FAMILIES, *ENDS_INSIDE])
def test_an_example_is_one_document_whatever_ends_its_turns(family, kind, tmp_path):
    """Also where the token that ends a text ends each turn: attention within documents sees the whole example."""
    source, special, names, *stops = {**FAMILIES, **ENDS_INSIDE}[family]
    tok = tokenizer(special)
    ends = tuple(tok.special_tokens[name] for name in (stops or [[names["eos_token"]]])[0])
    template = ChatTemplate(tok, source, ends, names=names)
    talks = [[*talk_of(n, 1, 0)[1:], {"role": "user", "content": "again?"}] for n in range(4)]
    answers = [{"role": "assistant", "content": text} for text in ("yes", "no")]
    rows = [
        {"prompt": talk, "chosen": answers[:1], "rejected": answers[1:], "messages": talk + answers[:1]}
        for talk in talks
    ]
    if kind == "conversation":
        rows = [{"messages": row["messages"]} for row in rows]
    path, out, context = tmp_path / "rows.jsonl", tmp_path / "out", 1024
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    prepare_rows(kind, [path], template, out, context_length=context, heldout=0)
    data = open_data(out)
    inputs, targets = (batch[0] for batch in data.batch(0, 0, 0, 1, 1, context))
    mark = tok.decode([data.end_of_text])
    if kind == "prompt":
        documents = [
            tok.decode(prompt) for prompt, _ in problems_of(inputs.tolist(), targets.tolist(), data.end_of_text)
        ]
        texts = [template.render(read_messages(talk)) for talk in talks]
    else:
        document_ids = document_ids_of(inputs[None], data.end_of_text)[0]
        documents = [tok.decode(inputs[document_ids == number].tolist()) for number in document_ids.unique()]
        ends = answers[:1] if kind == "conversation" else answers
        examples = [read_messages([*talk, end]) for talk in talks for end in ends]
        texts = [template.render(example, add_generation_prompt=False) for example in examples]
    assert sorted(set(documents) - {mark}) == sorted(mark + text.removeprefix(mark) for text in texts)


@bpe_only
def test_a_line_end_behind_the_end_of_answers_is_not_taken_for_it(tmp_path):
    """As trl's templates for training mark it, of Gemma and of Qwen."""
    tok = tokenizer()
    source = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n"
        "{% generation %}{{ m.content }}<|im_end|>{{ '\\n' }}{% endgeneration %}{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    template = ChatTemplate(tok, source, (tok.special_tokens["<|im_end|>"],))
    (tmp_path / "rows.jsonl").write_text('{"prompt": "2+2?"}\n')
    prepare_rows("prompt", [tmp_path / "rows.jsonl"], template, tmp_path / "out", context_length=64, heldout=0)
    ids = open_tokens(tmp_path / "out" / "train.npy").ids[:].tolist()
    assert ids[: ids.index(tok.special_tokens["<|endoftext|>"], 1)][-1] == tok.special_tokens["<|im_end|>"]


@bpe_only
def test_a_token_that_the_template_writes_inside_is_no_separator(tmp_path, capsys):
    tok = tokenizer(["<s>", "</s>"])
    source, _, names = ENDS_INSIDE["tinyllama"]
    template = ChatTemplate(tok, source, (tok.special_tokens["</s>"],), names=names)
    path = lines(tmp_path / "talks.jsonl", talk_of(1, 1, 0)[1:])
    with pytest.raises(ValueError, match="writes </s> inside of examples: name another by --end-of-text"):
        prepare_rows("conversation", [path], template, tmp_path / "out", context_length=256, end_of_text="</s>")
    llama2 = ChatTemplate(tok, ENDS_INSIDE["llama2"][0], (tok.special_tokens["</s>"],), names=names)
    with pytest.raises(ValueError, match="writes every usual special token"):
        prepare_rows("conversation", [path], llama2, tmp_path / "out", context_length=256)
    assert not (tmp_path / "out").exists()


@bpe_only
def test_a_packed_file_goes_with_its_context_alone(tmp_path):
    tokenizer().save(tmp_path / "tok.json")
    lines(tmp_path / "talks.jsonl", *[talk_of(n, 1, 3) for n in range(6)])
    assert main([*chat(tmp_path), "--context", "128", "--out", str(tmp_path / "data")]) == 0
    data = open_data(tmp_path / "data")
    data.check(259, 128)
    with pytest.raises(ValueError, match=r"packed into windows of 128 tokens.*context_length is 64"):
        data.check(259, 64)


USER, ANSWER = {"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello", "weight": 1}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"functions": [{}]}, '"functions" is not read'),
        ({"tools": {"a": 1}}, '"tools" is no list'),
        ({"weight": 0}, r"messages\[1\] has the weight 0"),
        ({"tool_calls": [{}]}, r"messages\[1\] has a call that is not an object"),
        ({"tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}, "arguments that are not JSON"),
        ({"audio": "ada"}, r'messages\[1\] has "audio"'),
        ({"content": [{"type": "image_url"}]}, "parts that are no text"),
    ],
)
def test_a_key_that_would_change_what_is_learned_is_refused(change, says):
    on_line = change if "functions" in change or "tools" in change else {}
    answer = ANSWER | ({} if on_line else change)
    with pytest.raises(ValueError, match=says):
        messages_in({"messages": [USER, answer], "id": 7}), tools_of(on_line)
    with pytest.raises(ValueError, match=says):
        pair_of({"chosen": [USER, answer], "rejected": "no"} | on_line)
    assert len(messages_in({"messages": [USER, ANSWER], "id": 7})) == 2


FOUR = {"role": "assistant", "content": "4"}
FORMS = [
    {"messages": [{"role": "user", "content": [{"type": "text", "text": "2"}, {"type": "text", "text": "+2?"}]}, FOUR]},
    {"conversations": [{"from": "human", "value": "2+2?"}, {"from": "gpt", "value": "4"}]},
    {"prompt": "2+2?", "completion": "4"},
    {"prompt": [{"role": "user", "content": "2+2?"}], "completion": [FOUR]},
    {"instruction": "2+2?", "input": "", "output": "4"},
]


@bpe_only
@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "jsonl.zst", "json", "parquet", "deep/er/x.jsonl"])
def test_every_form_in_every_kind_of_file_is_one_conversation(tmp_path, kind):
    """Each form alone in a file has the token file of the first."""
    tok, files = tokenizer(), []
    for number, form in enumerate(FORMS):
        path = tmp_path / str(number) / (kind if "/" in kind else f"talks.{kind}")
        path.parent.mkdir(parents=True)
        if (kind, number) == ("parquet", 0):  # a column has one type
            form = {"messages": [form["messages"][0], FOUR | {"content": [{"type": "text", "text": "4"}]}]}
        rows = [form, form]
        text = "".join(json.dumps(row) + "\n" for row in rows).encode()
        if kind == "parquet":
            pyarrow = pytest.importorskip("pyarrow")
            pytest.importorskip("pyarrow.parquet").write_table(pyarrow.Table.from_pylist(rows), path)
        else:
            text = json.dumps(rows, indent=1).encode() if kind == "json" else text
            text = gzip.compress(text) if kind.endswith("gz") else text
            path.write_bytes(pytest.importorskip("zstandard").compress(text) if kind.endswith("zst") else text)
        source = path.parents[2] if "/" in kind else path
        out = tmp_path / f"out{number}"
        prepare_rows("conversation", [source], default_template(tok), out, context_length=64, heldout=0)
        files.append(((out / "train.npy").read_bytes(), (out / "train.mask").read_bytes()))
    assert len(files) == 5
    assert len(set(files)) == 1
    assert files[0][0].count("2+2?".encode("utf-16-le")) == 2


TOOL = {"type": "function", "function": {"name": "add", "description": "sum", "parameters": {"type": "object"}}}
CALL = {"type": "function", "function": {"name": "add", "arguments": '{"a": 2}'}}
WITH_TOOLS = {
    "tools": [TOOL],
    "messages": [
        {"role": "user", "content": "2+2?"},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "content": "4", "name": "add"},
        {"role": "assistant", "content": "It is 4."},
    ],
}
TOOLS_TEMPLATE = """{% if tools %}<|im_start|>system
{{ tools | tojson }}<|im_end|>
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.content %}{{ m.content }}{% endif %}{% for call in m.tool_calls or [] %}<tool_call>
{{ call.function | tojson }}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""


@bpe_only
def test_calls_of_tools_are_learned_and_written_as_transformers_writes_them():
    transformers = pytest.importorskip("transformers")
    tok = tokenizer()
    template = ChatTemplate(tok, TOOLS_TEMPLATE, (tok.special_tokens["<|im_end|>"],))
    share = [
        {"from": "human", "value": "2+2?"},
        {"from": "function_call", "value": '{"name": "add", "arguments": {"a": 2}}'},
        {"from": "observation", "value": "4"},
        {"from": "gpt", "value": "It is 4."},
    ]
    for row in (WITH_TOOLS, {"conversations": share, "tools": json.dumps([TOOL])}):
        ids, learned = template.encode(messages_in(row), tools_of(row))
        assert [tok.decode([i for i, is_learned in group]) for is_learned, group in runs_of(ids, learned)] == [
            '<tool_call>\n{"name": "add", "arguments": {"a": 2}}\n</tool_call><|im_end|>',
            "It is 4.<|im_end|>",
        ]
        tokenizer_base = transformers.PreTrainedTokenizerBase()
        called = {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "add", "arguments": {"a": 2}}}],
        }
        talk = [WITH_TOOLS["messages"][0], called, *WITH_TOOLS["messages"][2:]]
        text = tokenizer_base.apply_chat_template(talk, tools=[TOOL], chat_template=TOOLS_TEMPLATE, tokenize=False)
        assert tok.decode(ids) == text
    with pytest.raises(ValueError, match="the default one writes no tools"):
        default_template(tok).encode(messages_in(WITH_TOOLS), tools_of(WITH_TOOLS))


def runs_of(ids, learned):
    """The runs of ids that are learned."""
    runs = itertools.groupby(zip(ids, learned, strict=True), key=lambda pair: pair[1])
    return [(is_learned, list(group)) for is_learned, group in runs if is_learned]


@bpe_only
def test_answers_without_an_end_are_counted(tmp_path):
    tok = tokenizer()
    source = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n"
        "{% generation %}{{ m.content }}{% endgeneration %}<|im_end|>\n{% endfor %}"
    )
    template = ChatTemplate(tok, source, (tok.special_tokens["<|im_end|>"],))
    path = lines(tmp_path / "talks.jsonl", TALK[1:3])
    splits = prepare_rows("conversation", [path], template, tmp_path / "out", context_length=64, heldout=0)
    assert splits.left_out[ENDLESS] == 1


@bpe_only
def test_a_run_of_epochs_has_their_steps(tmp_path, capsys):
    masked(tmp_path, np.ones(16 * 30 + 5, dtype=int))
    config = dataclasses.replace(CONFIG, steps=0, epochs=2.5, objective="sft", eval_every=0, warmup_steps=0)
    result = run(tmp_path, tmp_path / "run", config, lm.ModelConfig(50, 16, 1, 16, 2, 24))
    assert result.steps == 19  # 75 windows, 4 in a step
    again = run(tmp_path, tmp_path / "run", dataclasses.replace(config, epochs=3), lm.ModelConfig(50, 16, 1, 16, 2, 24))
    assert again.steps == 23
