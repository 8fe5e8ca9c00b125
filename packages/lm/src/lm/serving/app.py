"""The server: OpenAI's, Anthropic's and some of vLLM's interfaces, /health, /metrics, and a page to talk on."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import functools
import hashlib
import hmac
import ipaddress
import json
import re
import time
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from importlib import resources
from typing import Any
from urllib.parse import urlsplit

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from lm.chat_template import ChatTemplate
from lm.page.export import asset, chat_shell
from lm.serving.answers import Answer, ChatAnswer
from lm.serving.bodies import BadRequest, ChatBody, CompletionBody, parse
from lm.serving.engine import Busy, Engine, Job, Piece, tell_all
from lm.serving.grammar import Grammars
from lm.serving.messages import CountBody, MessagesAnswer, MessagesBody, count_tokens
from lm.serving.requests import Served, chat, chat_of, completion
from lm.serving.responses import ResponseAnswer, ResponseBody
from lm.serving.tokens import DetokenizeBody, EmbeddingsBody, TokenizeBody, detokenize, embeddings, tokenize
from lm.tokenizer import stop_ids

# Of the page: its own script alone runs, nothing frames it, and no form of it is sent.
POLICY = (
    "default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
Pieces = asyncio.Queue[tuple[int, Sequence[Piece]]]  # the number of their choice, and the pieces of a step
MESSAGES, EMBEDDINGS = "/v1/messages", "/v1/embeddings"
LOOPBACK = ("localhost", "127.0.0.1", "::1")
# Generations by path: the body, the function that makes a request of it, and its answer.
GENERATIONS: dict[str, tuple[Any, Callable[..., Any], type[Answer]]] = {
    "/v1/completions": (CompletionBody, completion, Answer),
    "/v1/chat/completions": (ChatBody, chat, ChatAnswer),
    "/v1/responses": (ResponseBody, chat_of, ResponseAnswer),
    MESSAGES: (MessagesBody, chat_of, MessagesAnswer),
}
# Functions of a body, by path, that generate nothing.
FUNCTIONS: dict[str, tuple[Any, Callable[..., dict[str, Any]]]] = {
    EMBEDDINGS: (EmbeddingsBody, embeddings),
    f"{MESSAGES}/count_tokens": (CountBody, count_tokens),
    "/tokenize": (TokenizeBody, tokenize),
    "/detokenize": (DetokenizeBody, detokenize),
}


class Server:
    """Answers requests.

    Args:
        engine: Decodes.
        template: The model's chat template.
        model: The model's name.
        max_tokens: The most new tokens of a text; the context, if None.
        stop_tokens: The ids that end a text outside a conversation; the usual ones of the tokenizer, if None.
        body_limit: The most bytes of a request.
    """

    def __init__(
        self,
        engine: Engine,
        template: ChatTemplate,
        model: str,
        *,
        max_tokens: int | None = None,
        stop_tokens: Sequence[int] | None = None,
        body_limit: int = 1 << 20,
    ) -> None:
        self.engine, self.body_limit, self.started = engine, body_limit, int(time.time())
        self.embedding = asyncio.Lock()
        grammars = Grammars(engine.tokenizer, engine.models[""].config.vocab_size, template.stop_tokens)
        stops = stop_ids(engine.tokenizer) if stop_tokens is None else list(stop_tokens)
        context = engine.batch.cache.capacity
        most = min(max_tokens or context, context)
        self.served = Served(model, engine.models, context, most, template, grammars, stops)
        self.responses = dict[str, tuple[ResponseAnswer, list[Job]]]()  # under way, by their ids

    def app(self, hosts: Collection[str] = (), *, origins: Collection[str] = (), key: str | None = None) -> Starlette:
        """Return the ASGI application. hosts, origins, key: as for Guard."""

        @contextlib.asynccontextmanager
        async def lifespan(app: Starlette) -> AsyncIterator[None]:
            loop = asyncio.get_running_loop()
            self.engine.deliver = lambda pieces: loop.call_soon_threadsafe(tell_all, pieces)
            yield
            await asyncio.to_thread(self.engine.close)

        routes = [
            Route("/", self.page),
            Route("/health", self.health),
            Route("/metrics", self.metrics),
            Route("/v1/models", self.models),
            Route("/v1/models/{name:path}", self.model),
            *(Route(path, self.generate, methods=["POST"]) for path in GENERATIONS),
            *(Route(path, self.compute, methods=["POST"]) for path in FUNCTIONS),
            Route("/v1/responses/{name}/cancel", self.cancel, methods=["POST"]),
        ]
        middleware = [Middleware(Guard, hosts=hosts, origins=origins, key=key)]
        if origins:
            anything: dict[str, Any] = {"allow_methods": ["*"], "allow_headers": ["*"]}
            middleware.append(Middleware(CORSMiddleware, allow_origins=list(origins), **anything))
        handlers: dict[Any, Any] = {BadRequest: refused, HTTPException: no_such_path, ClientDisconnect: client_left}
        return Starlette(routes=routes, middleware=middleware, exception_handlers=handlers, lifespan=lifespan)

    async def page(self, request: Request) -> Response:
        return HTMLResponse(*self.page_and_policy)

    @functools.cached_property
    def page_and_policy(self) -> tuple[str, int, dict[str, str]]:
        """The page to talk on, its status, and its headers, which name the scripts in it by their hashes."""
        server = resources.files("lm.serving").joinpath("assets/server.js").read_text(encoding="utf-8")
        page = chat_shell(self.served.model, "", asset("chat.js") + server)
        scripts = re.findall("<script>(.*?)</script>", page, re.DOTALL)
        hashes = [base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts]
        policy = POLICY.format(scripts=" ".join(f"'sha256-{digest}'" for digest in hashes))
        return page, 200, {"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff"}

    async def health(self, request: Request) -> Response:
        alive = self.engine.thread.is_alive() and not self.engine.closed
        return JSONResponse({"status": "ok" if alive else "closing"}, 200 if alive else 503)

    async def metrics(self, request: Request) -> Response:
        return Response(generate_latest(self.engine.metrics.registry), media_type=CONTENT_TYPE_LATEST)

    async def models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self.about(name) for name in self.served.names]})

    async def model(self, request: Request) -> Response:
        return JSONResponse(self.about(request.path_params["name"]))

    def about(self, name: str) -> dict[str, Any]:
        parent = {"parent": self.served.model} if self.served.adapter(name) else {}
        return {"id": name, "object": "model", "created": self.started, "owned_by": "groundup", **parent}

    async def generate(self, request: Request) -> Response:
        kind, read, answer_kind = GENERATIONS[request.url.path]
        text = await self.body(request)
        # A chat's template is a program, and the form of its answer a grammar: neither runs on the event loop.
        body = await asyncio.to_thread(parse, kind, text)
        task = await asyncio.to_thread(read, body, self.served)
        return await self.answer(request, answer_kind(task, body, self.served))

    async def compute(self, request: Request) -> Response:
        kind, function = FUNCTIONS[request.url.path]
        text = await self.body(request)
        # Embeddings take long: one request at a time leaves threads to the bodies of others.
        async with self.embedding if request.url.path == EMBEDDINGS else contextlib.nullcontext():
            return JSONResponse(await asyncio.to_thread(lambda: function(parse(kind, text), self.served)))

    async def cancel(self, request: Request) -> Response:
        """End a response that is under way; its stream or its answer ends with what there is of it."""
        name = request.path_params["name"]
        if name not in self.responses:
            raise BadRequest(f"there is no response {name!r} under way: none is stored", "response_id", status=404)
        answer, jobs = self.responses[name]
        self.engine.cancel(jobs)
        for job in jobs:
            job.tell([Piece("", job.tokens, "cancelled")])
        while name in self.responses and not answer.ended:  # its reader adds the pieces, or has left
            await asyncio.sleep(0.001)
        return JSONResponse(await asyncio.to_thread(answer.whole))

    async def body(self, request: Request) -> bytes:
        # A page elsewhere may send a form or plain text unasked, but no JSON.
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise BadRequest("the content type must be application/json", status=415)
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > self.body_limit:
                raise BadRequest(f"the body has more than {self.body_limit} bytes: send less", status=413)
        return bytes(body)

    async def answer(self, request: Request, answer: Answer) -> Response:
        # The decoding thread tells the pieces of each text to this queue.
        pieces, task = Pieces(), answer.task
        jobs = task.jobs(lambda index, of_step: pieces.put_nowait((index, of_step)))
        try:
            self.engine.submit(jobs)
        except Busy as busy:
            raise BadRequest(str(busy), status=429, code="rate_limit_exceeded", kind="rate_limit_error") from None
        if isinstance(answer, ResponseAnswer):
            self.responses[answer.response_id] = answer, jobs

        def ended() -> None:
            self.engine.cancel(jobs)
            if isinstance(answer, ResponseAnswer):
                del self.responses[answer.response_id]

        if task.body.stream:
            # The page has to know the number of messages that were left out before the answer.
            headers = {"X-Messages-Left-Out": str(task.dropped)} if task.dropped else {}
            return Events(events(pieces, answer), ended, headers)
        # An answer that is sent whole ends early if its client leaves.
        gathering = asyncio.ensure_future(gather(pieces, answer))
        leaving = asyncio.ensure_future(disconnect(request))
        try:
            await asyncio.wait([gathering, leaving], return_when=asyncio.FIRST_COMPLETED)
            if not gathering.done():
                return Response(status_code=499)  # nginx' status of a request without a reader
            gathering.result()
        finally:
            gathering.cancel()
            leaving.cancel()
            ended()
        for choice in answer.choices:
            if choice.last.ended == "error":
                raise broken(choice.last.mistake)
        return await asyncio.to_thread(lambda: JSONResponse(answer.whole()))


async def events(pieces: Pieces, answer: Answer) -> AsyncIterator[str]:
    """Server-sent events, one or more for each piece; an answer that may call tools is one piece."""
    text = "".join(map(event, answer.begin()))
    while not answer.ended:
        if text:
            yield text
            await asyncio.sleep(0)  # the event loop notices a client that has left
        index, of_step = await pieces.get()
        text = ""
        for piece in of_step:
            if piece.ended == "error":
                yield text + event(answer.error(broken(piece.mistake)))
                return
            part = answer.add(index, piece)
            if part is not None:
                text += "".join(map(event, answer.parts(index, part)))
    yield text + "".join(map(event, answer.end())) + answer.last


class Events(StreamingResponse):
    """A stream of events. However it is left, before its first or after its last, `ended` is called."""

    def __init__(self, events: AsyncIterator[str], ended: Callable[[], None], headers: dict[str, str]) -> None:
        super().__init__(events, media_type="text/event-stream", headers={"Cache-Control": "no-store", **headers})
        self.ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self.ended()


async def gather(pieces: Pieces, answer: Answer) -> None:
    """Add pieces to the answer until all its sequences have ended, or one failed."""
    while not answer.ended:
        index, of_step = await pieces.get()
        for piece in of_step:
            answer.add(index, piece)
            if piece.ended == "error":
                return


async def disconnect(request: Request) -> None:
    """Return when the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def event(body: dict[str, Any]) -> str:
    """A server-sent event, in ASCII: in one line also for clients that end lines where Unicode does."""
    line = json.dumps(body)
    return f"event: {body['type']}\ndata: {line}\n\n" if "type" in body else f"data: {line}\n\n"


def broken(mistake: str) -> BadRequest:
    """The error of a text whose decoding has failed: by a mistake in the request, or else by the server."""
    if mistake:
        return BadRequest(mistake)
    return BadRequest("decoding failed: the server's log says why", status=500, kind="server_error")


async def refused(request: Request, error: BadRequest) -> Response:
    kind = {"type": "error"} if request.url.path.startswith(MESSAGES) else {}  # as Anthropic's clients look for it
    return JSONResponse({**kind, **error.body()}, error.status, {"Retry-After": "1"} if error.status == 429 else None)


async def no_such_path(request: Request, error: HTTPException) -> Response:
    message = f"{request.method} {request.url.path}: {error.detail}"
    return JSONResponse(BadRequest(message).body(), error.status_code, headers=error.headers)


async def client_left(request: Request, error: ClientDisconnect) -> Response:
    return Response(status_code=499)


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
                raise  # else the grace has ended, and uvicorn logs it

    def check(self, headers: Headers, scope: Scope) -> None:
        """Raise BadRequest for a request that is not allowed."""
        host, origin = headers.get("host", ""), headers.get("origin")
        if not self.is_named(host):
            raise BadRequest(f"host {host[:200]!r} is not allowed: add --allow-host", code="unknown_host")
        if origin not in (None, f"http://{host}", f"https://{host}") and not self.origins & {"*", origin}:
            message = f"origin {str(origin)[:200]!r} is not allowed: add --cors"
            raise BadRequest(message, status=403, code="unknown_origin")
        if self.key is not None and scope["path"].startswith("/v1/") and scope["method"] != "OPTIONS":
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
