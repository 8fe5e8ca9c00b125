"""`tokenizer.json`, the file of Hugging Face tokenizers, where it holds a byte-level BPE.

What this package cannot do exactly as tokenizers does is refused by name, never ignored.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from bpe.encoding import normalizing
from bpe.encoding.words import spelled_by
from bpe.encoding.words import spelling as spelling_of
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
from bpe.formats.gpt2 import encode_text, from_printable, halves_of_merge, read_merges, read_tokens
from bpe.formats.templates import flag, parts_of, post_processor, read_post_processor
from bpe.formats.word_vocabularies import checked_model, metaspace_step, read_characters, read_words, suffix_to_space
from bpe.native.atomic_file import StrPath
from bpe.native.warn import warn_caller
from bpe.patterns import Pattern, of_steps, resolve, tree_of

_MARK = sentencepiece.MARK.encode()
_MARK_TO_SPACE = {"type": "Replace", "pattern": {"String": sentencepiece.MARK}, "content": " "}
FLAGS = ("normalized", "lstrip", "rstrip", "single_word")  # of added tokens


def warn_of_unused(tokenizer: TokenizerData, path: StrPath) -> None:
    """Warn of the truncation and padding of a file, which are never applied."""
    keys = " and ".join(json.loads(tokenizer.unused))
    warn_caller(f"{path}: its {keys} are kept with the tokenizer, but encoded texts are never cut or filled up")


@without_collector()
def parse(data: bytes, path: StrPath) -> TokenizerData:
    """Return the tokenizer of a tokenizer.json's bytes; path is the name of the file in errors.

    ValueError where it is wrong, or asks for what is not supported.
    """
    return of_file(parse_json(data, path), path)


@without_collector()
def parse_folder(data: bytes, config_data: bytes, path: StrPath, config_path: StrPath) -> TokenizerData:
    """Return the tokenizer of a tokenizer.json and of the added tokens that only its tokenizer_config.json has."""
    file = parse_json(data, path)
    tokens = added_tokens_of_config(config_data, config_path)
    if isinstance(file, dict) and isinstance(file.get("added_tokens", []), list):
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
    if not isinstance(tokens, dict) or not all(key.isdecimal() and isinstance(v, dict) for key, v in tokens.items()):
        refuse(path, 'expected "added_tokens_decoder" to be an object of ids and tokens')
    return [{**token, "id": int(number)} for number, token in tokens.items()]


def of_file(file: Any, path: StrPath) -> TokenizerData:
    """Return the tokenizer of the content of a tokenizer.json."""
    if not isinstance(file, dict) or "model" not in file:
        refuse(path, 'not a tokenizer.json: it has no "model"')
    checked_model(file["model"], path)  # first, so that another kind of model is named as such
    unused = {key: file[key] for key in ("truncation", "padding") if file.get(key) is not None}
    added = read_added(file.get("added_tokens"), path)
    added_ids = {text: entry["id"] for text, entry in added.items()}
    normalizer = _read_normalizer(file.get("normalizer"), path)
    characters, ignore_merges, add_prefix_space = None, False, False
    drops_bytes, unspelled, words = False, frozenset[int](), read_words(file, path)
    _check_texts(file, path)
    if sentencepiece.is_one(file):
        ids, merges, byte_ids = sentencepiece.read_model(file["model"], added_ids, path)
        pattern, prepend = sentencepiece.read_pre_tokenizer(file.get("pre_tokenizer"), normalizer, path)
        characters = Characters(byte_ids, prepend, sentencepiece.read_decoder(file.get("decoder"), path))
    else:
        read_vocabulary = _read_model if words is None or words.byte_level else read_characters
        ids, merges, drops_bytes, unspelled = read_vocabulary(file["model"], added_ids, path)
        ignore_merges = flag(file["model"], "ignore_merges", False, path)
        if words is None:
            _check_decoder(file.get("decoder"), path)
        if words is not None and words.metaspace:
            pattern, add_prefix_space = resolve(sentencepiece.SPLIT, "fancy-regex"), words.metaspace == "always"
            normalizer = normalizing.checked([*normalizing.steps_of(normalizer), _MARK_TO_SPACE])
            ids = {n: t if n in added_ids.values() else t.replace(_MARK, b" ") for n, t in ids.items()}
            merges = [(left.replace(_MARK, b" "), right.replace(_MARK, b" ")) for left, right in merges]
        else:
            pattern, add_prefix_space = _read_pre_tokenizer(file.get("pre_tokenizer"), path)
        drops_bytes = drops_bytes or words is not None
    for text, entry in added.items():
        if entry["normalized"]:
            _normalize_token(ids, entry["id"], text, normalizer, merges)
    special = {text: entry["id"] for text, entry in added.items() if entry["special"]}
    around = read_post_processor(file.get("post_processor"), special, path)

    def marked(option: str) -> frozenset[str]:
        return frozenset(text for text, entry in added.items() if entry[option])

    return TokenizerData(
        vocab={number: ids[number] for number in sorted(ids)},
        merges=merges,
        special_tokens=special,
        pattern=pattern,
        ignore_merges=ignore_merges,
        added_tokens={text: entry["id"] for text, entry in added.items() if not entry["special"]},
        normalized=marked("normalized"),
        lstrip=marked("lstrip"),
        rstrip=marked("rstrip"),
        single_word=marked("single_word"),
        normalizer=normalizer,
        add_prefix_space=add_prefix_space,
        prefix=around.prefix,
        suffix=around.suffix,
        pair=around.pair,
        trim_offsets=around.trim_offsets,
        characters=characters,
        words=words,
        drops_bytes=drops_bytes,
        unspelled=unspelled,
        unused=json.dumps(unused, ensure_ascii=False) if unused else "",
    )


def _normalize_token(
    ids: dict[int, bytes], number: int, text: str, normalizer: str | None, merges: Sequence[Pair]
) -> None:
    """Decode an added token that is looked for in normalized text as what it is found by, as tokenizers does."""
    token = normalizing.normalizer_of(normalizer)(text).replace(sentencepiece.MARK, " ").encode()
    usual = text.replace(sentencepiece.MARK, " ").encode()
    changes = token not in (usual, b"") and ids[number] == usual
    if changes and not any(usual in (left, right, left + right) for left, right in merges):
        ids[number] = token


def _check_texts(file: dict[str, Any], path: StrPath) -> None:
    """Refuse texts of steps that are no text, as JSON can spell lone surrogates."""
    for key in ("normalizer", "pre_tokenizer", "decoder", "post_processor", "truncation", "padding"):
        try:
            json.dumps(file.get(key), ensure_ascii=False).encode()
        except UnicodeEncodeError:
            refuse(path, f'"{key}" holds a lone surrogate')


def write(path: StrPath, tokenizer: TokenizerData) -> None:
    """Write a tokenizer.json that loads in tokenizers and encodes as this tokenizer does, atomically.

    A tokenizer that merges by rank has to be given its merges first (formats.tiktoken.merges_from_ranks). Raises
    ValueError for what the file cannot say: no merges, two tokens with one spelling, or a pattern that Oniguruma, the
    engine of tokenizers, reads otherwise.
    """
    if tokenizer.merges is None:
        refuse(path, "a tokenizer.json needs a list of merges, and this tokenizer merges by rank")
    tokenizer = sentencepiece.without_text_mark(tokenizer)
    if tokenizer.characters is None and not tokenizer.drops_bytes:
        check_bytes({*tokenizer.vocab.values()}, path)
    cut_out = {number: text for text, number in (tokenizer.special_tokens | tokenizer.added_tokens).items()}
    byte_level = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
    if tokenizer.characters is not None:
        parts = sentencepiece.parts_of_file(tokenizer)
    else:
        parts = _byte_level_parts(tokenizer, byte_level, path)
    unused = json.loads(tokenizer.unused or "{}")
    steps = normalizing.steps_of(tokenizer.normalizer)
    metaspace = tokenizer.words is not None and tokenizer.words.metaspace  # whose last step stands for it
    file = {
        "version": "1.0",
        "truncation": unused.get("truncation"),
        "padding": unused.get("padding"),
        "added_tokens": [
            {
                "id": number,
                "content": text,
                "single_word": text in tokenizer.single_word,
                "lstrip": text in tokenizer.lstrip,
                "rstrip": text in tokenizer.rstrip,
                "normalized": text in tokenizer.normalized,
                "special": text in tokenizer.special_tokens,
            }
            for number, text in sorted(cut_out.items())
        ],
        "normalizer": _sequence("normalizers", steps[:-1] if metaspace else steps),
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
        refuse(
            path,
            "reading the file again would give another tokenizer: a tokenizer.json cannot express all of its settings",
        )
    write_bytes(path, data)


def _byte_level_parts(tokenizer: TokenizerData, byte_level: dict[str, Any], path: StrPath) -> dict[str, Any]:
    """The pre_tokenizer, the decoder and the model that say a byte-level tokenizer, or one of words."""
    spelling = spelling_of(tokenizer)
    words = tokenizer.words or Words(True)
    decoder: dict[str, Any] | None = byte_level
    if not words.byte_level:
        decoder = {"type": "Fuse"} if not words.between else None
    if words.metaspace:
        decoder = metaspace_step(words)
    elif words.decoded_suffix and words.byte_level:
        decoder = {"type": "Sequence", "decoders": [byte_level, *suffix_to_space(words.decoded_suffix)]}
    elif words.decoded_suffix:
        decoder = {"type": "BPEDecoder", "suffix": words.decoded_suffix}
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
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": spelling.get(words.unk),
            "continuing_subword_prefix": None,
            "end_of_word_suffix": words.suffix or None,
            "fuse_unk": words.fuse_unk,
            "byte_fallback": False,
            "ignore_merges": tokenizer.ignore_merges,
            "vocab": vocab,
            "merges": [[spelled_by(words, half) for half in pair] for pair in tokenizer.merges or ()],
        },
    }


def _sequence(key: str, steps: list[dict[str, Any]]) -> dict[str, Any] | None:
    if len(steps) <= 1:
        return steps[0] if steps else None
    return {"type": "Sequence", key: steps}


def read_added(entries: Any, path: StrPath) -> dict[str, dict[str, Any]]:
    if entries is None:
        entries = []
    if not isinstance(entries, list):
        refuse(path, '"added_tokens" is no list')
    added: dict[str, dict[str, Any]] = {}
    text_of: dict[int, str] = {}
    for entry in entries:
        text = entry.get("content") if isinstance(entry, dict) else None
        if not isinstance(text, str) or not text:
            refuse(path, f"an added token without text: {str(entry)[:80]}")
        encode_text(text, path)
        number = check_id(entry.get("id"), path, text)
        if text in added:
            refuse(path, f"the added token {text!r} stands twice")
        if number in text_of:
            refuse(path, f"the id {number} stands twice, for {text_of[number]!r} and {text!r}")
        special = flag(entry, "special", False, path)
        added[text] = {"id": number, "special": special, "normalized": flag(entry, "normalized", not special, path)}
        added[text] |= {option: flag(entry, option, False, path) for option in ("lstrip", "rstrip", "single_word")}
        text_of[number] = text
    return added


def _read_model(
    model: Any, added: dict[str, int], path: StrPath
) -> tuple[dict[int, bytes], Sequence[Pair], bool, frozenset[int]]:
    """({id: token} of vocabulary and added tokens, merges, whether bytes are no token, ids of unspelled tokens).

    A token with a character that stands for no byte is never merged to, and neither are merges with it.
    """
    vocab, merge_list = checked_model(model, path)
    plain = dict(vocab)
    for text in (*added, ""):
        plain.pop(text, None)
    numbers = list(plain.values())
    spelled = read_tokens(plain.keys(), numbers)
    if spelled is None:
        plain, numbers, spelled = {}, [], []  # the loop below reads all one by one and names the wrong one
    tokens = dict(zip(spelled, numbers, strict=True))  # those that can be merged; added tokens are not among them
    places = dict(zip(plain, range(len(plain)), strict=True))  # of the same, by the text that spells them
    by_id = dict(zip(numbers, spelled, strict=True))
    unspelled: dict[str, bytes] = {}
    for text in filter(vocab.__contains__, (*added, "")) if plain else vocab:
        value = vocab[text]
        number = check_id(value, path, text)
        if number in by_id:
            refuse(path, f"the id {number} stands twice, for {by_id[number]!r} and {text!r}")
        token = from_printable(text)
        if text in added:
            if added[text] != number:
                refuse(path, f"{text!r} has the id {number} in the vocabulary and {added[text]} as an added token")
            by_id[number] = encode_text(text, path)
            if token is None or (token != by_id[number] and len(token) > 1):
                continue  # a token spelled as a byte is both that byte and the added token
        elif not token:  # characters that stand for no bytes; or no characters, as one of Whisper's
            by_id[number] = unspelled[text] = encode_text(text, path)
            continue
        by_id[number] = token
        tokens[token] = number
        places[text] = len(places)
    missing = bool(missing_bytes(tokens))
    if missing and not tokens:
        refuse(path, "not a byte-level vocabulary: none of its tokens stands for bytes")
    for text, number in added.items():
        if text not in vocab:
            if number in by_id:
                refuse(path, f"the id {number} stands twice, for {by_id[number]!r} and the added token {text!r}")
            by_id[number] = text.encode()

    if unspelled:
        merge_list = [merge for merge in merge_list if unspelled.keys().isdisjoint(halves_of_merge(merge))]
    merges = read_merges(merge_list, places, tokens, path)
    return by_id, merges, missing, frozenset(vocab[text] for text in unspelled)


def _read_normalizer(value: Any, path: StrPath) -> str | None:
    try:
        return normalizing.checked(parts_of(value, "normalizers", path))
    except ValueError as error:
        refuse(path, str(error).removeprefix(f"{os.fspath(path)}: "))


def _read_pre_tokenizer(value: Any, path: StrPath) -> tuple[Pattern, bool]:
    """(pattern, add_prefix_space)."""
    steps = parts_of(value, "pretokenizers", path)
    if not steps:
        return resolve(None), False
    add_prefix_space = False
    if steps[0]["type"] == "ByteLevel":
        add_prefix_space = flag(steps[0], "add_prefix_space", True, path)
        steps[0] = {**steps[0], "add_prefix_space": False}
    try:
        return of_steps(steps), add_prefix_space
    except ValueError as error:
        refuse(path, str(error))


def _pre_tokenizer(tokenizer: TokenizerData, byte_level: dict[str, Any], path: StrPath) -> dict[str, Any] | None:
    """The pre-tokenizer that says a tokenizer's pattern."""
    pattern = tokenizer.pattern
    if tokenizer.words is not None and tokenizer.words.metaspace:
        return metaspace_step(tokenizer.words)
    if pattern.name == "gpt2":
        return {**byte_level, "use_regex": True}
    if pattern.whole and tokenizer.words is not None and not tokenizer.words.byte_level:
        return None
    if pattern.whole:
        return {**byte_level, "use_regex": False}
    if pattern.steps:
        steps = [
            {**step, "trim_offsets": byte_level["trim_offsets"]} if step["type"] == "ByteLevel" else step
            for step in json.loads(pattern.steps)
        ]
        if tokenizer.add_prefix_space:
            steps[0]["add_prefix_space"] = True
        return {"type": "Sequence", "pretokenizers": steps}
    if tokenizer.add_prefix_space:
        refuse(path, "a tokenizer.json adds the space before the split only under the gpt2 pattern or none")
    for expression in pattern.expressions:
        _check_portable(expression, pattern, path)
    splits = [
        {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}
        for expression in pattern.expressions
    ]
    return {"type": "Sequence", "pretokenizers": [*splits, {**byte_level, "use_regex": False}]}


def _check_decoder(value: Any, path: StrPath) -> None:
    for step in parts_of(value, "decoders", path):
        if step["type"] != "ByteLevel":
            refuse(path, f"the decoder {step['type']!r} is not supported: only ByteLevel is")


def _check_portable(expression: str, pattern: Pattern, path: StrPath) -> None:
    """Refuse an expression that Oniguruma, the engine of tokenizers, reads differently."""
    if pattern.name is not None or pattern.language == "oniguruma":
        return
    try:
        if tree_of(expression, "fancy-regex") != tree_of(expression, "oniguruma"):
            raise ValueError("Oniguruma, the engine of tokenizers, reads it differently")
    except ValueError as error:
        refuse(path, f"a tokenizer.json cannot express the pattern {expression!r}: {error}")
