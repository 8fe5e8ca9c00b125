"""Published corpora, served from this machine by a server that fails as networks and servers do."""

from __future__ import annotations

import hashlib
import importlib.util
import itertools
import json
import os
import random
import socket
import subprocess
import sys
import threading
import time
from email.utils import formatdate
from types import SimpleNamespace

import pytest
from corpora import as_json_lines, as_text, read_back, stories, tokenizer
from hub import COMMIT, Hub

from lm.commands.cli import main
from lm.data import download, open_data, open_tokens, published, token_files

needs_bpe = pytest.mark.skipif(importlib.util.find_spec("bpe") is None, reason="the package bpe is not installed")

DATA = bytes(i * i % 251 for i in range(5000))
SHA = hashlib.sha256(DATA).hexdigest()
TINY = "roneneldan/TinyStories"
TRAIN, VALID = "TinyStoriesV2-GPT4-train.txt", "TinyStoriesV2-GPT4-valid.txt"


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch):
    """Waits between attempts are kept, and not waited for."""
    waits = []

    monkeypatch.setattr(download, "pause", lambda stop, seconds: waits.append(seconds) or stop.is_set())
    monkeypatch.setattr(download, "TIMEOUT", 0.2)
    monkeypatch.delenv("HF_TOKEN", raising=False)
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    return waits


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


def fetch(hub, path, **more):
    more = {"size": len(DATA), "sha256": SHA, **more}
    download.fetch(f"{hub.url}/datasets/r/resolve/{COMMIT}/f", path, **more)
    assert sorted(found.name for found in path.parent.iterdir()) == [path.name]
    return path.read_bytes()


@pytest.mark.parametrize(
    "faults",
    [
        [],
        ["drop"],
        ["drop"] * 9,  # each brings something, so that it is never given up
        ["stall", "drop"],
        ["reset", "drop", "reset"],
        [429, 500, 502, 503, 504, 408, "ok"],
        ["drop", 429, "drop", 503],
        ["drop", "whole"],
        ["drop", "changed"],
        ["drop", "drop", "changed"],
        ["wrong"],
        ["drop", "wrong"],
    ],
    ids=str,
)
@pytest.mark.parametrize("stated", [True, False])
def test_a_file_arrives_whatever_happens_on_the_way(tmp_path, serve, faults, stated):
    hub = serve("r", {"f": DATA})
    hub.faults = list(faults)
    if stated:
        assert fetch(hub, tmp_path / "f") == DATA
    elif "wrong" not in faults:  # which nothing but a hash can show
        assert fetch(hub, tmp_path / "f", size=None, sha256=None) == DATA
    assert hub.faults == [] or not stated


def test_what_has_arrived_is_not_asked_for_again(tmp_path, serve):
    hub = serve("r", {"f": DATA})
    hub.faults = ["drop", "drop"]
    heard = []
    assert fetch(hub, tmp_path / "f", report=heard.append) == DATA
    assert [asked for _, asked, _ in hub.seen] == [None, "bytes=2500-", "bytes=3750-"]
    assert heard == sorted(heard)
    assert heard[-1] == 5000


def test_a_file_that_changed_comes_whole(tmp_path, serve):
    hub = serve("r", {"f": DATA})
    hub.faults = ["drop", "changed"]
    assert fetch(hub, tmp_path / "f", size=None, sha256=None) == DATA
    assert hub.seen[-1][1] == "bytes=2500-"  # If-Range was of the old version, so the answer was the whole
    new = DATA[::-1]
    part = tmp_path / "g.part"
    part.write_bytes(DATA[:100])
    (tmp_path / "g.part.json").write_text(json.dumps({"etag": 'W/"weak"'}))  # which If-Range may not name
    hub.files["f"] = new
    assert fetch_only(hub, tmp_path / "g") == new


def fetch_only(hub, path):
    download.fetch(f"{hub.url}/datasets/r/resolve/{COMMIT}/f", path)
    return path.read_bytes()


@pytest.mark.parametrize("left", [DATA, DATA + b"more", DATA[:7]], ids=["whole", "more", "some"])
@pytest.mark.parametrize("about", ['{"etag": "\\"f-0\\""}', "{", None])
def test_what_an_earlier_attempt_left_is_used_or_forgotten(tmp_path, serve, left, about):
    hub = serve("r", {"f": DATA})
    (tmp_path / "f.part").write_bytes(left)
    if about is not None:
        (tmp_path / "f.part.json").write_text(about)
    assert fetch(hub, tmp_path / "f", size=None) == DATA


def test_only_a_beginning(tmp_path, serve):
    hub = serve("r", {"f": DATA})
    hub.faults = ["drop", "ok", "whole", "ok"]
    assert fetch(hub, tmp_path / "f", most=1000) == DATA[:1000]
    assert [asked for _, asked, _ in hub.seen] == ["bytes=0-999", "bytes=500-999"]
    assert fetch(hub, tmp_path / "f", most=700) == DATA[:700]
    assert fetch(hub, tmp_path / "f", most=9000, size=None) == DATA


@pytest.mark.parametrize(
    ("faults", "error", "says"),
    [
        ([500] * 8, ConnectionError, "fails again and again, at last because it answers 500"),
        (["reset"] * 8, ConnectionError, "the same command goes on from here"),
        (["wrong", "wrong"], ValueError, "twice: something on the way alters it"),
        ([404], FileNotFoundError, "is not there"),
        ([403], PermissionError, "HF_TOKEN"),
        ([401], PermissionError, "accept its terms"),
        ([418], ConnectionError, "answers 418"),
    ],
)
def test_what_cannot_be_had_is_one_sentence(tmp_path, serve, faults, error, says):
    hub = serve("r", {"f": DATA})
    hub.faults = faults
    with pytest.raises(error, match=says):
        fetch(hub, tmp_path / "f")
    assert not (tmp_path / "f").exists()


def test_a_full_disk_is_said_before_it_is_full(tmp_path, serve, monkeypatch):
    hub = serve("r", {"f": DATA})
    monkeypatch.setattr(download.shutil, "disk_usage", lambda path: SimpleNamespace(free=4999))
    with pytest.raises(OSError, match="4,999 bytes free, and 5,000 are still to come"):
        fetch(hub, tmp_path / "f")


def test_a_mirror_is_mentioned_where_there_may_be_one():
    again = download.Again("no route", reached=False)
    assert "HF_ENDPOINT" in download.give_up("https://huggingface.co/x", again)
    assert "HF_ENDPOINT" not in download.give_up("https://raw.githubusercontent.com/x", again)


def test_waits_grow_and_heed_the_server(tmp_path, serve, no_waiting):
    hub = serve("r", {"f": DATA})
    hub.faults = [500, 500, 500]
    fetch(hub, tmp_path / "f")
    assert no_waiting[-3:] == [0.5, 1.0, 2.0]
    assert download.retry_after({"Retry-After": "7"}) == 7
    assert 55 < download.retry_after({"Retry-After": formatdate(time.time() + 60)}) <= 60
    for nothing in ({}, {"Retry-After": "soon"}, {"Retry-After": formatdate(0)}):
        assert download.retry_after(nothing) == 0


def test_a_token_is_shown_to_the_hub_alone(tmp_path, serve):
    hub = serve("r", {"f": DATA})
    fetch(hub, tmp_path / "f", token="secret")
    assert hub.tokens == [("127.0.0.1", "Bearer secret"), ("localhost", None)]


def test_a_download_that_is_told_to_stop_keeps_what_it_has(tmp_path, serve, monkeypatch):
    hub = serve("r", {"f": DATA})
    monkeypatch.setattr(download, "BLOCK", 1000)
    stop = download.Stop()
    with pytest.raises(download.Cancelled):
        download.fetch(f"{hub.url}/cdn/f", tmp_path / "f", stop=stop, report=lambda have: have > 2000 and stop.set())
    assert (tmp_path / "f.part").stat().st_size == 3000
    assert fetch(hub, tmp_path / "f") == DATA
    assert hub.seen[-1][1] == "bytes=3000-"


def test_a_download_that_hears_nothing_stops_when_it_is_told_to(tmp_path, serve, monkeypatch):
    hub = serve("r", {"f": DATA})
    hub.faults, hub.stall = ["stall"], 3600  # and no patience that would end
    monkeypatch.setattr(download, "TIMEOUT", None)
    stop, arrived, ends = download.Stop(), threading.Event(), []

    def work():
        try:
            download.fetch(f"{hub.url}/cdn/f", tmp_path / "f", stop=stop, report=lambda have: arrived.set())
        except download.Cancelled:
            ends.append("cancelled")

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    arrived.wait()
    stop.set()
    worker.join(timeout=60)
    assert ends == ["cancelled"]
    assert 0 < (tmp_path / "f.part").stat().st_size < len(DATA)


def test_listing_follows_pages_and_stops_at_the_limit(serve):
    names = [f"train/chunk1/example_train_{i}.jsonl.zst" for i in range(25)]
    held = [f"validation/chunk1/example_holdout_{i}.jsonl.zst" for i in range(3)]
    hub = serve("cerebras/SlimPajama-627B", {name: bytes(100) for name in [*names, *held, "README.md"]}, page=7)
    found = published.files("slimpajama")
    assert [one.name for one in found] == sorted(held) + sorted(names)
    assert {one.split for one in found[:3]} == {"heldout"}
    assert found[5].url == f"{hub.url}/datasets/cerebras/SlimPajama-627B/resolve/{COMMIT}/{found[5].name}"
    assert found[5].sha256 == hashlib.sha256(bytes(100)).hexdigest()
    assert [one.name for one in published.files("slimpajama", limit=350)] == sorted(held)[:1] + sorted(names)[:4]
    hub.lfs = False
    assert published.files("slimpajama")[0].sha256 is None
    hub.files = {"other/file.txt": b"x"}
    with pytest.raises(ValueError, match="its publisher has moved them"):
        published.files("slimpajama")


@pytest.mark.parametrize("answer", [[], {}, {"sha": None}, {"error": "who are you?"}, "welcome"])
def test_a_host_that_is_no_hub_is_named(monkeypatch, answer):
    monkeypatch.setenv("HF_ENDPOINT", "http://mirror.invalid")
    monkeypatch.setattr(published, "get_json", lambda *_: (answer, None))
    with pytest.raises(ConnectionError, match=r"http://mirror\.invalid does not answer as the Hub does"):
        published.files("tinystories")
    sha = {"sha": COMMIT}
    monkeypatch.setattr(published, "get_json", lambda url, *_: (sha if url.endswith("main") else answer, None))
    if answer:
        with pytest.raises(ConnectionError, match="does not answer as the Hub does"):
            published.files("tinystories")


@pytest.mark.parametrize("endpoint", ["mirror.invalid", "not a url", "ftp://mirror.invalid", "http://"])
def test_a_mirror_that_is_no_address_is_named(monkeypatch, endpoint):
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    with pytest.raises(ValueError, match=f"HF_ENDPOINT is '{endpoint}'.*write https://HOST"):
        published.files("tinystories")


def test_every_corpus_is_listed_where_its_publisher_has_it(serve):
    known = {
        "openwebtext": "plain_text/train-00079-of-00080.parquet",
        "fineweb-edu-10bt": "sample/10BT/013_00000.parquet",
        "tinystories": TRAIN,
        "slimpajama": "train/chunk10/example_train_5911.jsonl.zst",
    }
    for name, path in known.items():
        held = [VALID] if name == "tinystories" else []
        held += ["validation/chunk5/example_holdout_6300.jsonl.zst"] if name == "slimpajama" else []
        serve(published.CORPORA[name].repo, dict.fromkeys([path, *held, "README.md"], b"12345"))
        found = published.files(name)
        assert [one.name for one in found] == [*held, path]
        assert found[-1].split == ("train" if held else "hash")
    assert published.files("shakespeare")[0].url.startswith("https://raw.githubusercontent.com/karpathy/")
    with pytest.raises(ValueError, match="did you mean 'shakespeare'"):
        published.files("shakespere")


# From end to end


@pytest.fixture
def tok(tmp_path):
    made = tokenizer()
    made.save(tmp_path / "tok.json")
    return made


def get(tmp_path, name="tinystories", more=()):
    return main(
        [
            "data",
            "get",
            name,
            "--tokenizer",
            str(tmp_path / "tok.json"),
            "--out",
            str(tmp_path / "out"),
            "--quiet",
            *more,
        ]
    )


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
    learned, kept = read_back(tok, data.tokens), read_back(tok, data.heldout)
    assert learned == train[: len(learned)]
    assert kept == valid[: len(kept)]
    assert data.tokens.bytes - 20000 < len(learned[-1].encode())
    assert 2000 <= data.heldout.bytes < 3000
    assert [asked for _, asked, _ in hub.seen] == ["bytes=0-2499", "bytes=0-20499"]


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
    assert ("train/chunk1/example_train_0.jsonl.zst", f"bytes=0-{50_000 + (1 << 21) - 1}", "ok") in hub.seen


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
    learned, kept = read_back(tok, data.tokens), read_back(tok, data.heldout)
    assert sorted(learned + kept) == sorted([*itertools.chain.from_iterable(parts)])
    assert 10 < len(kept) < 60


@needs_bpe
def test_shakespeare_is_one_text_whose_end_is_held_out(tmp_path, tok, serve, monkeypatch):
    text = "".join(f"line {i}\n" for i in range(2000))
    hub = serve("r", {"input.txt": text.encode()})
    url = f"{hub.url}/cdn/input.txt"
    monkeypatch.setitem(published.CORPORA, "shakespeare", published.Corpus("a play", url=url))
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
    for endpoint, host in ((f"http://127.0.0.1:{port}", "127.0.0.1"), ("http://nowhere.invalid", "nowhere.invalid")):
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        assert get(tmp_path) == 2
        said = capsys.readouterr().err
        assert f"there is no way from here to {host}" in said
        assert "this needs the network" in said
        assert said.count("\n") == 1


RUN = "import sys; from lm.commands.cli import main; sys.exit(main(sys.argv[1:]))"


@needs_bpe
def test_killed_in_the_middle_of_a_download_the_same_command_goes_on(tmp_path, tok, serve):
    documents = stories(3000)
    hub = serve(TINY, {TRAIN: as_text(documents), VALID: as_text(stories(50, 1))})
    hub.stall = 0.6
    hub.faults = ["stall", "stall"]
    arguments = [
        "data",
        "get",
        "tinystories",
        "--tokenizer",
        str(tmp_path / "tok.json"),
        "--out",
        str(tmp_path / "out"),
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    process = subprocess.Popen([sys.executable, "-c", RUN, *arguments, "--quiet"], env=environment)
    while not hub.seen and process.poll() is None:
        time.sleep(0.01)
    time.sleep(0.1)
    process.kill()
    process.wait()
    assert list((tmp_path / "out" / "download").glob("*.part"))
    hub.faults = []
    assert get(tmp_path) == 0
    assert any(asked for _, asked, _ in hub.seen)  # the rest, and not the whole again
    assert read_back(tok, open_data(tmp_path / "out").parts[0].tokens) == documents


@needs_bpe
@pytest.mark.soak  # every attempt is a process that imports torch
def test_killed_twenty_times_the_tokens_are_those_of_one_that_was_not(tmp_path, tok, serve):
    documents = [random.Random(i).randbytes(300).hex() for i in range(20_000)]
    hub = serve(TINY, {TRAIN: as_text(documents), VALID: as_text(stories(50, 1))})
    more = ["--shard-tokens", "200000", "--fim-rate", "0.3", "--workers", "2"]
    assert get(tmp_path, more=more) == 0
    whole = {path.name: path.read_bytes() for path in (tmp_path / "out").glob("*-*.*")}
    (tmp_path / "out").rename(tmp_path / "whole")
    hub.faults = ["drop", "stall", "drop"]
    arguments = [
        "data",
        "get",
        "tinystories",
        "--tokenizer",
        str(tmp_path / "tok.json"),
        "--out",
        str(tmp_path / "out"),
    ]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ready = RUN.replace("; sys.exit", "; import bpe, lm.data.get; print('ready', flush=True); sys.exit")
    draw = random.Random(0)
    for _ in range(20):
        command = [sys.executable, "-c", ready, *arguments, "--quiet", *more]
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
            process.stdout.readline()
            time.sleep(draw.random() * 0.4)
            process.kill()
    assert get(tmp_path, more=more) == 0
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").glob("*-*.*")} == whole
    assert len(whole) > 20  # .npy and .json
