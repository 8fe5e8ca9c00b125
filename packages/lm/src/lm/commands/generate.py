"""`lm generate`: continue a text, as it comes."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from typing import TYPE_CHECKING, Any

from lm.commands.options import Commands, add, add_model, add_sampling, model_of, sampling_of

if TYPE_CHECKING:
    from lm.generation.sequence import Sequence
    from lm.model import Transformer

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
    from lm.generation.sequence import Sequence
    from lm.interop.loading import model_text
    from lm.special_tokens import prompt_ids

    if options.samples < 1:
        raise ValueError(f"--samples must be at least 1, got {options.samples}")
    model = model_of(options)
    text = model_text(options.run, options.tokenizer)
    settings: dict[str, Any] = {
        "max_new_tokens": options.max_new_tokens,
        "sampling": sampling_of(options),
        "stop_tokens": text.stop_tokens,
        "when_full": options.when_full,
    }
    ids = prompt_ids(text.tokenizer, options.prompt, text.end_of_text)
    sequence = Sequence(model.config, ids, seed=options.seed, **settings)  # refused before the cache is reserved
    if options.samples == 1:
        write_one(model, sequence, text.tokenizer, options)
    else:
        write_samples(model, ids, settings, text.tokenizer, options)


def write_one(model: Transformer, sequence: Sequence, tokenizer: Any, options: argparse.Namespace) -> None:
    """Print one text as it comes, as lm.stream yields it."""
    from lm.generation.decoder import Decoder
    from lm.generation.stream import StreamDecoder, continued

    capacity = min(model.config.context_length, len(sequence.prompt) + options.max_new_tokens)
    decoder, writer = Decoder(model, capacity=capacity), StreamDecoder(tokenizer, options.stop)
    print(options.prompt, end="", flush=True)
    times = [time.perf_counter()]
    with contextlib.suppress(KeyboardInterrupt):  # the reader has read enough
        for token in continued(decoder, sequence):
            times.append(time.perf_counter())
            print(writer.feed(token), end="", flush=True)
            if writer.stopped:
                break
    print(writer.finish())
    first = times[:2][-1]
    say(
        options,
        [("prompt", len(sequence.prompt), first - times[0]), ("after it", len(times) - 2, times[-1] - first)],
        decoder.how,
    )


def write_samples(
    model: Transformer, ids: list[int], settings: dict[str, Any], tokenizer: Any, options: argparse.Namespace
) -> None:
    """Print several texts when all are done."""
    from lm.generation.scheduler import Scheduler
    from lm.generation.stream import PAUSE, StreamDecoder

    capacity = min(model.config.context_length, len(ids) + options.max_new_tokens)
    batch = Scheduler(model, rows=options.samples, capacity=capacity)
    writers = {}
    for number in range(options.samples):
        seed = None if options.seed is None else options.seed + number
        writers[batch.add(ids, seed=seed, **settings)] = StreamDecoder(tokenizer, options.stop)
    texts = dict.fromkeys(writers, options.prompt)
    with contextlib.suppress(KeyboardInterrupt):  # the reader has read enough
        while batch.sequences:
            for one, token in batch.step(PAUSE):
                texts[one] += "" if token is None else writers[one].feed(token)
                if writers[one].stopped:
                    batch.cancel(one)
    print(BETWEEN.join(texts[one] + writer.finish() for one, writer in writers.items()))
    speeds = [(name, one.tokens, one.seconds) for name, one in (("prompt", batch.prefill), ("after it", batch.decode))]
    say(options, speeds, batch.decoder.how)


def say(options: argparse.Namespace, speeds: list[tuple[str, int, float]], how: str) -> None:
    """Print how the text was decoded, and its speed on a terminal or with --timing."""
    words = [
        f"{name}: {count:,} tokens at {count / max(seconds, 1e-9):,.0f} a second" for name, count, seconds in speeds
    ]
    speed = f"{'; '.join(words)}, " if options.timing or sys.stderr.isatty() else ""
    print(f"{speed}decoded {how}", file=sys.stderr)
