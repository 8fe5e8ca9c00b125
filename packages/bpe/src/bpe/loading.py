"""A tokenizer by what a person would call it: a published name, or a file of any format, known by its content."""

from __future__ import annotations

import difflib
import errno
import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path

from bpe.patterns import SplitPattern
from bpe.published import DOWNLOADS, get_encoding
from bpe.tokenizer import Tokenizer

NAMED = (
    "a file or folder of any format (saved by this package, tokenizer.json, vocab.json and merges.txt, .tiktoken, "
    "a BPE model of sentencepiece), or "
    "the name of a published encoding"
)

PAIRS = ("vocab.json", "encoder.json", "merges.txt", "vocab.bpe")


def load(
    name_or_path: str | os.PathLike[str],
    *,
    pattern: SplitPattern = None,
    special_tokens: Mapping[str, int] | list[str] | None = None,
) -> Tokenizer:
    """The tokenizer of a file of any format, of a folder, or of a published encoding.

    Args:
        name_or_path: the path or the URL of a file that Tokenizer.save() wrote, a tokenizer.json, vocab.json or
            merges.txt of GPT-2's two files, a .tiktoken file, a BPE model of sentencepiece; the folder of a Hugging
            Face model; or a name of list_encoding_names(). What a file is, its content tells.
        pattern: the split pattern, for a file that holds none: .tiktoken (an expression is one of fancy-regex, as
            tiktoken's are), or GPT-2's two (one of `regex`). A published .tiktoken file is known by its hash and needs
            none.
        special_tokens: names or {name: id}, for the same files.

    Returns:
        A tokenizer.

    Raises:
        FileNotFoundError: there is no such file or encoding; the message has the names that are near.
        ValueError: the file is of none of these formats or wrong, or says itself what pattern or special_tokens says.

    Example:
        >>> tokenizer.save("tokenizer.bpe")
        >>> bpe.load("tokenizer.bpe")
        <Tokenizer 'bpe': 262 ids, pattern 'gpt2'>
    """
    if "://" in os.fspath(name_or_path):
        from bpe.corpus import remote

        if remote.is_url(name_or_path):
            return _by_url(os.fspath(name_or_path), pattern, special_tokens)
    path = Path(name_or_path)
    if not path.exists():
        return _published(os.fspath(name_or_path), pattern is not None or special_tokens is not None)
    if path.is_dir():
        path = _in_folder(path)
    with open(path, "rb") as file:
        start = file.read(4096)
    if path.name in PAIRS:
        vocab, merges = _pair(path)
        return Tokenizer.from_gpt2(
            vocab,
            merges,
            pattern="gpt2" if pattern is None else pattern,
            special_tokens=("<|endoftext|>",) if special_tokens is None else special_tokens,
        )
    if re.match(rb"[A-Za-z0-9+/]+={0,2} \d+\r?\n", start):
        return _tiktoken(path, pattern, special_tokens)
    if pattern is not None or special_tokens is not None:
        raise ValueError(
            f"{path}: this file holds its own split pattern and special tokens, and none are given beside it"
        )
    if b'"groundup-bpe"' in start[:64]:
        return Tokenizer.load(path)
    if start.lstrip()[:1] == b"{":
        return Tokenizer.from_huggingface(path)
    if start[:1] == b"\n":  # the first field of a message of protocol buffers
        return Tokenizer.from_sentencepiece(path)
    raise ValueError(f"{path}: not a tokenizer of any format that is read here: {NAMED}")


def _by_url(url: str, pattern: SplitPattern, special_tokens: Mapping[str, int] | list[str] | None) -> Tokenizer:
    """The tokenizer of a file by URL; errors name the URL, not its copy."""
    from bpe.corpus import remote

    name = remote.name_of(url)
    others = [file.name for file in _pair(Path(name)) if file.name != name] if name in PAIRS else []
    with remote.copied(url, *others) as path:
        try:
            return load(path, pattern=pattern, special_tokens=special_tokens)
        except ValueError as error:
            raise ValueError(str(error).replace(os.fspath(path), url)) from None


def _published(name: str, more: bool) -> Tokenizer:
    if name in DOWNLOADS:
        if more:
            raise ValueError(f"{name} has its own split pattern and special tokens, and none are given beside it")
        return get_encoding(name)
    near = difflib.get_close_matches(
        name, [*DOWNLOADS, *sorted(os.listdir(Path(name).parent if name else "."))], cutoff=0.55
    )
    said = f"; did you mean {' or '.join(near)}?" if near else f"; those are {', '.join(DOWNLOADS)}"
    raise FileNotFoundError(errno.ENOENT, f"no such file, and no published encoding of that name{said}", name)


def _in_folder(folder: Path) -> Path:
    for name in ("tokenizer.json", "vocab.json", "encoder.json", "tokenizer.model"):
        if (folder / name).exists():
            return folder / name
    raise ValueError(f"{folder}: a folder with no tokenizer.json, tokenizer.model, nor vocab.json and merges.txt")


def _pair(path: Path) -> tuple[Path, Path]:
    """vocab.json and merges.txt, or encoder.json and vocab.bpe, given either."""
    names = ("vocab.json", "merges.txt") if path.name in ("vocab.json", "merges.txt") else ("encoder.json", "vocab.bpe")
    return path.with_name(names[0]), path.with_name(names[1])


def _tiktoken(path: Path, pattern: SplitPattern, special_tokens: Mapping[str, int] | list[str] | None) -> Tokenizer:
    if pattern is None:
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        for download in DOWNLOADS.values():
            if any(known == digest for _, known in download.files):
                pattern = download.pattern
                special_tokens = download.special_tokens if special_tokens is None else special_tokens
                break
        else:
            raise ValueError(
                f"{path}: a .tiktoken file holds neither split pattern nor special tokens, and this is no published "
                "one: its pattern has to be given, to bpe.load() or to `bpe convert`"
            )
    return Tokenizer.from_tiktoken(path, pattern=pattern, special_tokens=special_tokens or {})
