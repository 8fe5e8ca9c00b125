"""`lm serve`: a model over HTTP, as OpenAI's clients ask for one, and a page to talk to it."""

from __future__ import annotations

import argparse
import gc
import logging
import os
import re
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from lm.commands.cli import Commands, Ended, add, add_model, model_of

if TYPE_CHECKING:
    from lm.model import Transformer

# Seconds that an idle connection is open: longer than clients keep theirs (the OpenAI client 5), so that it is not
# closed under a request that is being sent.
KEEP_ALIVE = 75
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


def register(commands: Commands) -> None:
    text = "answer OpenAI's clients (/v1/completions, /v1/chat/completions, /v1/responses, /v1/embeddings) and "
    text += "Anthropic's (/v1/messages), with a page to talk to the model, /health and /metrics"
    parser = add(commands, "serve", serve, text)
    add_model(parser)
    help = "folders of PEFT's adapters of the model, by the names that clients choose them by"
    parser.add_argument("--adapters", nargs="+", default=[], metavar="NAME=FOLDER", help=help)
    parser.add_argument("--name", help="what clients call the model (default: the folder's name)")
    parser.add_argument("--host", default="127.0.0.1", help="127.0.0.1, this machine alone, if not given")
    parser.add_argument("--port", type=int, least=0, most=65535, default=8000, help="0: any free one (default: 8000)")
    parser.add_argument("--rows", type=int, least=1, default=8, help="texts decoded together (default: 8)")
    parser.add_argument("--waiting", type=int, least=1, default=32, help="texts in the queue, then 429 (default: 32)")
    parser.add_argument("--max-new-tokens", type=int, least=1, help="of an answer, the most (default: the context)")
    parser.add_argument("--context", type=int, least=1, help="most tokens of a text (default: all that fit)")
    help = "of keys and values, as 4G; the youngest texts wait while it is full (default: half)"
    parser.add_argument("--memory", type=memory, help=help)
    parser.add_argument("--api-key-file", metavar="FILE", help="a file with the key that clients need, or LM_API_KEY")
    parser.add_argument("--cors", action="append", default=[], metavar="ORIGIN", help="of allowed pages; '*' for all")
    parser.add_argument("--allow-host", action="append", default=[], metavar="NAME", help="a host name of this server")
    parser.add_argument("--grace", type=int, default=10, help="seconds to end answers after Ctrl-C (default: 10)")
    parser.add_argument("--no-access-log", action="store_true", help="no line for each request")


def memory(text: str) -> int:
    """Bytes of "512M" or "4G"."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)B?", text.upper())
    size = int(float(match[1]) * UNITS[match[2]]) if match else 0
    if size < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: write it as 512M or 4G")
    return size


def serve(options: argparse.Namespace) -> None:
    from lm.extras import need
    from lm.interop.loading import model_text

    uvicorn = need("uvicorn", "lm serve", "groundup-lm[serve]")
    for name in ("starlette", "pydantic", "prometheus_client"):
        need(name, "lm serve", "groundup-lm[serve]")
    from lm.serving.app import Server
    from lm.serving.engine import Engine

    key = api_key(options.api_key_file)
    text = model_text(options.run, options.tokenizer)
    model = model_of(options)
    name = options.name or os.path.basename(os.path.abspath(Path(options.run)))
    adapters = adapters_of(model, name, options.adapters)
    context = context_of(model, options.context, options.memory, 1 + len(adapters))
    bounds = {"rows": options.rows, "waiting": options.waiting, "context": context, "memory": options.memory}
    engine = Engine(model, text.tokenizer, adapters=adapters, **bounds)
    server = Server(engine, text.template, name, max_tokens=options.max_new_tokens, stop_tokens=text.stop_tokens)
    app = server.app([options.host, socket.gethostname(), *options.allow_host], origins=options.cors, key=key)
    config = uvicorn.Config(
        app,
        host=options.host,
        port=options.port,
        log_level="warning",
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=options.grace,
    )
    logging.getLogger("uvicorn.access").setLevel(logging.WARNING if options.no_access_log else logging.INFO)
    runner = uvicorn.Server(config)
    try:
        bound = config.bind_socket()
    except SystemExit:  # uvicorn has said why
        message = f"{options.host} port {options.port} is not free or not of this machine: name another with --port"
        raise Ended(f"{message} or --host") from None
    # Otherwise a token waits until the client acknowledges the one before, up to 40 ms. Connections inherit the option;
    # asyncio sets it only where a socket names its protocol, and uvicorn's does not.
    bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    bound.listen(config.backlog)  # who connects from now on waits until the server runs, and is not refused
    host = f"[{options.host}]" if ":" in options.host else options.host
    if context < model.config.context_length:
        print(f"texts have {context:,} of the model's {model.config.context_length:,} tokens", flush=True)
    print(f"{name} answers at http://{host}:{bound.getsockname()[1]} (the page) and /v1; Ctrl-C ends it", flush=True)
    print(f"decoding {engine.batch.decoder.how}", flush=True)
    # Otherwise a garbage collection looks through all that is loaded, for tenths of a second, and every stream waits.
    gc.collect()
    gc.freeze()
    runner.run(sockets=[bound])


def adapters_of(model: Transformer, model_name: str, named: list[str]) -> dict[str, Transformer]:
    """The model with each of the adapters beside its weights, by name. ValueError: a name is missing or not its own."""
    from lm.interop.peft import beside

    adapters: dict[str, Transformer] = {}
    for text in named:
        name, equals, folder = text.partition("=")
        if not (name and equals and folder) or name in (model_name, *adapters):
            raise ValueError(f"--adapters: expected NAME=FOLDER with a name of its own, got {text!r}")
        adapters[name] = beside(folder, model)
    return adapters


def context_of(model: Transformer, requested: int | None, memory: int | None, batches: int) -> int:
    """The most tokens of a text: the model's, or those requested, if one text of them fits each batch's memory."""
    from lm.device import memory_of
    from lm.generation.kv_cache import PAGE, SHARE, bytes_of_page

    own = model.config.context_length
    size = (memory_of(next(model.parameters()).device) // SHARE if memory is None else memory) // batches
    fits = size // bytes_of_page(model) * PAGE
    if (requested or 1) > min(own, fits):
        bound = f"the model's {own}" if own <= fits else f"the {fits:,} whose keys and values fit {size:,} bytes"
        raise ValueError(f"--context {requested or PAGE:,} is more than {bound}: raise --memory or lower --context")
    return min(requested or own, own, fits)


def api_key(path: str | None) -> str | None:
    """The key that clients need: out of a file, or of LM_API_KEY. ValueError: the file has none."""
    key = os.environ.get("LM_API_KEY") if path is None else Path(path).read_text(encoding="utf-8").strip()
    if path is not None and not key:
        raise ValueError(f"{path} holds no key: write one into it")
    return key or None
