"""A tokenizer from the files of each format, or, where an earlier process has kept its tables, from these."""

from __future__ import annotations

import json
import os

from bpe import formats, patterns
from bpe.formats import TokenizerData
from bpe.formats.table_cache import Loaded, load
from bpe.formats.vocabulary import SpecialNames, data_of_ranks, fixed_names
from bpe.native.atomic_file import StrPath
from bpe.native.warn import warn_caller
from bpe.patterns import Pattern, SplitPattern

MOST_RESERVED = 1 << 20  # tokens that a file of ranks may have beside its own


def read_tiktoken(
    path: StrPath, pattern: SplitPattern, special_tokens: SpecialNames, normalizer: str | None = None
) -> Loaded:
    """See Tokenizer.from_tiktoken(). normalizer: that of the class which reads the file elsewhere."""
    content, name = formats.read_bytes(path), os.path.splitext(os.path.basename(path))[0]
    split_pattern, special = patterns.resolve(pattern, "fancy-regex"), fixed_names(special_tokens)

    def parse() -> TokenizerData:
        data = data_of_ranks(formats.tiktoken.parse(content, path), special, split_pattern, name)
        return data._replace(normalizer=normalizer)

    return load(parse, [content], "tiktoken", patterns.to_plain(split_pattern), special, name, normalizer)


def read_pair(
    vocab_json: StrPath,
    merges_txt: StrPath,
    pattern: Pattern | None,
    special_tokens: SpecialNames | None,
    *,
    alone: bool = False,
) -> Loaded:
    """The tokenizer of GPT-2's pair of files, and of those beside it unless it is alone; see bpe.formats.folder.

    alone: a vocabulary that lacks a byte of UTF-8 is refused too.
    """
    vocab_data, merges_data = formats.read_bytes(vocab_json), formats.read_bytes(merges_txt)
    folder = os.path.dirname(vocab_json)
    paths = {} if alone else {name: os.path.join(folder, name) for name in formats.folder.BESIDE}
    beside = {name: formats.read_bytes(path) for name, path in paths.items() if os.path.exists(path)}
    special = None if special_tokens is None else fixed_names(special_tokens)

    def parse() -> TokenizerData:
        data = formats.folder.parse_pair(vocab_data, merges_data, beside, vocab_json, merges_txt, pattern, special)
        if alone:
            formats.check_bytes({*data.vocab.values()}, vocab_json, formats.UTF8_BYTES)
        return data

    plain_pattern = None if pattern is None else [patterns.to_plain(pattern)]
    contents = [vocab_data, merges_data, *beside.values()]
    loaded = load(parse, contents, "pair", list(beside), plain_pattern, special, alone)
    if pattern is None and formats.folder.class_of(beside, vocab_json) is None:
        warn_caller(
            f"{folder}: no file names the tokenizer's class, so {os.path.basename(vocab_json)} and "
            f"{os.path.basename(merges_txt)} are read as GPT-2's; give pattern='gpt2' if they are, or another pattern"
        )
    return loaded


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


def read(path: StrPath, kind: str, config_path: StrPath | None = None) -> Loaded:
    """Read a file of a format that holds all of a tokenizer: "native", "sentencepiece", "tekken" or "huggingface".

    config_path: a tokenizer_config.json, whose added tokens belong to it too, of the second and the last kind.
    """
    content = formats.read_bytes(path)
    config = () if config_path is None else (formats.read_bytes(config_path), config_path)
    loaded = load(lambda: getattr(formats, kind).parse(content, path, *config), [content, *config[:1]], kind)
    if loaded.data.unused:
        keys = " and ".join(json.loads(loaded.data.unused))
        warn_caller(f"{path}: its {keys} are kept with the tokenizer, but encoded texts are never cut or filled up")
    return loaded
