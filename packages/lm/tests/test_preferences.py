"""Preferences: pairs as token files, the loss beside its definition, runs that go on, a model that chats after it."""

from __future__ import annotations

import dataclasses
import importlib.util
import json

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from models import rotate_neighbours_as_halves
from processes import processes, train
from runs import CONFIG, MODEL, assert_continues, metrics, run, write_windows
from talks import tokenizer

import lm
from lm import lora
from lm.chat_template import default_template
from lm.commands.cli import main
from lm.data import open_data, open_tokens
from lm.data.conversations import prepare_rows
from lm.documents import IGNORE
from lm.model import Transformer
from lm.training.objectives.dpo import DirectPreference

bpe_only = pytest.mark.skipif(importlib.util.find_spec("bpe") is None, reason="the package bpe is not installed")
WINDOW, END = 16, 3


def two_pairs(random):
    """[end prompt | answer] twice for each: a better answer rises by one, another falls."""
    row, mask = [], []
    for size in (2, 1):
        start = int(random.integers(10, 40))
        better, worse = ([start + sign * (n + 1) for n in range(size)] for sign in (1, -1))
        for answer in (better, worse):
            row += [END, start, *answer]
            mask += [0, 0, *[1] * size]
    return row, mask


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    return write_windows(tmp_path_factory.mktemp("pairs"), WINDOW, END, two_pairs, pairs=True)


def preferring(base, **more):
    return dataclasses.replace(
        CONFIG, init_from=str(base), objective="dpo", document_masking=True, steps=16, learning_rate=3e-3, **more
    )


DPO = dataclasses.replace(CONFIG, objective="dpo", dpo_beta=0.3)


def preferring_loss(model, reference=None):
    return DirectPreference(model, DPO, END, reference)


def some_batch(pairs):
    return open_data(pairs).batch(0, 0, 0, 1, 3, WINDOW)


def prepared(loss, inputs, targets):
    (micro_batch,) = loss.prepare([(inputs, targets)], 0)
    return micro_batch


def moved(seed=0):
    """A model and what it was before."""
    torch.manual_seed(seed)
    before = Transformer(MODEL).double()
    after = Transformer(MODEL).double()
    return after, before


def log_likelihood(model, ids, answer):
    """log p of the last `answer` tokens of one text, alone in its row."""
    logits = model(torch.tensor([ids[:-1]]))[0]
    rows = F.log_softmax(logits, -1)
    return sum(rows[place - 1, ids[place]] for place in range(len(ids) - answer, len(ids)))


def test_the_loss_is_its_definition(pairs):
    model, before = moved()
    inputs, targets = some_batch(pairs)
    loss = preferring_loss(model, before)
    micro_batch = prepared(loss, inputs, targets)
    assert loss.count([micro_batch]) == 6
    actual, want, right = loss(*micro_batch), 0.0, 0
    for row in inputs.tolist():
        at = 0
        for size in (2, 1):
            texts = [row[at + i * (2 + size) : at + (i + 1) * (2 + size)] for i in range(2)]
            at += 2 * (2 + size)
            better, worse = (log_likelihood(model, text, size) - log_likelihood(before, text, size) for text in texts)
            want = want - F.logsigmoid(0.3 * (better - worse))
            right += int(better > worse)
    torch.testing.assert_close(actual, want)
    assert loss.sums["preferred"] == right
    gradients = [torch.autograd.grad(y, list(model.parameters()), retain_graph=True) for y in (actual, want)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)
    assert all(p.grad is None for p in before.parameters())


def test_the_loss_is_that_of_trl():
    """The right value: DPOTrainer._compute_loss of trl 1.16.0 on the same weights, exported, with beta 0.3."""
    policy, before = Transformer(MODEL), Transformer(MODEL)
    with torch.no_grad():
        for seed, model in enumerate((policy, before)):
            for number, p in enumerate(model.parameters()):
                places = torch.arange(p.numel(), dtype=torch.float64)
                p.copy_((torch.sin(places * (1.3 + 0.1 * seed) + number) * 0.5).view(p.shape) + (p.ndim == 1))
            rotate_neighbours_as_halves(model)
    rows, learned = [], []
    for size, better, worse in ((2, [20, 21], [22]), (3, [30], [31, 32, 33]), (2, [12, 13, 14], [15, 16])):
        prompt = [END, *range(5, 5 + size)]
        row, mask = [*prompt, *better, *prompt, *worse], [0] * len(prompt) + [1] * len(better)
        mask += [0] * len(prompt) + [1] * len(worse)
        rows.append(row + [END] * (WINDOW + 1 - len(row)))
        learned.append(mask + [0] * (WINDOW + 1 - len(mask)))
    ids, mask = torch.tensor(rows), torch.tensor(learned)
    objective = preferring_loss(policy, before)
    loss = objective(*prepared(objective, ids[:, :-1], ids[:, 1:].masked_fill(mask[:, 1:] == 0, IGNORE)))
    assert loss.item() / 3 == pytest.approx(1.0717061758, abs=2e-6)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"sliding_window": 5, "num_kv_heads": 2, "qk_norm": True, "value_embeddings": True},
        {"position": "learned", "norm": "layernorm", "ffn": "gelu"},
    ],
    ids=["rope", "window", "learned positions"],
)
@pytest.mark.parametrize("checkpointing", ["none", "selective", "full"])
def test_a_prompt_that_is_read_once_changes_no_loss_and_no_gradient(settings, checkpointing):
    """Against rows that have it twice, to 1e-12; answers that are alike at first, or end with the other's beginning."""
    rows, learned = [], []
    for pairs in ([(9, [5, 6], [5, 7, 8]), (1, [9], [4, 4])], [(12, [8, 9, 8], [8])], [(4, [7, 5], [7, 5, 6])]):
        row, mask = [], []
        for size, *answers in pairs:
            for answer in answers:
                row += [END, *range(10, 9 + size), *answer]
                mask += [*[0] * size, *[1] * len(answer)]
        rows.append(row + [END] * (40 - len(row)))
        learned.append(mask + [0] * (40 - len(mask)))
    ids, mask = torch.tensor(rows), torch.tensor(learned)
    inputs, targets = ids[:, :-1], ids[:, 1:].masked_fill(mask[:, 1:] == 0, IGNORE)
    torch.manual_seed(0)
    config = dataclasses.replace(MODEL, context_length=40, **settings)
    model, before = Transformer(config).double(), Transformer(config).double()
    model.set_activation_checkpointing(checkpointing)
    results = []
    for compiled, length in (("off", 20), ("on", 39)):  # whose rows stay as they are
        training = dataclasses.replace(DPO, activation_checkpointing=checkpointing, compile=compiled)
        loss = DirectPreference(model, training, END, before)
        micro_batch = prepared(loss, inputs, targets)
        assert micro_batch[0].shape == (3, length)
        value = loss(*micro_batch)
        results.append([value, *torch.autograd.grad(value, list(model.parameters()))])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


def test_adapters_are_their_own_reference(pairs):
    model, before = moved()
    model.load_state_dict(before.state_dict())
    lora.add(model, rank=2)
    alone, beside = preferring_loss(model, None), preferring_loss(model, before)
    micro_batch = prepared(alone, *some_batch(pairs))
    torch.testing.assert_close(alone(*micro_batch), torch.tensor(6.0).double() * np.log(2))
    for name, p in model.named_parameters():
        if name.endswith("lora_b"):
            torch.nn.init.normal_(p)
    torch.testing.assert_close(alone(*micro_batch), beside(*micro_batch))
    assert all(m.enabled for m in model.modules() if isinstance(m, lora.LoRALinear))


def test_scores_of_a_file_are_those_of_its_windows(pairs):
    model, before = moved()
    loss, tokens = preferring_loss(model, before), open_tokens(pairs / "heldout.npy")
    whole = loss.evaluate(tokens, None)
    assert whole.tokens == 20
    assert loss.evaluate(tokens, 3 * WINDOW).tokens == 6
    ids, mask = (torch.tensor(np.array(part).astype("int64")).view(-1, WINDOW) for part in (tokens.ids, tokens.mask))
    targets = ids[:, 1:].masked_fill(mask[:, 1:] == 0, IGNORE)
    assert whole.nats == pytest.approx(loss(*prepared(loss, ids[:, :-1], targets)).item())


def test_an_odd_number_of_answers_is_no_pairs(pairs):
    inputs, targets = some_batch(pairs)
    targets[1, targets[1] != IGNORE] = IGNORE
    loss = preferring_loss(None)
    assert loss.count([prepared(loss, inputs, targets)]) == 4
    targets[0, 12] = IGNORE  # the last answer of the row
    with pytest.raises(ValueError, match="odd number of answers"):
        prepared(loss, inputs, targets)


@pytest.mark.parametrize("rank", [0, 2], ids=["all weights", "adapters"])
def test_a_run_learns_to_prefer_and_continues_to_the_bit(pairs, base, tmp_path, rank):
    config = preferring(base, lora_rank=rank, micro_batch_size=2)
    assert_continues(pairs, tmp_path, config)
    lines = metrics(tmp_path / "whole")
    assert lines[0]["loss"] == pytest.approx(np.log(2))
    scores = [line for line in lines if "val_loss" in line]
    assert scores[-1]["val_loss"] < scores[0]["val_loss"] < 0.7
    assert scores[-1]["val_preferred"] > 0.8
    assert 0 <= lines[-2]["preferred"] <= 1
    assert (tmp_path / "whole" / "reference").is_dir() == (rank == 0)
    assert len(lm.generate(lm.load(tmp_path / "whole"), [1, 2], max_new_tokens=3)) >= 3
    branched = dataclasses.replace(config, steps=20, init_from="scratch")
    run(pairs, tmp_path / "branch", branched, branch=tmp_path / "whole", step=12)


@pytest.mark.parametrize("parallel", ["ddp", "fsdp"])
def test_processes_have_the_losses_of_one(pairs, base, tmp_path, parallel):
    config = preferring(base, parallel=parallel)
    config = dataclasses.replace(config, steps=6)
    run(pairs, tmp_path / "alone", config)
    ends = processes(2, train, pairs, tmp_path / "both", config)
    assert [how for how, _ in ends] == ["done", "done"], ends
    for key in ("loss", "preferred"):
        one, other = ([line[key] for line in metrics(tmp_path / f) if key in line] for f in ("both", "alone"))
        assert one == pytest.approx(other, rel=1e-4)


def test_what_is_no_preference_is_refused(pairs, data, base, tmp_path):
    config = preferring(base)
    for change, where, says in (
        ({"init_from": "scratch"}, pairs, "begins with random"),
        ({"document_masking": False}, pairs, "goes with document_masking"),
        ({}, data, "got data without"),
        ({"objective": "next_token"}, pairs, "learns all tokens: use 'dpo'"),
        ({"objective": "sft"}, pairs, "would learn both"),
    ):
        with pytest.raises(ValueError, match=says):
            run(where, tmp_path / "run", dataclasses.replace(config, **change))
    assert not (tmp_path / "run" / "config.toml").exists()


PAIRS = [
    {"prompt": "2+2?", "chosen": "4", "rejected": "five, I think"},
    {
        "prompt": [{"role": "user", "content": "hi"}],
        "chosen": "hello",
        "rejected": [{"role": "assistant", "content": "go"}],
    },
    {
        "chosen": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}],
        "rejected": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "c"}],
    },
]


def write_texts(path, *pairs):
    path.write_text("".join(json.dumps(pair) + "\n" for pair in pairs))
    return str(path)


@bpe_only
def test_pairs_are_packed_whole_and_only_answers_are_learned(tmp_path, capsys):
    tokenizer().save(tmp_path / "tokenizer.json")
    file = write_texts(tmp_path / "pairs.jsonl", *PAIRS, {"prompt": "x" * 99, "chosen": "y" * 99, "rejected": "z"})
    command = ["data", "preferences", file, "--tokenizer", str(tmp_path / "tokenizer.json"), "--heldout", "0"]
    assert main([*command, "--out", str(tmp_path / "tokens"), "--context", "128"]) == 0
    stdout = capsys.readouterr().out
    assert "train: 3 pairs" in stdout
    assert "no room in 128 tokens: 1" in stdout
    tokens = open_tokens(tmp_path / "tokens" / "train.npy")
    assert tokens.pairs
    assert tokens.window == 128
    text = tokenizer().decode(np.array(tokens.ids)[np.array(tokens.mask) == 1].tolist())
    assert sorted(text.split("<|im_end|>")) == sorted(["4", "five, I think", "hello", "go", "b", "c", ""])
    inputs, targets = open_data(tmp_path / "tokens").batch(0, 0, 0, 1, len(tokens) // 128, 128)
    loss = DirectPreference(None, DPO, tokens.end_of_text)
    assert loss.count([prepared(loss, inputs, targets)]) == 3


@bpe_only
@pytest.mark.parametrize(
    ("line", "says"),
    [
        ({"prompt": "a", "chosen": "b"}, 'there is no "rejected"'),
        ({"prompt": "a", "chosen": "b", "rejected": "b"}, "both answers are the same"),
        ({"prompt": 3, "chosen": "b", "rejected": "c"}, "must be a list of at least one message"),
        ({"chosen": [{"role": "user", "content": "a"}], "rejected": "c"}, "does not end with what the assistant says"),
        ([1], "is not an object"),
    ],
)
def test_a_line_that_is_no_pair_is_named(line, says, tmp_path, capsys):
    tokenizer().save(tmp_path / "tokenizer.json")
    file = write_texts(tmp_path / "pairs.jsonl", PAIRS[0], line)
    command = ["data", "preferences", file, "--tokenizer", str(tmp_path / "tokenizer.json"), "--context", "64"]
    assert main([*command, "--out", str(tmp_path / "tokens")]) == 2
    stderr = capsys.readouterr().err
    assert "line 2, is no pair" in stderr
    assert says in stderr
    assert not (tmp_path / "tokens").exists()


@bpe_only
def test_windows_shares_and_folders_that_cannot_be_are_refused(tmp_path):
    template = default_template(tokenizer())
    for kind in ("conversation", "pair"):
        for settings, says in (
            ({"context_length": 1}, "context_length of at least 2, got 1"),
            ({"context_length": 64, "heldout": 1.0}, "heldout is a share, .* got 1.0"),
        ):
            with pytest.raises(ValueError, match=says):
                prepare_rows(kind, [], template, tmp_path, **settings)
    (tmp_path / "train.npy").touch()
    for kind in ("conversation", "pair"):
        with pytest.raises(FileExistsError, match="has token files in it"):
            prepare_rows(kind, [], template, tmp_path, context_length=64)
