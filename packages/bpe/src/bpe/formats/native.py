"""Our own file: one line of JSON with everything a tokenizer is, and a checksum over it.

    {"format": "groundup-bpe", "version": 1, "sha256": …, "tokenizer": {…}}

Tokens are spelled as in GPT-2's files, every byte by its printable stand-in, in the order of their ids; "ids" is
there only where these are not 0, 1, 2, …. The same tokenizer always gives the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from bpe.formats import (
    NORMALIZERS,
    Merges,
    Pair,
    StrPath,
    TokenizerData,
    are_ids,
    check_bytes,
    check_id,
    check_merges,
    parse_json,
    read_bytes,
    refuse,
    without_collector,
)
from bpe.formats.gpt2 import STAND_INS, from_printable, to_printable
from bpe.formats.pairs import halves_of
from bpe.native.atomic_file import write_atomically
from bpe.patterns import resolve

FORMAT = "groundup-bpe"
VERSION = 1


@without_collector()
def read(path: StrPath) -> TokenizerData:
    """The tokenizer of a file. Raises ValueError with path and reason where it is cut short, altered, newer than this
    version or not such a file at all, FileNotFoundError where there is none.
    """
    file = parse_json(read_bytes(path), path)
    if not isinstance(file, dict) or file.get("format") != FORMAT:
        refuse(path, f'not a tokenizer saved by this package: "format" is not {FORMAT!r}')
    version = file.get("version")
    if type(version) is not int or version < 1:
        refuse(path, f"the version of a file is a whole number from 1, not {version!r}")
    if version > VERSION:
        refuse(path, f"written in version {version} of the format; this package reads {VERSION}: install a newer one")
    body = file.get("tokenizer")
    if not isinstance(body, dict) or not _is_intact(body, file.get("sha256")):
        refuse(path, "altered since it was written: its checksum does not fit its content")
    return _from_json(body, path)


def write(path: StrPath, tokenizer: TokenizerData) -> None:
    """Write the tokenizer, atomically. Raises ValueError where read would refuse the file."""
    body = _to_json(tokenizer)
    if _from_json(json.loads(json.dumps(body)), path) != tokenizer:
        refuse(path, "this tokenizer would not come back as it is: its data are not of the types they should be")
    file = {"format": FORMAT, "version": VERSION, "sha256": _checksum(body), "tokenizer": body}
    write_atomically(path, _dump(file) + b"\n")


def fingerprint(tokenizer: TokenizerData) -> str:
    """SHA-256, in hexadecimal, of all that decides what the tokenizer does: all in its file but its name."""
    return _checksum({**_to_json(tokenizer), "name": None})


def _to_json(tokenizer: TokenizerData) -> dict[str, Any]:
    items = sorted(tokenizer.vocab.items())
    ids = [number for number, _ in items]
    pattern = tokenizer.pattern
    merges = tokenizer.merges
    return {
        "name": tokenizer.name,
        "pattern": pattern.name if pattern.name is not None else list(pattern.expressions),
        "normalizer": tokenizer.normalizer,
        "add_prefix_space": tokenizer.add_prefix_space,
        "whole_first": tokenizer.whole_first,
        "special_tokens": dict(sorted(tokenizer.special_tokens.items(), key=lambda item: (item[1], item[0]))),
        "added_tokens": dict(sorted(tokenizer.added_tokens.items(), key=lambda item: (item[1], item[0]))),
        "late_tokens": sorted(tokenizer.late_tokens),
        "lstrip": sorted(tokenizer.lstrip),
        "rstrip": sorted(tokenizer.rstrip),
        "single_word": sorted(tokenizer.single_word),
        "prefix": list(tokenizer.prefix),
        "suffix": list(tokenizer.suffix),
        "ids": None if ids == list(range(len(ids))) else ids,
        "vocab": [to_printable(token) for _, token in items],
        "merges": None if merges is None else [f"{to_printable(a)} {to_printable(b)}" for a, b in merges],
    }


def _from_json(body: dict[str, Any], source: StrPath) -> TokenizerData:
    # What the checksum vouches for was written by this module, or by someone who takes pains: check it all the same.
    def take(key: str, fits: Callable[[Any], bool], what: str) -> Any:
        if key not in body:
            refuse(source, f'"{key}" is missing')
        if not fits(body[key]):
            refuse(source, f'"{key}" is {str(body[key])[:80]!r}: it should be {what}')
        return body[key]

    def is_text(value: Any) -> bool:
        return isinstance(value, str)

    def are_texts(value: Any) -> bool:
        return isinstance(value, list) and {*map(type, value)} <= {str}

    def are_named(value: Any) -> bool:  # several names may share an id
        return isinstance(value, dict) and are_texts([*value]) and all(are_ids([number]) for number in value.values())

    def is_bool(value: Any) -> bool:
        return isinstance(value, bool)

    spelled = take("vocab", are_texts, "a list of tokens")
    ids = take("ids", lambda v: v is None or (isinstance(v, list) and len(v) == len(spelled)), "null or an id a token")
    numbers = list(range(len(spelled))) if ids is None else ids
    listed = STAND_INS.tokens(spelled)
    vocab: dict[int, bytes] = {}
    if listed is not None and "" not in spelled and are_ids(numbers):
        vocab = dict(zip(numbers, listed, strict=True))
    else:  # to find what is wrong
        for text, number in zip(spelled, numbers, strict=True):
            token = from_printable(text)
            if not token:
                refuse(source, f"{text!r} spells no token")
            if check_id(number, source, token) in vocab:
                refuse(source, f"the id {number} stands twice, for {vocab[number]!r} and {token!r}")
            vocab[number] = token
    tokens = {token: number for number, token in vocab.items()}
    check_bytes(tokens, source)

    merges: Sequence[Pair] | None = None
    lines = take("merges", lambda v: v is None or are_texts(v), "null or a list of merges")
    if lines is not None:
        halves = halves_of(lines, {text: place for place, text in enumerate(spelled)})
        merges = Merges([*vocab.values()], halves) if halves is not None else _read_merges(lines, source)
        check_merges(merges, tokens, source)

    special = take("special_tokens", are_named, "an object of tokens and ids")
    added = take("added_tokens", are_named, "an object of tokens and ids")
    texts_of: dict[int, list[str]] = {}  # several special tokens may share an id, as two of o200k_harmony do
    for text, number in (special | added).items():
        texts_of.setdefault(number, []).append(text)
    for number, texts in texts_of.items():
        spelled = [token for text in texts if (token := from_printable(text)) is not None and len(token) == 1]
        if vocab.get(number) not in [
            *(text.encode() for text in texts),
            *spelled,
        ]:  # as "Ġ", which is the byte 0x20 too
            refuse(
                source,
                f"the token {texts[0]!r} has the id {number}, which the vocabulary gives to {vocab.get(number)!r}",
            )
    both = sorted(special.keys() & added.keys())
    if both:
        refuse(source, f"{both[0]!r} is a special token and an added one")

    def are_cut_out(value: Any) -> bool:
        return are_texts(value) and all(text in special or text in added for text in value)

    def are_special(value: Any) -> bool:
        return are_texts(value) and all(text in special for text in value)

    pattern = take("pattern", lambda v: isinstance(v, str) or are_texts(v), "a name or a list of regular expressions")
    try:
        resolved = resolve(pattern if isinstance(pattern, str) else tuple(pattern) or None)
    except ValueError as error:
        refuse(source, str(error))
    return TokenizerData(
        vocab=vocab,
        merges=merges,
        special_tokens=special,
        pattern=resolved,
        whole_first=take("whole_first", is_bool, "true or false"),
        added_tokens=added,
        late_tokens=frozenset(take("late_tokens", are_cut_out, "a list of special or added tokens")),
        lstrip=frozenset(take("lstrip", are_cut_out, "a list of special or added tokens")),
        rstrip=frozenset(take("rstrip", are_cut_out, "a list of special or added tokens")),
        single_word=frozenset(take("single_word", are_cut_out, "a list of special or added tokens")),
        normalizer=take("normalizer", lambda v: v is None or v in NORMALIZERS, f"null or one of {NORMALIZERS}"),
        add_prefix_space=take("add_prefix_space", is_bool, "true or false"),
        prefix=tuple(take("prefix", are_special, "a list of special tokens")),
        suffix=tuple(take("suffix", are_special, "a list of special tokens")),
        name=take("name", lambda v: v is None or is_text(v), "null or a text"),
    )


def _read_merges(lines: list[str], source: StrPath) -> list[Pair]:
    """The merges, one after another, refusing the first that is wrong."""
    merges = []
    for line in lines:
        left, _, right = line.partition(" ")
        a, b = from_printable(left), from_printable(right)
        if not a or not b:
            refuse(source, f"{line!r} is no merge of two tokens")
        merges.append((a, b))
    return merges


def _is_intact(body: dict[str, Any], checksum: object) -> bool:
    try:
        return _checksum(body) == checksum
    except UnicodeEncodeError:  # JSON can spell lone surrogates, which are never written
        return False


def _checksum(body: dict[str, Any]) -> str:
    import hashlib  # with OpenSSL, which would be a good part of the memory that training takes

    return hashlib.sha256(_dump(body)).hexdigest()


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
