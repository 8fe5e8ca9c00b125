"""The tokenizer beside a model: loaded where text is wanted, kept in the run that was trained with it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lm.data import Mixture
from lm.extras import need
from lm.files import atomic_write
from lm.piece_tokenizer import PieceTokenizer
from lm.text_config import TOKENIZER_CONFIG, read_text_config, write_text_config


def load_tokenizer(path: str | Path) -> Any:
    """Loads the tokenizer in a file.

    Args:
        path: One of ours, a tokenizer.json, a tok.bin of llama2.c, or GPT-2's vocab.json beside merges.txt.

    Returns:
        A bpe.Tokenizer, or a PieceTokenizer where it is of SentencePiece's kind.

    Raises:
        ValueError: The file is no tokenizer, or one that is not supported, by name.
        MissingExtra: The package bpe is not installed.
    """
    path = Path(path)
    with open(path, "rb") as file:
        head = file.read(64)
    if path.suffix == ".bin":
        return PieceTokenizer.from_llama2c(path)
    if path.name == PAIR[0] and path.with_name(PAIR[1]).is_file():
        return gpt2_pair(path.parent)
    if head.lstrip().startswith(b"{") and b'"groundup-bpe"' not in head:
        try:
            model = json.loads(path.read_text(encoding="utf-8"))["model"]
            pieces = bool(model.get("byte_fallback"))
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ValueError(f"{path} is no tokenizer: there is no model in it") from None
        if pieces:
            return PieceTokenizer.load(path)
        return need("bpe", "text", "groundup-lm[text]").Tokenizer.from_huggingface(path)
    return need("bpe", "text", "groundup-lm[text]").Tokenizer.load(path)


PAIR = ("vocab.json", "merges.txt")  # GPT-2's own layout


def gpt2_pair(folder: Path) -> Any:
    """The tokenizer of GPT-2's kind in a folder with PAIR, and added_tokens.json where there is one.

    ValueError: the folder says that it is of another kind, which would part texts elsewhere.
    """
    bpe = need("bpe", "text", "groundup-lm[text]")

    def read(name: str) -> dict[str, Any]:
        if not (folder / name).is_file():
            return {}
        try:
            found = json.loads((folder / name).read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{folder / name} is no JSON: {error}") from None
        if not isinstance(found, dict):
            raise ValueError(f"{folder / name} is no JSON object")
        return found

    about, vocab, added = read("tokenizer_config.json"), read(PAIR[0]), read("added_tokens.json")
    for name, known in (("tokenizer_class", "GPT2Tokenizer"), ("add_prefix_space", False), ("add_bos_token", False)):
        if about.get(name, known) not in (known, f"{known}Fast"):
            raise ValueError(
                f"{folder}: {name} is {about[name]!r}, and of vocab.json with merges.txt only GPT-2's kind is read: "
                f"save its tokenizer as a tokenizer.json"
            )
    special = {name: vocab[name] for name in ("<|endoftext|>",) if name in vocab} | added
    return bpe.Tokenizer.from_gpt2(folder / PAIR[0], folder / PAIR[1], special_tokens=special)


def check_tokenizer(path: str | Path, data: Mixture, vocab_size: int) -> None:
    """ValueError, before anything is written, for a tokenizer that is not the model's or did not make the data."""
    tokenizer = load_tokenizer(path)
    if tokenizer.n_vocab != vocab_size:
        raise ValueError(
            f"{path} has {tokenizer.n_vocab} tokens, and vocab_size is {vocab_size}: "
            f"write --model.vocab_size {tokenizer.n_vocab}"
        )
    if data.tokenizer not in (None, tokenizer.fingerprint):
        made = data.parts[0].tokens.path
        raise ValueError(f"{made} was made by another tokenizer than {path}: encode the text with this one")


def keep_tokenizer(source: Path, run: Path) -> None:
    """Copies a tokenizer into a run, whole or not at all, with what lies beside it of chats and stop tokens."""
    run.mkdir(parents=True, exist_ok=True)
    if not (run / TOKENIZER_CONFIG).exists():
        write_text_config(run, read_text_config(source.parent))
    atomic_write(run / f"tokenizer{source.suffix}", source.read_bytes())


def kept_tokenizer(run: Path) -> Path | None:
    """The tokenizer that a run keeps."""
    return next(iter(sorted(run.glob("tokenizer.*"))), None)
