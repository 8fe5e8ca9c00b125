"""The model card of an export: what the model is, what it costs, what it was trained on, and how that went."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from lm.config import ModelConfig, to_table
from lm.extras import MissingExtra
from lm.reporting.charts import Line, number, picture, smooth
from lm.reporting.report import Run, read


def card(config: ModelConfig, run_dir: Path | None, architecture: str, *, has_tokenizer: bool) -> dict[str, str]:
    """README.md, and curves.svg where the run has logged any, as texts by file name."""
    run = read(run_dir) if run_dir is not None and (run_dir / "config.toml").is_file() else None
    name = "A model" if run is None else run.name
    parts = [
        "---\nlibrary_name: transformers\npipeline_tag: text-generation\ntags:\n- groundup\n---\n",
        f"# {escaped(name)}\n",
        f"A language model made with groundup's `lm`, as a `{architecture}`: transformers loads this folder as is.\n",
        usage(has_tokenizer),
        "## What it is\n",
        table(("setting", "value"), [(key, str(value)) for key, value in to_table(config).items()]),
        "## What it costs\n",
        table(("", "", "formula"), budget(config)),
    ]
    files = {}
    if run is not None:
        if run.config.get("data"):
            parts += ["## Data\n", table(("", ""), [(key, plain(value)) for key, value in run.config["data"].items()])]
        if run.config.get("train"):
            settings = [(key, plain(value)) for key, value in run.config["train"].items()]
            parts += ["## Training\n", table(("setting", "value"), settings)]
        if run.records:
            parts.append(table(("at the end", ""), results(run)))
            with suppress(MissingExtra):  # the card is written without curves where matplotlib is not installed
                files["curves.svg"] = curves(run)
                parts.append("![Loss in nats a token, by step](curves.svg)\n")
    return {"README.md": "\n".join(parts), **files}


def usage(has_tokenizer: bool) -> str:
    """Code that loads the folder."""
    classes = {"model": "AutoModelForCausalLM"} | ({"tokenizer": "AutoTokenizer"} if has_tokenizer else {})
    lines = [f'{name} = {kind}.from_pretrained("FOLDER")' for name, kind in classes.items()]
    return "\n".join(["```python", f"from transformers import {', '.join(classes.values())}", "", *lines, "```", ""])


def budget(config: ModelConfig) -> list[tuple[str, ...]]:
    """Parameters, FLOPs and memory, as `accounting` counts them."""
    from accounting import forward_flops, inference_memory, kv_cache, parameters

    shape = config.shape()
    flops = forward_flops(shape, pairs="causal")
    rows = [
        ("parameters", parameters(shape)),
        (f"matrix-multiply FLOPs of reading {config.context_length:,} tokens", flops),
        (f"bytes of keys and values of {config.context_length:,} tokens, bf16", kv_cache(shape)),
        ("bytes to generate at batch 1, bf16", inference_memory(shape)),
    ]
    return [(name, f"{int(counts.total):,}", " + ".join(counts)) for name, counts in rows]


def results(run: Run) -> list[tuple[str, str]]:
    """The metrics that were logged last."""
    names = {
        "step": "steps",
        "tokens": "tokens read",
        "loss": "training loss, nats a token",
        "val_loss": "held-out loss, nats a token",
        "val_bits_per_byte": "held-out bits per byte",
        "seconds": "seconds of training",
    }
    values = [(name, run.last(key)) for key, name in names.items()]
    return [(name, number(value)) for name, value in values if value is not None]


def curves(run: Run) -> str:
    """Loss by step as an SVG of its own: each step, their average, and the held-out text."""
    train, heldout = run.points("loss"), run.points("val_loss")
    lines = [Line("each step", train, style="thin"), Line("train", smooth(train), label="train")]
    return picture([*lines, Line("held-out", heldout, 1, "marks", "held-out")])


def table(heading: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [heading, ["---"] * len(heading), *rows]
    return "".join(f"| {' | '.join(escaped(cell) for cell in line)} |\n" for line in lines)


def plain(value: Any) -> str:
    return ", ".join(map(plain, value)) if isinstance(value, list) else str(value)


def escaped(text: str) -> str:
    """Text that Markdown takes for nothing else."""
    text = " ".join(text.split())
    return "".join(f"\\{letter}" if letter in "\\`*_{}[]<>|#" else letter for letter in text)
