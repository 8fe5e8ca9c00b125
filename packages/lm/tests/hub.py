"""A loopback server laid out as the Hugging Face Hub, that can fail in the ways that networks and servers do."""

from __future__ import annotations

import contextlib
import hashlib
import json
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

COMMIT = "c0ffee" * 6 + "c0de"


class Hub:
    """files: {path: bytes} of the one repository. faults: what happens to the next requests for the bytes of a file, in
    turn.

    A fault is "drop" (half of what was asked for comes, and the connection ends), "reset" (the connection ends at
    once), "stall" (a part comes, and then nothing for a while), 429 or 500 or another status, "whole" (Range is
    ignored), "changed" (another version is there from now on), "wrong" (other bytes come), "ok".
    """

    def __init__(self, repo, files, *, lfs=True, page=1000, kind="datasets"):
        self.repo, self.files, self.lfs, self.page = repo, dict(files), lfs, page
        self.api = f"/api/{kind}/{repo}"
        self.resolve = f"/{'' if kind == 'models' else kind + '/'}{repo}/resolve/{COMMIT}/"
        self.faults, self.seen, self.tokens, self.version, self.stall = [], [], [], 0, 0.3
        hub = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                hub.answer(self)

            def do_HEAD(self):
                hub.answer(self)

            def log_message(self, *arguments):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()

    def answer(self, request):
        url = urllib.parse.urlsplit(request.path)
        parts = urllib.parse.unquote(url.path)
        self.tokens.append((request.headers["Host"].partition(":")[0], request.headers.get("Authorization")))
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            if parts in (self.api, f"{self.api}/revision/main"):
                names = [{"rfilename": path} for path in sorted(self.files)]
                self.say(request, 200, json.dumps({"id": self.repo, "sha": COMMIT, "siblings": names}).encode())
            elif parts.startswith(f"{self.api}/tree/{COMMIT}"):
                self.tree(request, parts.partition(COMMIT)[2].strip("/"), dict(urllib.parse.parse_qsl(url.query)))
            elif parts.startswith(prefix := self.resolve):
                # The bytes lie with another host, as large files do: "localhost" is another name of this one.
                target = f"http://localhost:{self.port}/cdn/{urllib.parse.quote(parts.removeprefix(prefix))}"
                path = parts.removeprefix(prefix)
                if path not in self.files:
                    self.say(request, 404, b"", {"X-Error-Code": "EntryNotFound"})
                    return
                about = {"X-Repo-Commit": COMMIT, "X-Linked-Size": str(len(self.files[path]))}
                about["X-Linked-Etag"] = f'"{hashlib.sha256(self.files[path]).hexdigest()}"'
                self.say(request, 302, b"", {"Location": target, **about})
            elif parts.startswith("/cdn/") and parts.removeprefix("/cdn/") in self.files:
                self.bytes_of(request, parts.removeprefix("/cdn/"))
            else:
                self.say(request, 404, b"", {"X-Error-Code": "RepoNotFound"})

    def tree(self, request, folder, query):
        assert query["recursive"].lower() == "true"
        paths = sorted(path for path in self.files if path.startswith(folder))
        begin = int(query.get("cursor", 0))
        entries = [{"type": "directory", "path": "x", "size": 0, "oid": "0" * 40}] if begin == 0 else []
        for path in paths[begin : begin + self.page]:
            data = self.files[path]
            entry = {"type": "file", "path": path, "size": len(data), "oid": "0" * 40}
            if self.lfs:
                entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 134}
            entries.append(entry)
        more = {}
        if begin + self.page < len(paths):
            more["Link"] = (
                f'<{self.url}{request.path.partition("?")[0]}?recursive=True&cursor={begin + self.page}>; rel="next"'
            )
        self.say(request, 200, json.dumps(entries).encode(), more)

    def bytes_of(self, request, path):
        fault = self.faults.pop(0) if self.faults else "ok"
        if fault == "changed":
            self.version += 1
        data, etag = self.files[path], f'"{path}-{self.version}"'
        range_header = request.headers.get("Range")
        self.seen.append((path, range_header, fault))
        if isinstance(fault, int):
            self.say(request, fault, b"", {"Retry-After": "0"})
            return
        if fault == "reset":
            request.close_connection = True
            return
        begin, end, status, more = 0, len(data), 200, {"ETag": etag}
        condition = request.headers.get("If-Range")
        if range_header and fault != "whole" and condition in (None, etag):
            first, _, last = range_header.removeprefix("bytes=").partition("-")
            begin, end = int(first), min(int(last) + 1 if last else len(data), len(data))
            if begin >= len(data):
                self.say(request, 416, b"", {"Content-Range": f"bytes */{len(data)}"})
                return
            status, more = 206, {**more, "Content-Range": f"bytes {begin}-{end - 1}/{len(data)}"}
        body = data[begin:end]
        if fault == "wrong":
            body = bytes(byte ^ 1 for byte in body)
        if fault in ("drop", "stall"):
            request.send_response(status)
            for name, value in {**more, "Content-Length": str(len(body))}.items():
                request.send_header(name, value)
            request.end_headers()
            request.wfile.write(body[: len(body) // 2])
            request.wfile.flush()
            if fault == "stall":
                time.sleep(self.stall)
            request.close_connection = True
            return
        self.say(request, status, body, more)

    def say(self, request, status, body, more=None):
        request.send_response(status)
        for name, value in {**(more or {}), "Content-Length": str(len(body))}.items():
            request.send_header(name, value)
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body)
