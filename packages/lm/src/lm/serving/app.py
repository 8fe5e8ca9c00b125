"""The server: /v1/completions, /v1/chat/completions and /v1/models as OpenAI's clients ask for them, and a page to talk
on."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.trustedhost import TrustedHostMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from lm.chat_template import ChatTemplate
from lm.serving.engine import Busy, Engine, Job
from lm.serving.requests import Asked, BadRequest, ChatBody, CompletionBody, Limits, chat, completion, parse
from lm.special_tokens import stop_ids

POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; connect-src 'self'"
Piece = tuple[int, str, int, str | None]  # which choice, its text, its tokens so far, why it ended


@dataclass(frozen=True)
class Kind:
    """What sets the two kinds of completions apart in an answer."""

    prefix: str
    whole: str
    part: str
    is_chat: bool

    def choice(self, index: int, text: str, ended: str | None) -> dict[str, Any]:
        said = {"message": {"role": "assistant", "content": text}} if self.is_chat else {"text": text}
        return {"index": index, **said, "logprobs": None, "finish_reason": ended}

    def delta(self, index: int, text: str, ended: str | None, *, first: bool) -> dict[str, Any]:
        if not self.is_chat:
            return self.choice(index, text, ended)
        delta = ({"role": "assistant"} if first else {}) | ({"content": text} if text or first else {})
        return {"index": index, "delta": delta, "logprobs": None, "finish_reason": ended}


COMPLETION = Kind("cmpl", "text_completion", "text_completion", False)
CHAT = Kind("chatcmpl", "chat.completion", "chat.completion.chunk", True)


class Server:
    """Answers requests.

    Args:
        engine: What decodes.
        template: How conversations become tokens.
        limits: What may be asked for.
        stop_tokens: The ids that end a text which is no conversation; the usual ones of the tokenizer, if not given.
        body_limit: The most bytes of a request.
    """

    def __init__(
        self,
        engine: Engine,
        template: ChatTemplate,
        limits: Limits,
        *,
        stop_tokens: Sequence[int] | None = None,
        body_limit: int = 1 << 20,
    ) -> None:
        self.engine, self.template, self.limits, self.body_limit = engine, template, limits, body_limit
        self.stop_tokens = stop_ids(engine.tokenizer) if stop_tokens is None else list(stop_tokens)
        self.started = int(time.time())

    def app(self, hosts: list[str] | None = None) -> Starlette:
        """The ASGI application.

        hosts: by which names it may be asked, as a page elsewhere must not reach a server here.
        """

        @contextlib.asynccontextmanager
        async def lifespan(app: Starlette) -> AsyncIterator[None]:
            yield
            await asyncio.to_thread(self.engine.close)

        routes = [
            Route("/", self.page),
            Route("/v1/models", self.models),
            Route("/v1/models/{name:path}", self.model),
            Route("/v1/completions", self.completions, methods=["POST"]),
            Route("/v1/chat/completions", self.chats, methods=["POST"]),
        ]
        middleware = [Middleware(TrustedHostMiddleware, allowed_hosts=hosts)] if hosts else []
        handlers: dict[Any, Callable[[Request, Any], Awaitable[Response]]] = {
            BadRequest: refused,
            HTTPException: other,
            Exception: failed,
        }
        return Starlette(routes=routes, middleware=middleware, exception_handlers=handlers, lifespan=lifespan)

    async def page(self, request: Request) -> Response:
        page = resources.files("lm.serving").joinpath("assets/chat.html").read_text(encoding="utf-8")
        return HTMLResponse(page, headers={"Content-Security-Policy": POLICY})

    async def models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": [self.about()]})

    async def model(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name != self.limits.model:
            raise BadRequest(f"there is no model {name!r}: it is {self.limits.model!r}", "model", status=404)
        return JSONResponse(self.about())

    def about(self) -> dict[str, Any]:
        return {"id": self.limits.model, "object": "model", "created": self.started, "owned_by": "groundup"}

    async def completions(self, request: Request) -> Response:
        body = parse(CompletionBody, await self.body(request))
        wanted = completion(body, self.engine.tokenizer, self.stop_tokens, self.limits)
        return await self.answer(request, wanted, COMPLETION)

    async def chats(self, request: Request) -> Response:
        body = parse(ChatBody, await self.body(request))
        return await self.answer(request, chat(body, self.template, self.limits), CHAT)

    async def body(self, request: Request) -> bytes:
        # A page elsewhere can send a form or plain text without asking, and JSON it cannot.
        if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise BadRequest("the content type must be application/json", status=415)
        held = bytearray()
        async for chunk in request.stream():
            held += chunk
            if len(held) > self.body_limit:
                raise BadRequest(f"the body has more than {self.body_limit} bytes: send less", status=413)
        return bytes(held)

    async def answer(self, request: Request, asked: Asked, kind: Kind) -> Response:
        loop, pieces = asyncio.get_running_loop(), asyncio.Queue[Piece]()

        def teller(index: int) -> Callable[[str, int, str | None], None]:
            def tell(text: str, tokens: int, ended: str | None) -> None:
                with contextlib.suppress(RuntimeError):  # the server has stopped, and no one waits
                    loop.call_soon_threadsafe(pieces.put_nowait, (index, text, tokens, ended))

            return tell

        jobs = [
            Job(
                ids,
                asked.max_new_tokens[number],
                asked.sampling,
                None if asked.seed is None else asked.seed + sample,
                asked.stop_tokens,
                asked.stop,
                teller(number * asked.n + sample),
            )
            for number, ids in enumerate(asked.prompts)
            for sample in range(asked.n)
        ]
        try:
            self.engine.submit(jobs)
        except Busy as busy:
            error = BadRequest(str(busy), status=429, code="rate_limit_exceeded", kind="rate_limit_error")
            return JSONResponse(error.body(), 429, headers={"Retry-After": "1"})
        prompt_tokens = sum(map(len, asked.prompts))
        about = {"id": f"{kind.prefix}-{uuid.uuid4().hex}", "created": int(time.time()), "model": self.limits.model}
        if asked.stream:
            events = self.events(pieces, len(jobs), asked, kind, {**about, "object": kind.part}, prompt_tokens)
            # How many messages were left out stands in a header, as the page has to know it before the answer.
            headers = {"X-Messages-Left-Out": str(asked.dropped)} if asked.dropped else {}
            return Events(events, lambda: self.engine.cancel(jobs), headers)
        gathering = asyncio.ensure_future(gathered(pieces, len(jobs)))
        leaving = asyncio.ensure_future(left(request))
        try:
            await asyncio.wait([gathering, leaving], return_when=asyncio.FIRST_COMPLETED)
            if not gathering.done():
                return Response(status_code=499)  # as nginx logs it: no one reads it
            texts, counts, ends = gathering.result()
        finally:
            gathering.cancel()
            leaving.cancel()
            self.engine.cancel(jobs)
        if "error" in ends:
            return JSONResponse(broken().body(), 500)
        choices = [kind.choice(index, texts[index], ends[index]) for index in range(len(jobs))]
        used = usage(prompt_tokens, sum(counts))
        return JSONResponse({**about, "object": kind.whole, "choices": choices, "usage": used})

    async def events(
        self,
        pieces: asyncio.Queue[Piece],
        count: int,
        asked: Asked,
        kind: Kind,
        about: dict[str, Any],
        prompt: int,
    ) -> AsyncIterator[str]:
        """Server-sent events, one for each piece of `count` choices."""
        counts, going = [0] * count, set(range(count))
        begun = set[int]()
        while going:
            index, text, tokens, ended = await pieces.get()
            if ended == "error":
                yield event(broken().body())
                return
            counts[index] = tokens
            yield event({**about, "choices": [kind.delta(index, text, ended, first=index not in begun)]})
            begun.add(index)
            if ended is not None:
                going.discard(index)
        if asked.usage:
            yield event({**about, "choices": [], "usage": usage(prompt, sum(counts))})
        yield "data: [DONE]\n\n"


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


async def gathered(pieces: asyncio.Queue[Piece], count: int) -> tuple[list[str], list[int], list[str]]:
    """The whole text of each choice, its tokens, and why it ended."""
    texts, counts, ends = [""] * count, [0] * count, [""] * count
    while not all(ends):
        index, text, tokens, ended = await pieces.get()
        texts[index] += text
        counts[index], ends[index] = tokens, ended or ""
        if ended == "error":
            break
    return texts, counts, ends


async def left(request: Request) -> None:
    """Returns when the client has gone."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


def event(body: dict[str, Any]) -> str:
    return f"data: {json.dumps(body, ensure_ascii=False)}\n\n"


def usage(prompt: int, made: int) -> dict[str, int]:
    return {"prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made}


def broken() -> BadRequest:
    return BadRequest("decoding failed: the server's log says why", status=500, kind="server_error")


async def refused(request: Request, error: BadRequest) -> Response:
    return JSONResponse(error.body(), error.status)


async def other(request: Request, error: HTTPException) -> Response:
    """No such path, or not by this method."""
    message = f"{request.method} {request.url.path}: {error.detail}"
    return JSONResponse(BadRequest(message).body(), error.status_code, headers=error.headers)


async def failed(request: Request, error: Exception) -> Response:
    if isinstance(error, ClientDisconnect):
        return Response(status_code=499)
    return JSONResponse(BadRequest("the server failed: its log says why", kind="server_error").body(), 500)
