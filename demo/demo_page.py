"""The demo's page: the samples, the curves, the tokenizer, the budget beside what was measured."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from corpus import TOGETHER, Split
from demo_budget import Budget

import bpe
from bpe.reporting import report as tokenizer_report
from bpe.reporting import view
from lm.data import Tokens
from lm.reporting import charts, report

LONGEST = 48
GLANCE_NOTE = (
    "Time is predicted from a few steps timed before the run; the rest is counted. Beside tensors the process holds "
    "torch's own buffers, the mapped tokens, and freed memory."
)
GLANCE_STYLE = (
    "<style>.glance { display: grid; grid-template-columns: minmax(0, 2fr) minmax(0, 5fr); gap: 28px 48px; } "
    ".glance td { white-space: nowrap; } "
    "@media (max-width: 860px) { .glance { grid-template-columns: minmax(0, 1fr); } }</style>"
)
PASSAGE = 1800  # characters of held-out text drawn with its tokens


class Results(NamedTuple):
    """The results of the demo's stages."""

    folder: Path
    corpus: str
    documents: Split
    tokenizer: bpe.Tokenizer
    tokenizer_seconds: float
    train_tokens: Tokens
    heldout_tokens: Tokens
    budget: Budget
    threads: int
    planned_steps: int | None  # before the schedule was shortened; None where it was not
    trained: dict[str, Any]  # seconds, memory, parameters: measured
    score: dict[str, Any]  # of all held-out text
    sampled_tokens: int  # of the held-out text, scored on the way
    compressed: dict[str, float]  # bits a byte, by compressor
    samples: list[tuple[str, str]]  # prompt, what was written


def write(demo: Results) -> Path:
    """Write report.html into the demo's folder and say where."""
    alone = {name: value for name, value in demo.compressed.items() if name != TOGETHER}
    others = " and ".join(f"{value:.2f} for {name}" for name, value in alone.items())
    weights = 4 * demo.trained["parameters"] / 1e6
    return report.write(
        demo.folder,
        title="From text to a model that writes",
        headline=(
            f"A {demo.budget.total_parameters / 1e6:.2f} M parameter Transformer, trained on {demo.corpus}, stores a "
            f"byte of held-out text in {demo.score['bits_per_byte']:.2f} bits (all of it, every token scored once). "
            f"Compressing one document at a time takes {others}; xz -9e over all of them at once "
            f"{demo.compressed[TOGETHER]:.2f}. The compressors have not seen the text that the model learned from, and "
            f"the model's {weights:.0f} MB of weights are not counted."
        ),
        leading=[
            report.Section("Tokenizer and budget", glance_section(demo), GLANCE_NOTE + shortened(demo)),
            report.Section("Samples", samples_section(demo), "Written by the model after the words in bold."),
        ],
        reference_lines=demo.compressed,
        curves_note=(
            f"The dots are a sample: about {demo.sampled_tokens:,} of {len(demo.heldout_tokens):,} tokens, in windows "
            "spread evenly over the held-out text. The figure at the top is of all tokens, in windows that overlap by "
            "half, so that only the first of them have less than half a context before them."
        ),
        sections=[
            report.Section("Tokenizer", tokenizer_section(demo), "Byte-level BPE, trained on the same text first."),
            report.Section(
                "A passage", passage_section(demo), "Held-out text, cut as the model sees it. Hover for ids."
            ),
            report.Section("Budget", budget_section(demo), "Counted before the run, by formula."),
        ],
        environment={
            "Python": platform.python_version(),
            "torch": torch.__version__,
            "NumPy": np.__version__,
            "system": platform.platform(),
            "processor": processor(),
            "threads": f"{demo.threads} of {os.cpu_count()} processors",
            "bpe": bpe.__version__,
        },
    )


def shortened(demo: Results) -> str:
    """A sentence on a schedule that was shortened; empty where it was not."""
    if demo.planned_steps is None:
        return ""
    return (
        f" The machine slowed down while it trained: the schedule was shortened from {demo.planned_steps:,} to "
        f"{demo.budget.steps:,} steps."
    )


def glance_section(demo: Results) -> str:
    """The tokenizer in a few figures, and what was predicted beside what was measured."""
    budget, trained = demo.budget, demo.trained
    speeds = [speed for _, speed in report.read(demo.folder).points("tokens_per_second")]
    megabytes = sum(len(document.text) for document in demo.documents.train) / 1e6
    tokenizer = [
        ("tokens", f"{demo.tokenizer.vocab_size:,}"),
        ("learned from", f"{megabytes:.1f} MB"),
        ("in", f"{demo.tokenizer_seconds:.2f} s"),
        ("held-out bytes a token", f"{demo.heldout_tokens.bytes_per_token:.2f}"),
    ]
    predicted = [
        ("parameters", budget.total_parameters, trained["parameters"]),
        ("training time", budget.seconds, trained["seconds"], "s"),
        ("speed, in the median", budget.tokens_per_second, median(speeds) if speeds else None, "tokens/s"),
        ("tensors, at the peak", budget.peak_bytes, None, "B"),
        ("growth of the process", None, trained["memory"], "B"),
    ]
    return (
        f'{GLANCE_STYLE}<div class="glance"><div>{charts.table(("tokenizer", ""), tokenizer)}</div>'
        f"<div>{charts.comparison(predicted)}</div></div>"
    )


def samples_section(demo: Results) -> str:
    """Completions as cards: the prompt stands out from what the model wrote after it."""
    text = charts.text
    return "".join(f"<pre><b>{text(prompt)}</b>{text(completion)}</pre>\n" for prompt, completion in demo.samples)


def tokenizer_section(demo: Results) -> str:
    """A table of the tokenizer on both parts of the corpus, and its longest tokens as chips."""
    rows = []
    for name, tokens, documents in (
        ("to learn", demo.train_tokens, demo.documents.train),
        ("held out", demo.heldout_tokens, demo.documents.heldout),
    ):
        used = len(np.unique(np.asarray(tokens.ids))) / demo.tokenizer.vocab_size
        rows.append(
            (
                name,
                len(documents),
                f"{tokens.bytes:,}",
                f"{len(tokens):,}",
                f"{tokens.bytes_per_token:.3f}",
                f"{used:.1%}",
            )
        )
    longest = [number for number, _ in longest_words(demo.tokenizer, LONGEST)]
    seconds = demo.tokenizer_seconds
    speed = sum(len(document.text) for document in demo.documents.train) / seconds / 1e6
    return (
        view.STYLE
        + charts.table(("", "documents", "bytes", "tokens", "bytes a token", "vocabulary used"), rows)
        + f"<p>{demo.tokenizer.vocab_size:,} tokens, learned in {seconds:.2f} s ({speed:.0f} MB/s). "
        + "The longest, runs of one character aside:</p>"
        + view.chips_html(demo.tokenizer, longest)
    )


def longest_words(tokenizer: bpe.Tokenizer, count: int) -> list[tuple[int, bytes]]:
    """The longest tokens that are no run of one character, with a line end before it or without: of code these say
    little."""
    every = tokenizer_report.longest_tokens(tokenizer, tokenizer.vocab_size)
    return [(number, token) for number, token in every if len(set(token.lstrip(b"\r\n"))) > 1][:count]


def passage_section(demo: Results) -> str:
    """The beginning of the held-out document nearest the middle in size: neither a stub nor a table."""
    documents = sorted(demo.documents.heldout, key=lambda document: len(document.text))
    document = documents[len(documents) * 2 // 3]
    text = document.text.decode(errors="replace")[:PASSAGE]
    return f"<p>{charts.text(document.name)}</p>" + view.tokens_html(demo.tokenizer, text)


def budget_section(demo: Results) -> str:
    """The memory by category and the FLOPs by part."""
    budget = demo.budget
    memory = [(name, f"{size / 1e6:.1f} MB") for name, size in budget.memory_by_category().items() if size]
    flops = [(name, f"{int(value) / 1e6:.1f} MFLOP") for name, value in budget.forward.items() if value]
    return (
        "<h3>Memory at the peak of a step</h3>"
        + charts.table(("", ""), memory)
        + f"<h3>FLOPs of a forward pass over {budget.context} tokens</h3>"
        + charts.table(("", ""), flops)
    )


def processor() -> str:
    """The processor's name, where the system tells."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
