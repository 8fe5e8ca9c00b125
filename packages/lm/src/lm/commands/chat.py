"""`lm chat`: a conversation with a model in the terminal."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm.commands.cli import Commands, add, add_model, add_sampling, model_of, settings_of

if TYPE_CHECKING:
    from lm.chat_template import ChatTemplate
    from lm.generation.sampling import Sampling
    from lm.generation.scheduler import Scheduler

HELP = "/reset begins anew, /help says this, /quit ends; Ctrl-C stops an answer"


def register(commands: Commands) -> None:
    parser = add(commands, "chat", chat, "talk to a model in the terminal")
    add_model(parser)
    parser.add_argument("--system", help="the system's message, before the conversation")
    parser.add_argument("--max-new-tokens", type=int, least=1, default=512, help="the most of an answer (default: 512)")
    parser.add_argument("--page", metavar="FILE.html", help="write a page to talk to the model in a browser, instead")
    add_sampling(parser)


def chat(options: argparse.Namespace) -> None:
    from lm.chat_template import Message
    from lm.generation.sampling import Sampling
    from lm.generation.scheduler import Scheduler
    from lm.interop.loading import model_text

    if options.page is not None:
        return write_page(options)
    sampling = Sampling(**settings_of(options))
    template = model_text(options.run, options.tokenizer).template
    model = model_of(options)
    context = model.config.context_length
    # An answer may have all of max_new_tokens, but no more than half the context is kept free for it.
    room = min(options.max_new_tokens, context // 2)
    system = [Message("system", options.system)] if options.system else []
    if system:  # one that is too long is refused before the first word
        template.fit([*system, Message("user", "")], context - room)
    messages, answers = list(system), 0
    # One scheduler serves the whole conversation, whose earlier part stays in its cache.
    scheduler = Scheduler(model, rows=1)
    if sys.stdin.isatty():
        import readline  # noqa: F401 (input() then edits lines and remembers them)

        print(HELP)
    while (line := read_line()) is not None:
        if line in ("/quit", "/exit"):
            return
        if line == "/reset":
            messages = list(system)
            print("(the conversation begins anew)")
        elif line.startswith("/"):
            print(HELP)
        elif line.strip():
            messages.append(Message("user", line))
            try:
                ids, dropped = template.fit(messages, context - room)
            except ValueError as error:
                print(f"({error})")
                messages.pop()
                continue
            if dropped:
                del messages[len(system) : len(system) + dropped]
                print(f"(the context is full: the {dropped} oldest message{'s' if dropped > 1 else ''} left out)")
            seed = None if options.seed is None else options.seed + answers
            answers += 1
            most = min(options.max_new_tokens, context - len(ids))
            text = answered(scheduler, template, ids, most, sampling, seed)
            if text:
                messages.append(Message("assistant", text))
            else:
                messages.pop()


def write_page(options: argparse.Namespace) -> None:
    """Write the model and its chat template as a page with settings of sampling."""
    from lm.files import atomic_write
    from lm.page.export import chat_page_of, read

    terminal = {"top_k": None, "min_p": None, "repetition_penalty": 1.0, "dtype": None}
    useless = [name for name, default in terminal.items() if getattr(options, name) != default]
    if useless or options.device not in ("auto", "cpu"):
        name = (useless or ["device"])[0].replace("_", "-")
        raise ValueError(f"--{name} is for a conversation in the terminal: leave it out of a page")
    model, text, folder = read(options.run, options.tokenizer, options.step)
    names = ("system", "max_new_tokens", "temperature", "top_p")
    about = {"seed": options.seed or 0, **{name: getattr(options, name) for name in names}}
    dtype, title = "int8" if options.int8 else "fp16", "Chat" if folder is None else folder.name
    path = Path(options.page)
    atomic_write(path, chat_page_of(model, text, dtype=dtype, title=title, **about))
    print(f"{path}: {path.stat().st_size / 1e6:.2f} MB")


def read_line() -> str | None:
    """A line, or None where there is no more."""
    try:
        return input("> " if sys.stdin.isatty() else "")
    except (EOFError, KeyboardInterrupt):
        if sys.stdin.isatty():
            print()
        return None


def answered(
    scheduler: Scheduler, template: ChatTemplate, ids: list[int], most: int, sampling: Sampling, seed: int | None
) -> str:
    """An answer, written as it comes, until it ends or Ctrl-C ends it; what was written of it."""
    from lm.generation.stream import PAUSE, StreamDecoder

    decoder, parts = StreamDecoder(template.tokenizer, template.stop), list[str]()

    def show(piece: str) -> None:
        print(piece, end="", flush=True)
        parts.append(piece)

    how: dict[str, Any] = {"max_new_tokens": most, "sampling": sampling, "seed": seed, "when_full": "end"}
    sequence = scheduler.add(ids, stop_tokens=template.stop_tokens, **how)
    try:
        while sequence.ended is None and not decoder.stopped:
            for _, token in scheduler.step(PAUSE):
                if token is not None:
                    show(decoder.feed(token))
        show(decoder.finish())
    except KeyboardInterrupt:
        print(" (stopped)", end="")
    finally:
        scheduler.cancel(sequence)
    print()
    return "".join(parts)
