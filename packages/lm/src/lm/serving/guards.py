"""What stands before the server: who may ask, by which name, for how long, and what is written of it."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import sys
import time
from collections.abc import Callable, Collection
from typing import Any
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

LOOPBACK = ("localhost", "127.0.0.1", "::1")
PROTECTED = "/v1/"
UNANSWERED = 499  # in the log: who asked left before an answer


def refusal(message: str, status: int, code: str) -> JSONResponse:
    """An error in OpenAI's shape."""
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    return JSONResponse({"error": error}, status)


class Guard:
    """Refuses other names of this machine than it was told, pages of other origins, and who has not the key.

    A name that somebody else controls may be made to mean this machine's address (DNS rebinding), so that a page of
    theirs could ask a server here; an address cannot.

    Args:
        app: What is guarded.
        hosts: By which names it may be asked, beside any address and the loopback's names.
        origins: Whose pages may ask, as "https://example.org"; "*" for all.
        key: What a client says in its Authorization; None asks for none.
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
            return refusal(
                f"this server is not asked by the name {host[:200]!r}: --allow-host lets it be", 400, "unknown_host"
            )
        origin = headers.get("origin")
        if origin is not None and "*" not in self.origins and origin not in self.origins:
            found = urlsplit(origin)
            if found.scheme not in ("http", "https") or found.netloc.lower() != host.lower():
                return refusal(f"pages of {origin[:200]!r} may not ask: --cors lets them", 403, "unknown_origin")
        if self.key is not None and path.startswith(PROTECTED) and scope["method"] != "OPTIONS":
            kind, _, given = headers.get("authorization", "").partition(" ")
            if kind.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), self.key.encode()):
                answer = refusal("the API key is missing or is another", 401, "invalid_api_key")
                answer.headers["WWW-Authenticate"] = "Bearer"
                return answer
        return None

    def is_named(self, host: str) -> bool:
        """Whether a Host header is one of the server's own names, or an address."""
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
    """Writes a line of each request, and counts it. A request that is cancelled, as those are that have no answer when
    the graceful period ends, is answered with 503 if nothing has been sent.

    Args:
        app: What is asked.
        count: Called with the status of each response.
        write: Called with each line; None writes none.
    """

    def __init__(self, app: ASGIApp, *, count: Callable[[int], None], write: Callable[[str], None] | None) -> None:
        self.app, self.count, self.write = app, count, write

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status, size, end = time.perf_counter(), UNANSWERED, 0, ""

        async def noted(message: Message) -> None:
            nonlocal status, size
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                size += len(message.get("body", b""))
            await send(message)

        try:
            await self.app(scope, receive, noted)
        except asyncio.CancelledError:
            end = " cut off: the server ended"
            if status == UNANSWERED:
                await refusal("the server has ended", 503, "server_ended")(scope, receive, noted)
        finally:
            self.count(status)
            if self.write is not None:
                client = (scope.get("client") or ("-",))[0]
                path = scope["path"].encode("unicode_escape").decode()[:200]
                seconds = time.perf_counter() - began
                when = time.strftime("%Y-%m-%dT%H:%M:%S%z")
                said = scope.get("state", {}).get("said", "")
                self.write(f"{when} {client} {scope['method']} {path} {status} {size} bytes {seconds:.3f} s{said}{end}")


def to_stderr(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


class Patience:
    """Ends a response that its reader does not take: who sends waits no longer than `seconds` for one part of it.

    After each part the event loop has its turn, in which it notices a reader who has left.
    """

    def __init__(self, app: ASGIApp, *, seconds: float) -> None:
        self.app, self.seconds = app, seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def patient(message: Message) -> None:
            try:
                async with asyncio.timeout(self.seconds):
                    await send(message)
            except TimeoutError:
                raise OSError(f"the reader took nothing for {self.seconds:g} s") from None
            if message.get("more_body"):
                await asyncio.sleep(0)

        await self.app(scope, receive, patient if scope["type"] == "http" else send)


# Seconds that an idle connection is kept: longer than clients keep theirs (the OpenAI client 5), so that it is not
# closed under a request that is just being sent.
KEEP_ALIVE = 75


def protocol(header_seconds: float) -> type[H11Protocol]:
    """Uvicorn's protocol, with a limit on the time that the head of a request takes."""

    class Limited(H11Protocol):
        late: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.wait()

        def data_received(self, data: bytes) -> None:
            if self.late is None and self.is_between():
                self.wait()
            super().data_received(data)
            if self.late is not None and not self.is_between():
                self.late.cancel()
                self.late = None

        def connection_lost(self, exc: Exception | None) -> None:
            if self.late is not None:
                self.late.cancel()
            super().connection_lost(exc)

        def is_between(self) -> bool:
            """Whether no request is being answered."""
            return self.cycle is None or self.cycle.response_complete

        def wait(self) -> None:
            self.late = self.loop.call_later(header_seconds, self.give_up)

        def give_up(self) -> None:
            self.late = None
            if self.is_between() and not self.transport.is_closing():
                self.transport.close()

    return Limited
