"""`lm eval`: score a text with a model."""

from __future__ import annotations

import argparse
import sys

from lm.commands import Commands, add


def register(commands: Commands) -> None:
    made = add(commands, "eval", evaluate, "score a text with a model: nats a token and bits per byte")
    made.add_argument("run", metavar="RUN", help="the folder of a run")
    made.add_argument(
        "--data", required=True, help="a token file, .npy, or a folder of them, of which what is held out"
    )
    made.add_argument("--stride", type=int, help="tokens scored a window; fewer see more (default: the context)")
    made.add_argument("--int8", action="store_true", help="with its weights as int8, as `lm generate --int8` has them")
    made.add_argument("--max-tokens", type=int, help="score about so many, spread over the text (default: all)")


def evaluate(options: argparse.Namespace) -> None:
    from lm import scoring
    from lm.data import check_range, open_heldout
    from lm.machine import choose_device
    from lm.quantization import quantized
    from lm.run_folder import load, read_config

    model, (_, config, made_by) = load(options.run), read_config(options.run)
    if options.int8:
        model = quantized(model)
    else:
        model = model.to(choose_device("auto"))
    tokens = open_heldout(options.data)
    check_range(tokens, model.config.vocab_size)
    if made_by.get("tokenizer") != tokens.tokenizer:
        raise ValueError(f"{options.data} was made by another tokenizer than the run's data: encode it with the run's")
    print(
        scoring.evaluate(
            model,
            tokens,
            stride=options.stride,
            max_tokens=options.max_tokens,
            documents=config.documents,  # a model that never saw two at once is scored as it was trained
            progress=sys.stderr.isatty(),
        )
    )
