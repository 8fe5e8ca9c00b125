"""A server in a thread, for the tests that talk to one."""

from __future__ import annotations

import contextlib
import importlib.util
import socket
import threading
import time

import pytest

needs_server = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("bpe", "starlette", "uvicorn", "openai", "httpx")),
    reason="the packages bpe, starlette, uvicorn, openai and httpx are not all installed",
)


@contextlib.contextmanager
def served(
    model, tokenizer, *, rows=4, waiting=8, max_tokens=200, template=None, guards=(), memory=None, adapters=None, **more
):
    """A server in a thread: its address, and its engine."""
    import uvicorn

    from lm.chat_template import default_template
    from lm.commands.serve import KEEP_ALIVE
    from lm.serving.app import Server
    from lm.serving.engine import Engine

    engine = Engine(model, tokenizer, adapters=adapters, rows=rows, waiting=waiting, memory=memory)
    template = template or default_template(tokenizer)
    app = Server(engine, template, "small", max_tokens=max_tokens, **more).app(**dict(guards))
    settings = {"timeout_keep_alive": KEEP_ALIVE, "timeout_graceful_shutdown": 1}
    config = uvicorn.Config(app, log_level="error", **settings)
    server = uvicorn.Server(config)
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        try:
            while not server.started:
                time.sleep(0.01)
            yield f"http://127.0.0.1:{bound.getsockname()[1]}", engine
        finally:
            server.should_exit = True
            thread.join()
    assert not engine.thread.is_alive()
