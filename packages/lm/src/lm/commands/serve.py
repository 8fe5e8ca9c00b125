"""`lm serve`: a model over HTTP, as OpenAI's clients ask for one, and a page to talk to it."""

from __future__ import annotations

import argparse
from pathlib import Path

from lm.commands.options import Commands, Ended, add, add_model, model_of

FAILED = 1
LOOPBACK = ("127.0.0.1", "localhost", "::1")


def register(commands: Commands) -> None:
    text = (
        "answer OpenAI's clients (/v1/completions, /v1/chat/completions, /v1/models), with a page to talk to the model"
    )
    made = add(commands, "serve", serve, text)
    add_model(made)
    made.add_argument("--name", help="what clients call the model (default: the folder's name)")
    made.add_argument("--host", default="127.0.0.1", help="127.0.0.1, this machine alone, if not given")
    made.add_argument("--port", type=int, default=8000, help="0 takes one that is free (default: 8000)")
    made.add_argument("--rows", type=int, default=8, help="texts decoded together (default: 8)")
    made.add_argument("--waiting", type=int, default=32, help="texts in the queue; beyond it 429 (default: 32)")
    made.add_argument("--max-new-tokens", type=int, help="of an answer, the most (default: the context)")


def serve(options: argparse.Namespace) -> None:
    import os

    from lm.extras import need
    from lm.interop.loading import model_text

    uvicorn = need("uvicorn", "lm serve", "groundup-lm[serve]")
    need("starlette", "lm serve", "groundup-lm[serve]")
    need("pydantic", "lm serve", "groundup-lm[serve]")
    from lm.serving.app import Server
    from lm.serving.engine import Engine
    from lm.serving.requests import Limits

    if not 0 <= options.port < 1 << 16:
        raise ValueError(f"--port must be from 0 to 65535, and {options.port} is not")
    if options.max_new_tokens is not None and options.max_new_tokens < 1:
        raise ValueError(f"--max-new-tokens must be at least 1, and {options.max_new_tokens} is not")
    text = model_text(options.run, options.tokenizer)
    model = model_of(options)
    name = options.name or os.path.basename(os.path.abspath(Path(options.run)))
    context = model.config.context_length
    limits = Limits(name, model.config.vocab_size, context, min(context, options.max_new_tokens or context))
    engine = Engine(model, text.tokenizer, rows=options.rows, waiting=options.waiting)
    hosts = ["127.0.0.1", "localhost", "[::1]", "::1"] if options.host in LOOPBACK else None
    app = Server(engine, text.template, limits, stop_tokens=text.stop_tokens).app(hosts)
    config = uvicorn.Config(app, host=options.host, port=options.port, log_level="warning", timeout_graceful_shutdown=2)
    server = uvicorn.Server(config)
    try:
        bound = config.bind_socket()
    except SystemExit:  # uvicorn has said why
        raise Ended(f"{options.host} port {options.port} cannot be had: name another with --port", FAILED) from None
    host = f"[{options.host}]" if ":" in options.host else options.host
    print(f"{name} answers at http://{host}:{bound.getsockname()[1]} (the page) and /v1; Ctrl-C ends it", flush=True)
    server.run(sockets=[bound])
