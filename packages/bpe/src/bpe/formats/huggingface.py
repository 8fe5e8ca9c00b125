"""`tokenizer.json`, the file of Hugging Face tokenizers, where it holds a byte-level BPE.

What this package cannot do exactly as tokenizers does is refused by name, never ignored.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from bpe.formats import (
    NORMALIZERS,
    Pair,
    TokenizerData,
    check_bytes,
    check_id,
    parse_json,
    read_bytes,
    refuse,
    without_collector,
)
from bpe.formats.gpt2 import encode_text, from_printable, read_merges, read_tokens, to_printable
from bpe.native.atomic_file import StrPath, write_atomically
from bpe.native.lazy_imports import regex
from bpe.patterns import PATTERNS, resolve

# These match every character, so nothing lies between their matches.
_WITHOUT_GAPS = {name for name in PATTERNS if name != "deepseek-v3"}


def read(path: StrPath) -> TokenizerData:
    """The tokenizer of a tokenizer.json. Raises ValueError with path and reason where it is wrong or where this package
    does not support what it asks for, FileNotFoundError where there is none.
    """
    return parse(read_bytes(path), path)


@without_collector()
def parse(data: bytes, path: StrPath) -> TokenizerData:
    """The tokenizer of a tokenizer.json's bytes; path is what errors call it."""
    file = parse_json(data, path)
    if not isinstance(file, dict) or "model" not in file:
        refuse(path, 'not a tokenizer.json: it has no "model"')
    for key in ("truncation", "padding"):
        if file.get(key) is not None:
            refuse(path, f'"{key}" is set, which is not supported: encoded texts are never cut or filled up')
    _check_decoder(file.get("decoder"), path)

    added = _read_added(file.get("added_tokens"), path)
    ids, merges, ignore_merges = _read_model(file["model"], {text: entry["id"] for text, entry in added.items()}, path)
    expressions, add_prefix_space = _read_pre_tokenizer(file.get("pre_tokenizer"), path)
    special = {text: entry["id"] for text, entry in added.items() if entry["special"]}
    prefix, suffix = _read_post_processor(file.get("post_processor"), special, path)
    try:
        pattern = resolve(expressions or None)
    except ValueError as error:
        refuse(path, str(error))

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
        normalizer=_read_normalizer(file.get("normalizer"), path),
        add_prefix_space=add_prefix_space,
        prefix=prefix,
        suffix=suffix,
    )


def write(path: StrPath, tokenizer: TokenizerData) -> None:
    """Write a tokenizer.json that loads in tokenizers and encodes as this tokenizer does, atomically.

    A tokenizer that merges by rank has to be given its merges first (formats.tiktoken.merges_from_ranks). Raises
    ValueError for what the file cannot say: no merges, two tokens with one spelling, or a pattern that Oniguruma, the
    engine of tokenizers, reads otherwise.
    """
    if tokenizer.merges is None:
        refuse(path, "a tokenizer.json needs a list of merges, and this tokenizer merges by rank")
    for expression in tokenizer.pattern.expressions:
        _check_portable(expression, path)
    cut_out = {number: text for text, number in (tokenizer.special_tokens | tokenizer.added_tokens).items()}

    # Special tokens stand in the vocabulary too: tokenizers would number those that do not as it sees fit.
    vocab: dict[str, int] = {}
    for number, token in sorted(tokenizer.vocab.items()):
        text = cut_out.get(number, to_printable(token))
        if text in vocab:
            refuse(path, f"the ids {vocab[text]} and {number} would both be spelled {text!r}")
        vocab[text] = number

    byte_level = {"type": "ByteLevel", "add_prefix_space": tokenizer.add_prefix_space, "trim_offsets": False}
    pre_tokenizers: list[dict[str, Any]] = [
        {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}
        for expression in tokenizer.pattern.expressions
    ]
    if tokenizer.pattern.name == "gpt2":
        pre_tokenizer = {**byte_level, "use_regex": True}
    elif not pre_tokenizers:
        pre_tokenizer = {**byte_level, "use_regex": False}
    elif tokenizer.add_prefix_space:
        refuse(path, "a tokenizer.json adds the space before the split only under the gpt2 pattern or none")
    else:
        pre_tokenizer = {"type": "Sequence", "pretokenizers": [*pre_tokenizers, {**byte_level, "use_regex": False}]}

    file = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
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
        "normalizer": None if tokenizer.normalizer is None else {"type": tokenizer.normalizer},
        "pre_tokenizer": pre_tokenizer,
        "post_processor": _post_processor(tokenizer, {**byte_level, "add_prefix_space": True, "use_regex": True}),
        "decoder": {**byte_level, "add_prefix_space": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": tokenizer.ignore_merges,
            "vocab": vocab,
            "merges": [[to_printable(left), to_printable(right)] for left, right in tokenizer.merges],
        },
    }
    data = json.dumps(file, ensure_ascii=False).encode() + b"\n"
    if parse(data, path) != tokenizer._replace(name=None):
        refuse(path, "this tokenizer would not come back as it is: a tokenizer.json cannot say all that it does")
    write_atomically(path, data)


def _read_added(entries: Any, path: StrPath) -> dict[str, dict[str, Any]]:
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
        special = _flag(entry, "special", False, path)
        added[text] = {"id": number, "special": special, "normalized": _flag(entry, "normalized", not special, path)}
        added[text] |= {option: _flag(entry, option, False, path) for option in ("lstrip", "rstrip", "single_word")}
        text_of[number] = text
    return added


def _read_model(model: Any, added: dict[str, int], path: StrPath) -> tuple[dict[int, bytes], Sequence[Pair], bool]:
    """({id: token} of vocabulary and added tokens, merges, ignore_merges)."""
    if not isinstance(model, dict) or model.get("type", "BPE") != "BPE":
        kind = model.get("type") if isinstance(model, dict) else model
        refuse(path, f"the model is {kind!r}, which is not supported: only BPE is")
    for key in ("dropout", "continuing_subword_prefix", "end_of_word_suffix"):
        if model.get(key):
            refuse(path, f'the model has "{key}": {model[key]!r}, which is not supported')
    vocab, merge_list = model.get("vocab"), model.get("merges")
    if not isinstance(vocab, dict) or not isinstance(merge_list, list):
        refuse(path, 'the model has no "vocab" of tokens and ids or no list of "merges"')

    plain = dict(vocab)
    for text in added:
        plain.pop(text, None)
    numbers = list(plain.values())
    spelled = read_tokens(plain.keys(), numbers)
    if spelled is None:
        plain, numbers, spelled = {}, [], []  # all go through the loop below, which says what is wrong
    tokens = dict(zip(spelled, numbers, strict=True))  # those that can be merged; added tokens are not among them
    places = dict(zip(plain, range(len(plain)), strict=True))  # of the same, by the text that spells them
    by_id = dict(zip(numbers, spelled, strict=True))
    for text in filter(vocab.__contains__, added) if plain else vocab:
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
                continue  # but what is spelled as a byte is both that byte and the added token
        elif token is None:
            refuse(
                path, f"the token {text!r} has a character that stands for no byte: the vocabulary is not byte-level"
            )
        elif not token:
            refuse(path, "an empty token")
        by_id[number] = token
        tokens[token] = number
        places[text] = len(places)
    check_bytes(tokens, path)
    for text, number in added.items():
        if text not in vocab:
            if number in by_id:
                refuse(path, f"the id {number} stands twice, for {by_id[number]!r} and the added token {text!r}")
            by_id[number] = text.encode()

    merges = read_merges(merge_list, dict(zip(places, tokens, strict=True)), path)
    return by_id, merges, _flag(model, "ignore_merges", False, path)


def _flag(holder: dict[str, Any], key: str, default: bool, path: StrPath) -> bool:
    value = holder.get(key)
    if value is not None and not isinstance(value, bool):
        refuse(path, f'"{key}" is {value!r}: it should be true or false')
    return default if value is None else value


def _parts(value: Any, kind: str, path: StrPath) -> list[dict[str, Any]]:
    """A processing step, or those of a Sequence, as a flat list; kind is the key of a Sequence's steps."""
    if value is None:
        return []
    if not isinstance(value, dict) or not isinstance(value.get("type"), str):
        refuse(path, f"a step of {kind} without a type: {str(value)[:80]}")
    if value["type"] != "Sequence":
        return [value]
    steps = value.get(kind)
    if not isinstance(steps, list):
        refuse(path, f'a Sequence without "{kind}"')
    return [part for step in steps for part in _parts(step, kind, path)]


def _read_normalizer(value: Any, path: StrPath) -> str | None:
    kinds = {step["type"] for step in _parts(value, "normalizers", path)}
    for kind in sorted(kinds):
        if kind not in NORMALIZERS:
            refuse(path, f"the normalizer {kind!r} is not supported: only {', '.join(NORMALIZERS)} are")
    if len(kinds) > 1:
        refuse(path, f"the normalizers {', '.join(sorted(kinds))} together are not supported: only one of them is")
    return kinds.pop() if kinds else None


def _read_pre_tokenizer(value: Any, path: StrPath) -> tuple[tuple[str, ...], bool]:
    """(expressions, add_prefix_space)."""
    *splits, last = _parts(value, "pretokenizers", path) or [{"type": "none"}]
    if last["type"] != "ByteLevel":
        refuse(path, f"the last pre-tokenizer is {last['type']!r}, which is not supported: only ByteLevel is")
    add_prefix_space = _flag(last, "add_prefix_space", True, path)
    if add_prefix_space and splits:
        refuse(path, "ByteLevel with add_prefix_space after a split is not supported")
    expressions = [_read_split(step, path) for step in splits]
    if _flag(last, "use_regex", True, path):
        expressions += PATTERNS["gpt2"]
    return tuple(expressions), add_prefix_space


def _read_split(step: dict[str, Any], path: StrPath) -> str:
    """The expression whose matches the step isolates."""
    if step["type"] == "Digits":
        return r"\p{N}" if _flag(step, "individual_digits", False, path) else r"\p{N}+"
    if step["type"] != "Split":
        refuse(path, f"the pre-tokenizer {step['type']!r} is not supported: only Split, Digits and ByteLevel are")
    pattern = step.get("pattern")
    if isinstance(pattern, dict) and isinstance(pattern.get("Regex"), str):
        expression: str = pattern["Regex"]
        _check_portable(expression, path)
    elif isinstance(pattern, dict) and isinstance(pattern.get("String"), str):
        expression = regex.escape(pattern["String"])
    else:
        refuse(path, f"a Split without a pattern: {str(step)[:80]}")
    behaviour, inverted = step.get("behavior"), _flag(step, "invert", False, path)
    if behaviour == "Isolated" and not inverted:
        return expression
    # "Removed" and inverted keeps the matches and drops what lies between them: the same, where nothing does
    if behaviour == "Removed" and inverted:
        try:
            if resolve(expression).name in _WITHOUT_GAPS:
                return expression
        except ValueError as error:
            refuse(path, str(error))
    inversion = ", inverted," if inverted else ""
    refuse(path, f"a Split with the behaviour {behaviour!r}{inversion} is not supported: only Isolated is")


def _read_post_processor(value: Any, special: dict[str, int], path: StrPath) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(prefix, suffix): the special tokens put around one text."""
    around: tuple[tuple[str, ...], tuple[str, ...]] = ((), ())
    for step in _parts(value, "processors", path):
        if step["type"] == "ByteLevel":
            continue  # it moves offsets only
        if around != ((), ()):
            refuse(path, "more than one template around a text is not supported")
        if step["type"] == "TemplateProcessing":
            around = _read_template(step, special, path)
        elif step["type"] in ("RobertaProcessing", "BertProcessing"):
            around = _read_pair_of(step, special, path)
        else:
            refuse(
                path,
                f"the post-processor {step['type']!r} is not supported: only ByteLevel, TemplateProcessing, "
                "RobertaProcessing and BertProcessing are",
            )
    return around


def _read_template(
    step: dict[str, Any], special: dict[str, int], path: StrPath
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    before: list[str] = []
    after: list[str] = []
    texts = 0
    template, meanings = step.get("single"), step.get("special_tokens") or {}
    for part in template if isinstance(template, list) else []:
        if isinstance(part, dict) and "Sequence" in part:
            texts += 1
            continue
        try:
            name: str = part["SpecialToken"]["id"]
            known = meanings[name]["ids"] == [special[name]]
        except (KeyError, TypeError, IndexError):
            known = False
        if not known:
            refuse(path, f"the template puts {str(part)[:80]} around a text, which is no special token of the file")
        (after if texts else before).append(name)
    if texts != 1:
        refuse(path, "a TemplateProcessing whose template for one text does not hold that text once")
    return tuple(before), tuple(after)


def _read_pair_of(
    step: dict[str, Any], special: dict[str, int], path: StrPath
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The token before a text ("cls") and that after it ("sep"), each given as [name, id]."""
    names = []
    for key in ("cls", "sep"):
        token = step.get(key)
        if not isinstance(token, list) or token not in map(list, special.items()):
            refuse(path, f"{step['type']} puts {str(token)[:80]} around a text, which is no special token of the file")
        names.append(token[0])
    return (names[0],), (names[1],)


def _check_decoder(value: Any, path: StrPath) -> None:
    for step in _parts(value, "decoders", path):
        if step["type"] != "ByteLevel":
            refuse(path, f"the decoder {step['type']!r} is not supported: only ByteLevel is")


def _post_processor(tokenizer: TokenizerData, byte_level: dict[str, Any]) -> dict[str, Any]:
    if not tokenizer.prefix and not tokenizer.suffix:
        return byte_level

    def around(letter: str, kind: int) -> list[dict[str, Any]]:
        return [
            *({"SpecialToken": {"id": name, "type_id": kind}} for name in tokenizer.prefix),
            {"Sequence": {"id": letter, "type_id": kind}},
            *({"SpecialToken": {"id": name, "type_id": kind}} for name in tokenizer.suffix),
        ]

    ids = tokenizer.special_tokens | tokenizer.added_tokens
    return {
        "type": "Sequence",
        "processors": [
            byte_level,
            {
                "type": "TemplateProcessing",
                "single": around("A", 0),
                "pair": around("A", 0) + around("B", 1),
                "special_tokens": {
                    name: {"id": name, "ids": [ids[name]], "tokens": [name]}
                    for name in sorted({*tokenizer.prefix, *tokenizer.suffix})
                },
            },
        ],
    }


def _check_portable(expression: str, path: StrPath) -> None:
    """Refuse what `regex` and Oniguruma, the engine of tokenizers, are known to read differently.

    In Oniguruma ^ and $ are the ends of a line, {1,3}+ repeats a repetition, \\Z stands before a last line end too,
    (?m) lets the dot match line ends, (?s) is not there, and [a&&b] is the intersection of two classes.
    """
    without_classes = regex.sub(r"\\.|\[(?:\\.|[^\]\\])*\]", "", expression)
    found = regex.search(r"[$^]|\{[\d,]+\}\+|\(\?[a-z-]*[ms]", without_classes) or regex.search(
        r"\\Z|\[(?:\\.|[^\]\\])*?&&", expression
    )
    if found:
        refuse(
            path, f"the pattern {expression!r} holds {found.group()!r}, which tokenizers and `regex` read differently"
        )
