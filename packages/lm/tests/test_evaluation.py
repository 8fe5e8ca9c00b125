"""Evaluation: scores and likelihoods against a forward pass for each token, and lm_eval over them."""

from __future__ import annotations

import dataclasses
import functools
import importlib.util
import json
import math
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import undertrained
from corpora import stories, tokenizer
from models import SHAPES, make
from runs import CONFIG, MODEL, run, some_tokens

from lm import generate, progress, to_huggingface
from lm.commands.cli import main
from lm.config import ModelConfig
from lm.data import Tokens, open_tokens, write_tokens
from lm.evaluation import Request, likelihoods
from lm.evaluation.likelihood import pair_likelihoods, pair_request
from lm.interop.loading import load
from lm.model import Transformer
from lm.tokenizer import keep_tokenizer
from lm.training.validation import evaluate, sums_of_losses

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


@pytest.mark.parametrize("size", [2, 3, 40])
def test_processes_score_shares_of_a_text_in_as_many_passes_each(size):
    torch.manual_seed(3)
    model = Transformer(ModelConfig(60, 24, 2, 16, 2, 24)).double().eval()
    tokens = Tokens(path=Path("x"), ids=np.arange(400) % 60, sha256="", bytes=1000, end_of_text=7)
    whole = evaluate(model, tokens, batch_size=2)
    calls, parts = [], []
    for rank in range(size):
        calls.append(0)

        def summed(inputs, targets, special):
            calls[-1] += 1
            return sums_of_losses(model, inputs, targets, None, special)

        parts.append(evaluate(model, tokens, batch_size=2, summed=summed, share=(rank, size)))
    assert len(set(calls)) == 1
    for field in ("nats", "tokens", "bytes", "text_nats"):
        assert sum(getattr(part, field) or 0 for part in parts) == pytest.approx(getattr(whole, field))


@needs_bpe
def test_the_space_before_an_ending_is_the_endings():
    import bpe

    tokenizer = bpe.train([" ".join(WORDS) * 40], 280)
    pair = pair_request(tokenizer, "the ", "a then")
    assert pair == pair_request(tokenizer, "the", " a then")
    assert tokenizer.decode(pair[0].ids) == " a then"
    merged = pair_request(tokenizer, "t", "he")  # one token: nothing of it stands in the context alone
    assert (merged[0].before, merged[0].ids) == ((tokenizer.eot_token,), tuple(tokenizer.encode("the")))
    assert merged[1] == b"t"
    assert pair_request(tokenizer, "", "the")[0].before == (tokenizer.eot_token,)


@needs_bpe
@pytest.mark.parametrize(
    ("context", "ending"), [("Ans", "wer"), ("hello wor", "ld"), ("hello", ""), ("hello ", "world")]
)
def test_scores_are_exact_where_a_token_spans_the_seam(context, ending):
    """The cases of pythia-14m in which lm_eval's own cut leaves an answer without a token (pull request 4055)."""
    import bpe

    tokenizer = bpe.train(["Answer hello world. " * 99 + "Ans An wo wor s"], 276)
    model = make(vocab_size=tokenizer.n_vocab, dtype=torch.float64)
    token_bytes = [tokenizer.decode_single_token_bytes(i) for i in range(tokenizer.n_vocab - 1)]
    whole, alone = tokenizer.encode(context + ending), tokenizer.encode(context)
    (score,) = pair_likelihoods(model, tokenizer, [(context, ending)])
    if not ending:
        assert (score.nats, score.greedy) == (0.0, True)
        return
    shared = 0 if context == "Ans" else 1
    before, seam = whole[:shared] or [tokenizer.eot_token], tokenizer.decode_bytes(alone[shared:])
    if context == "hello ":
        seam = b""  # the space is the ending's
    else:
        assert len(whole) <= len(alone)

    def begins_with(ids, rest):
        """The probability of each first token, times that of the rest after it."""
        with torch.no_grad():
            chances = model(torch.tensor([ids]))[0, -1].softmax(-1).tolist()
        return sum(
            chance * (begins_with([*ids, token], rest[len(data) :]) if len(data) < len(rest) else 1.0)
            for token, (data, chance) in enumerate(zip(token_bytes, chances, strict=False))
            if data.startswith(rest) or rest.startswith(data)
        )

    nats, _ = one_by_one(model, before, whole[shared:])
    assert score.nats == pytest.approx(nats + math.log(begins_with(before, seam) if seam else 1.0), abs=1e-9)
    assert score.nats >= 0


SMALL = ModelConfig(vocab_size=1, context_length=16, num_layers=1, d_model=16, num_heads=2, d_ff=24)


def trained(folder, data, tokenizer, **change):
    run(data, folder, CONFIG, dataclasses.replace(SMALL, vocab_size=tokenizer.n_vocab, **change))
    keep_tokenizer(data / "tokenizer.json", folder)
    return folder


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
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
    folder = trained(tmp_path / "run", corpus, tokenizer())
    exported = to_huggingface(folder, tmp_path / "exported")
    (tmp_path / "heldout.txt").write_text("they ran then<|endoftext|>")
    tokenizer().encode_file([tmp_path / "heldout.txt"], tmp_path / "heldout.npy")
    scores = []
    for model in (folder, exported):
        for data in ("heldout.npy", "heldout.txt"):
            assert main(["eval", str(model), "--data", str(tmp_path / data), "--json"]) == 0
            scores.append(json.loads(capsys.readouterr().out))
    assert scores[0] == scores[1]
    assert scores[2] == scores[3]
    assert scores[0]["bits_per_byte"] == pytest.approx(scores[2]["bits_per_byte"], rel=1e-5)
    assert scores[0]["bytes"] == len("they ran then")
    for wrong, says in (
        (["--tasks", "own", "--max-tokens", "5"], "--max-tokens has no effect with --tasks"),
        (["--data", "x.npy", "--limit", "5"], "--limit has no effect with --data"),
        (["--data", str(tmp_path / "heldout.npy"), "--tokenizer", "t.json"], "--tokenizer goes with"),
        (["--data", str(tmp_path / "none.npy")], "none.npy"),
    ):
        assert main(["eval", str(folder), *wrong]) == 2
        error = capsys.readouterr().err
        assert says in error
        assert error.count("\n") == 1


@needs_bpe
def test_tokens_that_never_moved(tmp_path, corpus, capsys):
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
    first, second = (trained(tmp_path / name, corpus, tokenizer()) for name in ("first", "second"))
    with (second / "config.toml").open("a") as config:
        config.write(f'\n[start]\nkind = "weights"\nfrom = "{first}"\nstep = 20\n')
    assert undertrained.undertrained(second, tokenizer()) == undertrained.undertrained(first, tokenizer())
    assert undertrained.undertrained(second, tokenizer()).metric == "moved"
    first.rename(tmp_path / "gone")  # then its beginning cannot be rebuilt
    assert undertrained.undertrained(second, tokenizer()).metric == "distance"


def load_ids(path: Path) -> list[int]:
    return open_tokens(path).ids[:].tolist()


def instance(*arguments):
    return SimpleNamespace(args=arguments)


@needs_bpe
@pytest.mark.skipif(importlib.util.find_spec("lm_eval") is None, reason="the package lm_eval is not installed")
def test_the_harness_asks_and_gets_what_we_score(tmp_path, corpus):
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
def test_a_task_of_ones_own_by_the_command_and_again(tmp_path, corpus, monkeypatch, capsys):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    import lm_eval.tasks

    from lm.evaluation import harness

    # its own thousands of tasks take eight seconds to list, for each command
    own_tasks = functools.partial(lm_eval.tasks.TaskManager, include_defaults=False)
    monkeypatch.setattr(lm_eval.tasks, "TaskManager", own_tasks)
    draw, tok = random.Random(3), tokenizer()
    folder = trained(tmp_path / "run", corpus, tok)
    lines: list[dict[str, Any]] = [
        {"query": " ".join(draw.choices(WORDS, k=3)), "choices": draw.sample(WORDS, 3), "gold": draw.randrange(3)}
        for _ in range(24)
    ]
    data = tmp_path / "own.jsonl"
    data.write_text("".join(json.dumps(line) + "\n" for line in lines))
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "own.yaml").write_text(
        "task: own\ndataset_path: json\noutput_type: multiple_choice\ntest_split: test\n"
        f"dataset_kwargs:\n  data_files:\n    test: {data}\n  cache_dir: {tmp_path / 'cache'}\n"
        "doc_to_text: '{{query}}'\ndoc_to_choice: '{{choices}}'\ndoc_to_target: '{{gold}}'\n"
        "metric_list:\n  - metric: acc\n  - metric: acc_bytes\n"
    )
    command = ["eval", str(folder), "--tasks", "own", "--include", str(tmp_path / "tasks")]
    assert main([*command, "--json", "--per-document", str(tmp_path / "items.parquet")]) == 0
    results = json.loads(capsys.readouterr().out)["own"]
    items = pytest.importorskip("pyarrow.parquet").read_table(tmp_path / "items.parquet").to_pylist()
    assert sum(item["acc"] for item in items) / 24 == pytest.approx(results["acc,none"])
    assert [json.loads(item["doc"])["query"] for item in items] == [line["query"] for line in lines]
    model, right = load(folder), []
    for line in lines:
        requests = [pair_request(tok, line["query"], f" {choice}")[0] for choice in line["choices"]]
        nats = [one_by_one(model, request.before, request.ids)[0] for request in requests]
        right.append(nats.index(min(nats)) == line["gold"])
    assert results["acc,none"] == pytest.approx(sum(right) / len(right))
    monkeypatch.setattr(harness, "pair_likelihoods", None)  # nothing is computed again
    assert main(command) == 0
    assert "|own" in capsys.readouterr().out
    assert main(["eval", str(folder), "--tasks", "no-such-task"]) == 2
    assert "got 'no-such-task'" in capsys.readouterr().err
    # Through the chat template, with an example as turns of the conversation.
    prompts, score = [], pair_likelihoods
    monkeypatch.setattr(
        harness, "pair_likelihoods", lambda *a, **more: prompts.append((a[2], more)) or score(*a, **more)
    )
    with (tmp_path / "tasks" / "own.yaml").open("a") as file:
        file.write("num_fewshot: 1\nfewshot_split: test\n")
    assert main([*command, "--fewshot-as-multiturn"]) == 2
    assert "goes with --apply-chat-template" in capsys.readouterr().err
    assert main([*command, "--apply-chat-template", "--fewshot-as-multiturn", "--limit", "1"]) == 0
    ((pairs, more),) = prompts
    assert more == {"is_chat": True}
    context, ending = pairs[0]
    assert context.startswith("<|endoftext|>### user\n")
    assert context.count("### user\n") == 2
    assert context.count("### assistant\n") == 2
    assert context.endswith("### assistant\n")
    assert ending in lines[0]["choices"]
    request, _ = pair_request(tok, context, ending, is_chat=True)
    assert request.before[0] == tok.eot_token
    assert tok.decode(request.before + request.ids) == context + ending


def brute_force(model, ids, context, stride, before):
    """Nats of all tokens, and of those that are text, each by a pass over exactly the tokens that its window shows."""
    text = ids.tolist() if before is None else [before, *ids.tolist()]
    count = len(text) - 1
    total, of_text = [math.log(model.config.vocab_size) if before is None else 0.0] * 2
    for position in range(count):
        if position < context:
            begin = 0
        else:
            end = min(count, context + stride * ((position - context) // stride + 1))
            begin = end - context
        with torch.no_grad():
            logits = model(torch.tensor([text[begin : position + 1]]))[0, -1].double()
        nats = -float(logits.log_softmax(-1)[text[position + 1]])
        total, of_text = total + nats, of_text + nats * (text[position + 1] != before)
    return total, of_text


@pytest.mark.parametrize("count", [1, 2, 7, 8, 9, 40, 47])
@pytest.mark.parametrize("stride", [1, 3, 8])
@pytest.mark.parametrize("before", [None, 4])
def test_evaluate_is_exact_to_the_first_token_and_says_nothing(tmp_path, monkeypatch, capsys, count, stride, before):
    monkeypatch.setattr(progress, "LOG_INTERVAL", 0.0)
    torch.manual_seed(1)
    model = Transformer(MODEL).double()
    ids = some_tokens(count)
    tokens = write_tokens(tmp_path / "a.npy", ids, text_bytes=3 * count, end_of_text=before)
    score = evaluate(model, tokens, context_length=8, stride=stride, batch_size=3)
    assert score.tokens == count
    assert (score.nats, score.text_nats) == pytest.approx(brute_force(model, ids, 8, stride, before), rel=1e-9)
    assert capsys.readouterr().err == ""
    ends = 0 if before is None else int((ids == before).sum())
    if ends == count:
        assert score.bits_per_byte is None  # there is no text
    else:
        assert score.bytes == pytest.approx(3 * count)
        assert score.bits_per_byte == pytest.approx(score.text_nats / math.log(2) / (3 * count))
    if before is None:
        assert evaluate(model, ids, context_length=8, stride=stride).nats == pytest.approx(score.nats, rel=1e-9)
    assert model.training


def test_a_sample_is_spread_over_the_text_and_in_proportion(tmp_path):
    torch.manual_seed(1)
    model = Transformer(MODEL)
    tokens = write_tokens(tmp_path / "a.npy", some_tokens(1000), text_bytes=2500)
    score = evaluate(model, tokens, max_tokens=200)
    assert 150 <= score.tokens <= 217
    assert score.bytes == pytest.approx(2.5 * score.tokens)
    assert score == evaluate(model, tokens, max_tokens=200)
    assert score.loss == pytest.approx(evaluate(model, tokens).loss, rel=0.05)


def test_evaluate_names_what_it_does_not_take_and_puts_the_mode_back():
    model = Transformer(MODEL).train()
    with pytest.raises(TypeError, match="str"):
        evaluate(model, "data")
    for context, stride in ((None, 99), (17, 1), (8, 9), (8, 0)):
        with pytest.raises(ValueError, match="expected 1 <= stride"):
            evaluate(model, some_tokens(100), context_length=context, stride=stride)

    def fail(inputs, targets, end_of_text):
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        evaluate(model, some_tokens(100), summed=fail)
    assert model.training
    assert torch.is_grad_enabled()
