"""Published corpora, served from this machine by a server that fails as networks and servers do."""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import json
import random
import socket
import subprocess
import sys
import threading
import time

import pytest
import torch
from corpora import as_json_lines, as_text, read_back, stories
from hub import COMMIT, Hub
from models import random_model
from runs import environment

import lm
from lm.commands.cli import main
from lm.data import corpora, open_data, open_tokens, token_files
from lm.data.hub import Cancelled, HubFile, download

needs_bpe = pytest.mark.skipif(importlib.util.find_spec("bpe") is None, reason="the package bpe is not installed")

TINY = "roneneldan/TinyStories"
TRAIN, VALID = "TinyStoriesV2-GPT4-train.txt", "TinyStoriesV2-GPT4-valid.txt"


@pytest.fixture(autouse=True)
def alone(monkeypatch, tmp_path):
    """No token, no proxy and no waiting between attempts."""
    for name in ("HF_TOKEN", "http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("lm.data.hub.WAIT", 0.01)
    sleep = time.sleep
    monkeypatch.setattr(time, "sleep", lambda seconds: sleep(min(seconds, 0.02)))


@pytest.fixture
def serve(monkeypatch):
    hubs = []

    def start(repo, files, **more):
        hubs.append(Hub(repo, files, **more))
        monkeypatch.setenv("HF_ENDPOINT", hubs[-1].url)
        return hubs[-1]

    yield start
    for hub in hubs:
        hub.close()


def test_listing_follows_pages_and_stops_at_the_limit(serve):
    names = [f"train/chunk1/example_train_{i}.jsonl.zst" for i in range(25)]
    heldout = [f"validation/chunk1/example_holdout_{i}.jsonl.zst" for i in range(3)]
    hub = serve("cerebras/SlimPajama-627B", {name: bytes(100) for name in [*names, *heldout, "README.md"]}, page=7)
    files = corpora.corpus_files("slimpajama")
    assert [one.path for one in files] == sorted(heldout) + sorted(names)
    assert {one.split for one in files[:3]} == {"heldout"}
    assert {one.commit for one in files} == {COMMIT}
    assert files[5].sha256 == hashlib.sha256(bytes(100)).hexdigest()
    limited = corpora.corpus_files("slimpajama", limit=350)
    assert [one.path for one in limited] == sorted(heldout)[:1] + sorted(names)[:4]
    hub.lfs = False
    assert corpora.corpus_files("slimpajama")[0].sha256 is None
    hub.files = {"other/file.txt": b"x"}
    with pytest.raises((ValueError, FileNotFoundError), match=r"its publisher has moved them|has no cerebras"):
        corpora.corpus_files("slimpajama")


@pytest.mark.parametrize("answer", [b"[]", b"{}", b"welcome", b'{"id": "x", "sha": null}'])
def test_a_host_that_is_no_hub_is_named(serve, monkeypatch, answer):
    hub = serve(TINY, {})
    monkeypatch.setattr(hub, "answer", lambda request: hub.say(request, 200, answer))
    with pytest.raises(ConnectionError, match="does not answer as the Hub does"):
        corpora.corpus_files("tinystories")


@pytest.mark.parametrize("endpoint", ["mirror.invalid", "not a url", "ftp://mirror.invalid", "http://"])
def test_a_mirror_that_is_no_address_is_named(monkeypatch, endpoint):
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    with pytest.raises(ValueError, match=f"HF_ENDPOINT to be https://HOST, got '{endpoint}'"):
        corpora.corpus_files("tinystories")


def test_every_corpus_is_listed_where_its_publisher_has_it(serve):
    last_files = {
        "openwebtext": "plain_text/train-00079-of-00080.parquet",
        "fineweb-edu-10bt": "sample/10BT/013_00000.parquet",
        "tinystories": TRAIN,
        "slimpajama": "train/chunk10/example_train_5911.jsonl.zst",
    }
    for name, path in last_files.items():
        heldout = [VALID] if name == "tinystories" else []
        heldout += ["validation/chunk5/example_holdout_6300.jsonl.zst"] if name == "slimpajama" else []
        serve(corpora.CORPORA[name].repo, dict.fromkeys([path, *heldout, "README.md"], b"12345"))
        files = corpora.corpus_files(name)
        assert [one.path for one in files] == [*heldout, path]
        assert files[-1].split == ("train" if heldout else "hash")
    assert corpora.corpus_files("shakespeare")[0].path.startswith("https://raw.githubusercontent.com/karpathy/")
    with pytest.raises(ValueError, match="did you mean 'shakespeare'"):
        corpora.corpus_files("shakespere")


SAYS = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "ho"}]
ROWS: dict[str, tuple[str, dict]] = {  # as their publishers have them
    "smoltalk": ("data/all/train-00000-of-00009.parquet", {"messages": SAYS, "source": "smol-magpie-ultra"}),
    "ultrachat": (
        "data/train_sft-00000-of-00003-a3ecf92756993583.parquet",
        {"prompt": "hi", "prompt_id": "f0e3", "messages": SAYS},
    ),
    "alpaca": (
        "data/train-00000-of-00001-a09b74b3ef9c3b56.parquet",
        {"instruction": "Add.", "input": "1 1", "output": "2", "text": "Add. 2"},
    ),
    "dolly": (
        "databricks-dolly-15k.jsonl",
        {"instruction": "Add.", "context": "", "response": "2", "category": "open_qa"},
    ),
    "ultrafeedback": (
        "data/train_prefs-00000-of-00001.parquet",
        {
            "prompt": "hi",
            "chosen": SAYS,
            "rejected": [SAYS[0], {"role": "assistant", "content": "no"}],
            "messages": SAYS,
            "score_chosen": 9.0,
        },
    ),
    "gsm8k": ("main/train-00000-of-00001.parquet", {"question": "1 + 1?", "answer": "It is 2.\n#### 2"}),
}


@needs_bpe
@pytest.mark.parametrize("name", ROWS)
def test_sets_of_rows_are_fetched_and_encoded(serve, monkeypatch, tmp_path, capsys, name):
    """From a local copy of the form of each, with files that are none of it; and without a network."""
    path, row = ROWS[name]
    data = (json.dumps(row) + "\n").encode() * 3
    if path.endswith(".parquet"):
        arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        parquet.write_table(arrow.Table.from_pylist([row] * 3), tmp_path / "rows.parquet")
        data = (tmp_path / "rows.parquet").read_bytes()
    serve(corpora.CORPORA[name].repo, {path: data, "README.md": b"a card", "data/test.parquet": b"x"})
    rows, out = tmp_path / "rows", tmp_path / "tokens"
    for _ in range(2):  # the second time everything is there
        assert main(["data", "get", name, "--out", str(rows)]) == 0
    assert (rows / path).read_bytes() == data
    words = capsys.readouterr().out.splitlines()[-1].partition("encode it: lm ")[2].split()
    bpe = importlib.import_module("bpe")
    talks = bpe.train(["the cat"], 259, special_tokens=["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    talks.save(tmp_path / "tok.json")
    command = [{"TOKENIZER": str(tmp_path / "tok.json"), "FOLDER": str(out)}.get(word, word) for word in words]
    assert main([*command, "--context", "128", "--heldout", "0"]) == 0
    text = talks.decode(open_tokens(out / "train.npy").ids[:].tolist())
    assert text.count(row.get("instruction", row.get("question", "hi"))) >= 1
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # where nothing listens
    assert main(["data", "get", name, "--out", str(tmp_path / "new")]) != 0
    assert corpora.CORPORA[name].repo in capsys.readouterr().err


def test_a_token_is_shown_to_the_hub_alone(serve, tmp_path, monkeypatch):
    hub = serve(TINY, {TRAIN: b"abc"})
    monkeypatch.setenv("HF_TOKEN", "hf_secret")
    file = corpora.HubFile(TINY, COMMIT, TRAIN)
    assert download(file, tmp_path / "f", stop=threading.Event()).read_bytes() == b"abc"
    assert {token for host, token in hub.tokens if host == "127.0.0.1"} == {"Bearer hf_secret"}
    assert {token for host, token in hub.tokens if host == "localhost"} == {None}


def test_what_is_not_what_its_publisher_states_is_refused(serve, tmp_path):
    hub = serve(TINY, {TRAIN: b"abc" * 100})
    stated = hashlib.sha256(b"abc" * 100).hexdigest()
    file = corpora.HubFile(TINY, COMMIT, TRAIN, 300, stated)
    hub.faults = ["wrong"]
    assert download(file, tmp_path / "f", stop=threading.Event()).read_bytes() == b"abc" * 100
    hub.faults = ["wrong", "wrong"]
    with pytest.raises(ValueError, match="arrived twice with another SHA-256"):
        download(file, tmp_path / "g", stop=threading.Event())


def test_a_download_that_is_told_to_stop_keeps_what_it_has(serve, tmp_path):
    data = random.Random(0).randbytes(30_000_000)
    serve(TINY, {TRAIN: data})
    file, stop = corpora.HubFile(TINY, COMMIT, TRAIN, len(data)), threading.Event()
    answers = iter([False])
    stop.is_set = lambda: next(answers, True)  # after the first block
    with pytest.raises(Cancelled):
        download(file, tmp_path / "f", stop=stop)
    assert sum(path.stat().st_size for path in (tmp_path / "f").rglob("*") if path.is_file()) > 0
    assert download(file, tmp_path / "f", stop=threading.Event()).read_bytes() == data


def test_a_model_comes_by_its_name_once(serve, tmp_path, monkeypatch):
    """hf://OWNER/NAME is downloaded once, without what is no part of a model."""
    model = random_model(19, 16, 1, 8, 2, 8)
    folder = lm.to_huggingface(model, tmp_path / "out")
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    hub = serve("me/small", {**files, "training.log": b"x"}, kind="models")
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    loaded = lm.load("hf://me/small")
    assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), model.parameters(), strict=True))
    assert "training.log" not in {path for path, _, _ in hub.seen}
    seen = len(hub.seen)
    assert lm.load("hf://me/small").config == loaded.config
    assert len(hub.seen) == seen
    with pytest.raises(FileNotFoundError, match="has no hf://me/large"):
        lm.load("hf://me/large")
    assert lm.load("me/small").config == loaded.config  # as people type it
    assert lm.from_huggingface("me/small").config == lm.from_huggingface("hf://me/small").config == loaded.config
    with pytest.raises(FileNotFoundError, match="no me/large here"):
        lm.load("me/large")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "me" / "small").mkdir(parents=True)  # a path of this machine goes before a name of the Hub
    with pytest.raises(FileNotFoundError, match="holds no model"):
        lm.load("me/small")


def test_a_bare_name_without_a_hub_is_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.chdir(tmp_path)
    for call in (lm.load, lm.from_huggingface):
        with pytest.raises(FileNotFoundError, match="gpt2-of-nobody"):
            call("gpt2-of-nobody")
    assert main(["export", "gpt2-of-nobody", "--out", "x"]) == 2


# From end to end


def command(tmp_path, name="tinystories"):
    places = ["--tokenizer", str(tmp_path / "tok.json"), "--out", str(tmp_path / "out")]
    return ["data", "get", name, *places, "--quiet"]


def get(tmp_path, name="tinystories", more=()):
    return main([*command(tmp_path, name), *more])


@needs_bpe
def test_tinystories(tmp_path, tok, serve, capsys):
    train, valid = stories(300), stories(40, 1)
    hub = serve(TINY, {TRAIN: as_text(train), VALID: as_text(valid)})
    hub.faults = ["drop", 500, "stall", "ok", "reset", "drop"]
    assert get(tmp_path) == 0
    data = open_data(tmp_path / "out").parts[0]
    assert read_back(tok, data.tokens) == train
    assert read_back(tok, data.heldout) == valid
    assert sorted(path.name for path in (tmp_path / "out").iterdir() if path.suffix == "") == [".lock"]
    assert "300 documents" in capsys.readouterr().out
    requests = len(hub.seen)
    assert get(tmp_path) == 0
    assert len(hub.seen) == requests


@needs_bpe
def test_a_limit_downloads_no_more_than_it_needs(tmp_path, tok, serve, monkeypatch):
    monkeypatch.setattr("lm.data.get.SLACK", 500)
    train, valid = stories(3000), stories(2000, 1)
    hub = serve(TINY, {TRAIN: as_text(train), VALID: as_text(valid)})
    assert get(tmp_path, more=["--limit-bytes", "20000"]) == 0
    data = open_data(tmp_path / "out").parts[0]
    learned, heldout = read_back(tok, data.tokens), read_back(tok, data.heldout)
    assert learned == train[: len(learned)]
    assert heldout == valid[: len(heldout)]
    assert sum(len(text.encode()) for text in learned) - 20000 < len(learned[-1].encode())
    assert 2000 <= data.heldout.bytes < 3000
    assert [byte_range for _, byte_range, _ in hub.seen] == ["bytes=0-2499", "bytes=0-20499"]


@pytest.mark.parametrize(("most", "beginning"), [(5, b"ab\n"), (6, b"ab\ncd\n"), (2, b"ab"), (99, b"ab\ncd\n")])
def test_the_beginning_of_a_file_ends_with_a_line(serve, tmp_path, most, beginning):
    hub, stop = serve(TINY, {TRAIN: b"ab\ncd\nef"}), threading.Event()
    file = HubFile(TINY, COMMIT, TRAIN)
    stop.set()
    with pytest.raises(Cancelled):
        download(file, tmp_path, most=most, stop=stop)
    assert not (tmp_path / TRAIN).exists()
    assert download(file, tmp_path, most=most, stop=threading.Event()).read_bytes() == beginning
    seen = len(hub.seen)
    assert download(file, tmp_path, most=most, stop=threading.Event()).read_bytes() == beginning
    assert len(hub.seen) == seen  # it is there


@needs_bpe
@pytest.mark.skipif(importlib.util.find_spec("zstandard") is None, reason="zstandard is not installed")
def test_slimpajama_and_its_beginning(tmp_path, tok, serve):
    import zstandard

    draw = random.Random(0)
    parts = [stories(60, i) for i in range(3)]
    files = {
        f"train/chunk1/example_train_{i}.jsonl.zst": zstandard.compress(as_json_lines(p)) for i, p in enumerate(parts)
    }
    files["validation/chunk1/example_holdout_0.jsonl.zst"] = zstandard.compress(as_json_lines(stories(9, 9)))
    hub = serve("cerebras/SlimPajama-627B", files)
    assert get(tmp_path, "slimpajama") == 0
    data = open_data(tmp_path / "out").parts[0]
    assert read_back(tok, data.tokens) == [*itertools.chain.from_iterable(parts)]
    assert read_back(tok, data.heldout) == stories(9, 9)
    (tmp_path / "out").rename(tmp_path / "whole")
    large = [draw.randbytes(1000).hex() for _ in range(3000)]
    hub.files["train/chunk1/example_train_0.jsonl.zst"] = zstandard.compress(as_json_lines(large))
    hub.seen.clear()
    assert get(tmp_path, "slimpajama", ["--limit-bytes", "50000"]) == 0
    tokens = open_data(tmp_path / "out").parts[0].tokens
    assert tokens.bytes == 50_000
    assert read_back(tok, tokens) == large[:25]
    assert [path for path, _, _ in hub.seen if "train" in path] == ["train/chunk1/example_train_0.jsonl.zst"]


@needs_bpe
@pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="pyarrow is not installed")
def test_openwebtext_holds_documents_out_by_their_hash(tmp_path, tok, serve):
    import pyarrow
    import pyarrow.parquet

    parts = [stories(150, i) for i in range(2)]
    files = {}
    for i, part in enumerate(parts):
        sink = pyarrow.BufferOutputStream()
        pyarrow.parquet.write_table(pyarrow.table({"text": part}), sink)
        files[f"plain_text/train-0000{i}-of-00002.parquet"] = sink.getvalue().to_pybytes()
    serve("Skylion007/openwebtext", files)
    assert get(tmp_path, "openwebtext", ["--heldout", "0.1"]) == 0
    data = open_data(tmp_path / "out").parts[0]
    learned, heldout = read_back(tok, data.tokens), read_back(tok, data.heldout)
    assert sorted(learned + heldout) == sorted([*itertools.chain.from_iterable(parts)])
    assert 10 < len(heldout) < 60


@needs_bpe
def test_shakespeare_is_one_text_whose_end_is_held_out(tmp_path, tok, serve, monkeypatch):
    text = "".join(f"line {i}\n" for i in range(2000))
    hub = serve("r", {"input.txt": text.encode()})
    url = f"{hub.url}/cdn/input.txt"
    monkeypatch.setitem(corpora.CORPORA, "shakespeare", corpora.Corpus(url=url))
    hub.faults = ["drop", "changed"]
    assert get(tmp_path, "shakespeare") == 0
    train, heldout = (read_back(tok, open_tokens(paths))[0] for paths in token_files(tmp_path / "out"))
    assert train + heldout == text
    assert abs(len(heldout) / len(text) - 0.1) < 0.01
    (tmp_path / "out").rename(tmp_path / "whole")
    assert get(tmp_path, "shakespeare", ["--limit-bytes", "4000"]) == 0


@needs_bpe
def test_no_network_is_one_sentence(tmp_path, tok, monkeypatch, capsys):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    for endpoint in (f"http://127.0.0.1:{port}", "http://nowhere.invalid"):
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        assert get(tmp_path) == 2
        stderr = capsys.readouterr().err
        assert f"could not be downloaded from {endpoint}: check the network" in stderr
        assert stderr.count("\n") == 1


RUN = "import sys; from lm.commands.cli import main; sys.exit(main(sys.argv[1:]))"


@needs_bpe
def test_killed_in_the_middle_of_a_download_the_same_command_goes_on(tmp_path, tok, serve):
    documents = stories(3000)
    hub = serve(TINY, {TRAIN: as_text(documents), VALID: as_text(stories(50, 1))})
    hub.stall = 0.6
    hub.faults = ["stall", "stall"]
    process = subprocess.Popen([sys.executable, "-c", RUN, *command(tmp_path)], env=environment())
    while not hub.seen and process.poll() is None:
        time.sleep(0.01)
    time.sleep(0.1)
    process.kill()
    process.wait()
    hub.faults = []
    assert get(tmp_path) == 0
    assert read_back(tok, open_data(tmp_path / "out").parts[0].tokens) == documents


@needs_bpe
@pytest.mark.soak  # every attempt is a process that imports torch
def test_killed_twenty_times_the_tokens_are_those_of_one_that_was_not(tmp_path, tok, serve):
    documents = [random.Random(i).randbytes(300).hex() for i in range(20_000)]
    hub = serve(TINY, {TRAIN: as_text(documents), VALID: as_text(stories(50, 1))})
    more = ["--shard-tokens", "200000", "--fim-rate", "0.3", "--num-threads", "2"]
    assert get(tmp_path, more=more) == 0
    whole = {path.name: path.read_bytes() for path in (tmp_path / "out").glob("*-*.*")}
    (tmp_path / "out").rename(tmp_path / "whole")
    hub.faults = ["drop", "stall", "drop"]
    ready = RUN.replace("; sys.exit", "; import bpe, lm.data.get; print('ready', flush=True); sys.exit")
    draw = random.Random(0)
    for _ in range(20):
        attempt = [sys.executable, "-c", ready, *command(tmp_path), *more]
        with subprocess.Popen(attempt, env=environment(), stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            time.sleep(draw.random() * 0.4)
            process.kill()
    assert get(tmp_path, more=more) == 0
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").glob("*-*.*")} == whole
    assert len(whole) > 20  # .npy and .json
