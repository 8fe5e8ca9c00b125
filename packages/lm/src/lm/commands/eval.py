"""`lm eval`: score texts with a model, or evaluate it on tasks."""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

from lm.commands.cli import Commands, add, add_device, add_step, model_of

OF_DATA = ("max_tokens", "stride")
OF_TASKS = ("include", "out", "apply_chat_template", "fewshot_as_multiturn", "per_document")


def register(commands: Commands) -> None:
    parser = add(commands, "eval", evaluate, "score texts with a model, or evaluate it on tasks")
    parser.add_argument("run", metavar="RUN", help="the folder of a run, or another program's model")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--data", help="a token file (.npy), a folder with held-out files, or a file of text, to score")
    what.add_argument("--tasks", nargs="+", metavar="NAME", help="tasks of lm_eval (needs the extra lm_eval)")
    what.add_argument("--core", metavar="FOLDER", help="CORE's bundle of files: 22 tasks by their centred accuracy")
    parser.add_argument("--stride", type=int, help="tokens scored a window; fewer see more (default: the context)")
    add_step(parser)
    add_device(parser)
    parser.add_argument("--max-tokens", type=int, least=1, help="score about N tokens all over --data (default: all)")
    parser.add_argument("--limit", type=int, least=1, help="score N items of each task (default: all)")
    parser.add_argument("--tokenizer", help="a tokenizer file (default: the model's own)")
    parser.add_argument("--include", metavar="FOLDER", help="for --tasks, YAML files that describe your own")
    help = "for --tasks, the folder that keeps each result, to go on from (default: evaluation in the run)"
    parser.add_argument("--out", help=help)
    help = "for --tasks, put each question through the model's chat template, as the user's"
    parser.add_argument("--apply-chat-template", action="store_true", default=None, help=help)
    help = "with it, the examples before a question are turns of the conversation"
    parser.add_argument("--fewshot-as-multiturn", action="store_true", default=None, help=help)
    help = "for --tasks, a Parquet file to write with a row for each item: its scores, question, target and answers"
    parser.add_argument("--per-document", metavar="FILE", help=help)
    parser.add_argument("--json", action="store_true", help="print JSON")


def evaluate(options: argparse.Namespace) -> None:
    kind = "data" if options.data is not None else "core" if options.core is not None else "tasks"
    useless = {"data": ("limit", *OF_TASKS), "core": (*OF_DATA, *OF_TASKS), "tasks": OF_DATA}
    for name in useless[kind]:
        if getattr(options, name) is not None:
            raise ValueError(f"--{name.replace('_', '-')} has no effect with --{kind}: leave it out")
    if options.fewshot_as_multiturn and not options.apply_chat_template:
        raise ValueError("--fewshot-as-multiturn goes with --apply-chat-template: add it")
    model = model_of(options)
    {"data": on_data, "core": on_core, "tasks": on_tasks}[kind](model, options)


def on_data(model: Any, options: argparse.Namespace) -> None:
    from lm.data import check_range, open_heldout
    from lm.interop.loading import model_text, tokenizer_of
    from lm.tokenizer import load_tokenizer
    from lm.training import validation as scoring
    from lm.training.run import is_run, read

    path = Path(options.data)
    if path.is_file() and path.suffix != ".npy":
        tokenizer = model_text(options.run, options.tokenizer).tokenizer
        with tempfile.TemporaryDirectory() as folder:
            tokenizer.encode_file([path], Path(folder, "text.npy"))
            tokens = open_heldout(Path(folder, "text.npy"))  # stays readable when the file is removed
    elif options.tokenizer is not None:
        raise ValueError("--tokenizer goes with --tasks, --core or a --data of text")
    else:
        tokens = open_heldout(path)
    check_range(tokens, model.config.vocab_size)
    document_masking = False  # a model that never saw two at once is scored as it was trained
    if is_run(options.run):
        run = read(options.run)
        document_masking = run.train is not None and run.train.document_masking
        fingerprint = run.data.get("tokenizer")
    else:
        beside = tokenizer_of(options.run)
        fingerprint = tokens.tokenizer if beside is None else load_tokenizer(beside).fingerprint
    if fingerprint != tokens.tokenizer:
        raise ValueError(f"{options.data} was made by another tokenizer than the model's: encode it with the model's")
    how = {"stride": options.stride, "max_tokens": options.max_tokens, "document_masking": document_masking}
    score = scoring.evaluate(model, tokens, progress=sys.stderr.isatty(), **how)
    table = {**dataclasses.asdict(score), "loss": score.loss, "bits_per_byte": score.bits_per_byte}
    print(json.dumps(table) if options.json else score)


def on_core(model: Any, options: argparse.Namespace) -> None:
    from lm.evaluation import evaluate_core, read_core
    from lm.interop.loading import model_text

    tokenizer = model_text(options.run, options.tokenizer).tokenizer
    tasks = read_core(options.core, limit=options.limit)
    score = evaluate_core(model, tokenizer, tasks, progress=sys.stderr.isatty())
    print(json.dumps({**dataclasses.asdict(score), "core": score.core}, indent=1) if options.json else score)


def on_tasks(model: Any, options: argparse.Namespace) -> None:
    from lm.evaluation.harness import Harness, model_fingerprint, write_items
    from lm.training.run import is_run

    harness = Harness(options.run, options.tokenizer, loaded=model)
    import lm_eval
    from lm_eval.tasks import TaskManager
    from lm_eval.utils import make_table

    manager = TaskManager(include_path=options.include)
    if unknown := [name for name in options.tasks if not manager.match_tasks([name])]:
        raise ValueError(f"expected the name of a task of lm_eval, got {unknown[0]!r}: see `lm_eval ls tasks`")
    # lm_eval keeps each result under the model's fingerprint, and reads it again.
    folder = options.out or (Path(options.run) / "evaluation" if is_run(options.run) else None)
    cache = None
    if folder is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
        chat = "-chat" if options.apply_chat_template else ""
        cache = str(Path(folder, f"{model_fingerprint(model)[:16]}-{harness.tokenizer.fingerprint[:16]}{chat}"))
    results = lm_eval.simple_evaluate(
        harness,
        tasks=options.tasks,
        limit=options.limit,
        task_manager=manager,
        use_cache=cache,
        log_samples=options.per_document is not None,
        apply_chat_template=bool(options.apply_chat_template),
        fewshot_as_multiturn=bool(options.fewshot_as_multiturn),
    )
    if options.per_document is not None:
        write_items(results.pop("samples"), options.per_document)
    print(json.dumps(results["results"], indent=1, default=str) if options.json else make_table(results))
