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
from bpe.patterns import SplitPattern

if TYPE_CHECKING:
    from bpe.formats.table_cache import Loaded


def read_tiktoken(path: StrPath, pattern: SplitPattern, special_tokens: SpecialNames) -> Loaded:
    """See Tokenizer.from_tiktoken()."""
    content, name = formats.read_bytes(path), os.path.splitext(os.path.basename(path))[0]
    split, special = patterns.resolve(pattern, "fancy-regex"), fixed_names(special_tokens)

    def parse() -> TokenizerData:
        return data_of_ranks(formats.tiktoken.parse(content, path), special, split, name)

    return _load(parse, [content], "tiktoken", patterns.to_plain(split), special, name)


def read_gpt2(vocab_json: StrPath, merges_txt: StrPath, pattern: SplitPattern, special_tokens: SpecialNames) -> Loaded:
    """See Tokenizer.from_gpt2()."""
    vocab_data, merges_data = formats.read_bytes(vocab_json), formats.read_bytes(merges_txt)
    split, special = patterns.resolve(pattern), fixed_names(special_tokens)

    def parse() -> TokenizerData:
        vocab, merges = formats.gpt2.parse(vocab_data, merges_data, vocab_json, merges_txt)
        return TokenizerData(vocab, merges, number_special_tokens(special, vocab), split)

    return _load(parse, [vocab_data, merges_data], "gpt2", patterns.to_plain(split), special)


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


def read(path: StrPath, kind: str) -> Loaded:
    """Read a file of a format that holds all of a tokenizer: "native", "sentencepiece", "tekken" or "huggingface"."""
    content = formats.read_bytes(path)
    return _load(lambda: getattr(formats, kind).parse(content, path), [content], kind)


def _load(parse: Callable[[], TokenizerData], contents: list[bytes], *beside: Any) -> Loaded:
    with import_lock:
        from bpe.formats import table_cache  # when it is needed: `import bpe` does without what that imports

    return table_cache.load(parse, contents, *beside)
