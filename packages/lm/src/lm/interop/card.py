"""The model card of an export: what the model is, what it was trained on, and how that went."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from lm.config import ModelConfig, to_table
from lm.reporting.charts import number
from lm.reporting.report import read

RESULTS = {
    "step": "steps",
    "tokens": "tokens read",
    "loss": "training loss, nats a token",
    "val_loss": "held-out loss, nats a token",
    "val_bits_per_byte": "held-out bits per byte",
    "seconds": "seconds of training",
}


def card(config: ModelConfig, run_dir: Path | None, architecture: str, *, has_tokenizer: bool) -> str:
    """README.md of the folder of a model: of a run, with its data, its settings and the metrics logged last."""
    run = read(run_dir) if run_dir is not None and (run_dir / "config.toml").is_file() else None
    name = "A model" if run is None else run.name
    classes = {"model": "AutoModelForCausalLM"} | ({"tokenizer": "AutoTokenizer"} if has_tokenizer else {})
    code = [f'{name} = {kind}.from_pretrained("FOLDER")' for name, kind in classes.items()]
    parts = [
        "---\nlibrary_name: transformers\npipeline_tag: text-generation\ntags:\n- groundup\n---\n",
        f"# {escaped(name)}\n",
        f"A language model made with groundup's `lm`, as a `{architecture}`: transformers loads this folder as is.\n",
        "\n".join(["```python", f"from transformers import {', '.join(classes.values())}", "", *code, "```", ""]),
        table("What it is", to_table(config).items()),
    ]
    if run is not None:
        sections = {"data": "Data", "train": "Training"}
        parts += [table(title, run.config.get(key, {}).items()) for key, title in sections.items()]
        results = ((name, run.last(key)) for key, name in RESULTS.items())
        parts.append(table("Results", [(name, number(value)) for name, value in results if value is not None]))
    return "\n".join(parts)


def table(title: str, rows: Iterable[tuple[str, object]]) -> str:
    """A heading and a Markdown table, empty without rows."""
    shown = [(name, ", ".join(map(str, value)) if isinstance(value, list) else str(value)) for name, value in rows]
    lines = [f"| {escaped(name)} | {escaped(value)} |\n" for name, value in shown]
    return f"## {title}\n\n| | |\n| --- | --- |\n{''.join(lines)}" if lines else ""


def escaped(text: str) -> str:
    """Text that Markdown takes for nothing else."""
    text = " ".join(text.split())
    return "".join(f"\\{letter}" if letter in "\\`*_{}[]<>|#" else letter for letter in text)
