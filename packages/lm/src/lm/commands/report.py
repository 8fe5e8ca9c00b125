"""`lm report`: draw one run, or several over each other, as a page."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lm.commands.options import Commands, add, add_device, add_step, step_of

if TYPE_CHECKING:
    from lm.reporting.report import Run, Section

SAMPLE_TOKENS = 160


def register(commands: Commands) -> None:
    parser = add(commands, "report", report, "draw one run, or several over each other, as a page")
    parser.add_argument("runs", metavar="RUN", nargs="+", help="folders of runs")
    parser.add_argument("--out", help="the page (default: report.html in the first run)")
    help = "texts that each run writes (default: 2 for one that keeps its tokenizer)"
    parser.add_argument("--samples", type=int, least=0, metavar="N", help=help)
    parser.add_argument("--prompt", action="append", default=[], help="what they begin with; may be given again")
    help = "x of the curves (default: step, for several runs tokens)"
    parser.add_argument("--by", choices=("step", "tokens", "time"), help=help)
    add_step(parser)
    add_device(parser)
    help = "draw again every SECONDS (10 if left out), until all runs are done"
    parser.add_argument("--watch", type=float, least=0.1, nargs="?", const=10.0, metavar="SECONDS", help=help)


def report(options: argparse.Namespace) -> None:
    from lm.reporting.report import read, write

    of_samples: dict[str, object] = {"--step": None, "--prompt": [], "--device": "auto", "--dtype": "fp32"}
    useless = [name for name, default in of_samples.items() if getattr(options, name[2:]) != default]
    if options.samples == 0 and useless:
        raise ValueError(f"{useless[0]} has no effect with --samples 0: leave one of them out")
    while True:
        runs = [read(folder) for folder in options.runs]
        going = options.watch is not None and not all(run.finished for run in runs)
        # What a run writes takes a while, and changes as it learns: only the last drawing has it.
        sections = [] if going else samples(runs, options)
        refresh = options.watch if going else None
        page = write(options.runs, options.out, by=options.by, sections=sections, refresh=refresh)
        if not going:
            print(page)
            return
        time.sleep(options.watch)


def samples(runs: list[Run], options: argparse.Namespace) -> list[Section]:
    """Return texts that each run writes, from its newest checkpoint and with its own tokenizer.

    MissingExtra: asked for, and no bpe.
    """
    from importlib.util import find_spec

    from lm.reporting import charts
    from lm.reporting.report import Section
    from lm.tokenizer import kept_tokenizer

    count, is_requested = options.samples, bool(options.samples or options.prompt or options.step)
    able = [
        run
        for run in runs
        if kept_tokenizer(run.folder) and any((run.folder / "checkpoints").glob("*/model.safetensors"))
    ]
    if is_requested and not able:
        names = " and ".join(map(str, options.runs))
        raise ValueError(f"{names} keep no tokenizer, or no checkpoint, to write samples with")
    if count == 0 or not able or not (is_requested or find_spec("bpe")):
        return []
    step = {None: "newest", "best": "best"}.get(options.step, f"step-{options.step}")
    drawn = []
    for run in able:
        try:
            cards = charts.samples(write_samples(options, run.folder, 2 if count is None else count))
        except ValueError as error:  # a run that diverged has a page too
            if is_requested:
                raise
            cards = charts.Html(f'<p class="empty">No text could be written: {charts.text(error)}.</p>')
        drawn.append((f"<h3>{charts.text(run.name)}</h3>" if len(runs) > 1 else "") + cards)
    note = f"From the {step} checkpoint, at temperature 0.8, seeds 0, 1, …"
    return [Section("Samples", charts.Html("".join(drawn)), note)]


def write_samples(options: argparse.Namespace, folder: Path, count: int) -> list[tuple[str, str]]:
    """Prompt and continuation, `count` for each prompt; an empty prompt is the end of a text."""
    from lm.generation.stream import generate_batch
    from lm.interop.loading import load, model_text
    from lm.special_tokens import prompt_ids

    model, text = load(folder, step_of(options), device=options.device, dtype=options.dtype), model_text(folder)
    prompts = options.prompt or [""]
    ids = [prompt_ids(text.tokenizer, prompt, text.end_of_text) or [0] for prompt in prompts]
    settings: dict[str, Any] = {"temperature": 0.8, "seed": 0, "stop_tokens": text.stop_tokens}
    texts = generate_batch(model, ids, max_new_tokens=SAMPLE_TOKENS, samples=count, **settings)
    return [(prompt, text.tokenizer.decode(one)) for prompt, ones in zip(prompts, texts, strict=True) for one in ones]
