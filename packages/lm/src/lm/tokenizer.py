"""The tokenizer beside a model: loaded where text is wanted, kept in the run that was trained with it."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

from lm.data import Mixture
from lm.extras import need
from lm.files import atomic_write, read_json
from lm.text_config import TOKENIZER_CONFIG, read_text_config, write_text_config


def load_tokenizer(path: str | Path) -> Any:
    """Load a bpe.Tokenizer from bpe's own file, tokenizer.json, .gguf, or vocab.json and merges.txt.

    ValueError: the file is not a tokenizer, or one that is not supported, by name.
    """
    path = Path(path)
    with open(path, "rb") as file:
        head = file.read(64)
    bpe = need("bpe", "text", "groundup-lm[text]")
    if path.suffix == ".gguf":
        return beginning(bpe.load(path))
    if path.name in PAIR:
        return bpe.load(path)
    if head.lstrip().startswith(b"{") and b'"groundup-bpe"' not in head:
        if not isinstance(read_json(path, missing_ok=True).get("model"), dict):
            raise ValueError(f"{path} is not a tokenizer: there is no model in it")
        return bpe.Tokenizer.from_huggingface(path)
    return bpe.Tokenizer.load(path)


# Kinds of tokens, as SentencePiece and GGUF number them.
PIECE, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)


def beginning(tokenizer: Any) -> Any:
    """A tokenizer of SentencePiece's pieces with a template that puts <s> in front of a text; others as they are."""
    begin = tokenizer.special_tokens.get("<s>")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tokenizer.json"
        tokenizer.to_huggingface(file)
        content = json.loads(file.read_text(encoding="utf-8"))
        if begin is None or not content["model"].get("byte_fallback"):
            return tokenizer
        one, two = (
            [{"SpecialToken": {"id": "<s>", "type_id": i}}, {"Sequence": {"id": text, "type_id": i}}]
            for i, text in enumerate("AB")
        )
        special = {"<s>": {"id": "<s>", "ids": [begin], "tokens": ["<s>"]}}
        parts = {"single": one, "pair": one + two, "special_tokens": special}
        content["post_processor"] = {"type": "TemplateProcessing", **parts}
        file.write_text(json.dumps(content, ensure_ascii=False), encoding="utf-8")
        return type(tokenizer).from_huggingface(file)


PAIR = ("vocab.json", "merges.txt")  # GPT-2's own layout


def check_tokenizer(path: str | Path, data: Mixture, vocab_size: int) -> None:
    """ValueError, before anything is written, for a tokenizer that is not the model's or did not make the data."""
    tokenizer = load_tokenizer(path)
    if tokenizer.n_vocab != vocab_size:
        size = f"{path} has {tokenizer.n_vocab} tokens, and vocab_size is {vocab_size}"
        raise ValueError(f"{size}: set model.vocab_size to {tokenizer.n_vocab}, or name another tokenizer")
    if data.tokenizer not in (None, tokenizer.fingerprint):
        data_path = data.parts[0].tokens.path
        raise ValueError(f"{data_path} was made by another tokenizer than {path}: encode the text with this one")


def keep_tokenizer(source: Path, run: Path) -> None:
    """Copy a tokenizer into a run, whole or not at all, with what lies beside it of chats and stop tokens."""
    run.mkdir(parents=True, exist_ok=True)
    if not (run / TOKENIZER_CONFIG).exists():
        write_text_config(run, read_text_config(source.parent))
    atomic_write(run / f"tokenizer{source.suffix}", source.read_bytes())


def kept_tokenizer(run: Path) -> Path | None:
    """The tokenizer that a run keeps."""
    return next(iter(sorted(run.glob("tokenizer.*"))), None)
