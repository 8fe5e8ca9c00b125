"""Shapes from the Hugging Face Hub: its cache, and a server on this machine in its place."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from accounting.commands.parser import main
from accounting.models.files import _hub_config, find

CONFIG = {"model_type": "llama", "num_hidden_layers": 3, "hidden_size": 64, "num_attention_heads": 4}


class Hub(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        owner, name = self.path.split("/")[1:3]
        secret = self.headers.get("Authorization") == "Bearer secret"
        status = 401 if owner == "gated" and not secret else 404 if name == "none" else 500 if name == "broken" else 200
        body = b"not JSON" if name == "text" else b"[]" if name == "list" else json.dumps(CONFIG).encode()
        assert self.path.endswith("/resolve/main/config.json")
        self.send_response(status)
        self.end_headers()
        self.wfile.write(body if status == 200 else b"")

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("HF_TOKEN", "HF_HUB_OFFLINE", "HF_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")  # nobody listens there
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    _hub_config.cache_clear()
    yield
    _hub_config.cache_clear()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with HTTPServer(("127.0.0.1", 0), Hub) as hub:
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{hub.server_port}/")
        thread = threading.Thread(target=hub.serve_forever)
        thread.start()
        yield
        hub.shutdown()
        thread.join()


@pytest.mark.usefixtures("server")
def test_a_name_is_fetched(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert find("owner/some-model.v1").num_layers == 3
    assert main(["report", "owner/model", "--only", "parameters"]) == 0
    assert "parameters" in capsys.readouterr().out
    for name, words in (
        ("gated/model", "HF_TOKEN"),
        ("owner/none", "no config.json"),
        ("owner/broken", "answers 500"),
        ("owner/text", "not JSON"),
        ("owner/list", "holds list"),
    ):
        assert main(["report", name]) == 2
        assert words in capsys.readouterr().err
    monkeypatch.setenv("HF_TOKEN", "secret")
    assert find("gated/model").d_model == 64


def test_the_cache_comes_first(tmp_path: Path) -> None:
    folder = tmp_path / "hub/models--owner--model/snapshots/0123"
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    assert find("owner/model").num_layers == 3


def test_without_a_network_the_error_says_so(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["report", "owner/model"]) == 2
    message = capsys.readouterr().err
    assert "cannot be reached for owner/model (" in message
    assert "urlopen error" not in message
    assert "config.json" in message
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert main(["report", "owner/model"]) == 2
    assert "HF_HUB_OFFLINE" in capsys.readouterr().err
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setenv("HF_ENDPOINT", "ftp://example")
    assert main(["report", "owner/model"]) == 2
    assert "HF_ENDPOINT" in capsys.readouterr().err


def test_a_path_is_no_name(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("nowhere/config.json", "a/b/c", "./model", "../x"):
        assert main(["report", name]) == 2
        assert "there is no file" in capsys.readouterr().err
