"""A tokenizer from the files of each format, or, where an earlier process has kept its tables, from these."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from bpe import formats, patterns
from bpe.formats import TokenizerData
from bpe.formats.vocabulary import SpecialNames, data_of_ranks, fixed_names, number_special_tokens
from bpe.native.atomic_file import StrPath
from bpe.native.lazy_imports import import_lock
from bpe.native.warn import warn_caller
from bpe.patterns import SplitPattern

MOST_RESERVED = 1 << 20  # tokens that a file of ranks may have beside its own

if TYPE_CHECKING:
    from pathlib import Path

    from bpe.formats.table_cache import Loaded


def read_tiktoken(
    path: StrPath, pattern: SplitPattern, special_tokens: SpecialNames, normalizer: str | None = None
) -> Loaded:
    """See Tokenizer.from_tiktoken(). normalizer: that of the class which reads the file elsewhere."""
    content, name = formats.read_bytes(path), os.path.splitext(os.path.basename(path))[0]
    split, special = patterns.resolve(pattern, "fancy-regex"), fixed_names(special_tokens)

    def parse() -> TokenizerData:
        data = data_of_ranks(formats.tiktoken.parse(content, path), special, split, name)
        return data._replace(normalizer=normalizer)

    return _load(parse, [content], "tiktoken", patterns.to_plain(split), special, name, normalizer)


def read_gpt2(vocab_json: StrPath, merges_txt: StrPath, pattern: SplitPattern, special_tokens: SpecialNames) -> Loaded:
    """See Tokenizer.from_gpt2()."""
    vocab_data, merges_data = formats.read_bytes(vocab_json), formats.read_bytes(merges_txt)
    split, special = patterns.resolve(pattern), fixed_names(special_tokens)

    def parse() -> TokenizerData:
        vocab, merges = formats.gpt2.parse(vocab_data, merges_data, vocab_json, merges_txt)
        empty = frozenset(number for number, token in vocab.items() if not token)
        lacks_bytes = bool(formats.missing_bytes(set(vocab.values())))
        ids = number_special_tokens(special, vocab)
        return TokenizerData(vocab, merges, ids, split, drops_bytes=lacks_bytes, unspelled=empty)

    return _load(parse, [vocab_data, merges_data], "gpt2", patterns.to_plain(split), special)


def read_pair(vocab_json: Path, merges_txt: Path, pattern: SplitPattern, special_tokens: SpecialNames | None) -> Loaded:
    """The tokenizer of GPT-2's pair of files as the files beside them say; see bpe.formats.folder.

    pattern, special_tokens: None for what those files say.
    """
    vocab_data, merges_data = formats.read_bytes(vocab_json), formats.read_bytes(merges_txt)
    place = vocab_json.parent
    beside = {name: (place / name).read_bytes() for name in formats.folder.BESIDE if (place / name).exists()}
    split = None if pattern is None else patterns.resolve(pattern)
    special = None if special_tokens is None else fixed_names(special_tokens)
    parse = partial(formats.folder.parse_pair, vocab_data, merges_data, beside, place, split, special)
    plain_pattern = None if split is None else patterns.to_plain(split)
    loaded = _load(parse, [vocab_data, merges_data, *beside.values()], "pair", list(beside), plain_pattern, special)
    if split is None and formats.folder.class_of(beside, place) is None:
        warn_caller(
            f"{place}: no file names the tokenizer's class, so {vocab_json.name} and {merges_txt.name} are read as "
            "GPT-2's; give pattern='gpt2' if they are, or another pattern"
        )
    return loaded


def read_huggingface(path: StrPath, config_path: StrPath | None = None) -> Loaded:
    """See Tokenizer.from_huggingface(). config_path: a tokenizer_config.json, whose added tokens belong to it too."""
    if config_path is None:
        loaded = read(path, "huggingface")
    else:
        content, config = formats.read_bytes(path), formats.read_bytes(config_path)
        parse = partial(formats.huggingface.parse_folder, content, config, path, config_path)
        loaded = _load(parse, [content, config], "huggingface with its configuration")
    if loaded.data.unused:
        formats.huggingface.warn_of_unused(loaded.data, path)
    return loaded


def read_sentencepiece(path: StrPath, config_path: StrPath | None) -> Loaded:
    """See Tokenizer.from_sentencepiece(). config_path: a tokenizer_config.json, whose added tokens belong to it too."""
    if config_path is None:
        return read(path, "sentencepiece")
    content, config = formats.read_bytes(path), formats.read_bytes(config_path)

    def parse() -> TokenizerData:
        data = formats.sentencepiece.parse(content, path)
        return formats.folder.with_added_tokens(data, config, config_path)

    return _load(parse, [content, config], "sentencepiece with its configuration")


def class_of_config(path: StrPath) -> str:
    """The tokenizer class that a tokenizer_config.json names, without "Fast"; "" if none."""
    return formats.folder.class_named({formats.folder.CONFIG: formats.read_bytes(path)}, path)


def special_tokens_of_ranks(path: StrPath, config_path: StrPath | None, named: str | None) -> dict[str, int]:
    """The special tokens of a file of ranks, by the tokenizer_config.json beside it and the class that it names.

    As in transformers, an id up to the last of them that has no name is that of a reserved token.
    """
    if config_path is None:
        return {}
    entries = formats.huggingface.added_tokens_of_config(formats.read_bytes(config_path), config_path)
    ids = {entry["id"]: entry["content"] for entry in entries}
    first = 1 + max(formats.tiktoken.read(path).values())
    if named == "QWenTokenizer" and not ids:
        texts = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", *(f"<|extra_{number}|>" for number in range(205)))
        ids = dict(enumerate(texts, first))
    if max(ids, default=0) - first > MOST_RESERVED:
        formats.refuse(config_path, f"the id {max(ids)} is far beyond the {first} tokens of {path}")
    return {
        ids.get(number, f"<|reserved_token_{number}|>"): number for number in range(first, 1 + max(ids, default=-1))
    }


def read(path: StrPath, kind: str) -> Loaded:
    """Read a file of a format that holds all of a tokenizer: "native", "sentencepiece", "tekken" or "huggingface"."""
    content = formats.read_bytes(path)
    return _load(lambda: getattr(formats, kind).parse(content, path), [content], kind)


def _load(parse: Callable[[], TokenizerData], contents: list[bytes], *beside: Any) -> Loaded:
    with import_lock:
        from bpe.formats import table_cache  # when it is needed: `import bpe` does without what that imports

    return table_cache.load(parse, contents, *beside)
