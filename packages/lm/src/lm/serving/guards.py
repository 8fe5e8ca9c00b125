"""Middleware of the server: host, origin and key checks, timeouts, access log."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import sys
import time
from collections.abc import Callable, Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lm.serving.bodies import BadRequest

LOOPBACK = ("localhost", "127.0.0.1", "::1")
PROTECTED = "/v1/"
UNANSWERED = 499  # in the log: the client left before an answer


def refusal(message: str, status: int, code: str) -> JSONResponse:
    return JSONResponse(BadRequest(message, code=code).body(), status)


class Guard:
    """Refuses requests with an unknown host name, from pages of another origin, or without the key.

    Another's domain may resolve to this machine's address (DNS rebinding), so that its pages reach the server by that
    name; by an address they cannot. hosts: allowed names, beside any address and the loopback's names; origins: whose
    pages are allowed, as "https://example.org", "*" for all.
    """

    def __init__(
        self, app: ASGIApp, *, hosts: Collection[str] = (), origins: Collection[str] = (), key: str | None = None
    ) -> None:
        self.app, self.origins, self.key = app, frozenset(origins), key
        self.hosts = frozenset(host.lower() for host in (*hosts, *LOOPBACK))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        refused = self.refused(scope) if scope["type"] == "http" else None
        await (self.app if refused is None else refused)(scope, receive, send)

    def refused(self, scope: Scope) -> JSONResponse | None:
        headers, path = Headers(scope=scope), scope["path"]
        host = headers.get("host", "")
        if not self.is_named(host):
            return refusal(f"host {host[:200]!r} is not allowed: add --allow-host", 400, "unknown_host")
        origin = headers.get("origin")
        if origin is not None and "*" not in self.origins and origin not in self.origins:
            parts = urlsplit(origin)
            if parts.scheme not in ("http", "https") or parts.netloc.lower() != host.lower():
                return refusal(f"origin {origin[:200]!r} is not allowed: add --cors", 403, "unknown_origin")
        if self.key is not None and path.startswith(PROTECTED) and scope["method"] != "OPTIONS":
            kind, _, sent = headers.get("authorization", "").partition(" ")
            if "x-api-key" in headers:  # of Anthropic's clients
                kind, sent = "bearer", headers["x-api-key"]
            if kind.lower() != "bearer" or not hmac.compare_digest(sent.strip().encode(), self.key.encode()):
                answer = refusal("the API key is missing or wrong", 401, "invalid_api_key")
                answer.headers["WWW-Authenticate"] = "Bearer"
                return answer
        return None

    def is_named(self, host: str) -> bool:
        """True if a Host header is one of the server's own names, or an address."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
        except ValueError:
            return False
        if name in self.hosts:
            return True
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return False
        return True


class AccessLog:
    """Calls write() with a line for each request, and count() with its status.

    A request that is cancelled, because the graceful period has ended, is answered with 503 if nothing has been sent.
    """

    def __init__(self, app: ASGIApp, *, count: Callable[[int], None], write: Callable[[str], None] | None) -> None:
        self.app, self.count, self.write = app, count, write

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status, size, end = time.perf_counter(), UNANSWERED, 0, ""

        async def counted(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                size += len(message.get("body", b""))
            await send(message)

        try:
            await self.app(scope, receive, counted)
        except asyncio.CancelledError:
            end = " cut off: the server ended"
            if status == UNANSWERED:
                await refusal("the server has ended", 503, "server_ended")(scope, receive, counted)
        finally:
            self.count(status)
            if self.write is not None:
                client = (scope.get("client") or ("-",))[0]
                path = scope["path"].encode("unicode_escape").decode()[:200]
                seconds = f"{time.perf_counter() - began:.3f} s"
                when = time.strftime("%Y-%m-%dT%H:%M:%S%z")
                tokens = scope.get("state", {}).get("tokens", "")
                self.write(f"{when} {client} {scope['method']} {path} {status} {size} bytes {seconds}{tokens}{end}")


def to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class SendTimeout:
    """Ends a response whose client reads nothing for `seconds`.

    After each part the event loop runs, and notices a client that has disconnected.
    """

    def __init__(self, app: ASGIApp, *, seconds: float) -> None:
        self.app, self.seconds = app, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def limited(message: Message) -> None:
            try:
                async with asyncio.timeout(self.seconds):
                    await send(message)
            except TimeoutError:
                raise OSError(f"the client read nothing for {self.seconds:g} s") from None
            if message.get("more_body"):
                await asyncio.sleep(0)

        await self.app(scope, receive, limited if scope["type"] == "http" else send)
