"""The published vocabularies: kept where tiktoken keeps them, downloaded where they are not, never taken unchecked."""

from __future__ import annotations

import base64
import hashlib
import os
import socket
import sys
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import bpe
from bpe import published

RANKS = {token: number for number, token in enumerate([*(bytes([byte]) for byte in range(256)), b"th", b"the"])}
TIKTOKEN = b"".join(base64.b64encode(token) + b" %d\n" % rank for token, rank in RANKS.items())
VOCAB = dict(enumerate([*(bytes([byte]) for byte in range(256)), b"th", b"the", b"<|end|>"]))
MERGES = [(b"t", b"h"), (b"th", b"e")]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read(name: str) -> bpe.Tokenizer:
    """A published encoding, not that of an earlier call."""
    bpe.get_encoding.cache_clear()
    return bpe.get_encoding(name)


@dataclass
class Site:
    """A web server on this machine. pages: what it serves; asked: what it was asked for."""

    address: str
    pages: dict[str, bytes]
    asked: list[str] = field(default_factory=list)

    def kept(self, folder: Path, page: str) -> Path:
        return folder / hashlib.sha1((self.address + page).encode()).hexdigest()


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Site]:
    """The site that `published` downloads from, with the encodings "small" and "small-gpt2"."""
    bpe.Tokenizer(VOCAB, MERGES).to_gpt2(tmp_path / "gpt2")
    pages = {
        "/small.tiktoken": TIKTOKEN,
        "/vocab.bpe": (tmp_path / "gpt2" / "merges.txt").read_bytes(),
        "/encoder.json": (tmp_path / "gpt2" / "vocab.json").read_bytes(),
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.asked.append(self.path)
            data = served.pages.get(self.path)
            self.send_response(404 if data is None else 200)
            self.send_header("Content-Length", str(len(data or b"")))
            self.end_headers()
            self.wfile.write(data or b"")

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    served = Site(f"http://127.0.0.1:{server.server_port}", pages)
    files = [(page, sha256(data)) for page, data in pages.items()]
    monkeypatch.setattr(published, "HOST", served.address)
    monkeypatch.setattr(
        published,
        "DOWNLOADS",
        {
            "small": published.Download((files[0],), "cl100k", {"<|end|>": 300}),
            "small-gpt2": published.Download((files[1], files[2]), "gpt2", {"<|end|>": 258}),
        },
    )
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield served
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The cache folder the environment names, not there yet."""
    folder = tmp_path / "cache" / "deep"
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(folder))
    return folder


def test_downloaded_once_and_kept(site: Site, folder: Path) -> None:
    for _ in range(2):
        encoding = read("small")
        assert (encoding.name, encoding._mergeable_ranks, encoding.pattern) == ("small", RANKS, "cl100k")
        assert (encoding.special_tokens, encoding.n_vocab) == ({"<|end|>": 300}, 301)
    assert site.asked == ["/small.tiktoken"]
    assert list(folder.iterdir()) == [site.kept(folder, "/small.tiktoken")]


def test_the_two_files_of_gpt2(site: Site, folder: Path) -> None:
    encoding = read("small-gpt2")
    assert encoding._mergeable_ranks == RANKS
    assert (encoding.special_tokens, encoding.n_vocab) == ({"<|end|>": 258}, 259)
    assert len(list(folder.iterdir())) == 2


def test_a_kept_file_that_is_wrong_is_replaced(site: Site, folder: Path) -> None:
    folder.mkdir(parents=True)
    rest = site.kept(folder, "/small.tiktoken")
    rest.write_bytes(TIKTOKEN[:-5])
    assert read("small")._mergeable_ranks == RANKS
    assert rest.read_bytes() == TIKTOKEN


def test_the_folders_tiktoken_uses(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR", raising=False)
    monkeypatch.setenv("DATA_GYM_CACHE_DIR", str(tmp_path / "gym"))
    read("small")
    assert site.kept(tmp_path / "gym", "/small.tiktoken").exists()
    monkeypatch.delenv("DATA_GYM_CACHE_DIR")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    read("small")
    assert site.kept(tmp_path / "data-gym-cache", "/small.tiktoken").exists()
    monkeypatch.setenv("DATA_GYM_CACHE_DIR", str(tmp_path / "gym"))
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")  # keeps nothing, and asks no further
    read("small")
    assert site.asked == ["/small.tiktoken"] * 3


def test_a_folder_that_cannot_be_written(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "data-gym-cache").write_text("a file, not a folder")
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path / "data-gym-cache"))
    with pytest.raises(OSError, match="data-gym-cache"):
        read("small")
    monkeypatch.delenv("TIKTOKEN_CACHE_DIR")
    monkeypatch.delenv("DATA_GYM_CACHE_DIR", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    assert read("small")._mergeable_ranks == RANKS


def test_a_download_of_the_wrong_content(site: Site, folder: Path) -> None:
    site.pages["/small.tiktoken"] = TIKTOKEN[:-5]
    with pytest.raises(ValueError, match=f"{site.address}/small.tiktoken: the download has SHA-256 .* and not"):
        read("small")
    assert not folder.exists()


def test_a_page_that_is_not_there(site: Site, folder: Path) -> None:
    site.pages.clear()
    with pytest.raises(
        ConnectionError, match=r"small.tiktoken could not be downloaded \(Not Found\), and .* put the file there"
    ):
        read("small")


def test_no_network(site: Site, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
        monkeypatch.setattr(published, "HOST", address)
        with pytest.raises(
            ConnectionError, match=f"^{address}/small.tiktoken could not be downloaded .*: connect to the network"
        ):
            read("small")
        monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
        with pytest.raises(ConnectionError, match=r"refused\): connect to the network$"):
            read("small")


def test_a_server_that_never_answers(site: Site, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        monkeypatch.setattr(published, "HOST", f"http://127.0.0.1:{silent.getsockname()[1]}")
        monkeypatch.setattr(published, "TIMEOUT", 0.1)
        with pytest.raises(ConnectionError, match="timed out"):
            read("small")


def test_what_is_known_of_them_is_what_tiktoken_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    public = pytest.importorskip("tiktoken_ext.openai_public", reason="compares with tiktoken's own list")
    requests: list[tuple[str, str]] = []

    def tiktoken_file(url: str, expected_hash: str) -> dict[bytes, int]:
        requests.append((url, expected_hash))
        return {}

    def gpt2_files(
        vocab_bpe_file: str, encoder_json_file: str, vocab_bpe_hash: str, encoder_json_hash: str
    ) -> dict[bytes, int]:
        requests.extend([(vocab_bpe_file, vocab_bpe_hash), (encoder_json_file, encoder_json_hash)])
        return {}

    monkeypatch.setattr(public, "load_tiktoken_bpe", tiktoken_file)
    monkeypatch.setattr(public, "data_gym_to_mergeable_bpe_ranks", gpt2_files)
    assert list(public.ENCODING_CONSTRUCTORS) == list(published.DOWNLOADS)
    for name, source in published.DOWNLOADS.items():
        requests.clear()
        theirs = public.ENCODING_CONSTRUCTORS[name]()
        assert requests == [(published.HOST + path, digest) for path, digest in source.files]
        assert theirs["special_tokens"] == source.special_tokens


@pytest.mark.skipif(
    "GROUNDUP_DATA" not in os.environ, reason="GROUNDUP_DATA names no folder with the published vocabularies"
)
@pytest.mark.parametrize("name", list(published.DOWNLOADS))
def test_the_published_files(name: str, folder: Path) -> None:
    folder.mkdir(parents=True)
    for path, digest in published.DOWNLOADS[name].files:
        data = Path(os.environ["GROUNDUP_DATA"], "vocab", Path(path).name).read_bytes()
        assert sha256(data) == digest
        (folder / hashlib.sha1((published.HOST + path).encode()).hexdigest()).write_bytes(data)
    tiktoken = pytest.importorskip("tiktoken", reason="compares with the encoding of tiktoken")
    theirs = tiktoken.get_encoding(name)
    result = read(name)
    published.get_encoding.cache_clear()
    assert result._mergeable_ranks == theirs._mergeable_ranks
    assert result.special_tokens == theirs._special_tokens
    assert (result.name, result.n_vocab, result.eot_token) == (theirs.name, theirs.n_vocab, theirs.eot_token)
    assert result.special_tokens_set == theirs.special_tokens_set
    text = " ".join(["the naïve cat's 中文 dinner,", *result.special_tokens])
    for allowed in ("all", frozenset(list(result.special_tokens)[::2])):
        ids = theirs.encode(text, allowed_special=allowed, disallowed_special=())
        assert result.encode(text, allowed_special=allowed, disallowed_special=()) == ids
        assert result.decode(ids) == theirs.decode(ids)
        assert result.decode_tokens_bytes(ids) == theirs.decode_tokens_bytes(ids)


def test_encodings_of_plug_ins_are_found_as_tiktoken_finds_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tiktoken_ext"
    folder.mkdir()
    arguments = (
        f"{{'name': 'mine', 'pat_str': r'\\w+|\\W+', 'mergeable_ranks': {RANKS!r}, "
        f"'special_tokens': {{'<|x|>': {len(RANKS)}}}, 'explicit_n_vocab': {len(RANKS) + 1}}}"
    )
    (folder / "mine.py").write_text(f"ENCODING_CONSTRUCTORS = {{'mine': lambda: {arguments}}}\n")
    tiktoken = pytest.importorskip("tiktoken")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "tiktoken_ext", raising=False)
    published._plugins.cache_clear()
    try:
        assert bpe.list_encoding_names()[-1] == "mine"
        tokenizer = read("mine")
        peer = tiktoken.Encoding(**sys.modules["tiktoken_ext.mine"].ENCODING_CONSTRUCTORS["mine"]())
        text = "the thin <|x|> other"
        assert tokenizer.encode(text, allowed_special="all") == peer.encode(text, allowed_special="all")
        assert bpe.load("mine") is tokenizer
        (folder / "second.py").write_text("ENCODING_CONSTRUCTORS = {'mine': None}\n")
        published._plugins.cache_clear()
        with pytest.raises(ValueError, match="second defines 'mine'"):
            bpe.list_encoding_names()
    finally:
        published._plugins.cache_clear()
        bpe.get_encoding.cache_clear()
