"""SentencePiece-style BPE (Kudo and Richardson 2018): tokens of characters, bytes for the characters that are none.

Read from a tokenizer.json with "byte_fallback", or from a `sentencepiece` model file, which write a space as ▁.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Collection, Mapping
from contextlib import suppress
from itertools import groupby, pairwise, product
from typing import Any

from bpe import formats
from bpe.encoding import normalizing
from bpe.expressions.step_options import step
from bpe.formats import Characters, Pair, TokenizerData, check_id, refuse, split_off_ids, write_bytes
from bpe.native.atomic_file import StrPath
from bpe.native.printable import SPACE_MARK as MARK
from bpe.patterns import Pattern, resolve

BYTE_TOKENS = [f"<0x{byte:02X}>" for byte in range(256)]
BYTE_OF = {token: bytes([byte]) for byte, token in enumerate(BYTE_TOKENS)}
_PREPEND = step("normalizers", "Prepend", prepend=MARK)
_MARKS = step("normalizers", "Replace", pattern={"String": " "}, content=MARK)
SPLIT = r" [^ ]*|[^ ]+"  # Metaspace with "split": a piece begins at every space


def counted_by(split_at_spaces: bool, split_lines: bool) -> str | None:
    """The expression by which a corpus is split to count what such a tokenizer merges; None where it is not split."""
    if split_lines:
        return r" [^ \n]*\n?|[^ \n]+\n?|\n" if split_at_spaces else r"[^\n]*\n|[^\n]+"
    return SPLIT if split_at_spaces else None


def spelled(token: bytes) -> str:
    """A token as the files write it."""
    return token.decode().replace(" ", MARK)


def spell(text: str) -> bytes | None:
    """The token that a file writes so; None if it stands for a byte."""
    return None if text in BYTE_OF else text.replace(MARK, " ").encode()


def decoded(text: str) -> bytes:
    """The bytes of a token that a file writes so."""
    return BYTE_OF[text] if text in BYTE_OF else text.replace(MARK, " ").encode()


def byte_ids_of(model: dict[str, Any], added: Collection[str], path: StrPath) -> tuple[int, ...]:
    """The ids of the bytes, of a model whose vocabulary is one of characters. ValueError where it is not."""
    vocab = model["vocab"]
    for option in ("ignore_merges", "end_of_word_suffix"):
        if model[option]:
            refuse(path, f'"{option}" beside "byte_fallback" is not supported')
    for text in vocab:
        if not text or (" " in text and text not in added):
            refuse(path, f"the token {text!r} is empty, or has a space that is not written {MARK}")
    if MARK not in vocab:
        refuse(path, f"no token {MARK}: a space would become the bytes of that mark, which is not supported")
    byte_ids = []
    for byte, token in enumerate(BYTE_TOKENS):
        if token not in vocab and (byte > 127 or chr(byte) not in vocab):  # Gemma 2 has a tab instead of <0x09>
            refuse(path, f'"byte_fallback" is set, but the vocabulary has no token {token}')
        byte_ids.append(check_id(vocab[token] if token in vocab else vocab[chr(byte)], path, token))
    return tuple(byte_ids)


def read_pre_tokenizer(steps: list[dict[str, Any]], normalizer: str | None, path: StrPath) -> tuple[Pattern, str]:
    """(pattern, where Metaspace puts a space: "always", "first" or "never")."""
    spaces_gone = _marks_spaces(normalizer)
    if not steps:
        if not spaces_gone:
            refuse(path, f"no step writes spaces as {MARK}, so that they become bytes, which is not supported")
        return resolve(None), "never"
    (only,) = steps if len(steps) == 1 else [{"type": "Sequence of several steps"}]
    if only["type"] == "Split" and only["pattern"] == {"String": " "} and spaces_gone:
        return resolve(None), "never"  # as Gemma's: no space is left to split by
    if only["type"] != "Metaspace":
        refuse(path, f'the pre-tokenizer {only["type"]!r} beside "byte_fallback" is not supported: only Metaspace is')
    return resolve(SPLIT, "fancy-regex") if only["split"] else resolve(None), only["prepend_scheme"]


def _marks_spaces(normalizer: str | None) -> bool:
    """True if a normalizer leaves no space in a text."""
    steps = normalizing.steps_of(normalizer)
    return any(one["type"] == "Replace" and one["pattern"] == {"String": " "} for one in steps)


def read_decoder(steps: list[dict[str, Any]], path: StrPath) -> int:
    """Return the number of spaces that decoding takes from the beginning of a text: 0 or 1."""
    # Without steps tokenizers would join the tokens by spaces: ids become text as if the usual decoder were there.
    if not steps or steps in (decoders(0), [*decoders(0), step("decoders", "Strip")]):
        return 0
    if steps != decoders(1):
        kinds = ", ".join(one["type"] for one in steps)
        refuse(path, f'the decoder {kinds} beside "byte_fallback" is not supported, but for the usual one')
    return 1


def decoders(strip: int) -> list[dict[str, Any]]:
    """The steps that make text of tokens. strip: number of spaces that are taken from its beginning."""
    replace = step("decoders", "Replace", pattern={"String": MARK}, content=" ")
    steps = [replace, step("decoders", "ByteFallback"), step("decoders", "Fuse")]
    return [*steps, step("decoders", "Strip", start=1)] if strip else steps


def without_text_mark(tokenizer: TokenizerData) -> TokenizerData:
    """Return the nearest tokenizer that a tokenizer.json can say: each piece between added tokens is given a space."""
    characters = tokenizer.characters
    if characters is None or characters.prepend != "text":
        return tokenizer
    *steps, marks = normalizing.steps_of(tokenizer.normalizer)
    return tokenizer._replace(
        normalized=tokenizer.normalized - tokenizer.added_tokens.keys(),
        normalizer=normalizing.checked([*steps, _PREPEND, marks]),
        characters=characters._replace(prepend="never"),
    )


def parts_of_file(tokenizer: TokenizerData) -> dict[str, Any]:
    """The pre_tokenizer, the decoder and the model of a tokenizer.json that says this tokenizer."""
    characters, merges = tokenizer.characters, tokenizer.merges
    assert characters is not None
    assert merges is not None
    spelling = {
        number: spelled(token) for number, token in tokenizer.vocab.items() if number not in characters.byte_ids
    }
    texts = set(spelling.values())
    merged = {half for merge in merges for half in merge if len(half) == 1}
    for byte, number in enumerate(characters.byte_ids):
        is_piece = bytes([byte]) in merged and spelled(bytes([byte])) not in texts  # see _byte_ids()
        spelling[number] = spelled(bytes([byte])) if is_piece else BYTE_TOKENS[byte]
    spelling |= {number: text for text, number in (tokenizer.special_tokens | tokenizer.added_tokens).items()}
    pre_tokenizer = None
    if characters.prepend != "never" or not tokenizer.pattern.is_none or not _marks_spaces(tokenizer.normalizer):
        at_spaces = not tokenizer.pattern.is_none
        pre_tokenizer = step("pretokenizers", "Metaspace", prepend_scheme=characters.prepend, split=at_spaces)
    return {
        "pre_tokenizer": pre_tokenizer,
        "decoder": {"type": "Sequence", "decoders": decoders(characters.strip)},
        "model": step(
            *("models", "BPE"),
            byte_fallback=True,
            vocab={spelling[number]: number for number in sorted(spelling)},
            merges=[[spelled(left), spelled(right)] for left, right in merges],
        ),
    }


# `sentencepiece` model files


def merges_of_ranks(tokenizer: TokenizerData) -> list[Pair]:
    """Return the merges of a tokenizer that merges characters by rank: see bpe.formats.tiktoken.merges_from_ranks()."""
    characters = tokenizer.characters
    assert characters is not None
    others = {*characters.byte_ids, *split_off_ids(tokenizer)}
    rank_of = {number: rank for rank, number in enumerate(characters.late, max(tokenizer.vocab) + 1)}
    ranks = {token.decode(): rank_of.get(n, n) for n, token in tokenizer.vocab.items() if n not in others}
    return [(left.encode(), right.encode()) for left, right in formats.tiktoken.merges_from_ranks(ranks)]


_KINDS = {1: "normal", 2: "unknown", 3: "control", 4: "user defined", 5: "unused", 6: "byte"}
_MODELS = {1: "Unigram", 2: "BPE", 3: "word", 4: "character"}


def parse(data: bytes, path: StrPath, config_data: bytes = b"{}", config_path: StrPath = "") -> TokenizerData:
    """The tokenizer of a `sentencepiece` model file and of the added tokens of a tokenizer_config.json."""
    pieces: list[tuple[str, float, int]] = []
    trainer: dict[int, Any] = {}
    normalizer: dict[int, Any] = {}
    for field, value in _fields(data, path):
        if field in (1, 2, 3) and not isinstance(value, bytes):
            refuse(path, f"field {field} is a number: it should be a message")
        if field == 1:
            pieces.append(_piece(value, path))
        elif field in (2, 3):
            (trainer if field == 2 else normalizer).update(_fields(value, path))
    kind = _MODELS.get(trainer.get(3, 1), "unknown")
    if kind != "BPE":
        refuse(path, f"a {kind} model of sentencepiece, which is not supported: only BPE is; use sentencepiece for it")
    name = normalizer.get(1, b"")
    if normalizer.get(2) or name not in (b"", b"identity"):
        name = name.decode("utf-8", "replace") if isinstance(name, bytes) else name
        refuse(path, f"the normalizer {name!r} is not supported: only identity is")
    if trainer.get(24):
        refuse(path, "treat_whitespace_as_suffix, which is not supported: a space stands before a word")
    # By default sentencepiece puts a space before a text and removes spaces that follow another.
    tokenizer = of_pieces(pieces, bool(normalizer.get(3, 1)), bool(normalizer.get(4, 1)), path)
    return formats.folder.with_added_tokens(tokenizer, config_data, config_path)


def of_pieces(pieces: list[tuple[str, float, int]], dummy_prefix: bool, trims: bool, path: StrPath) -> TokenizerData:
    """Return the tokenizer of pieces, each its text, its score and its kind as a model numbers them.

    dummy_prefix: a text is given a space in front. trims: runs of spaces become one, and those at the ends go.
    """
    vocab: dict[int, bytes] = {}
    special: dict[str, int] = {}
    added: dict[str, int] = {}
    byte_ids: dict[int, int] = {}
    scores: dict[int, float] = {}
    texts: dict[str, int] = {}
    for number, (text, score, kind) in enumerate(pieces):
        what = _KINDS.get(kind)
        if texts.setdefault(text, number) != number:
            refuse(path, f"the piece {text!r} stands twice, with the ids {texts[text]} and {number}")
        vocab[number] = text.replace(MARK, " ").encode()
        if what in ("unknown", "control"):
            special[text], vocab[number] = number, text.encode()
        elif what == "user defined":
            if " " in text or (trims and MARK in text):  # spaces are looked at before such a piece is
                refuse(path, f"the user-defined piece {text!r} has a space, which is not supported")
            added[text.replace(MARK, " ")] = number
        elif what == "byte":
            byte_ids[BYTE_TOKENS.index(text) if text in BYTE_TOKENS else -1] = number
        elif what != "normal":
            refuse(path, f"the piece {text!r} is {what or f'of kind {kind!r}'}, which is not supported")
        elif len(text) > 1:
            scores[number] = score
    if set(byte_ids) != set(range(256)):
        refuse(path, "a model without byte_fallback, which is not supported: characters it lacks would be lost")
    for number, token in byte_ids.items():
        vocab[token] = bytes([number])
    steps: list[dict[str, Any]] = []
    if trims:
        steps.append(step("normalizers", "Replace", pattern={"Regex": r"\A +|[ ▁]+\z"}, content=""))
        steps.append(step("normalizers", "Replace", pattern={"Regex": " {2,}"}, content=" "))
    if dummy_prefix and not added:
        steps.append(_PREPEND)
    steps.append(_MARKS)
    return TokenizerData(
        vocab=vocab,
        merges=None,
        special_tokens=special,
        pattern=resolve(None),
        added_tokens=added,
        normalized=frozenset(added),
        normalizer=normalizing.checked(steps),
        characters=Characters(
            tuple(byte_ids[byte] for byte in range(256)),
            "text" if dummy_prefix and added else "never",
            int(dummy_prefix or trims),
            _late(scores, {number: text for number, (text, *_) in enumerate(pieces)}, path),
        ),
    )


def _late(scores: dict[int, float], texts: dict[int, str], path: StrPath) -> tuple[int, ...]:
    """Return the ids of the pieces that do not rank by their ids, in order of rank: see Characters."""
    order: list[int] = []
    for _, tied in groupby(sorted(scores, key=lambda number: (-scores[number], number)), scores.__getitem__):
        ids = list(tied)
        order += ids if len(ids) == 1 else _order_of_tied(ids, texts, path)
    return _from_first_out_of_order(order)


def _from_first_out_of_order(order: list[int]) -> tuple[int, ...]:
    """Return the ids behind those that rank by their ids, of ids in order of rank."""
    descents = (index for index, (before, number) in enumerate(pairwise(order), 1) if number < before)
    return tuple(order[next(descents, len(order)) :])


def _order_of_tied(ids: list[int], texts: dict[int, str], path: StrPath) -> list[int]:
    """Return pieces of one score in an order that makes merging equal sentencepiece's.

    sentencepiece joins the leftmost pair that makes any of them. Runs of spaces, as Llama 2 and Mistral have, become
    the same pieces by doubling, and then the longest first. That is tried with every length up to four times that of
    the longest piece, after which both repeat themselves.
    """
    sizes = {len(texts[number]): number for number in ids}
    if any(set(texts[number]) != {MARK} for number in ids):
        refuse(path, f"the pieces {texts[ids[0]]!r} and {texts[ids[1]]!r} have the same score, which is not supported")
    order = sorted(sizes, key=lambda size: (size, 0) if size & (size - 1) == 0 else (max(sizes) + 1, -size))
    rank_of = {size: rank for rank, size in enumerate(order)}
    for length in range(2, 4 * max(sizes) + 1):
        if _merged(length, dict.fromkeys(sizes, 0)) != _merged(length, rank_of):
            refuse(path, "its runs of spaces have the same score and lengths that are not supported")
    return [sizes[size] for size in order]


def _merged(length: int, rank_of: dict[int, int]) -> list[int]:
    """Return the sizes of the pieces of a run: the leftmost pair of the least rank is merged, until none has any."""
    parts = [1] * length
    while True:
        ranks = [(rank_of[a + b], at) for at, (a, b) in enumerate(pairwise(parts)) if a + b in rank_of]
        if not ranks:
            return parts
        _, at = min(ranks)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


def _piece(data: bytes, path: StrPath) -> tuple[str, float, int]:
    fields = {1: b"", 2: bytes(4), 3: 1, **dict(_fields(data, path))}
    try:
        text, (score,), kind = fields[1].decode(), struct.unpack("<f", fields[2]), fields[3]
    except (AttributeError, TypeError, UnicodeDecodeError, struct.error) as error:
        refuse(path, f"a piece of sentencepiece whose text or score is none: {error}")
    if not text or kind not in _KINDS or math.isnan(score):
        refuse(path, f"a piece without text, of an unknown kind or without a score: {text!r}")
    return text, score, kind


def _fields(data: bytes, path: StrPath) -> list[tuple[int, Any]]:
    """The fields of a message of protocol buffers: (number, an int, or bytes), in their order."""
    fields: list[tuple[int, Any]] = []
    at = 0

    def varint() -> int:
        nonlocal at
        value = shift = 0
        while True:
            if at >= len(data) or shift > 63:
                refuse(path, "not a model of sentencepiece, or cut short")
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = varint()
        kind, field = key & 7, key >> 3
        if kind == 0:
            fields.append((field, varint()))
            continue
        size = {1: 8, 5: 4}.get(kind)
        if kind == 2:
            size = varint()
        if size is None or at + size > len(data) or field == 0:
            refuse(path, "not a model of sentencepiece, or cut short")
        fields.append((field, data[at : at + size]))
        at += size
    return fields


def write(path: StrPath, tokenizer: TokenizerData) -> None:
    """Write a model file that makes sentencepiece encode as this tokenizer does, atomically.

    The template around a text is left out: sentencepiece puts its control tokens there only if it is called so.
    ValueError for what a model cannot say.
    """
    plain = tokenizer._replace(merges=None, prefix=(), suffix=(), pair=(0, 1), unused="", name=None)
    characters = tokenizer.characters
    if characters is None or "<unk>" not in tokenizer.special_tokens:
        refuse(path, "a model of sentencepiece needs tokens of characters, bytes for the others, and a token <unk>")
    if tokenizer.merges is not None:
        if {*tokenizer.merges} != {*merges_of_ranks(plain)}:
            refuse(path, "a model of sentencepiece joins all pairs that make a token, and this tokenizer some of them")
        number_of = {token: number for number, token in tokenizer.vocab.items() if number not in characters.byte_ids}
        order = [number_of[token] for token in dict.fromkeys(left + right for left, right in tokenizer.merges)]
        characters = characters._replace(late=_from_first_out_of_order(order))
        plain = plain._replace(characters=characters)
    if [*tokenizer.vocab] != [*range(len(tokenizer.vocab))]:
        refuse(path, "the ids of a model of sentencepiece are 0, 1, 2, …")
    pieces = _pieces_of(plain, characters)
    if plain.pattern.expressions == (SPLIT,) and not any(" " in text[1:].replace(MARK, " ") for text, *_ in pieces):
        plain = plain._replace(pattern=resolve(None))  # such tokens are merged as if the text were split
    if plain.normalizer is None:  # a space is a mark in the tokens already
        plain = plain._replace(normalizer=normalizing.checked([_MARKS]))
    for dummy_prefix, trims in product((True, False), repeat=2):
        with suppress(ValueError):  # pieces that some settings do not allow
            if of_pieces(pieces, dummy_prefix, trims, path) == plain:
                break
    else:
        refuse(path, "a model of sentencepiece cannot express all settings of this tokenizer")
    named = enumerate(("<unk>", "<s>", "</s>", "<pad>"), 40)  # by the field that has the id
    ids = {field: plain.special_tokens.get(text, -1) for field, text in named}
    messages = [(1, _message({1: text.encode(), 2: score, 3: kind})) for text, score, kind in pieces]
    messages.append((2, _message({3: 2, 4: len(pieces), 35: 1, **ids})))
    messages.append((3, _message({1: b"identity", 3: int(dummy_prefix), 4: int(trims), 5: 1})))
    write_bytes(path, b"".join(_message({field: message}) for field, message in messages))


def _pieces_of(tokenizer: TokenizerData, characters: Characters) -> list[tuple[str, float, int]]:
    """The text, the score and the kind of each piece: those that merge first have the highest scores."""
    names = {number: text for text, number in tokenizer.special_tokens.items()}
    added = set(tokenizer.added_tokens.values())
    byte_of = {number: byte for byte, number in enumerate(characters.byte_ids)}
    rank_of = {number: rank for rank, number in enumerate(characters.late, len(tokenizer.vocab))}
    pieces: list[tuple[str, float, int]] = []
    for number, token in tokenizer.vocab.items():
        if number in names:
            pieces.append((names[number], 0.0, 2 if names[number] == "<unk>" else 3))
        elif number in byte_of:
            pieces.append((BYTE_TOKENS[byte_of[number]], 0.0, 6))
        else:
            pieces.append((spelled(token), -float(rank_of.get(number, number)), 4 if number in added else 1))
    return pieces


def _message(fields: Mapping[int, bytes | int | float]) -> bytes:
    """A message of protocol buffers; the opposite of _fields()."""

    def varint(value: int) -> bytes:
        value &= (1 << 64) - 1
        return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + varint(value >> 7)

    message = b""
    for field, value in fields.items():
        if isinstance(value, bytes):
            message += varint(field << 3 | 2) + varint(len(value)) + value
        elif isinstance(value, int):
            message += varint(field << 3) + varint(value)
        else:
            message += varint(field << 3 | 5) + struct.pack("<f", value)
    return message
