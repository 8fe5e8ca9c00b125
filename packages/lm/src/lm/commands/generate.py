"""`lm generate`: continue a text, as it comes."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from typing import Any

from lm.commands.cli import Commands, add, add_model, add_sampling, model_of, settings_of

BETWEEN = "\n----\n"  # samples


def register(commands: Commands) -> None:
    parser = add(commands, "generate", generate, "continue a text, as it comes")
    add_model(parser)
    parser.add_argument("--prompt", required=True, help="the text to continue")
    parser.add_argument("--max-new-tokens", type=int, default=256)
    add_sampling(parser)
    parser.add_argument("--samples", type=int, least=1, default=1, help="number of texts, shown when all are done")
    parser.add_argument("--stop", action="append", default=[], help="a string that ends the text; may be given again")
    help = "past the context: forget the older half and go on, refuse to begin, or end there"
    parser.add_argument("--when-full", choices=("slide", "refuse", "end"), default="slide", help=help)
    parser.add_argument("--timing", action="store_true", help="say how fast it was, prompt and continuation apart")


def generate(options: argparse.Namespace) -> None:
    from lm.generation.decoder import Decoder
    from lm.generation.stream import StreamDecoder, generate_batch, stream
    from lm.interop.loading import model_text
    from lm.tokenizer import prompt_ids

    if options.timing and options.samples > 1:
        raise ValueError("--timing is of one text: leave it out, or --samples")
    model = model_of(options)
    text = model_text(options.run, options.tokenizer)
    settings: dict[str, Any] = settings_of(options) | {
        "max_new_tokens": options.max_new_tokens,
        "seed": options.seed,
        "stop_tokens": text.stop_tokens,
        "when_full": options.when_full,
    }
    ids = prompt_ids(text.tokenizer, options.prompt, text.end_of_text)
    decoded = f"decoded {Decoder(model, capacity=1).how}"  # as the texts will be
    if options.samples > 1:
        texts = []
        for ids_of_text in generate_batch(model, [ids], samples=options.samples, **settings)[0]:
            writer = StreamDecoder(text.tokenizer, options.stop)
            texts.append(options.prompt + "".join(map(writer.feed, ids_of_text)) + writer.finish())
        print(BETWEEN.join(texts))
        print(decoded, file=sys.stderr)
        return
    writer, times = StreamDecoder(text.tokenizer, options.stop), [time.perf_counter()]
    tokens = stream(model, ids, **settings)
    print(options.prompt, end="", flush=True)
    with contextlib.suppress(KeyboardInterrupt):  # the reader has read enough
        for token in tokens:
            times.append(time.perf_counter())
            print(writer.feed(token), end="", flush=True)
            if writer.stopped:
                break
    print(writer.finish())
    if options.timing or sys.stderr.isatty():
        first = times[:2][-1]
        parts = (("prompt", len(ids), first - times[0]), ("after it", max(0, len(times) - 2), times[-1] - first))
        speeds = (f"{name}: {n:,} tokens at {n / max(seconds, 1e-9):,.0f} a second" for name, n, seconds in parts)
        decoded = f"{'; '.join(speeds)}, {decoded}"
    print(decoded, file=sys.stderr)
