"""The tokenizer beside a model: loaded where text is wanted, kept in the run that was trained with it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lm.data import open_data
from lm.extras import need
from lm.piece_tokenizer import PieceTokenizer


def load_tokenizer(path: str | Path) -> Any:
    """The tokenizer in a file: one of ours, a tokenizer.json, a tok.bin of llama2.c, or GPT-2's vocab.json beside merges.txt.

    A bpe.Tokenizer, or a PieceTokenizer where it is of SentencePiece's kind. MissingExtra: the package bpe is not installed.
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


# Tokens that are put before a text, and that end one, by the names they have.
BEGINS = ("<s>", "<|begin_of_text|>", "<bos>")
ENDS = ("<|endoftext|>", "</s>", "<s>", "<|end_of_text|>", "<|eot_id|>", "<|im_end|>", "<|begin_of_text|>")


def prompt_ids(tokenizer: Any, text: str) -> list[int]:
    """The ids of a text to continue: with the token that begins one, where the tokenizer has such, else with the one that
    ends one where there is nothing else to begin with."""
    known = tokenizer.special_tokens
    begin = next(([known[name]] for name in BEGINS if name in known), [])
    ids = list(tokenizer.encode(text, allowed_special="all"))
    if begin and ids[:1] != begin:
        ids = begin + ids
    return ids or [known[name] for name in ENDS[:1] if name in known]


def stop_ids(tokenizer: Any) -> list[int]:
    """The ids of the tokens that end a text."""
    return [number for name, number in tokenizer.special_tokens.items() if name in ENDS]


def check_tokenizer(path: str | Path, data: str | Path | Mapping[str, Any], vocab_size: int) -> None:
    """ValueError, before anything is written, for a tokenizer that is not the model's or did not make the data."""
    tokenizer = load_tokenizer(path)
    if tokenizer.n_vocab != vocab_size:
        raise ValueError(
            f"{path} has {tokenizer.n_vocab} tokens, and vocab_size is {vocab_size}: "
            f"write --model.vocab_size {tokenizer.n_vocab}"
        )
    mixture = open_data(data)
    if mixture.tokenizer not in (None, tokenizer.fingerprint):
        made = mixture.parts[0].tokens.path
        raise ValueError(f"{made} was made by another tokenizer than {path}: encode the text with this one")


def keep_tokenizer(source: Path, run: Path) -> None:
    """Copies the tokenizer's file into the run, whole or not at all."""
    run.mkdir(parents=True, exist_ok=True)
    temporary = run / ".tokenizer.partial"
    try:
        shutil.copyfile(source, temporary)
        os.replace(temporary, run / f"tokenizer{source.suffix}")
    finally:
        temporary.unlink(missing_ok=True)


def kept_tokenizer(run: Path) -> Path | None:
    """The tokenizer that a run keeps."""
    return next(iter(sorted(run.glob("tokenizer.*"))), None)
