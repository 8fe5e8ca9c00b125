"""Our own file: one line of JSON with everything a tokenizer is, and a checksum over it.

    {"format": "groundup-bpe", "version": 1, "sha256": …, "tokenizer": {…}}

Tokens are spelled as in GPT-2's files, every byte by its printable stand-in, in the order of their ids; "ids" is
there only where these are not 0, 1, 2, …. The same tokenizer always gives the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NamedTuple

from bpe.encoding.normalizing import FORMS, checked, normalizer_of, steps_of
from bpe.formats import (
    Characters,
    TokenizerData,
    Words,
    are_ids,
    check_bytes,
    parse_json,
    refuse,
    without_collector,
    write_bytes,
)
from bpe.formats.vocabularies import check_ids_of, from_printable, read_merges, to_printable
from bpe.native.atomic_file import StrPath
from bpe.native.lazy_imports import hashlib  # loads OpenSSL, a good part of the memory that training takes
from bpe.patterns import from_plain, to_plain

FORMAT = "groundup-bpe"
VERSION = 1


@without_collector()
def parse(data: bytes, path: StrPath) -> TokenizerData:
    """The tokenizer of the bytes of a file, which errors call path. ValueError for a wrong, altered or newer one."""
    file = parse_json(data, path)
    if not isinstance(file, dict) or file.get("format") != FORMAT:
        refuse(path, f'not a tokenizer saved by this package: "format" is not {FORMAT!r}')
    version = file.get("version")
    if type(version) is not int or version < 1:
        refuse(path, f"the version of a file is a whole number from 1, not {version!r}")
    if version > VERSION:
        refuse(path, f"written in version {version} of the format; this package reads {VERSION}: install a newer one")
    body = file.get("tokenizer")
    if not isinstance(body, dict) or _checksum(body) != file.get("sha256"):
        refuse(path, "altered since it was written: its checksum does not fit its content")
    return _from_json(body, path)


def write(path: StrPath, tokenizer: TokenizerData) -> None:
    """Write the tokenizer, atomically. Raises ValueError where read would refuse the file."""
    body = _to_json(tokenizer)
    if _from_json(json.loads(json.dumps(body)), path) != tokenizer:
        refuse(
            path, "reading the file again would give another tokenizer: its data have other types than TokenizerData"
        )
    file = {"format": FORMAT, "version": VERSION, "sha256": _checksum(body), "tokenizer": body}
    write_bytes(path, _dump(file) + b"\n")


def fingerprint(tokenizer: TokenizerData) -> str:
    """Return the SHA-256, in hexadecimal, of all that decides what the tokenizer does: all of its file but the name."""
    return _checksum({**_to_json(tokenizer), "name": None})


@without_collector()
def pack(tokenizer: TokenizerData) -> bytes:
    """Return a tokenizer as bytes for pickles, the same in every process, so that `datasets` finds what it cached."""
    return json.dumps(_to_json(tokenizer)).encode()


@without_collector()
def unpack(packed: bytes) -> TokenizerData:
    """The tokenizer of bytes that pack() gave."""
    return _from_json(json.loads(packed), "a pickle", is_file=False)


class Field(NamedTuple):
    """A field of TokenizerData that is read and written by itself."""

    fits: Callable[[Any], bool]  # True for a value that may be read
    write: Callable[[Any], Any] = lambda value: value  # to JSON
    read: Callable[[Any], Any] = lambda value: value  # back
    name: str = ""  # of the field in TokenizerData, if the file has another name for it
    default: Any = ...  # value assumed when the key is absent; such values are not written


def _is_texts(value: Any) -> bool:
    return isinstance(value, list) and {*map(type, value)} <= {str}


def _is_ids(value: Any) -> bool:  # several names may share an id
    return isinstance(value, dict) and _is_texts([*value]) and all(are_ids([number]) for number in value.values())


def _is_characters(value: Any) -> bool:
    """True for the ids of 256 bytes, where a space is put, how many are taken, and the ids that rank last."""
    return (
        isinstance(value, list)
        and len(value) in (3, 4)
        and isinstance(value[0], list)
        and len(value[0]) == 256
        and are_ids(value[0])
        and value[1] in ("always", "first", "never", "text")
        and value[2] in (0, 1)
        and (len(value) == 3 or (isinstance(value[3], list) and are_ids(value[3])))
    )


def _is_words(value: Any) -> bool:
    types = [bool, str, int, bool, str, str, str]
    return isinstance(value, list) and len(value) >= 6 and [*map(type, value)] == types[: len(value)]


FLAG = Field(lambda v: isinstance(v, bool))
IDS = Field(_is_ids, lambda ids: dict(sorted(ids.items(), key=lambda item: (item[1], item[0]))))
NAMES = Field(_is_texts, sorted, frozenset)  # of special or added tokens
SPECIAL = Field(_is_texts, list, tuple)

# In the order of the file, by the key of each. The vocabulary and the merges, which need one another, follow them.
FIELDS = {
    "name": Field(lambda v: v is None or isinstance(v, str)),
    "pattern": Field(lambda v: isinstance(v, (str, dict)) or _is_texts(v), to_plain, from_plain),
    "normalizer": Field(
        lambda v: v is None or v in FORMS or (isinstance(v, list) and {*map(type, v)} == {dict}),
        lambda v: v if v is None or v in FORMS else steps_of(v),
        lambda v: v if v is None or isinstance(v, str) else checked(v),
    ),
    "add_prefix_space": FLAG,
    "whole_first": FLAG._replace(name="ignore_merges"),
    "special_tokens": IDS,
    "added_tokens": IDS,
    "late_tokens": NAMES._replace(name="normalized"),
    "lstrip": NAMES,
    "rstrip": NAMES,
    "single_word": NAMES,
    "prefix": SPECIAL,
    "suffix": SPECIAL,
    "pair": Field(
        lambda v: isinstance(v, list) and sorted(one for one in v if type(one) is int) == [0, 1],
        *(list, tuple),
        default=[0, 1],
    ),
    "characters": Field(
        lambda v: v is None or _is_characters(v),
        lambda v: v and [list(v.byte_ids), v.prepend, v.strip, list(v.late)][: 4 if v.late else 3],
        lambda v: v and Characters(tuple(v[0]), v[1], v[2], *map(tuple, v[3:])),
        default=None,
    ),
    "words": Field(
        lambda v: v is None or _is_words(v), lambda v: v and list(v), lambda v: v and Words(*v), default=None
    ),
    "drops_bytes": FLAG._replace(default=False),
    "trim_offsets": Field(lambda v: _is_texts(v) and {*v} <= {"prefix", "plain"}, list, lambda v: tuple(v), default=[]),
    "unspelled": Field(lambda v: isinstance(v, list) and are_ids(v), sorted, lambda v: frozenset(v), default=[]),
    "unused": Field(
        lambda v: v is None or isinstance(v, dict),
        lambda v: json.loads(v) if v else None,
        lambda v: json.dumps(v, ensure_ascii=False) if v else "",
        default=None,
    ),
}


def _to_json(tokenizer: TokenizerData) -> dict[str, Any]:
    items = sorted(tokenizer.vocab.items())
    ids = [number for number, _ in items]
    merges = tokenizer.merges
    return {
        **write_fields(tokenizer),
        "ids": None if ids == list(range(len(ids))) else ids,
        "vocab": [to_printable(token) for _, token in items],
        "merges": None if merges is None else [f"{to_printable(a)} {to_printable(b)}" for a, b in merges],
    }


def write_fields(tokenizer: TokenizerData) -> dict[str, Any]:
    """Return all of a tokenizer but its vocabulary and its merges, as JSON can say it."""
    values = {key: field.write(getattr(tokenizer, field.name or key)) for key, field in FIELDS.items()}
    return {key: value for key, value in values.items() if value != FIELDS[key].default}


def read_fields(body: Any, source: StrPath) -> dict[str, Any]:
    """Return the arguments of TokenizerData() that write_fields() wrote. ValueError for a value that is none."""
    if not isinstance(body, dict):
        refuse(source, "not an object")
    read = {}
    for key, field in FIELDS.items():
        if key not in body and field.default is not ...:
            continue
        value = _value(body, key, field.fits, source)
        try:
            read[field.name or key] = field.read(value)
        except ValueError as error:
            refuse(source, str(error))
    split_off = read["special_tokens"].keys() | read["added_tokens"].keys()
    for key, field in FIELDS.items():
        if (name := field.name or key) not in read:
            continue
        names = split_off if field.read is frozenset else read["special_tokens"] if field.read is tuple else None
        if names is not None and not all(text in names for text in read[name] if type(text) is not int):
            _value(body, key, lambda _: False, source)
    return read


def _from_json(body: dict[str, Any], source: StrPath, *, is_file: bool = True) -> TokenizerData:
    """The tokenizer of a file's body, checked although the checksum vouches for it: anybody can write a checksum."""
    vocab, tokens = _read_vocab(body, source)
    if is_file and body.get("drops_bytes") is not True:
        check_bytes(set(vocab.values()), source)
    lines = _value(body, "merges", lambda v: v is None or _is_texts(v), source)
    merges = None if lines is None else read_merges(lines, tokens, source)
    fields = read_fields(body, source)
    if is_file:
        _check_split_off(fields, vocab, source)
    return TokenizerData(vocab=vocab, merges=merges, **fields)


def _value(body: dict[str, Any], key: str, fits: Callable[[Any], bool], source: StrPath) -> Any:
    if key not in body:
        refuse(source, f'"{key}" is missing')
    if not fits(body[key]):
        refuse(source, f'"{key}" is {str(body[key])[:80]!r}, which no file of this package has there')
    return body[key]


def _read_vocab(body: dict[str, Any], source: StrPath) -> tuple[dict[int, bytes], dict[str, bytes]]:
    """({id: token}, the tokens by their spelling)."""
    spelled = _value(body, "vocab", _is_texts, source)
    ids = _value(body, "ids", lambda v: v is None or (isinstance(v, list) and len(v) == len(spelled)), source)
    numbers = list(range(len(spelled))) if ids is None else ids
    check_ids_of(spelled, numbers, source)
    tokens: list[Any] = [*map(from_printable, spelled)]
    unspelled = body.get("unspelled")  # may hold the token of no bytes, which no text is encoded to
    for text, number, token in zip(spelled, numbers, tokens, strict=True):
        if not token and (token is None or not (isinstance(unspelled, list) and number in unspelled)):
            refuse(source, f"{text!r} spells no token")
    return dict(zip(numbers, tokens, strict=True)), dict(zip(spelled, tokens, strict=True))


def _check_split_off(fields: dict[str, Any], vocab: dict[int, bytes], source: StrPath) -> None:
    """Refuse special and added tokens that are both, or whose ids the vocabulary gives to other tokens."""
    special, added = fields["special_tokens"], fields["added_tokens"]
    normalize = normalizer_of(fields["normalizer"])
    texts_of: dict[int, list[str]] = {}  # several special tokens may share an id, as two of o200k_harmony do
    for text, number in (special | added).items():
        texts_of.setdefault(number, []).append(text)
    for number, texts in texts_of.items():
        # A text that spells a single byte, as "Ġ" does 0x20, may be that byte too.
        single = [token for text in texts if (token := from_printable(text)) is not None and len(token) == 1]
        marked = [text.replace("▁", " ").encode() for text in texts]  # as a tokenizer of characters decodes them
        spelled = [normalize(text).replace("▁", " ").encode() for text in texts if text in fields["normalized"]]
        if vocab.get(number) not in [*(text.encode() for text in texts), *marked, *single, *spelled]:
            token = vocab.get(number)
            refuse(source, f"the token {texts[0]!r} has the id {number}, which the vocabulary gives to {token!r}")
    if both := special.keys() & added.keys():
        refuse(source, f"{min(both)!r} is a special token and an added one")


def _checksum(body: dict[str, Any]) -> str:
    return hashlib.sha256(_dump(body)).hexdigest()


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
