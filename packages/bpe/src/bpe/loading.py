"""bpe.load(): a published name, a name of the Hugging Face Hub, a path or a URL; the content tells the format."""

from __future__ import annotations

import difflib
import errno
import hashlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

from bpe import patterns
from bpe.corpus import remote
from bpe.formats import folder, gguf, reading
from bpe.native.lazy_imports import import_lock
from bpe.patterns import SplitPattern
from bpe.published import DOWNLOADS, get_encoding, list_encoding_names
from bpe.tokenizer import Tokenizer

NAMED = (
    "a file or folder of any format (saved by this package, tokenizer.json, vocab.json and merges.txt, .tiktoken, "
    "a BPE model of sentencepiece, tekken.json, .gguf), the name of a published encoding, or owner/name on the Hub"
)

IN_FOLDER = (
    *("tokenizer.json", "vocab.json", "encoder.json", "tekken.json", "tokenizer.model"),
    *("tiktoken.model", "qwen.tiktoken", "hy.tiktoken"),
    *("spiece.model", "sentencepiece.bpe.model", "vocab.txt"),  # mostly of other kinds, which the errors name
)
HUB_FILES = [*IN_FOLDER, "merges.txt", "vocab.bpe", *folder.BESIDE]
HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")  # owner/model
REMEDY = "leave out pattern and special_tokens"

# Vocabularies whose files hold no pattern and whose model's code does, by SHA-256.
PATTERN_OF: dict[str, SplitPattern] = {
    "b2b1b8dfb5cc5f024bafc373121c6aba3f66f9a5a0269e243470a1de16a33186": "qwen2",  # qwen.tiktoken
    "b34b360dbb493e781e479794586d661700670d65564001f23024971d1f2fa126": "gpt2",  # Whisper's multilingual.tiktoken
    "82e9d31979e92ab929cd544440f129d9ecd797b69e327f80f17e1c50d5551b55": "llama3",  # Llama 3's tokenizer.model
    "d0bdbaf59b0762c8c807617e2d8ea51420eb1b1de266df2495be755c8e0ed6ed": "o200k",  # Llama 4's tokenizer.model
    "747979631e813193436aabcff7c1c235d37de8097b71c563ec8b63b7a515c718": "gpt2",  # CosyVoice's
    "b6c497a7469b33ced9c38afb1ad6e47f03f5e5dc05f15930799210ec050c5103": gguf.KIMI,  # Kimi K2's tiktoken.model
    "8dde380a6405e935f5de16a99eb61c824f3f814dd1ed298784c72babb7a03cdd": "qwen3.5",  # Qwen 3.5's and 3.6's
}
# The same by the class that tokenizer_config.json names, whose own code has the pattern.
PATTERN_OF_CLASS: dict[str, SplitPattern] = {
    "TikTokenTokenizer": gguf.KIMI,
    "QWenTokenizer": "qwen2",
    "HYTokenizer": "qwen2",
}
PAIRS = (("vocab.json", "merges.txt"), ("encoder.json", "vocab.bpe"))


def load(
    name_or_path: str | os.PathLike[str],
    *,
    pattern: SplitPattern = None,
    special_tokens: Mapping[str, int] | list[str] | None = None,
) -> Tokenizer:
    """Return the tokenizer of a file of any format, of a folder, of a published encoding, or of a model on the Hub.

    Args:
        name_or_path: the path or the URL of a file that Tokenizer.save() wrote, a tokenizer.json, vocab.json or
            merges.txt of GPT-2's two files, a .tiktoken file, a BPE model of sentencepiece, a tekken.json or a .gguf
            file; the folder of a Hugging Face model; a name of list_encoding_names(); or a model on the Hugging Face
            Hub as owner/name, from the cache of huggingface_hub or downloaded into it. The content tells the format.
        pattern: the split pattern, for a file that holds none: .tiktoken or GPT-2's two, as Tokenizer() takes it. A
            published .tiktoken file is known by its hash and needs none.
        special_tokens: names or {name: id}, for the same files.

    Returns:
        A tokenizer.

    Raises:
        FileNotFoundError: there is no such file, encoding or model; the message has the names that are near.
        ValueError: the file is of none of these formats or wrong, or has its own pattern and special tokens.

    Example:
        >>> tokenizer.save("tokenizer.bpe")
        >>> bpe.load("tokenizer.bpe")
        <Tokenizer 'bpe': 262 ids, pattern 'gpt2'>
    """
    if remote.is_url(name_or_path):
        return _by_url(os.fspath(name_or_path), pattern, special_tokens)
    path = Path(name_or_path)
    holds_its_own = pattern is not None or special_tokens is not None
    if not path.exists():
        name = os.fspath(name_or_path)
        if name in list_encoding_names():
            if holds_its_own:
                raise ValueError(f"{name} has its own split pattern and special tokens: {REMEDY}")
            return get_encoding(name)
        path = _of_hub(name) if HUB_NAME.fullmatch(name) else _missing(name)
    config = None
    if path.is_dir():
        names = [name for name in IN_FOLDER if (path / name).exists()]
        if not names:
            raise ValueError(f"{path}: expected a folder with one of {', '.join(IN_FOLDER)}, got none of them")
        config = path / folder.CONFIG if (path / folder.CONFIG).exists() else None
        path = path / names[0]
    with open(path, "rb") as file:
        start = file.read(4096)
    for pair in PAIRS:
        if path.name not in pair:
            continue
        vocab, merges = map(path.with_name, pair)
        (_, (_, gpt2_sha256)) = DOWNLOADS["gpt2"].files
        if pattern is None and _sha256(vocab) == gpt2_sha256:
            pattern = "gpt2"
        split_pattern = None if pattern is None else patterns.resolve(pattern)
        return Tokenizer._made(*reading.read_pair(vocab, merges, split_pattern, special_tokens))
    if re.match(rb"[A-Za-z0-9+/]+={0,2} \d+\r?\n", start):
        return _tiktoken(path, config, pattern, special_tokens)
    if holds_its_own:
        raise ValueError(f"{path} has its own split pattern and special tokens: {REMEDY}")
    if b'"groundup-bpe"' in start[:64]:
        return Tokenizer.load(path)
    if start.startswith(gguf.MAGIC):
        return Tokenizer.from_data(gguf.read(path))
    if start.lstrip()[:1] == b"{":
        kind = "tekken" if b'"token_bytes"' in start or path.name.startswith("tekken") else "huggingface"
    elif start[:1] == b"\n":  # the first field of a message of protocol buffers
        kind = "sentencepiece"
    else:
        word_pieces = "a vocabulary of WordPiece, which is not supported: use tokenizers for it"
        other = f"not a tokenizer of any format: expected {NAMED}"
        raise ValueError(f"{path}: {word_pieces if path.name == 'vocab.txt' else other}")
    return Tokenizer._made(*reading.read(path, kind, None if kind == "tekken" else config))


def _of_hub(name: str) -> Path:
    """Return the folder of a model's tokenizer in the cache of huggingface_hub, downloaded if need be."""
    try:
        with import_lock:
            import huggingface_hub
    except ImportError:
        raise FileNotFoundError(
            errno.ENOENT, "not a file; to load a model of the Hugging Face Hub, install huggingface_hub", name
        ) from None
    for offline in (True, False):
        try:
            folder = Path(huggingface_hub.snapshot_download(name, allow_patterns=HUB_FILES, local_files_only=offline))
            if offline and not any((folder / file).exists() for file in IN_FOLDER):
                continue  # another part of the model is there
            return folder
        except (OSError, ValueError) as error:  # as LocalEntryNotFoundError and RepositoryNotFoundError are
            reason = str(error).strip().partition("\n")[0]
    raise FileNotFoundError(errno.ENOENT, f"neither a file nor to be loaded from the Hugging Face Hub: {reason}", name)


def _missing(name: str) -> NoReturn:
    """Raise FileNotFoundError with the names that are near."""
    folder = Path(name).parent if name else Path()
    files = sorted(os.listdir(folder)) if folder.is_dir() else []
    near = difflib.get_close_matches(Path(name).name, [*list_encoding_names(), *files], cutoff=0.55)
    names = f"; did you mean {' or '.join(near)}?" if near else f"; those are {', '.join(list_encoding_names())}"
    raise FileNotFoundError(errno.ENOENT, f"no such file or published encoding{names}", name)


def _by_url(url: str, pattern: SplitPattern, special_tokens: Mapping[str, int] | list[str] | None) -> Tokenizer:
    """The tokenizer of a file by URL; errors name the URL, not its copy."""
    name = remote.name_of(url)
    others = [other for pair in PAIRS if name in pair for other in pair if other != name]
    with remote.copied(url, *others) as path:
        try:
            return load(path, pattern=pattern, special_tokens=special_tokens)
        except ValueError as error:
            raise ValueError(str(error).replace(os.fspath(path), url)) from None


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _tiktoken(
    path: Path, config: Path | None, pattern: SplitPattern, special_tokens: Mapping[str, int] | list[str] | None
) -> Tokenizer:
    digest = _sha256(path)
    published = next((one for one in DOWNLOADS.values() if digest in dict(one.files).values()), None)
    if pattern is None and published is not None:
        pattern = published.pattern
        special_tokens = published.special_tokens if special_tokens is None else special_tokens
    named = None if config is None else folder.class_named({folder.CONFIG: config.read_bytes()}, config)
    pattern = pattern or PATTERN_OF.get(digest, PATTERN_OF_CLASS.get(str(named)))
    if pattern is None:
        raise ValueError(
            f"{path}: a .tiktoken file holds neither split pattern nor special tokens, and this one is not known: give "
            "its pattern to bpe.load() or to `bpe convert` (Llama 3's is 'llama3', Qwen's 'qwen2', Whisper's 'gpt2', "
            "Kimi K2's bpe.formats.gguf.KIMI)"
        )
    if special_tokens is None:
        special_tokens = reading.special_tokens_of_ranks(path, config, named)
    normalizer = "NFC" if named == "QWenTokenizer" else None
    return Tokenizer._made(*reading.read_tiktoken(path, pattern, special_tokens, normalizer))
