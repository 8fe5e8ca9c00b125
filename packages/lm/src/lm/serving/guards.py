"""Middleware of the server: who may ask, by host name, origin and key."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from lm.serving.bodies import BadRequest

LOOPBACK = ("localhost", "127.0.0.1", "::1")
PROTECTED = "/v1/"


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
        try:
            if scope["type"] == "http":
                self.check(Headers(scope=scope), scope)
            await self.app(scope, receive, send)
        except BadRequest as error:
            headers = {"WWW-Authenticate": "Bearer"} if error.status == 401 else None
            await JSONResponse(error.body(), error.status, headers)(scope, receive, send)
        except asyncio.CancelledError:
            if scope["type"] != "http":
                raise  # else the grace has ended, of which uvicorn's log has a line

    def check(self, headers: Headers, scope: Scope) -> None:
        """Raise BadRequest for a request that is not allowed."""
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self.is_named(host):
            raise BadRequest(f"host {host[:200]!r} is not allowed: add --allow-host", code="unknown_host")
        if origin not in (None, f"http://{host}", f"https://{host}") and not self.origins & {"*", origin}:
            raise BadRequest(
                f"origin {str(origin)[:200]!r} is not allowed: add --cors", status=403, code="unknown_origin"
            )
        if self.key is not None and scope["path"].startswith(PROTECTED) and scope["method"] != "OPTIONS":
            kind, _, key = headers.get("authorization", "").partition(" ")
            if "x-api-key" in headers:  # of Anthropic's clients
                kind, key = "bearer", headers["x-api-key"]
            if kind.lower() != "bearer" or not hmac.compare_digest(key.strip().encode(), self.key.encode()):
                raise BadRequest("the API key is missing or wrong", status=401, code="invalid_api_key")

    def is_named(self, host: str) -> bool:
        """True if a Host header is one of the server's own names, or an address."""
        try:
            name = urlsplit(f"//{host}").hostname or ""
            return name in self.hosts or bool(ipaddress.ip_address(name))
        except ValueError:
            return False
