"""`lm generate`: continue a text, as it comes."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from pathlib import Path

from lm.commands import Commands, add


def register(commands: Commands) -> None:
    made = add(commands, "generate", generate, "continue a text, as it comes")
    made.add_argument("run", metavar="RUN", help="the folder of a run")
    made.add_argument("--prompt", required=True, help="the text to continue")
    made.add_argument("--tokenizer", help="a tokenizer file (default: the run's own)")
    made.add_argument("--max-new-tokens", type=int, default=256)
    made.add_argument("--temperature", type=float, default=0.8, help="0 takes the likeliest (default: 0.8)")
    made.add_argument("--top-k", type=int)
    made.add_argument("--top-p", type=float)
    made.add_argument("--min-p", type=float)
    made.add_argument("--repetition-penalty", type=float, default=1.0)
    made.add_argument("--seed", type=int)


def generate(options: argparse.Namespace) -> None:
    from lm.generation import stream
    from lm.run_folder import load
    from lm.text import kept_tokenizer, load_tokenizer

    model = load(options.run)
    path = options.tokenizer or kept_tokenizer(Path(options.run))
    if path is None:
        raise FileNotFoundError(f"the run in {options.run} keeps no tokenizer: name one with --tokenizer")
    tokenizer = load_tokenizer(path)
    stop = [i for name, i in tokenizer.special_tokens.items() if name == "<|endoftext|>"]
    ids = tokenizer.encode(options.prompt, allowed_special="all") or stop
    decoder = tokenizer.decode_stream()
    print(options.prompt, end="", flush=True)
    began, count = time.perf_counter(), 0
    with contextlib.suppress(KeyboardInterrupt):  # the reader has read enough
        for token in stream(
            model,
            ids,
            max_new_tokens=options.max_new_tokens,
            temperature=options.temperature,
            top_k=options.top_k,
            top_p=options.top_p,
            min_p=options.min_p,
            repetition_penalty=options.repetition_penalty,
            seed=options.seed,
            stop_tokens=stop,
        ):
            print(decoder.feed(token), end="", flush=True)
            count += 1
    print(decoder.finish())
    if sys.stderr.isatty():
        print(f"{count} tokens, {count / (time.perf_counter() - began):,.0f} a second", file=sys.stderr)
