"""`lm generate`: continue a text, as it comes."""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import Any

from lm.commands.options import Commands, add, add_model, add_sampling, model_of, sampling_of

BETWEEN = "\n----\n"  # samples


def register(commands: Commands) -> None:
    parser = add(commands, "generate", generate, "continue a text, as it comes")
    add_model(parser)
    parser.add_argument("--prompt", required=True, help="the text to continue")
    parser.add_argument("--max-new-tokens", type=int, default=256)
    add_sampling(parser)
    parser.add_argument("--samples", type=int, default=1, help="number of texts, shown when all are done")
    parser.add_argument("--stop", action="append", default=[], help="a string that ends the text; may be given again")
    help = "past the context: forget the older half and go on, refuse to begin, or end there"
    parser.add_argument("--when-full", choices=("slide", "refuse", "end"), default="slide", help=help)
    parser.add_argument("--timing", action="store_true", help="say how fast it was, prompt and continuation apart")


def generate(options: argparse.Namespace) -> None:
    from lm.generation.scheduler import Scheduler
    from lm.generation.sequence import Sequence
    from lm.generation.stream import PAUSE, StreamDecoder
    from lm.interop.loading import model_text
    from lm.special_tokens import prompt_ids

    if options.samples < 1:
        raise ValueError(f"--samples must be at least 1, got {options.samples}")
    model = model_of(options)
    text = model_text(options.run, options.tokenizer)
    tokenizer = text.tokenizer
    settings: dict[str, Any] = {
        "max_new_tokens": options.max_new_tokens,
        "sampling": sampling_of(options),
        "stop_tokens": text.stop_tokens,
        "when_full": options.when_full,
    }
    ids = prompt_ids(tokenizer, options.prompt, text.end_of_text)
    Sequence(model.config, ids, **settings)  # refused before the cache is reserved
    capacity = min(model.config.context_length, len(ids) + options.max_new_tokens)
    batch = Scheduler(model, rows=options.samples, capacity=capacity)
    writers = {}
    for number in range(options.samples):
        seed = None if options.seed is None else options.seed + number
        writers[batch.add(ids, seed=seed, **settings)] = StreamDecoder(tokenizer, options.stop)
    texts = dict.fromkeys(writers, options.prompt)
    streaming = options.samples == 1
    if streaming:
        print(options.prompt, end="", flush=True)
    with contextlib.suppress(KeyboardInterrupt):  # the reader has read enough
        while batch.sequences:
            for one, token in batch.step(PAUSE):
                piece = "" if token is None else writers[one].feed(token)
                texts[one] += piece
                if streaming:
                    print(piece, end="", flush=True)
                if writers[one].stopped:
                    batch.cancel(one)
    for one, writer in writers.items():
        rest = writer.finish()
        end = "\n" if streaming or one is list(writers)[-1] else BETWEEN
        print(rest if streaming else texts[one] + rest, end=end)
    speeds = f"prompt: {batch.prefill}; after it: {batch.decode}, " if options.timing or sys.stderr.isatty() else ""
    print(f"{speeds}decoded {batch.decoder.how}", file=sys.stderr)
