"""`lm export --push`: what arrives in a repository, by a loopback server of the Hub's API for uploads."""

from __future__ import annotations

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch
from models import make

import lm
from lm.commands.cli import main


class Hub(ThreadingHTTPServer):
    """A server that keeps the files that arrive, the requests for repositories and the tokens shown to it."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.files, self.created, self.tokens, self.broken = {}, [], set(), 0


class Handler(BaseHTTPRequestHandler):
    """Answers /api/repos/create, preupload and commit; `server.broken` commits are refused first."""

    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def do_GET(self):
        self.say({})

    def do_POST(self):
        server, chunks = self.server, []
        if "chunked" in self.headers.get("Transfer-Encoding", ""):
            while size := int(self.rfile.readline(), 16):
                chunks.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
        body = b"".join(chunks) or self.rfile.read(int(self.headers.get("Content-Length", 0)))
        server.tokens.add(self.headers["Authorization"])
        address = f"http://127.0.0.1:{server.server_port}/me/small"
        if self.path == "/api/repos/create":
            server.created.append(json.loads(body))
            self.say({"url": address})
        elif self.path == "/api/models/me/small/preupload/main":
            paths = [file["path"] for file in json.loads(body)["files"]]
            self.say({"files": [{"path": path, "uploadMode": "regular", "shouldIgnore": False} for path in paths]})
        elif self.path != "/api/models/me/small/commit/main":
            self.say({})
        elif server.broken == 0:
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    server.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            self.say({"commitUrl": f"{address}/commit/c0ffee", "commitOid": "c0ffee", "success": True})
        else:
            server.broken -= 1
            self.say({"error": "no"}, 403)

    def say(self, answer, status=200):
        data = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


@pytest.fixture
def hub(monkeypatch):
    server = Hub()
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("HF_TOKEN", "hf_mine")
    yield server
    server.shutdown()
    server.server_close()


def test_a_folder_arrives_whole_and_a_second_call_goes_on(tmp_path, hub, capsys):
    model = make(dtype=torch.float32)
    source = str(lm.to_huggingface(model, tmp_path / "source"))
    command = ["export", source, "--out", str(tmp_path / "out"), "--push", "me/small"]
    assert main([*command, "--dry-run"]) == 0
    assert "model.safetensors: " in capsys.readouterr().out
    assert (hub.created, hub.files) == ([], {})
    hub.broken = 1
    assert main([*command, "--private"]) == 2
    assert "HF_TOKEN" in capsys.readouterr().err
    assert main([*command, "--private"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("/me/small/commit/c0ffee")
    assert hub.files == {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    assert all("private" in json.dumps(repository) for repository in hub.created)
    assert "Bearer hf_mine" in hub.tokens


def test_a_gguf_arrives_and_what_makes_no_sense_is_refused(tmp_path, hub, capsys):
    source = str(lm.to_huggingface(make(dtype=torch.float32), tmp_path / "source"))
    (tmp_path / "mine.txt").write_text("mine")
    command = ["export", source, "--out", str(tmp_path / "m.gguf")]
    for options, message in (
        (["--push", "small"], "OWNER/NAME, got 'small'"),
        (["--private"], "go with --push"),
        (["--dry-run"], "go with --push"),
    ):
        assert main([*command, *options]) == 2
        assert message in capsys.readouterr().err
    assert main([*command, "--push", "me/small"]) == 0
    assert hub.files == {"m.gguf": (tmp_path / "m.gguf").read_bytes()}
