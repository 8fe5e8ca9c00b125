"""`lm eval`: score texts, questions and last words with a model."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

from lm.commands.options import Commands, Ended, add, add_bits, add_device, add_step, model_of


def register(commands: Commands) -> None:
    text = "score texts with a model, or answer multiple-choice and last-word tasks with it"
    parser = add(commands, "eval", evaluate, text)
    parser.add_argument("run", metavar="RUN", help="the folder of a run, or another program's model")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--data", help="a token file (.npy), or a folder, of which the held-out files are scored")
    help = "files of HellaSwag, LAMBADA, PIQA, ARC, COPA or OpenBookQA, as JSON lines; others are scored as text"
    what.add_argument("--tasks", nargs="+", metavar="FILE", help=help)
    what.add_argument("--core", metavar="FOLDER", help="CORE's bundle of files: 22 tasks by their centred accuracy")
    parser.add_argument("--stride", type=int, help="tokens scored a window; fewer see more (default: the context)")
    add_step(parser)
    add_device(parser)
    add_bits(parser)
    parser.add_argument("--max-tokens", type=int, help="score about N tokens, spread over --data (default: all)")
    parser.add_argument("--limit", type=int, help="score N items of each task (default: all)")
    parser.add_argument("--tokenizer", help="for --tasks and --core, a tokenizer file (default: the model's own)")
    parser.add_argument("--uncleaned", action="store_true", help="HellaSwag's text as published, with its markup")
    help = "for --tasks, the folder that keeps each item's result, to go on from (default: evaluation in the run)"
    parser.add_argument("--out", help=help)
    parser.add_argument("--json", action="store_true", help="print JSON")


def evaluate(options: argparse.Namespace) -> None:
    for names, kinds in (
        (("limit", "tokenizer"), ("tasks", "core")),
        (("uncleaned", "out"), ("tasks",)),
        (("max_tokens",), ("data",)),
        (("stride",), ("data", "tasks")),
    ):
        name = next((name for name in names if getattr(options, name) not in (None, False)), None)
        if name is not None and all(getattr(options, kind) is None for kind in kinds):
            raise ValueError(f"--{name.replace('_', '-')} goes with {' or '.join(f'--{kind}' for kind in kinds)}")
    model = model_of(options)
    (on_data if options.data else on_core if options.core else on_tasks)(model, options)


def on_data(model: Any, options: argparse.Namespace) -> None:
    from lm.data import check_range, open_heldout
    from lm.interop.loading import read_tokenizer, tokenizer_of
    from lm.training import validation as scoring
    from lm.training.run import is_run, read_config

    tokens = open_heldout(options.data)
    check_range(tokens, model.config.vocab_size)
    document_masking = False  # a model that never saw two at once is scored as it was trained
    if is_run(options.run):
        _, config, made_by = read_config(options.run)
        document_masking, fingerprint = config.document_masking, made_by.get("tokenizer")
    else:
        beside = tokenizer_of(options.run)
        fingerprint = tokens.tokenizer if beside is None else read_tokenizer(beside).fingerprint
    if fingerprint != tokens.tokenizer:
        raise ValueError(f"{options.data} was made by another tokenizer than the model's: encode it with the model's")
    score = scoring.evaluate(
        model,
        tokens,
        stride=options.stride,
        max_tokens=options.max_tokens,
        document_masking=document_masking,
        progress=sys.stderr.isatty(),
    )
    table = {**dataclasses.asdict(score), "loss": score.loss, "bits_per_byte": score.bits_per_byte}
    print(json.dumps(table) if options.json else score)


def on_core(model: Any, options: argparse.Namespace) -> None:
    from lm.evaluation import evaluate_core, read_core
    from lm.interop.loading import model_text

    if options.limit is not None and options.limit < 1:
        raise ValueError(f"--limit must be at least 1, got {options.limit}")
    tokenizer = model_text(options.run, options.tokenizer).tokenizer
    tasks = read_core(options.core, limit=options.limit)
    score = evaluate_core(model, tokenizer, tasks, progress=sys.stderr.isatty())
    print(json.dumps({**dataclasses.asdict(score), "core": score.core}, indent=1) if options.json else score)


def on_tasks(model: Any, options: argparse.Namespace) -> None:
    from lm.evaluation import as_json, as_table, evaluate_tasks, read_task
    from lm.evaluation.run_tasks import model_fingerprint
    from lm.interop.loading import model_text
    from lm.training.run import is_run

    tokenizer = model_text(options.run, options.tokenizer).tokenizer
    tasks = [read_task(file, cleaned=not options.uncleaned) for file in options.tasks]
    names = [task.name for task in tasks]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ValueError(f"two of the files are called {twice!r}: rename one, or evaluate on them one after the other")
    folder = options.out
    if folder is None and is_run(options.run):
        folder = Path(options.run) / "evaluation"
    try:
        settings = {"limit": options.limit, "stride": options.stride, "progress": sys.stderr.isatty()}
        results = evaluate_tasks(model, tokenizer, tasks, folder=folder, **settings)
    except KeyboardInterrupt:
        if folder is None:
            raise
        raise Ended(f"stopped: what was done is in {folder}, and the same command goes on from there", 130) from None
    if options.json:
        print(json.dumps(as_json(results, str(options.run), model_fingerprint(model)), indent=1))
    else:
        print(as_table(results))
