"""`tokenizer.json`, the file of Hugging Face tokenizers, where it holds a byte-level BPE.

A setting that this package does not apply exactly as tokenizers does is refused by name, never ignored.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Sequence
from typing import Any

from bpe.encoding import normalizing
from bpe.encoding.words import spelled_by
from bpe.encoding.words import spelling as spelling_of
from bpe.expressions.step_options import step
from bpe.formats import (
    Characters,
    Pair,
    TokenizerData,
    Words,
    check_bytes,
    check_id,
    missing_bytes,
    parse_json,
    refuse,
    sentencepiece,
    without_collector,
    write_bytes,
)
from bpe.formats.templates import post_processor, read_post_processor, read_steps
from bpe.formats.vocabularies import from_printable, read_merges, read_vocabulary
from bpe.formats.word_vocabularies import checked_model, metaspace_step, read_words, suffix_to_space
from bpe.native.atomic_file import StrPath
from bpe.native.printable import SPACE_MARK
from bpe.patterns import Pattern, of_steps, resolve, tree_of

_MARK_TO_SPACE = step("normalizers", "Replace", pattern={"String": SPACE_MARK}, content=" ")
FLAGS = ("single_word", "lstrip", "rstrip", "normalized")  # of added tokens


@without_collector()
def parse(data: bytes, path: StrPath, config_data: bytes = b"{}", config_path: StrPath = "") -> TokenizerData:
    """Return the tokenizer of a tokenizer.json's bytes, and of the added tokens that only tokenizer_config.json has.

    path, config_path: the names of both in errors. ValueError where one is wrong or not supported.
    """
    file = parse_json(data, path)
    tokens = added_tokens_of_config(config_data, config_path)
    if tokens and isinstance(file, dict) and isinstance(file.get("added_tokens", []), list):
        entries = file.get("added_tokens") or []
        texts = {entry.get("content") for entry in entries if isinstance(entry, dict)}
        file["added_tokens"] = entries + [token for token in tokens if token["content"] not in texts]
    return of_file(file, path)


def added_tokens_of_config(data: bytes, path: StrPath) -> list[dict[str, Any]]:
    """Return the added tokens of a tokenizer_config.json as a tokenizer.json has them."""
    config = parse_json(data, path)
    tokens = config.get("added_tokens_decoder") if isinstance(config, dict) else None
    if tokens is None:
        return []
    if not isinstance(tokens, dict) or not all(
        re.fullmatch(r"[0-9]{1,10}", key) and isinstance(token, dict) and isinstance(token.get("content"), str)
        for key, token in tokens.items()
    ):
        refuse(path, 'expected "added_tokens_decoder" to be an object of ids and tokens, each with its "content"')
    return [{**token, "id": int(number)} for number, token in tokens.items()]


def of_file(file: Any, path: StrPath, merges_at: tuple[StrPath, int] | None = None) -> TokenizerData:
    """Return the tokenizer of the content of a tokenizer.json.

    merges_at: the file of the merges and the line of the first, where the merges are lines of a file of their own.
    """
    if not isinstance(file, dict) or "model" not in file:
        refuse(path, 'not a tokenizer.json: it has no "model"')
    model = checked_model(file["model"], path)  # first, so that another kind of model is named as such
    unused = {key: file[key] for key in ("truncation", "padding") if file.get(key) is not None}
    added = read_added(file.get("added_tokens"), path)
    added_ids = {text: entry["id"] for text, entry in added.items()}
    normalizer = _read_normalizer(file.get("normalizer"), path)
    pre_steps = read_steps("pretokenizers", file.get("pre_tokenizer"), path)
    decoders = read_steps("decoders", file.get("decoder"), path)
    characters, add_prefix_space = None, False
    words = read_words(model, pre_steps, decoders, path)
    spell: Callable[[str], bytes | None] = from_printable
    decode: Callable[[str], bytes] = str.encode
    if model["byte_fallback"]:
        spell, decode = sentencepiece.spell, sentencepiece.decoded
        byte_ids = sentencepiece.byte_ids_of(model, added_ids, path)
        pattern, prepend = sentencepiece.read_pre_tokenizer(pre_steps, normalizer, path)
        characters = Characters(byte_ids, prepend, sentencepiece.read_decoder(decoders, path))
    elif words is not None and words.metaspace:
        decode = sentencepiece.decoded
        pattern, add_prefix_space = resolve(sentencepiece.SPLIT, "fancy-regex"), words.metaspace == "always"
        normalizer = normalizing.checked([*normalizing.steps_of(normalizer), _MARK_TO_SPACE])
    else:
        pattern, add_prefix_space = _read_pre_tokenizer(pre_steps, path)
        if words is None and any(decoder["type"] != "ByteLevel" for decoder in decoders):
            refuse(
                path, f"the decoder {', '.join(one['type'] for one in decoders)} is not supported: only ByteLevel is"
            )
    if words is not None and not words.byte_level:
        spell = decode
    ids, tokens, unspelled = read_vocabulary(model["vocab"], added_ids, path, spell, decode)
    drops_bytes = words is not None or (characters is None and bool(missing_bytes({*tokens.values()})))
    if not tokens and (words is None or words.byte_level):
        refuse(path, "not a byte-level vocabulary: none of its tokens stands for bytes")
    merge_list = model["merges"]
    if unspelled and characters is None:  # merges with such a token are never applied
        halves = (merge.split(" ") if isinstance(merge, str) else merge for merge in merge_list)
        merge_list = [
            pair
            for pair in halves
            if not (isinstance(pair, list) and any(half in unspelled for half in pair if isinstance(half, str)))
        ]
    merges = read_merges(merge_list, tokens, *(merges_at or (path, None)))
    for text, entry in added.items():
        if words is not None and words.metaspace:
            ids[entry["id"]] = text.encode()
        if entry["normalized"]:
            _normalize_token(ids, entry["id"], text, normalizer, merges)
    special = {text: entry["id"] for text, entry in added.items() if entry["special"]}
    around = read_post_processor(file.get("post_processor"), special, path)
    marks: dict[str, Any] = {flag: frozenset(text for text, entry in added.items() if entry[flag]) for flag in FLAGS}
    return TokenizerData(
        vocab={number: ids[number] for number in sorted(ids)},
        merges=merges,
        special_tokens=special,
        pattern=pattern,
        ignore_merges=model["ignore_merges"],
        added_tokens={text: entry["id"] for text, entry in added.items() if not entry["special"]},
        **marks,
        normalizer=normalizer,
        add_prefix_space=add_prefix_space,
        **around._asdict(),
        characters=characters,
        words=words,
        drops_bytes=drops_bytes,
        unspelled=frozenset(model["vocab"][text] for text in unspelled) if characters is None else frozenset(),
        unused=json.dumps(unused, ensure_ascii=False) if unused else "",
    )


def _normalize_token(
    ids: dict[int, bytes], number: int, text: str, normalizer: str | None, merges: Sequence[Pair]
) -> None:
    """Decode an added token that is looked for in normalized text as what it is found by, as tokenizers does."""
    token = normalizing.normalizer_of(normalizer)(text).replace(SPACE_MARK, " ").encode()
    usual = text.replace(SPACE_MARK, " ").encode()
    changes = token not in (usual, b"") and ids[number] == usual
    if changes and not any(usual in (left, right, left + right) for left, right in merges):
        ids[number] = token


def write(path: StrPath, tokenizer: TokenizerData) -> None:
    """Write a tokenizer.json that loads in tokenizers and encodes as this tokenizer does, atomically.

    ValueError for what the file cannot say: no merges (see formats.tiktoken.merges_from_ranks), two tokens with one
    spelling, or a pattern that Oniguruma, the engine of tokenizers, reads otherwise.
    """
    if tokenizer.merges is None:
        refuse(path, "a tokenizer.json needs a list of merges, and this tokenizer merges by rank")
    tokenizer = sentencepiece.without_text_mark(tokenizer)
    if tokenizer.characters is None and not tokenizer.drops_bytes:
        check_bytes({*tokenizer.vocab.values()}, path)
    cut_out = {number: text for text, number in (tokenizer.special_tokens | tokenizer.added_tokens).items()}
    parts = (
        _byte_level_parts(tokenizer, path) if tokenizer.characters is None else sentencepiece.parts_of_file(tokenizer)
    )
    unused = json.loads(tokenizer.unused or "{}")
    steps = normalizing.steps_of(tokenizer.normalizer)
    if tokenizer.words is not None and tokenizer.words.metaspace:
        steps.pop()  # it stands for the Metaspace
    file = {
        "version": "1.0",
        "truncation": unused.get("truncation"),
        "padding": unused.get("padding"),
        "added_tokens": [
            {
                "id": number,
                "content": text,
                **{flag: text in getattr(tokenizer, flag) for flag in FLAGS},
                "special": text in tokenizer.special_tokens,
            }
            for number, text in sorted(cut_out.items())
        ],
        "normalizer": {"type": "Sequence", "normalizers": steps} if len(steps) > 1 else steps[0] if steps else None,
        "pre_tokenizer": parts["pre_tokenizer"],
        "post_processor": post_processor(tokenizer),
        "decoder": parts["decoder"],
        "model": parts["model"],
    }
    data = json.dumps(file, ensure_ascii=False).encode() + b"\n"
    back = parse(data, path)
    if back.pattern.expressions == tokenizer.pattern.expressions:  # which _check_portable() has compared
        back = back._replace(pattern=tokenizer.pattern)
    if back != tokenizer._replace(name=None):
        refuse(path, "reading the file again would give another tokenizer: its settings are more than the file can say")
    write_bytes(path, data)


def _byte_level_parts(tokenizer: TokenizerData, path: StrPath) -> dict[str, Any]:
    """The pre_tokenizer, the decoder and the model that say a byte-level tokenizer, or one of words."""
    byte_level = step("pretokenizers", "ByteLevel", trim_offsets=False)
    spelling = spelling_of(tokenizer)
    words = tokenizer.words or Words(True)
    decoder: dict[str, Any] | None = byte_level
    if not words.byte_level:
        decoder = step("decoders", "Fuse") if not words.between else None
    if words.metaspace:
        decoder = metaspace_step(words)
    elif words.decoded_suffix and words.byte_level:
        decoder = {"type": "Sequence", "decoders": [byte_level, *suffix_to_space(words.decoded_suffix)]}
    elif words.decoded_suffix:
        decoder = step("decoders", "BPEDecoder", suffix=words.decoded_suffix)
    # Special tokens stand in the vocabulary too: tokenizers would number those that do not as it sees fit.
    vocab: dict[str, int] = {}
    for number, text in sorted(spelling.items()):
        if text in vocab:
            refuse(path, f"the ids {vocab[text]} and {number} would both be spelled {text!r}")
        vocab[text] = number
    return {
        "pre_tokenizer": _pre_tokenizer(
            tokenizer, {**byte_level, "add_prefix_space": tokenizer.add_prefix_space, "use_regex": False}, path
        ),
        "decoder": decoder,
        "model": step(
            *("models", "BPE"),
            unk_token=spelling.get(words.unk),
            end_of_word_suffix=words.suffix or None,
            fuse_unk=words.fuse_unk,
            ignore_merges=tokenizer.ignore_merges,
            vocab=vocab,
            merges=[[spelled_by(words, half) for half in pair] for pair in tokenizer.merges or ()],
        ),
    }


def read_added(entries: Any, path: StrPath) -> dict[str, dict[str, Any]]:
    if not isinstance(entries, list | None):
        refuse(path, '"added_tokens" is no list')
    added: dict[str, dict[str, Any]] = {}
    text_of: dict[int, str] = {}
    for entry in entries or ():
        text = entry.get("content") if isinstance(entry, dict) else None
        if not isinstance(text, str) or not text:
            refuse(path, f"an added token without text: {str(entry)[:80]}")
        number = check_id(entry.get("id"), path, text)
        if text in added:
            refuse(path, f"the added token {text!r} stands twice")
        if number in text_of:
            refuse(path, f"the id {number} stands twice, for {text_of[number]!r} and {text!r}")
        flags = {key: False if entry.get(key) is None else entry[key] for key in ("special", *FLAGS)}
        if entry.get("normalized") is None:
            flags["normalized"] = not flags["special"]
        if not all(isinstance(value, bool) for value in flags.values()):
            refuse(path, f"the flags of the added token {text!r} are {flags}: each should be true or false")
        added[text] = {"id": number, **flags}
        text_of[number] = text
    return added


def _read_normalizer(value: Any, path: StrPath) -> str | None:
    try:
        return normalizing.checked(read_steps("normalizers", value, path))
    except ValueError as error:
        refuse(path, str(error).removeprefix(f"{os.fspath(path)}: "))


def _read_pre_tokenizer(steps: list[dict[str, Any]], path: StrPath) -> tuple[Pattern, bool]:
    """(pattern, add_prefix_space)."""
    if not steps:
        return resolve(None), False
    first, *others = steps
    add_prefix_space: bool = first["type"] == "ByteLevel" and first["add_prefix_space"]
    if add_prefix_space:
        first = {**first, "add_prefix_space": False}
    try:
        return of_steps([first, *others]), add_prefix_space
    except ValueError as error:
        refuse(path, str(error))


def _pre_tokenizer(tokenizer: TokenizerData, byte_level: dict[str, Any], path: StrPath) -> dict[str, Any] | None:
    """The pre-tokenizer that says a tokenizer's pattern."""
    pattern = tokenizer.pattern
    if tokenizer.words is not None and tokenizer.words.metaspace:
        return metaspace_step(tokenizer.words)
    if pattern.is_none and tokenizer.words is not None and not tokenizer.words.byte_level:
        return None
    if pattern.is_none or pattern.name == "gpt2":
        return {**byte_level, "use_regex": not pattern.is_none}
    if pattern.steps:
        steps = json.loads(pattern.steps)
        steps = [{**one, "trim_offsets": False} if one["type"] == "ByteLevel" else one for one in steps]
        if tokenizer.add_prefix_space:
            steps[0]["add_prefix_space"] = True
        return {"type": "Sequence", "pretokenizers": steps}
    if tokenizer.add_prefix_space:
        refuse(path, "a tokenizer.json adds the space before the split only under the gpt2 pattern or none")
    if pattern.name is None and pattern.language != "oniguruma":
        for expression in pattern.expressions:
            _check_portable(expression, path)
    splits = [isolated(expression) for expression in pattern.expressions]
    return {"type": "Sequence", "pretokenizers": [*splits, {**byte_level, "use_regex": False}]}


def isolated(expression: str) -> dict[str, Any]:
    """The step that makes each match of an expression a pretoken."""
    return step("pretokenizers", "Split", pattern={"Regex": expression}, behavior="Isolated")


def _check_portable(expression: str, path: StrPath) -> None:
    """Refuse an expression that Oniguruma, the engine of tokenizers, reads differently."""
    try:
        if tree_of(expression, "fancy-regex") != tree_of(expression, "oniguruma"):
            raise ValueError("Oniguruma, the engine of tokenizers, reads it differently")
    except ValueError as error:
        refuse(path, f"a tokenizer.json cannot express the pattern {expression!r}: {error}")
