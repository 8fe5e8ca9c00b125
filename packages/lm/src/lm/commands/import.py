"""`lm import`: a run out of another program's model."""

from __future__ import annotations

import argparse
from pathlib import Path

from lm.commands.cli import Commands, add


def register(commands: Commands) -> None:
    text = "make a run of another program's model: Hugging Face's (Llama, Mistral, Qwen2, Qwen3, GPT-2) or a .gguf"
    parser = add(commands, "import", import_, text)
    parser.add_argument("source", metavar="MODEL", help="the folder or file, or hf://OWNER/NAME on the Hub")
    parser.add_argument("--out", required=True, metavar="RUN", help="the folder of the run, empty or not there")
    parser.add_argument("--tokenizer", help="a tokenizer file (default: the one that lies with the model)")


def import_(options: argparse.Namespace) -> None:
    from lm.interop.importing import import_run
    from lm.tokenizer import kept_tokenizer

    model = import_run(options.source, options.out, tokenizer=options.tokenizer)
    count = sum(parameter.numel() for parameter in model.parameters())
    print(f"{options.out}: {count:,} parameters, imported from {options.source}")
    if kept_tokenizer(Path(options.out)) is None:
        print("the run has no tokenizer, as there is no tokenizer.json beside the model: name one with --tokenizer")
    print(f"to train it further: lm train {options.out} --data FOLDER --out ANOTHER --train.steps 1000")
