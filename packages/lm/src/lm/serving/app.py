"""The server: /v1/completions, /v1/chat/completions, /v1/responses, /v1/embeddings and /v1/models for OpenAI's clients,
/v1/messages for Anthropic's, /tokenize and /detokenize as vLLM has them, /health, /metrics, and a page to talk on."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import ctypes
import functools
import hashlib
import json
import re
import socket
import sys
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Sequence
from importlib import resources
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from lm.chat_template import ChatTemplate
from lm.page.export import asset, chat_shell
from lm.serving.answers import Answer, ChatAnswer
from lm.serving.bodies import BadRequest, ChatBody, CompletionBody, parse
from lm.serving.engine import Busy, Engine, Job, Piece, PiecesOfStep, tell_all
from lm.serving.grammar import Grammars
from lm.serving.guards import AccessLog, Guard, SendTimeout
from lm.serving.messages import CountBody, MessagesAnswer, MessagesBody, count_tokens, message
from lm.serving.requests import Limits, Served, chat, completion
from lm.serving.responses import ResponseAnswer, ResponseBody, respond
from lm.serving.tokens import DetokenizeBody, EmbeddingsBody, TokenizeBody, detokenize, embeddings, tokenize
from lm.special_tokens import stop_ids

# Of the page: its own script alone runs, nothing frames it, and no form of it is sent.
POLICY = (
    "default-src 'none'; script-src {scripts}; style-src 'unsafe-inline'; img-src data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
ESCAPED_LINE_ENDS = {number: f"\\u{number:04x}" for number in (0x85, 0x2028, 0x2029)}  # JSON escapes those below 32
Pieces = asyncio.Queue[tuple[int, Sequence[Piece]]]  # the number of their choice, and the pieces of a step
MESSAGES = "/v1/messages"
# Generations by path: the body, the function that makes a request of it, and its answer.
GENERATIONS: dict[str, tuple[Any, Callable[..., Any], type[Answer]]] = {
    "/v1/completions": (CompletionBody, completion, Answer),
    "/v1/chat/completions": (ChatBody, chat, ChatAnswer),
    "/v1/responses": (ResponseBody, respond, ResponseAnswer),
    MESSAGES: (MessagesBody, message, MessagesAnswer),
}
# Functions of a body, by path, that generate nothing.
FUNCTIONS: dict[str, tuple[Any, Callable[..., dict[str, Any]]]] = {
    f"{MESSAGES}/count_tokens": (CountBody, count_tokens),
    "/tokenize": (TokenizeBody, tokenize),
    "/detokenize": (DetokenizeBody, detokenize),
}
WATCHES_SOCKETS = sys.platform != "win32"  # the event loop does


class Server:
    """Answers requests.

    Args:
        engine: Decodes.
        template: The model's chat template.
        limits: Bounds of a request.
        stop_tokens: The ids that end a text outside a conversation; the usual ones of the tokenizer, if not given.
        body_limit: The most bytes of a request.
        body_seconds: Most seconds for a request's body to come, and for a part of an answer to be read.
    """

    def __init__(
        self,
        engine: Engine,
        template: ChatTemplate,
        limits: Limits,
        *,
        stop_tokens: Sequence[int] | None = None,
        body_limit: int = 1 << 20,
        body_seconds: float = 30.0,
    ) -> None:
        self.engine, self.limits, self.body_limit = engine, limits, body_limit
        grammars = Grammars(engine.tokenizer, limits.vocab_size, template.stop_tokens)
        stops = stop_ids(engine.tokenizer) if stop_tokens is None else list(stop_tokens)
        self.served = Served(limits, template, grammars, stops)
        self.started, self.body_seconds = int(time.time()), body_seconds
        self.responses = dict[str, tuple[ResponseAnswer, list[Job]]]()  # under way, by their ids

    def app(
        self,
        hosts: Collection[str] = (),
        *,
        origins: Collection[str] = (),
        key: str | None = None,
        log: Callable[[str], None] | None = None,
    ) -> Starlette:
        """Return the ASGI application. hosts, origins, key: as for Guard; log: called with a line of each request."""

        @contextlib.asynccontextmanager
        async def lifespan(app: Starlette) -> AsyncIterator[None]:
            with thread_safe_callback() as self.engine.deliver:
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
            Route("/v1/embeddings", self.embeddings, methods=["POST"]),
            Route("/v1/responses/{name}/cancel", self.cancel, methods=["POST"]),
        ]
        middleware = [
            Middleware(AccessLog, count=self.engine.metrics.responded, write=log),
            Middleware(SendTimeout, seconds=self.body_seconds),
            Middleware(Guard, hosts=hosts, origins=origins, key=key),
        ]
        if origins:
            anything: dict[str, Any] = {"allow_methods": ["*"], "allow_headers": ["*"]}
            middleware.append(Middleware(CORSMiddleware, allow_origins=list(origins), **anything))
        handlers: dict[Any, Any] = {BadRequest: refused, HTTPException: other, Exception: failed}
        return Starlette(routes=routes, middleware=middleware, exception_handlers=handlers, lifespan=lifespan)

    async def page(self, request: Request) -> Response:
        return HTMLResponse(*self.page_and_policy)

    @functools.cached_property
    def page_and_policy(self) -> tuple[str, int, dict[str, str]]:
        """The page to talk on, its status, and its headers, which name the scripts in it by their hashes."""
        server = resources.files("lm.serving").joinpath("assets/server.js").read_text(encoding="utf-8")
        page = chat_shell(self.limits.model, "", asset("chat.js") + server)
        hashes = [
            base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
            for script in re.findall("<script>(.*?)</script>", page, re.DOTALL)
        ]
        policy = POLICY.format(scripts=" ".join(f"'sha256-{digest}'" for digest in hashes))
        return page, 200, {"Content-Security-Policy": policy, "X-Content-Type-Options": "nosniff"}

    async def health(self, request: Request) -> Response:
        alive = self.engine.thread.is_alive() and not self.engine.closed
        return JSONResponse({"status": "ok" if alive else "closing"}, 200 if alive else 503)

    async def metrics(self, request: Request) -> Response:
        return PlainTextResponse(self.engine.metrics.render(), media_type="text/plain; version=0.0.4")

    async def models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self.about(name) for name in self.limits.names]})

    async def model(self, request: Request) -> Response:
        name = request.path_params["name"]
        self.limits.adapter(name)
        return JSONResponse(self.about(name))

    def about(self, name: str) -> dict[str, Any]:
        parent = {"parent": self.limits.model} if name in self.limits.adapters else {}
        return {"id": name, "object": "model", "created": self.started, "owned_by": "groundup", **parent}

    async def generate(self, request: Request) -> Response:
        kind, read, answer_kind = GENERATIONS[request.url.path]
        text = await self.body(request)
        # A chat's template is a program of its own, and a form of its answer a grammar: never on the event loop.
        body = await asyncio.to_thread(parse, kind, text)
        task = await asyncio.to_thread(read, body, self.served)
        about: tuple[Any, ...] = (task, body.model or self.limits.model, self.served.template)
        return await self.answer(request, answer_kind(*about, *([body] if answer_kind is ResponseAnswer else ())))

    async def compute(self, request: Request) -> Response:
        kind, function = FUNCTIONS[request.url.path]
        text = await self.body(request)
        return JSONResponse(await asyncio.to_thread(lambda: function(parse(kind, text), self.served)))

    async def embeddings(self, request: Request) -> Response:
        text = await self.body(request)

        def compute() -> dict[str, Any]:
            body = parse(EmbeddingsBody, text)
            return embeddings(body, self.served, self.engine.models[self.limits.adapter(body.model)])

        return JSONResponse(await asyncio.to_thread(compute))

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
        # A page elsewhere can send a form or plain text without asking, and JSON it cannot.
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise BadRequest("the content type must be application/json", status=415)
        body = bytearray()
        try:
            async with asyncio.timeout(self.body_seconds):
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > self.body_limit:
                        raise BadRequest(f"the body has more than {self.body_limit} bytes: send less", status=413)
        except TimeoutError:
            raise BadRequest(f"the body did not come within {self.body_seconds:g} s", status=408) from None
        return bytes(body)

    async def answer(self, request: Request, answer: Answer) -> Response:
        # The decoding thread tells the pieces of each text to this queue.
        pieces, task = Pieces(), answer.task
        jobs = task.jobs(lambda index, of_step: pieces.put_nowait((index, of_step)))
        try:
            self.engine.submit(jobs)
        except Busy as busy:
            error = BadRequest(str(busy), status=429, code="rate_limit_exceeded", kind="rate_limit_error")
            return JSONResponse(answer.error(error), 429, headers={"Retry-After": "1"})
        name = answer.response_id if isinstance(answer, ResponseAnswer) else ""
        if isinstance(answer, ResponseAnswer):
            self.responses[name] = answer, jobs

        def ended() -> None:
            self.engine.cancel(jobs)
            self.responses.pop(name, None)

        if task.stream:
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
            if choice.ended == "error":
                raise broken(choice.mistake)
        generated = sum(choice.tokens for choice in answer.choices)
        request.state.tokens = f" {sum(map(len, task.prompts))} + {generated} tokens"
        return await asyncio.to_thread(lambda: JSONResponse(answer.whole()))


@contextlib.contextmanager
def thread_safe_callback() -> Iterator[Callable[[PiecesOfStep], object]]:
    """A callback for worker threads, by which pieces are told on the thread of the running event loop.

    Unlike loop.call_soon_threadsafe it does not release the GIL, which the loop would take to send the pieces while the
    decoding thread waits: the loop gets it when that thread is in C again.
    """
    loop, waiting = asyncio.get_running_loop(), deque[PiecesOfStep]()
    if not WATCHES_SOCKETS:
        yield lambda pieces: loop.call_soon_threadsafe(tell_all, pieces)
        return

    def tell_waiting() -> None:
        with contextlib.suppress(BlockingIOError):
            receiver.recv(1 << 12)
        while waiting:
            tell_all(waiting.popleft())

    def deliver(pieces: PiecesOfStep) -> None:
        waiting.append(pieces)
        write(sender.fileno(), b"\0", 1)

    write = ctypes.PyDLL(None).write
    receiver, sender = socket.socketpair()
    with receiver, sender:
        receiver.setblocking(False)
        sender.setblocking(False)
        loop.add_reader(receiver, tell_waiting)
        try:
            yield deliver
            tell_waiting()
        finally:
            loop.remove_reader(receiver)


async def events(pieces: Pieces, answer: Answer) -> AsyncIterator[str]:
    """Server-sent events, one or more for each piece; an answer that may call tools is one piece."""
    text = "".join(map(event, answer.begin()))
    while not answer.ended:
        if text:
            yield text
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
    """A server-sent event, in one line also for clients that end lines where Unicode does."""
    line = json.dumps(body, ensure_ascii=False).translate(ESCAPED_LINE_ENDS)
    return f"event: {body['type']}\ndata: {line}\n\n" if "type" in body else f"data: {line}\n\n"


def broken(mistake: str) -> BadRequest:
    """The error of a text whose decoding has failed: by a mistake in the request, or else by the server."""
    if mistake:
        return BadRequest(mistake)
    return BadRequest("decoding failed: the server's log says why", status=500, kind="server_error")


async def refused(request: Request, error: BadRequest) -> Response:
    kind = {"type": "error"} if request.url.path.startswith(MESSAGES) else {}  # as Anthropic's clients look for it
    return JSONResponse({**kind, **error.body()}, error.status)


async def other(request: Request, error: HTTPException) -> Response:
    """No such path, or not by this method."""
    message = f"{request.method} {request.url.path}: {error.detail}"
    return JSONResponse(BadRequest(message).body(), error.status_code, headers=error.headers)


async def failed(request: Request, error: Exception) -> Response:
    if isinstance(error, ClientDisconnect):
        return Response(status_code=499)
    return JSONResponse(BadRequest("the server failed: its log says why", kind="server_error").body(), 500)
