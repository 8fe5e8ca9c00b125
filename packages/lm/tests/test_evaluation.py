"""Evaluation: likelihoods against a forward pass for each token, sets as their publishers write them, results kept."""

from __future__ import annotations

import dataclasses
import errno
import importlib.util
import json
import math
import os
import random
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import undertrained
from models import SHAPES, make
from runs import CONFIG, MODEL, run

from lm.commands.cli import main
from lm.config import ModelConfig
from lm.data import open_tokens, write_tokens
from lm.evaluation import Item, Request, Task, evaluate_tasks, likelihoods, read_task, run_tasks
from lm.evaluation.kept import keeping
from lm.evaluation.results import Scored, measures
from lm.interop import to_huggingface
from lm.interop.loading import load
from lm.model import Transformer
from lm.tokenizer import keep_tokenizer
from lm.training.validation import evaluate

needs_bpe = pytest.mark.skipif(importlib.util.find_spec("bpe") is None, reason="the package bpe is not installed")
WORDS = ["the cat", "sat", "on a", "mat.", "été", "ran", "then", "水"]


def one_by_one(model, before, ids):
    """-log p and whether each is the likeliest, by a forward pass for each id over what fits the context before it."""
    nats, greedy, text = 0.0, True, list(before)
    for number in ids:
        with torch.no_grad():
            logits = model(torch.tensor([text[-model.config.context_length :]]))[0, -1].double()
        nats -= float(logits.log_softmax(-1)[number])
        greedy &= int(logits.argmax()) == number
        text.append(number)
    return nats, greedy


@pytest.mark.parametrize(
    "change", [{}, SHAPES["gpt2"], {"num_kv_heads": 1, "sliding_window": 3}, {"vocab_multiple": 16}]
)
@pytest.mark.parametrize("budget", [1, 40, 8192])
def test_likelihoods_are_those_of_single_passes(change, budget):
    model = make(dtype=torch.float64, **change).train()
    draw, size = torch.Generator().manual_seed(0), model.config.vocab_size

    def ids(count):
        return tuple(torch.randint(size, (count,), generator=draw).tolist())

    shared = [ids(3), ids(3), ids(5)]
    requests = [Request(shared[i % 3], ids(1 + i % 4)) for i in range(9)] + [
        Request(ids(1 + i), ids(1)) for i in range(4)
    ]
    for before in shared:  # what greedy decoding writes is told from what it does not
        with torch.no_grad():
            best = int(model(torch.tensor([before]))[0, -1].argmax())
        requests.append(Request(before, (best,)))
    requests.append(requests[0])
    scores = likelihoods(model, requests, budget=budget)
    for request, likelihood in zip(requests, scores, strict=True):
        nats, greedy = one_by_one(model, request.before, request.ids)
        assert likelihood.nats == pytest.approx(nats, rel=1e-9)
        assert likelihood.greedy == greedy
    assert {likelihood.greedy for likelihood in scores} == {True, False}
    assert model.training


def test_what_does_not_fit_the_context_loses_its_beginning():
    model = Transformer(MODEL).double()  # a context of 16
    before, ids = tuple(i % 50 for i in range(40)), tuple(i * 7 % 50 for i in range(6))
    whole, cut = likelihoods(model, [Request(before, ids), Request(before[-11:], ids)])
    assert whole == cut
    (long,) = likelihoods(model, [Request(before, tuple(i * 3 % 50 for i in range(45)))])
    text, ids, nats = list(before), [i * 3 % 50 for i in range(45)], 0.0
    for begin, end in ((0, 8), (8, 16), (16, 24), (24, 32), (32, 45)):
        piece = text[-(17 - (end - begin)) :]
        with torch.no_grad():
            logits = model(torch.tensor([(piece + ids[begin:end])[:-1]]))[0, len(piece) - 1 :]
        nats -= float(logits.double().log_softmax(-1)[range(end - begin), ids[begin:end]].sum())
        text += ids[begin:end]
    assert long.nats == pytest.approx(nats, rel=1e-9)


def test_requests_that_cannot_be_scored():
    model = Transformer(MODEL)
    for request, says in (
        (Request((), (1,)), "at least one id"),
        (Request((1,), ()), "at least one id"),
        (Request((1,), (50,)), "id 50 is outside the model's vocabulary of 50"),
        (Request((-1,), (1,)), "id -1 is outside"),
    ):
        with pytest.raises(ValueError, match=says):
            likelihoods(model, [request])
    assert likelihoods(model, []) == []
    with torch.no_grad():
        model.final_norm.weight[0] = math.nan
    with pytest.raises(ValueError, match=r"likelihoods are not numbers \(nan\)"):
        likelihoods(model, [Request((1,), (1,))])


HELLASWAG = {
    "ind": 4,
    "activity_label": "Making tea",
    "ctx_a": "A man boils  water.",
    "ctx_b": "the man",
    "ctx": "A man boils  water. the man",
    "endings": ["pours [substeps] it.", "[header] Sleep [title] Lie down.", "runs.", "sings."],
    "label": "2",
}


def write_lines(path, *lines):
    path.write_text("".join((line if isinstance(line, str) else json.dumps(line)) + "\n" for line in lines))
    return path


def test_sets_are_read_as_they_are_published(tmp_path):
    task = read_task(write_lines(tmp_path / "hellaswag_val.jsonl", HELLASWAG))
    assert (task.name, task.kind) == ("hellaswag_val", "choice")
    endings = (" pours it.", "  Sleep. Lie down.", " runs.", " sings.")
    assert task.items == (Item("Making tea: A man boils water. The man", endings, 2),)
    raw = read_task(tmp_path / "hellaswag_val.jsonl", cleaned=False)
    assert raw.items[0].context == HELLASWAG["ctx"]
    assert raw.items[0].endings[0] == " pours [substeps] it."
    assert raw.fingerprint != task.fingerprint
    short = {key: HELLASWAG[key] for key in ("ctx", "endings", "label")} | {"label": 1}
    assert read_task(write_lines(tmp_path / "b.jsonl", short)).items[0].context == "A man boils water. the man"
    piqa = {"query": "Question: How to sit?\n", "choices": ["On a chair.", "Under it."], "gold": 0}
    copa = {"query": "It rained, therefore", "choices": ["we got wet.", "we did not."], "gold": 1}
    assert read_task(write_lines(tmp_path / "sets.jsonl", piqa, "", copa)).items == (
        Item("Question: How to sit?\nAnswer:", (" On a chair.", " Under it."), 0),
        Item("It rained, therefore", (" we got wet.", " we did not."), 1),
    )
    word = Task("x", "word", (Item("I see the", (" sea",)),))
    line = {"context": "I see the ", "continuation": "sea"}
    assert read_task(write_lines(tmp_path / "w.jsonl", line)).items == word.items
    assert read_task(write_lines(tmp_path / "lambada_test.jsonl", {"text": "I see the sea"})).items == word.items
    assert read_task(write_lines(tmp_path / "texts.jsonl", {"text": "I see the sea"})).kind == "text"
    (tmp_path / "book.txt").write_text("One.<|endoftext|>\n<|endoftext|>Two.")
    assert [item.endings[0] for item in read_task(tmp_path / "book.txt").items] == ["One.", "Two."]


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ((HELLASWAG, HELLASWAG | {"label": ""}), "line 2: there is no 'label' to say which is right"),
        ((HELLASWAG | {"label": "4"},), "line 1: 'label' is '4', and should be a number from 0 to 3"),
        ((HELLASWAG | {"endings": ["one"]},), "a list of two texts or more"),
        ((HELLASWAG | {"endings": ["one", "[title]"]},), "nothing but markup"),
        (({"query": "a", "choices": ["a", "b"], "gold": None},), "no 'gold'"),
        (({"question": "a"},), "got question"),
        ((HELLASWAG, {"text": "a b"}), "line 2: this line is of another kind"),
        (("{",), "line 1: this is not JSON"),
        (("[1]",), "line 1: a JSON object was expected, and this is list"),
        ((), "is empty"),
    ],
)
def test_a_set_that_cannot_be_evaluated_on(tmp_path, lines, says):
    with pytest.raises(ValueError, match=says) as raised:
        read_task(write_lines(tmp_path / "a.jsonl", *lines))
    assert str(tmp_path / "a.jsonl") in str(raised.value)
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_task(tmp_path / "b.jsonl")
    (tmp_path / "a.jsonl.xz").write_bytes(b"\xfd7zXZ")
    with pytest.raises(ValueError, match="is not UTF-8"):
        read_task(tmp_path / "a.jsonl.xz")


def test_measures_and_their_errors():
    choices = [
        Scored(0, 0, (4.0, 5.0), (2, 5), (8, 20), (False, False)),  # the likeliest, but neither a byte nor a token
        Scored(1, 1, (4.0, 5.0), (2, 2), (4, 20), (False, False)),  # the likeliest a byte only
        Scored(2, 1, (3.0, 2.0), (1, 1), (1, 1), (False, False)),
        Scored(3, 1, (1.0, 2.0, 3.0, 4.0), (1, 1, 1, 1), (1, 1, 1, 1), (False,) * 4),
    ]
    results = measures("choice", choices)
    assert {name: measure.value for name, measure in results.items()} == {
        "acc": 0.5,
        "acc_norm": 0.5,
        "acc_norm_token": 0.25,
        "chance": (0.5 * 3 + 0.25) / 4,
    }
    assert results["acc"].error == pytest.approx(math.sqrt(0.5 * 0.5 / 3))
    assert results["acc_norm_token"].error == pytest.approx(math.sqrt(0.25 * 0.75 / 3))
    words = [Scored(0, 0, (1.0,), (1,), (4,), (True,)), Scored(1, 0, (3.0,), (2,), (4,), (False,))]
    results = measures("word", words)
    assert (results["acc"].value, results["perplexity"].value) == (0.5, pytest.approx(math.exp(2)))
    assert results["perplexity"].error == pytest.approx(math.exp(2) * math.sqrt(2) / math.sqrt(2))
    results = measures("text", words)
    assert results["bits_per_byte"].value == pytest.approx(4 / 8 / math.log(2))
    assert results["perplexity"].value == pytest.approx(math.exp(4 / 3))
    assert measures("word", words[:1])["acc"].error is None
    assert measures("word", [Scored(0, 0, (1e4,), (1,), (4,), (True,))])["perplexity"].value == math.inf


def test_results_are_kept_and_what_was_cut_off_is_dropped(tmp_path):
    item = Scored(3, 1, (0.1, 1 / 3), (1, 2), (3, 4), (True, False))
    out, model = tmp_path / "out", {"model": "m"}
    with keeping(out, "set", model) as (items, add):
        assert items == {}
        add([item])
        with pytest.raises(ValueError, match="another process is evaluating into"), keeping(out, "set", model):
            pass
    (path,) = out.glob("*.jsonl")
    path.write_bytes(path.read_bytes() + b'{"item":4,"gold"')
    with keeping(out, "set", model) as (items, add):
        assert items == {3: item}
        add([Scored(4, 0, (1.0,), (1,), (1,), (True,))])
    with keeping(out, "set", model) as (items, _):
        assert list(items) == [3, 4]
    with keeping(out, "set", {"model": "other"}) as (items, _):
        assert items == {}
    assert len(list(out.glob("*.jsonl"))) == 2
    path.write_bytes(b"something else\n")
    with keeping(out, "set", model) as (items, _):
        assert items == {}
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="cannot be written"), keeping(tmp_path / "file", "set", {}):
        pass


def test_a_full_disk_is_one_sentence_and_what_was_kept_stays(tmp_path, monkeypatch):
    items, real = [Scored(i, 0, (0.5,), (1,), (1,), (True,)) for i in range(2)], os.write

    def half(handle, data):
        if bytes(data).startswith(b'{"item":1'):
            real(handle, data[:9])
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(handle, data)

    with keeping(tmp_path, "set", {}) as (_, add):
        add(items[:1])
        monkeypatch.setattr(os, "write", half)
        with pytest.raises(OSError, match="the disk is full: free some space and run the same command again"):
            add(items[1:])
    monkeypatch.undo()
    with keeping(tmp_path, "set", {}) as (stored, _):
        assert stored == {0: items[0]}


@pytest.fixture
def small():
    from corpora import tokenizer

    torch.manual_seed(3)
    tok = tokenizer()
    return Transformer(ModelConfig(tok.n_vocab, 24, 2, 16, 2, 24)).double().eval(), tok


def items(count):
    return tuple(
        Item(
            " ".join(WORDS[(i + j) % 8] for j in range(1 + i % 5)),
            tuple(f" {WORDS[(i * j) % 8]}" for j in (1, 2, 3)),
            i % 3,
        )
        for i in range(count)
    )


@needs_bpe
def test_tasks_come_to_what_single_passes_do_and_go_on_where_they_stopped(tmp_path, small, monkeypatch):
    model, tokenizer = small
    task = Task("some", "choice", items(20))
    (result,) = evaluate_tasks(model, tokenizer, [task], folder=tmp_path)
    right = [0, 0, 0]
    for item in task.items:
        context = tokenizer.encode(item.context)
        endings = [tokenizer.encode(item.context + ending)[len(context) :] for ending in item.endings]
        nats = [one_by_one(model, context, ending)[0] for ending in endings]
        sizes = [[1, 1, 1], [len(ending.strip().encode()) for ending in item.endings], list(map(len, endings))]
        for kind, by in enumerate(sizes):
            costs = [cost / size for cost, size in zip(nats, by, strict=True)]
            right[kind] += costs.index(min(costs)) == item.gold
    assert [result.measures[name].value for name in ("acc", "acc_norm", "acc_norm_token")] == [n / 20 for n in right]
    (file,) = tmp_path.glob("*.jsonl")
    lines = file.read_text().splitlines(keepends=True)
    assert len(lines) == 21
    file.write_text("".join(lines[:9]) + lines[9][:5])
    requests_scored = []
    real = run_tasks.likelihoods
    monkeypatch.setattr(
        run_tasks, "likelihoods", lambda model, requests: requests_scored.extend(requests) or real(model, requests)
    )
    assert evaluate_tasks(model, tokenizer, [task], folder=tmp_path) == [result]
    assert len(requests_scored) == 3 * 12
    requests_scored.clear()
    (limited,) = evaluate_tasks(model, tokenizer, [task], folder=tmp_path, limit=7)
    assert (limited.items, limited.total, requests_scored) == (7, 20, [])
    with torch.no_grad():
        model.final_norm.weight += 0.1
    evaluate_tasks(model, tokenizer, [task], folder=tmp_path, limit=7)
    assert len(requests_scored) == 3 * 7  # another model is not taken for the first


@needs_bpe
def test_texts_are_scored_by_windows_as_token_files_are(tmp_path, small):
    model, tokenizer = small
    text = " ".join(WORDS * 9)
    tokens = write_tokens(
        tmp_path / "t.npy", tokenizer.encode(text), text_bytes=len(text.encode()), end_of_text=tokenizer.eot_token
    )
    for stride in (24, 5):
        (result,) = evaluate_tasks(model, tokenizer, [Task("t", "text", (Item("", (text,)),))], stride=stride)
        score = evaluate(model, tokens, stride=stride)
        assert result.measures["bits_per_byte"].value == pytest.approx(score.bits_per_byte)
        assert result.measures["perplexity"].value == pytest.approx(math.exp(score.loss))
    for wrong, says in (({"stride": 25}, "stride 25"), ({"limit": 0}, "limit must be at least 1")):
        with pytest.raises(ValueError, match=says):
            evaluate_tasks(model, tokenizer, [], **wrong)


@needs_bpe
def test_the_space_before_an_ending_is_the_endings(small):
    _, tokenizer = small
    request = run_tasks.pair_request(tokenizer, "the ", "a then")
    assert request == run_tasks.pair_request(tokenizer, "the", " a then")
    assert tokenizer.decode(request.ids) == " a then"
    merged = run_tasks.pair_request(tokenizer, "t", "he")  # one token: nothing of it stands in the context alone
    assert (merged.before, merged.ids) == ((tokenizer.eot_token,), tuple(tokenizer.encode("the")))
    assert run_tasks.pair_request(tokenizer, "", "the").before == (tokenizer.eot_token,)


SMALL = ModelConfig(vocab_size=1, context_length=16, num_layers=1, d_model=16, num_heads=2, d_ff=24)


def trained(folder, data, tokenizer, **change):
    run(data, folder, CONFIG, dataclasses.replace(SMALL, vocab_size=tokenizer.n_vocab, **change))
    keep_tokenizer(data / "tokenizer.json", folder)
    return folder


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    from corpora import stories, tokenizer

    folder, tok = tmp_path_factory.mktemp("corpus"), tokenizer()
    tok.save(folder / "tokenizer.json")
    for name, count in (("train", 150), ("heldout", 10)):
        ids = [number for story in stories(count) for number in [*tok.encode(story), tok.eot_token]]
        write_tokens(
            folder / f"{name}.npy", ids, text_bytes=3 * len(ids), tokenizer=tok.fingerprint, end_of_text=tok.eot_token
        )
    return folder


@needs_bpe
def test_the_command(tmp_path, corpus, capsys):
    from corpora import tokenizer

    folder = trained(tmp_path / "run", corpus, tokenizer())
    piqa = {"query": "Question: the?\n", "choices": ["then they ran", "水"], "gold": 0}
    sets = [
        str(write_lines(tmp_path / "piqa.jsonl", piqa, piqa | {"gold": 1})),
        str(write_lines(tmp_path / "lambada.jsonl", {"text": "they ran then"})),
        str(write_lines(tmp_path / "texts.jsonl", {"text": "they ran then"})),
    ]
    assert main(["eval", str(folder), "--tasks", *sets, "--json"]) == 0
    printed_json = json.loads(capsys.readouterr().out)
    assert list(printed_json["sets"]) == ["piqa", "lambada", "texts"]
    assert printed_json["sets"]["piqa"]["acc"] == 0.5
    assert printed_json["sets"]["piqa"]["acc_stderr"] == pytest.approx(0.5)
    assert printed_json["sets"]["lambada"]["perplexity"] > 1
    assert len(list((folder / "evaluation").glob("*.jsonl"))) == 3
    assert main(["eval", str(folder), "--tasks", *sets]) == 0
    table = capsys.readouterr().out
    assert table.splitlines()[0].split() == ["set", "items", "measure", "value", "±", "error"]
    assert f"{printed_json['sets']['texts']['bits_per_byte']:.4f}" in table
    # the same of an export, which keeps nothing unless it is told where
    exported = to_huggingface(folder, tmp_path / "exported")
    before = sorted(os.listdir(exported))
    assert main(["eval", str(exported), "--tasks", *sets]) == 0
    assert capsys.readouterr().out == table
    assert sorted(os.listdir(exported)) == before
    assert main(["eval", str(exported), "--data", str(corpus / "heldout.npy"), "--json"]) == 0
    score = json.loads(capsys.readouterr().out)
    assert main(["eval", str(folder), "--data", str(corpus / "heldout.npy"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["loss"] == pytest.approx(score["loss"], rel=1e-5)
    for wrong, says in (
        (["--tasks", sets[0], "--max-tokens", "5"], "--max-tokens goes with --data"),
        (["--data", "x.npy", "--limit", "5"], "--limit goes with --tasks"),
        (["--tasks", sets[0], sets[0]], "two of the files are called 'piqa'"),
        (["--tasks", str(tmp_path / "none.jsonl")], "there is no file"),
    ):
        assert main(["eval", str(folder), *wrong]) == 2
        error = capsys.readouterr().err
        assert says in error
        assert error.count("\n") == 1


@needs_bpe
def test_ctrl_c_keeps_what_was_done(tmp_path, corpus, capsys, monkeypatch):
    from corpora import tokenizer

    folder = trained(tmp_path / "run", corpus, tokenizer())
    words = [{"context": f"they ran {i}", "continuation": "then"} for i in range(6)]
    command = ["eval", str(folder), "--tasks", str(write_lines(tmp_path / "w.jsonl", *words))]
    real, calls = run_tasks.likelihoods, []

    def likelihoods(model, requests):
        calls.append(len(requests))
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(model, requests)

    monkeypatch.setattr(run_tasks, "AT_ONCE", 1)
    monkeypatch.setattr(run_tasks, "likelihoods", likelihoods)
    assert main(command) == 130
    assert f"stopped: what was done is in {folder / 'evaluation'}" in capsys.readouterr().err
    assert main(command) == 0
    assert calls == [1] * 7  # two, the one that was stopped, and the four that were left


@needs_bpe
def test_tokens_that_never_moved(tmp_path, corpus, capsys):
    from corpora import tokenizer

    tok = tokenizer()
    seen = set(load_ids(corpus / "train.npy"))
    folder = trained(tmp_path / "run", corpus, tok)
    rows = undertrained.undertrained(folder, tok)
    assert rows.metric == "moved"
    assert [number for number, _ in rows.tokens] == sorted(set(range(tok.n_vocab)) - seen)
    undertrained.main([str(folder), "--top", "3"])
    out = capsys.readouterr().out.splitlines()
    assert out[0] == f"{len(rows.tokens)} tokens whose embeddings never moved"
    assert out[1:] == [f"{n:>8}  0.000000  {tok.vocab[n]!r}".replace("  b", "  ") for n, _ in rows.tokens[:3]]
    # Of an export the beginning is not known.
    exported = to_huggingface(folder, tmp_path / "exported")
    with pytest.raises(ValueError, match="--tokenizer, or such ids with --unused"):
        undertrained.undertrained(exported)
    with pytest.raises(ValueError, match="id 999 is outside"):
        undertrained.undertrained(exported, unused=[999])


@needs_bpe
@pytest.mark.parametrize("exported", [False, True])
def test_tokens_that_were_only_pushed_away(tmp_path, corpus, capsys, exported):
    from corpora import tokenizer

    tok = tokenizer()
    seen = set(load_ids(corpus / "train.npy"))
    folder = trained(tmp_path / "run", corpus, tok, tied_embeddings=True)
    if exported:
        folder = to_huggingface(folder, tmp_path / "exported")
    rows = undertrained.undertrained(folder, tok)
    assert rows.metric == "distance"
    assert set(rows.unused_ids) == {0xC0, 0xC1, *range(0xF5, 0x100)}
    assert set(rows.unused_ids) <= {number for number, _ in rows.tokens}
    if not exported:  # with the beginning taken off, what never occurred is told from what did
        unseen = set(range(tok.n_vocab)) - seen
        assert len({number for number, _ in rows.tokens} & seen) <= 0.05 * len(seen)
        assert len({number for number, _ in rows.tokens} & unseen) >= 0.5 * len(unseen)
    undertrained.main([str(folder), "--json"])
    printed_json = json.loads(capsys.readouterr().out)
    assert (printed_json["metric"], printed_json["count"]) == ("distance", len(rows.tokens))
    assert printed_json["tokens"][0]["bytes"] == tok.vocab[rows.tokens[0][0]].hex()


@needs_bpe
def test_a_run_that_began_from_weights_is_compared_with_what_config_toml_names(tmp_path, corpus):
    from corpora import tokenizer

    first, second = (trained(tmp_path / name, corpus, tokenizer()) for name in ("first", "second"))
    with (second / "config.toml").open("a") as config:
        config.write(f'\n[start]\nkind = "weights"\nfrom = "{first}"\nstep = 20\n')
    assert undertrained.undertrained(second, tokenizer()) == undertrained.undertrained(first, tokenizer())
    assert undertrained.undertrained(second, tokenizer()).metric == "moved"
    first.rename(tmp_path / "gone")  # then its beginning cannot be rebuilt
    assert undertrained.undertrained(second, tokenizer()).metric == "distance"


@needs_bpe
@pytest.mark.parametrize("name", ["<|endoftext|>", "</s>"])
def test_the_end_of_a_document_is_not_scored(tmp_path, name):
    import bpe

    tokenizer = bpe.train([b"one two one two"], 260, special_tokens=[name])
    (tmp_path / "t.txt").write_text("one two<|endoftext|>two<|endoftext|>\n")
    task = read_task(tmp_path / "t.txt")
    assert [item.endings for item in task.items] == [("one two",), ("two",)]
    assert [list(run_tasks.sizes("text", item)) for item in task.items] == [[7], [3]]
    (window,) = run_tasks.windows(tokenizer, "one two", 64, 32)
    assert list(window.ids)[-len(tokenizer.encode("one two")) :] == tokenizer.encode("one two")


def load_ids(path: Path) -> list[int]:
    return open_tokens(path).ids[:].tolist()


def instance(*arguments):
    return SimpleNamespace(args=arguments)


@needs_bpe
@pytest.mark.skipif(importlib.util.find_spec("lm_eval") is None, reason="the package lm_eval is not installed")
def test_the_harness_asks_and_gets_what_we_score(tmp_path, corpus):
    from corpora import tokenizer

    from lm import generate
    from lm.evaluation.harness import Harness

    tok, folder = tokenizer(), trained(tmp_path / "run", corpus, tokenizer())
    model, harness = load(folder), Harness(folder)
    pairs = [("the ", "a then"), ("", "they"), ("they ran " * 9, "水"), ("the", " then")]
    for (context, ending), (value, greedy) in zip(
        pairs, harness.loglikelihood([instance(*p) for p in pairs]), strict=True
    ):
        before = tok.encode(context.rstrip()) or [tok.eot_token]
        ids = tok.encode(context + ending)[len(tok.encode(context.rstrip())) :]
        nats, best = one_by_one(model, before[-(17 - len(ids)) :], ids)
        assert (value, greedy) == (pytest.approx(-nats, rel=1e-4), best)
    text = "then they ran été " * 5
    tokens = write_tokens(tmp_path / "t.npy", tok.encode(text), end_of_text=tok.eot_token)
    (rolled,) = harness.loglikelihood_rolling([instance(text)])
    assert rolled == pytest.approx(-evaluate(model, tokens).nats, rel=1e-4)
    ids_expected = generate(model, tok.encode("the they"), max_new_tokens=6, temperature=0, stop_tokens=[tok.eot_token])
    text_expected = tok.decode(ids_expected)
    instances = [
        instance("the they", {"until": [], "max_gen_toks": 6}),
        instance("the they", {"until": text_expected[2], "max_gen_toks": 6}),
        instance("ran " * 40, {"until": ["\n\n"], "max_gen_toks": 3}),
    ]
    whole, stopped, other = harness.generate_until(instances)
    assert whole == text_expected
    assert stopped == text_expected[: text_expected.index(text_expected[2])]
    window = tok.encode("ran " * 40)[-13:]
    assert other == tok.decode(generate(model, window, max_new_tokens=3, temperature=0, stop_tokens=[tok.eot_token]))


@needs_bpe
@pytest.mark.skipif(importlib.util.find_spec("lm_eval") is None, reason="the package lm_eval is not installed")
@pytest.mark.filterwarnings("ignore")
def test_a_local_task_of_the_harness_has_our_accuracy(tmp_path, corpus, monkeypatch):
    from corpora import tokenizer

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    import lm_eval
    from lm_eval.tasks import TaskManager

    from lm.evaluation.harness import Harness

    folder = trained(tmp_path / "run", corpus, tokenizer())
    lines = [
        {"query": item.context, "choices": [ending.strip() for ending in item.endings], "gold": item.gold}
        for item in items(24)
    ]
    data = write_lines(tmp_path / "own.jsonl", *lines)
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "own.yaml").write_text(
        "task: own\ndataset_path: json\noutput_type: multiple_choice\ntest_split: test\n"
        f"dataset_kwargs:\n  data_files:\n    test: {data}\n  cache_dir: {tmp_path / 'cache'}\n"
        "doc_to_text: '{{query}}'\ndoc_to_choice: '{{choices}}'\ndoc_to_target: '{{gold}}'\n"
        "metric_list:\n  - metric: acc\n  - metric: acc_norm\n  - metric: acc_bytes\n"
    )
    manager = TaskManager(include_path=str(tmp_path / "tasks"), include_defaults=False)
    theirs = lm_eval.simple_evaluate(model=Harness(folder), tasks=["own"], task_manager=manager)["results"]["own"]
    (ours,) = evaluate_tasks(load(folder), tokenizer(), [read_task(data)])
    assert ours.measures["acc"].value == pytest.approx(theirs["acc,none"])
    assert ours.measures["acc"].error == pytest.approx(theirs["acc_stderr,none"])
    assert ours.measures["acc_norm"].value == pytest.approx(theirs["acc_bytes,none"])


DATA = os.environ.get("GROUNDUP_DATA")


@pytest.mark.skipif(not DATA, reason="GROUNDUP_DATA names no folder of published sets")
def test_the_published_sets_are_read_and_scored():
    from llama2c import from_llama2c

    from lm.tokenizer import load_tokenizer

    real = Path(DATA)
    sets = {path.stem: read_task(path) for path in sorted((real / "data" / "eval").glob("*.jsonl"))}
    kinds = {
        "arc_easy": (2376, 4),
        "copa": (100, 2),
        "openbook_qa": (500, 4),
        "piqa": (1838, 2),
        "lambada_openai": (5153, 1),
    }
    assert {name: (len(task.items), len(task.items[0].endings)) for name, task in sets.items()} == kinds
    model, tokenizer = from_llama2c(real / "weights/stories260K.bin"), load_tokenizer(real / "weights/tok512.bin")
    tasks = [sets["copa"], sets["lambada_openai"]]
    copa, lambada = evaluate_tasks(model, tokenizer, tasks, limit=30)
    assert copa.measures["chance"].value == 0.5
    assert 1 < lambada.measures["perplexity"].value < 1e9


@needs_bpe
@pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("lm_eval", "accelerate", "transformers")),
    reason="lm_eval with its transformers models (lm_eval[hf]) is not installed",
)
@pytest.mark.filterwarnings("ignore")
def test_hellaswag_is_the_published_procedure_item_by_item(tmp_path, corpus, monkeypatch):
    """lm_eval's own HellaSwag over transformers, with no code of ours, and ours over the same lines and weights."""
    from corpora import tokenizer

    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    import lm_eval
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    from lm.evaluation.run_tasks import scored
    from lm.interop import to_huggingface

    folder = trained(tmp_path / "run", corpus, tokenizer())
    draw = random.Random(5)
    words = ["the", "then", "a", "they", "[header] ran", "[substeps] up", "1  2", "[title] it", "ran."]
    lines = [
        {
            **HELLASWAG,
            "ctx_a": " ".join(draw.choices(words, k=draw.randrange(1, 9))),
            "ctx_b": " ".join(draw.choices(words, k=draw.randrange(3))),
            "endings": [" ".join(draw.choices(words, k=draw.randrange(1, 4))) for _ in range(4)],
            "label": str(draw.randrange(4)),
        }
        for _ in range(24)
    ]
    for line in lines:
        line["ctx"] = f"{line['ctx_a']} {line['ctx_b']}".strip()
    data = write_lines(tmp_path / "hellaswag_val.jsonl", *lines)
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    (tasks / "published.py").write_text("from lm_eval.tasks.hellaswag.utils import process_docs\n")
    (tasks / "published.yaml").write_text(
        "task: published\ndataset_path: json\noutput_type: multiple_choice\nvalidation_split: validation\n"
        f"dataset_kwargs:\n  data_files:\n    validation: {data}\n  cache_dir: {tmp_path / 'cache'}\n"
        "process_docs: !function published.process_docs\n"
        "doc_to_text: '{{query}}'\ndoc_to_target: '{{label}}'\ndoc_to_choice: choices\n"
        "metric_list:\n  - metric: acc\n  - metric: acc_norm\n"
    )
    harness_model = HFLM(
        pretrained=str(to_huggingface(folder, tmp_path / "hf")), device="cpu", dtype="float32", batch_size=4
    )
    manager = TaskManager(include_path=str(tasks), include_defaults=False)
    theirs = lm_eval.simple_evaluate(model=harness_model, tasks=["published"], task_manager=manager, log_samples=True)
    samples = {sample["doc_id"]: sample for sample in theirs["samples"]["published"]}
    task, model = read_task(data), load(folder)
    ours = [item for items in scored(model, tokenizer(), task, range(len(lines)), 8) for item in items]
    assert len(ours) == len(samples) == 24
    for item in ours:
        responses = [resp for (resp,) in samples[item.item]["resps"]]
        assert [-nats for nats in item.nats] == pytest.approx([value for value, _ in responses], rel=1e-4)
        assert list(item.greedy) == [greedy for _, greedy in responses]
        assert item.gold == int(samples[item.item]["target"])
        assert list(item.bytes) == [len(choice) for choice in samples[item.item]["doc"]["choices"]]
    (result,) = evaluate_tasks(model, tokenizer(), [task])
    for name in ("acc", "acc_norm"):
        assert result.measures[name].value == theirs["results"]["published"][f"{name},none"]
        assert result.measures[name].error == pytest.approx(theirs["results"]["published"][f"{name}_stderr,none"])
