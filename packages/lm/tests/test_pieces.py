"""SentencePiece-style tokenizers against tokenizers; another program's model imported, trained and exported again."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from llama2c_files import tok_bin, tokenizer_file

from lm import from_huggingface, to_huggingface
from lm.commands.cli import main
from lm.config import ModelConfig
from lm.data import open_tokens, write_tokens
from lm.generation.stream import StreamDecoder, generate
from lm.interop.loading import load, model_text
from lm.model import Transformer
from lm.tokenizer import load_tokenizer, prompt_ids, stop_ids
from lm.training.run import read

llama2c = pytest.importorskip("llama2c")  # which needs bpe


@pytest.fixture(scope="module")
def tok(tmp_path_factory):
    return tokenizer_file(tmp_path_factory.mktemp("tok"))


def merged_slowly(tokenizer, text):
    """The algorithm as llama2.c has it: over the whole text, the best pair again and again, the leftmost of equals."""
    ids_of = {token: number for number, token in tokenizer.vocab.items() if number > 258}
    ranks = {pair: rank for rank, pair in reversed(list(enumerate(tokenizer.merges)))}
    parts = []
    for character in " " + text if text else "":
        data = character.encode()
        parts += [data] if data in ids_of else [3 + byte for byte in data]  # the ids of bytes merge with nothing
    while True:
        pairs = [(ranks[pair], i) for i, pair in enumerate(itertools.pairwise(parts)) if pair in ranks]
        if not pairs:
            return [part if isinstance(part, int) else ids_of[part] for part in parts]
        _, at = min(pairs)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


TEXTS = st.text(st.sampled_from("thelo ndar\u00e9\u6f22\n\U0001f600z"), max_size=40)


@settings(max_examples=150, deadline=None)
@given(text=TEXTS)
def test_pieces_are_merged_as_by_the_definition_and_as_tokenizers_merges_them(tok, text):
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer = load_tokenizer(tok)
    ids = tokenizer.encode(text)
    assert ids == merged_slowly(tokenizer, text)
    assert tokenizer.decode(ids) == text
    theirs = tokenizers.Tokenizer.from_file(str(tok))
    assert theirs.encode(text, add_special_tokens=False).ids == ids
    assert theirs.encode(text).ids == [1, *ids]
    assert theirs.decode(ids) == text
    for size in (1, 2, 7):
        chunks = [text[i : i + size] for i in range(0, len(text), size)]
        assert list(tokenizer.encode_iterable(chunks)) == ids
        data = text.encode()
        assert list(tokenizer.encode_iterable(data[i : i + size] for i in range(0, len(data), size))) == ids
    stream = StreamDecoder(tokenizer)
    assert "".join(map(stream.feed, ids)) + stream.finish() == (" " + text if text else "")


def test_special_tokens_of_pieces(tok):
    tokenizer = load_tokenizer(tok)
    the = tokenizer.encode("the")
    assert tokenizer.encode("the</s>the", allowed_special="all") == [*the, 2, *the]
    assert 2 not in tokenizer.encode("the</s>the", disallowed_special=())
    with pytest.raises(ValueError, match="'</s>'"):
        tokenizer.encode("the</s>", disallowed_special="all")
    assert prompt_ids(tokenizer, "the") == [1, *the]
    assert prompt_ids(tokenizer, "<s>the") == [1, *the]
    assert prompt_ids(tokenizer, "") == [1]
    assert sorted(stop_ids(tokenizer)) == [1, 2]
    with pytest.raises(KeyError, match="10000"):
        tokenizer.decode([10_000])


@pytest.mark.parametrize("scheme", ["first", "each", "always", "never"])
def test_where_a_space_is_put_in_front_is_read_from_the_file(tok, tmp_path, scheme):
    tokenizers = pytest.importorskip("tokenizers")
    load_tokenizer(tok).to_huggingface(tmp_path / "tokenizer.json")
    file = json.loads((tmp_path / "tokenizer.json").read_text())
    if scheme == "never":
        file["normalizer"] = file["normalizer"]["normalizers"][1]
        file["decoder"]["decoders"].pop()
    elif scheme != "always":
        metaspace = {"type": "Metaspace", "replacement": "\u2581", "split": False}
        metaspace["prepend_scheme"] = {"each": "always"}.get(scheme, scheme)
        file |= {"normalizer": None, "pre_tokenizer": metaspace}
    (tmp_path / "tokenizer.json").write_text(json.dumps(file))
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    again = load_tokenizer(tmp_path / "tokenizer.json")
    for text in ("the</s>the", " the", "the he", "</s>"):
        ids = again.encode(text, allowed_special="all")
        assert theirs.encode(text, add_special_tokens=False).ids == ids, text
    assert theirs.decode(again.encode("the he")) == again.decode(again.encode("the he")) == "the he"


def test_files_that_are_no_such_tokenizers_are_refused(tmp_path, tok):
    def says(name, content, message):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ValueError, match=message):
            (llama2c.tokenizer_of if name == "a.bin" else load_tokenizer)(tmp_path / name)

    data = tok_bin()
    says("a.bin", data[:-1], "cut short")
    says("a.bin", data[:300], "not a tokenizer of llama2.c")
    load_tokenizer(tok).to_huggingface(tmp_path / "good.json")
    good = json.loads((tmp_path / "good.json").read_text())
    for change, message in [
        ({"model": good["model"] | {"type": "Unigram"}}, "Unigram"),
        ({"model": good["model"] | {"merges": [["x"]]}}, r"\['x'\]"),
    ]:
        says("bad.json", json.dumps({**good, **change}).encode(), message)
    says("bad.json", b"{}", "no model in it")


@pytest.fixture
def work(tmp_path, tok):
    """Another program's model without its tokenizer, and data of that tokenizer."""
    tokenizer = load_tokenizer(tok)
    torch.manual_seed(0)
    model = Transformer(ModelConfig(tokenizer.n_vocab, 16, 1, 16, 2, 24, tied_embeddings=True)).eval()
    to_huggingface(model, tmp_path / "model")
    ids = np.array(tokenizer.encode("the hello and the other " * 40), dtype=np.uint16)
    write_tokens(tmp_path / "train.npy", ids, tokenizer=tokenizer.fingerprint, text_bytes=960)
    write_tokens(tmp_path / "heldout.npy", ids[:50], tokenizer=tokenizer.fingerprint, text_bytes=120)
    return tmp_path


def test_a_foreign_model_is_imported_trained_scored_continued_and_exported(work, tok, capsys):
    run, data = str(work / "run"), str(work)
    assert main(["import", str(work / "model"), "--out", run, "--tokenizer", str(tok)]) == 0
    stdout = capsys.readouterr().out
    assert "to train it further: lm train" in stdout
    before = from_huggingface(work / "model").state_dict()
    assert all(torch.equal(tensor, before[name]) for name, tensor in load(run).state_dict().items())
    assert read(run).data["tokenizer"] == load_tokenizer(tok).fingerprint

    def score():
        assert main(["eval", run, "--data", str(work / "heldout.npy")]) == 0
        return float(capsys.readouterr().out.split()[1])

    first = score()
    train = ["train", f"{run}/config.toml", "--out", run, "--data", data, "--quiet", "--train.batch_size", "2"]
    steps = "--train.steps 12 --train.warmup_steps 1 --train.learning_rate 0.02 --train.threads 1"
    train += steps.split()
    assert main(train) == 0
    capsys.readouterr()
    trained = score()
    assert trained < first - 0.5
    assert main(["eval", run, "--data", str(work / "heldout.npy"), "--int8"]) == 0
    assert abs(float(capsys.readouterr().out.split()[1]) - trained) < 0.1
    assert main(train) == 0, "the same command goes on from there"
    assert main([*train, "--train.seed", "5"]) == 2
    capsys.readouterr()
    arguments = ["--prompt", "the", "--max-new-tokens", "8", "--temperature", "0", "--timing"]
    assert main(["generate", run, *arguments, "--int8"]) == 0
    assert capsys.readouterr().out.startswith("the")
    assert main(["generate", run, *arguments]) == 0
    output = capsys.readouterr()
    assert output.out.startswith("the")
    assert "prompt: 2 tokens at" in output.err
    assert main(["export", run, "--out", str(work / "hf")]) == 0
    assert capsys.readouterr().out == f"{work / 'hf'}\n"
    assert main(["generate", str(work / "hf"), *arguments]) == 0
    assert capsys.readouterr().out == output.out
    card = (work / "hf" / "README.md").read_text()
    for part in ("LlamaForCausalLM", "| steps | 12 |", "learning\\_rate | 0.02", load_tokenizer(tok).fingerprint[:16]):
        assert part in card, part


def test_text_is_prepared_with_the_tokenizer_of_an_import(work, tok, capsys):
    pytest.importorskip("bpe", reason="the package bpe is not installed")
    run = str(work / "run")
    assert main(["import", str(work / "model"), "--out", run, "--tokenizer", str(tok)]) == 0
    (work / "text.txt").write_text("the hello and the other <s> " * 400)
    prepare = [
        "data",
        "prepare",
        str(work / "text.txt"),
        "--tokenizer",
        f"{run}/tokenizer.json",
        "--out",
        str(work / "data"),
    ]
    assert main([*prepare, "--end-of-text", "<s>"]) == 0
    train = ["train", f"{run}/config.toml", "--out", run, "--data", str(work / "data"), "--quiet"]
    assert main([*train, "--train.steps", "2", "--train.warmup_steps", "1", "--train.threads", "1"]) == 0
    assert "trained 2 steps" in capsys.readouterr().out
    ids = open_tokens(next((work / "data").glob("train*.npy"))).ids.tolist()  # type: ignore[attr-defined]
    the = load_tokenizer(tok).encode("the hello and the other ")
    assert ids[: len(the) + 1] == [*the, 1]


def test_an_import_without_a_tokenizer_says_so(work, capsys):
    assert main(["import", str(work / "model"), "--out", str(work / "run")]) == 0
    assert "the run has no tokenizer" in capsys.readouterr().out
    assert main(["generate", str(work / "run"), "--prompt", "a"]) == 2
    assert "keeps no tokenizer" in capsys.readouterr().err


def test_an_imported_tokenizer_is_kept_as_one_of_ours(tmp_path, capsys):
    bpe = pytest.importorskip("bpe")
    tokenizer = bpe.train(["the hello and the other one, 12 times over"] * 3, 270)
    tokenizer.save(tmp_path / "tokenizer.json")
    model = Transformer(ModelConfig(270, 16, 1, 16, 2, 24)).eval()
    folder = to_huggingface(model, tmp_path / "hf", tokenizer=tmp_path / "tokenizer.json")
    assert main(["import", str(folder), "--out", str(tmp_path / "run")]) == 0
    assert bpe.Tokenizer.load(tmp_path / "run" / "tokenizer.json").fingerprint == tokenizer.fingerprint
    assert read(tmp_path / "run").data == {"tokenizer": tokenizer.fingerprint}
    assert model_text(tmp_path / "run").tokenizer.fingerprint == tokenizer.fingerprint
    bpe.train(["another text"], 258).save(tmp_path / "other.json")
    with pytest.warns(UserWarning, match=r"other\.json is not the tokenizer that made the data of .*run"):
        model_text(tmp_path / "run", tmp_path / "other.json")


def test_an_import_that_cannot_be_leaves_nothing(work, tok, capsys, tmp_path):
    run = work / "run"
    to_huggingface(Transformer(ModelConfig(8, 16, 1, 16, 2, 24)), work / "small")
    for arguments, says in [
        ([str(work / "nowhere")], "there is no"),
        ([str(work / "small"), "--tokenizer", str(tok)], "another model's tokenizer"),
        ([str(work / "train.npy")], "holds no model"),
    ]:
        assert main(["import", *arguments, "--out", str(run)]) == 2
        stderr = capsys.readouterr().err
        assert says in stderr
        assert stderr.count("\n") == 1
        assert not run.exists()
    run.mkdir()
    (run / "mine").write_text("")
    assert main(["import", str(work / "model"), "--out", str(run)]) == 2
    assert "not an empty folder" in capsys.readouterr().err
    assert os.listdir(run) == ["mine"]


def test_samples_stop_strings_and_the_end_of_the_context(work, tok, capsys):
    base = ["generate", str(work / "model"), "--tokenizer", str(tok), "--prompt", "the", "--seed", "3"]
    base += ["--max-new-tokens", "30"]
    assert main([*base, "--samples", "2"]) == 0
    several = capsys.readouterr().out.split("\n----\n")
    assert len(several) == 2
    assert main(base) == 0
    alone = capsys.readouterr().out
    assert alone.rstrip("\n") == several[0]
    stop = alone[8:10]
    assert main([*base, "--stop", stop]) == 0
    assert capsys.readouterr().out == alone[: alone.index(stop, 3)] + "\n"
    assert main([*base, "--when-full", "refuse"]) == 2
    assert "context of 16" in capsys.readouterr().err
    assert main([*base, "--samples", "0"]) == 2


DATA = os.environ.get("GROUNDUP_DATA")


@pytest.mark.skipif(not DATA, reason="GROUNDUP_DATA names no folder of real weights")
def test_the_storyteller_of_llama2c_tells_a_story_and_scores_as_it_should(tmp_path):
    real = Path(DATA)
    model = llama2c.from_llama2c(real / "weights/stories260K.bin")
    tokenizer = llama2c.tokenizer_of(real / "weights/tok512.bin")
    story = tokenizer.decode(generate(model, [1], max_new_tokens=60, temperature=0))
    assert story.startswith(
        "Once upon a time, there was a little girl named Lily. She loved to play outside in the park."
    )
    text = (real / "data/tinystories.txt").read_text()[:60_000]
    nats, count = 0.0, 0
    for story_text in text.split("<|endoftext|>")[:-1]:
        ids = torch.tensor([prompt_ids(tokenizer, story_text.strip())[:512]])
        with torch.inference_mode():
            loss = torch.nn.functional.cross_entropy(model(ids)[0, :-1], ids[0, 1:], reduction="sum")
        nats, count = nats + float(loss), count + ids.shape[1] - 1
    assert 1.2 < nats / count < 1.4  # its author says 1.297 on held-out stories
    transformers = pytest.importorskip("transformers")
    tokenizer.to_huggingface(tmp_path / "tokenizer.json")
    folder = to_huggingface(model, tmp_path / "hf", tokenizer=tmp_path / "tokenizer.json")
    theirs = transformers.AutoTokenizer.from_pretrained(folder)
    assert theirs(text[:900])["input_ids"] == prompt_ids(tokenizer, text[:900])
    ids = torch.tensor([prompt_ids(tokenizer, text)[:300]])
    with torch.inference_mode():
        want = transformers.AutoModelForCausalLM.from_pretrained(folder)(ids).logits
        # transformers takes the angles of rotation in float32, which at position 300 are off by more than our sums are.
        torch.testing.assert_close(from_huggingface(folder)(ids), want, rtol=0, atol=1e-5 * float(want.abs().max()))
