"""What is held against reference.py, one function a part of the package. A target raises where the two differ.

What a user's mistake raises (ValueError with a sentence, KeyError, TypeError) is no finding where the input asks for
it.
"""

from __future__ import annotations

import hashlib
import json
import os
import random
import tempfile
import zlib
from functools import cache, partial
from pathlib import Path

import numpy as np
import pyarrow
from inputs import ONE_BYTE, PATTERNS, SPECIALS, Reader
from strategies import PIECES

import bpe
from bpe import reference
from bpe.counting.pretoken_counts import PretokenCounts
from bpe.counting.records import pack_table
from bpe.encoding.encoder import Batch
from bpe.expressions.steps import Splitting
from bpe.formats import Merges, TokenizerData, folder, native, reading, table_cache, tiktoken
from bpe.merging.conventions import CONVENTIONS
from bpe.merging.merger import Merger
from bpe.native import cpu
from bpe.native.parallel import map_in_threads, run_together
from bpe.native.printable import PRINTABLE
from bpe.patterns import from_plain, of_steps, resolve, scanner_of, to_plain
from bpe.scanning import scanner
from bpe.tokenizer import Tokenizer

FOLDER = Path(tempfile.mkdtemp(prefix="bpe-fuzz-"))


class Differs(Exception):
    """The package does not do what the reference does."""


def same(what: str, found: object, expected: object) -> None:
    if found != expected:
        raise Differs(f"{what}: {found!r} where {expected!r} was expected")


def scan(reader: Reader) -> None:
    pattern, cut = reader.one_of(PATTERNS), reader.number(300)
    text = reader.text(120)
    expected = reference.pretokenize(text, pattern)
    for level in cpu.AVAILABLE:
        same(f"the pretokens, {level}", scanner.split(text, pattern, level=level), expected)
    at = scanner.cut(text, min(cut, len(text)), pattern)
    same(f"the pretokens, cut at {at}", scanner.split(text[:at], pattern) + scanner.split(text[at:], pattern), expected)


def expected_ids(tokenizer: Tokenizer, text: bytes, special: dict[str, int]) -> list[int]:
    data = tokenizer.data
    made = {left + right for left, right in data.merges or ()}
    special_ids = set(data.special_tokens.values())
    ids = {
        token: number
        for number, token in sorted(data.vocab.items(), key=lambda item: (item[0] not in special_ids, -item[0]))
        if number not in special_ids or len(token) == 1 or token in made
    }
    if data.merges is None:
        encode = partial(reference.encode_pretoken_by_ranks, ranks=ids)
    else:
        merges = reference.rank_merges(data.merges)
        encode = partial(reference.encode_pretoken_by_merges, merges=merges, ids=ids, ignore_merges=data.ignore_merges)
    return reference.encode(text, encode, pattern=data.pattern, special_tokens=special)


def encode(reader: Reader) -> None:
    tokenizer = reader.tokenizer()
    text = reader.text(60)
    cuts = sorted(reader.number(len(text) + 1) for _ in range(reader.number(6)))
    special = tokenizer.special_tokens
    expected = expected_ids(tokenizer, text, special)
    same("encode", tokenizer.encode(text, allowed_special="all"), expected)
    same("encode_to_numpy, from the cache", tokenizer.encode_to_numpy(text, allowed_special="all").tolist(), expected)
    same("decode_bytes", tokenizer.decode_bytes(expected), text)
    same("encode_ordinary", tokenizer.encode_ordinary(text), expected_ids(tokenizer, text, {}))
    chunks = [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    arrays = tokenizer._text_encoder.chunks(chunks, tokenizer._text_encoder.policy.rules("all", ()), 1)
    same("encode_iterable", [number for array in arrays for number in array.tolist()], expected)
    ids, begins = tokenizer.encode_with_offsets(text, allowed_special="all")
    sizes = [len(tokenizer.decode_single_token_bytes(number)) for number in expected]
    same("encode_with_offsets", (ids, begins), (expected, [sum(sizes[:i]) for i in range(len(sizes))]))
    try:
        decoded = text.decode()
    except UnicodeDecodeError:
        return
    same("encode of a str", tokenizer.encode(decoded, allowed_special="all"), expected)
    present = [name for name in special if name in decoded]
    try:
        tokenizer.encode(decoded)
    except ValueError:
        same("special tokens that were refused", bool(present), True)
    else:
        same("special tokens that were let through", present, [])


def decode(reader: Reader) -> None:
    tokenizer = reader.tokenizer()
    known = sorted(tokenizer.vocab)
    numbers = [
        reader.one_of(known) if reader.byte() < 250 else reader.number(1 << 40) - (1 << 20)
        for _ in range(reader.number(80))
    ]
    kinds = [
        list,
        tuple,
        partial(np.array, dtype=np.int64),
        lambda ids: np.array([[i, i] for i in ids], np.int64)[:, 0],
    ]
    ids = reader.one_of(kinds)(numbers) if numbers else []
    if any(number not in tokenizer.vocab for number in numbers):
        for wrong in (tokenizer.decode_bytes, tokenizer.decode, tokenizer.decode_tokens_bytes):
            try:
                wrong(ids)
            except (KeyError, OverflowError):
                continue
            raise Differs(f"{wrong.__name__} takes ids that are none: {numbers}")
        return
    expected = reference.decode(numbers, tokenizer.vocab)
    same("decode_bytes", tokenizer.decode_bytes(ids), expected)
    same("decode_tokens_bytes", tokenizer.decode_tokens_bytes(ids), [tokenizer.vocab[number] for number in numbers])
    same("decode", tokenizer.decode(ids), expected.decode("utf-8", "replace"))
    stream = tokenizer.decode_stream()
    same("decode_stream", "".join(map(stream.step, numbers)) + stream.finish(), expected.decode("utf-8", "replace"))


def train(reader: Reader) -> None:
    pattern, tie_break = reader.one_of(PATTERNS), reader.one_of(["bytes", "huggingface", "ids"])
    min_count, longest = 1 + reader.number(3), reader.one_of([None, None, 2, 3, 5, 9])
    special = sorted({reader.one_of(SPECIALS) for _ in range(reader.number(3))})
    wanted = 256 + len(special) + reader.number(24)
    texts = [reader.text(30) for _ in range(1 + reader.number(3))]
    counts = reference.count_pretokens(texts, pattern, special)
    settings = {"tie_break": tie_break, "min_count": min_count, "max_token_bytes": longest}
    vocab, merges = reference.train(counts, wanted, special_tokens=special, **settings)
    wanted = min(wanted, len(vocab))
    if tie_break == "huggingface" and any(name in PRINTABLE and not name.isascii() for name in special):
        return  # a special token spelled as a byte is, which is another: refused
    made = bpe.train(texts, wanted, pattern=pattern, special_tokens=special, num_threads=1, **settings)
    same("the merges", list(made.merges), merges)
    same("the vocabulary", made.vocab, vocab)


def train_long(reader: Reader) -> None:
    """Pretokens of up to two thousand bytes."""
    convention = CONVENTIONS[reader.one_of([*CONVENTIONS])]
    tie_break = next(name for name, one in CONVENTIONS.items() if one is convention)
    floor = 1 + reader.number(40)
    min_count, longest = 1 + reader.number(3), reader.one_of([None, None, 2, 3, 9])
    wanted, step = reader.number(24), 1 + reader.number(9)
    texts = [reader.text(40)[:2000] for _ in range(1 + reader.number(3))]
    counts = {text: 1 + i for i, text in enumerate(texts) if text}
    settings = {"tie_break": tie_break, "min_count": min_count, "max_token_bytes": longest}
    _, expected = reference.train(counts, 256 + wanted, special_tokens=[], **settings)
    table = PretokenCounts()
    for text, count in counts.items():
        table.add_count(text, count)
    merger = Merger(
        pack_table(table),
        tokens=convention.alphabet(()),
        by_bytes=convention.by_bytes,
        most=wanted,
        min_count=min_count,
        max_token_bytes=convention.longest_merge(longest),
        floor=floor,
    )
    made = 0
    while (now := merger.advance(step)) > made:
        made = now
    same("the merges", list(Merges(*merger.result())), expected)


def _read_native(data: bytes) -> TokenizerData:
    """With the checksum that fits, so that what it guards is reached."""
    try:
        file = json.loads(data)
        body = json.dumps(file["tokenizer"], ensure_ascii=False, separators=(",", ":")).encode()
        file["sha256"] = hashlib.sha256(body).hexdigest()
        data = json.dumps(file).encode()
    except (ValueError, TypeError, KeyError, RecursionError):
        pass
    (FOLDER / "file").write_bytes(data)
    return reading.read(FOLDER / "file", "native").data


def _read_huggingface(data: bytes) -> TokenizerData:
    (FOLDER / "file").write_bytes(data)
    return reading.read(FOLDER / "file", "huggingface").data


def _read_gpt2(data: bytes) -> TokenizerData:
    pair = data.partition(b"\x00\x00")[::2]
    return folder.parse_pair(*pair, {}, FOLDER / "file", FOLDER / "file", special_tokens=())


def _read_tiktoken(data: bytes) -> TokenizerData:
    ranks = tiktoken.parse(data, FOLDER / "file")
    vocab = {number: token for token, number in ranks.items()}
    return TokenizerData(vocab, None, {}, resolve("cl100k"), ignore_merges=True)


READERS = [_read_native, _read_huggingface, _read_gpt2, _read_tiktoken]


def formats(reader: Reader) -> None:
    """Whatever a file holds, it is refused in a sentence that names it, or read into what can be written again."""
    read = reader.one_of(READERS)
    try:
        data = read(reader.rest())
    except ValueError as error:
        if not str(error).startswith(str(FOLDER / "file")):
            raise Differs(f"a file was refused without its name: {error}") from error
        return
    native.write(FOLDER / "again", data)
    same("written and read again", reading.read(FOLDER / "again", "native").data, data)
    try:
        tokenizer = Tokenizer.from_data(data)
    except ValueError:
        return
    text = b"a b\xff <|endoftext|> 123\n"
    if set(ONE_BYTE) <= set(data.vocab.values()) and not data.normalizer:
        same("encoded and decoded", tokenizer.decode_bytes(tokenizer.encode(text, allowed_special="all")), text)


STEPS = [
    {"type": "Digits", "individual_digits": True},
    {"type": "Digits", "individual_digits": False},
    {"type": "Punctuation", "behavior": "Contiguous"},
    {"type": "Punctuation", "behavior": "Isolated"},
    {"type": "Whitespace"},
    {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
    *(
        {"type": "Split", "pattern": {"Regex": expression}, "behavior": behaviour, "invert": False}
        for expression in (r"\p{L}+|\p{N}{1,3}", r"\s+(?!\S)|\s+", r" ?[^\s\p{L}]+", r"[a-z]++s|.", "(?i:'s|'t)|\\S+")
        for behaviour in ("Isolated", "Contiguous", "MergedWithNext")
    ),
]


def tokenizer_json(reader: Reader) -> None:
    """A tokenizer.json with any steps splits a text as the steps do one after another, in any parts of the text."""
    steps = [reader.one_of(STEPS) for _ in range(1 + reader.number(4))]
    steps.append({"type": "ByteLevel", "add_prefix_space": False, "use_regex": bool(reader.byte() & 1)})
    text = reader.text(40)
    pattern = of_steps(steps)
    number = scanner_of(pattern)
    expected = Splitting(tuple(steps)).split(text)
    same("the steps written and read again", from_plain(to_plain(pattern)), pattern)
    if number < 0:
        return
    same("the pieces", scanner.split(text, number), expected)
    at = scanner.cut(text, reader.number(1 + len(text)), number) if text else 0
    parts = scanner.split(text[:at], number) + scanner.split(text[at:], number)
    same("the pieces of two parts", parts, expected)


@cache
def _of_characters(corpus: int, shape: int) -> Tokenizer:
    """A SentencePiece-style tokenizer: 16 vocabularies, each in the shapes in which they are published."""
    chance = random.Random(corpus)
    texts = ["".join(chance.choices(PIECES, k=40)) for _ in range(8)]
    made = bpe.train_sentencepiece(texts, 400, limit_alphabet=40, split_at_spaces=shape % 3 != 0, split_lines=False)
    data, prepend = made.data, ("never", "first", "always")[shape // 3]
    assert data.characters is not None
    return Tokenizer.from_data(data._replace(characters=data.characters._replace(prepend=prepend)))


def characters(reader: Reader) -> None:
    """A SentencePiece-style tokenizer gives a text the ids that it has when it is prepared in Python first."""
    tokenizer = _of_characters(reader.number(16), reader.number(9))
    text = reader.text(60).replace(b"'s", "▁".encode())
    inside = tokenizer._text_encoder
    special = inside.policy.rules("all", ()).recognised
    assert inside.direct
    assert inside._preparation is not None
    pieces = inside._preparation.pieces(text.decode("utf-8", "surrogateescape"), special)
    same("the ids", tokenizer.encode(text, allowed_special="all"), inside.pieces_to_ids(pieces).tolist())
    at = inside.safe_cut(text, reader.number(1 + len(text)), special) if text else 0
    first, rest = inside.each_to_ids([memoryview(text)[:at], memoryview(text)[at:]], special, [True, at == 0])
    same("the ids in two parts", [*first.tolist(), *rest.tolist()], tokenizer.encode(text, allowed_special="all"))


def prepared(reader: Reader) -> Tokenizer:
    """A tokenizer whose texts may be normalized first, and whose special tokens may have flags."""
    data = reader.tokenizer().data
    names = sorted(data.special_tokens)
    flags = [frozenset(name for name in names if reader.byte() & 1) for _ in range(4)]
    lstrip, rstrip, single_word, normalized = (
        flags if reader.byte() & 1 else [frozenset(), frozenset(), frozenset(), flags[0]]
    )
    return Tokenizer.from_data(
        data._replace(
            normalizer=reader.one_of([None, "NFC", "NFKD", '[{"type": "Lowercase"}]']),
            lstrip=lstrip,
            rstrip=rstrip,
            single_word=single_word,
            normalized=normalized,
        ),
        cache_bytes=0,
    )


def batches(reader: Reader) -> None:
    """A text has the ids of encode() in a batch, in a column of Arrow, and in blocks by several threads."""
    tokenizer = reader.tokenizer() if reader.byte() & 1 else prepared(reader)
    names, threads = sorted(tokenizer.special_tokens), 1 + reader.number(4)
    allowed = {name for name in names if reader.byte() & 1}
    options = {"allowed_special": allowed, "disallowed_special": reader.one_of([(), set(names) - allowed])}
    texts: list[str | bytes | bytearray | memoryview] = []
    for _ in range(1 + reader.number(5)):
        text = reader.text(40)
        kinds = [
            bytes,
            bytearray,
            lambda text: memoryview(bytearray(text)),
            lambda text: text.decode("utf-8", "replace"),
        ]
        texts.append(reader.one_of(kinds)(text))

    def outcome(encode):
        try:
            return encode()
        except ValueError as error:
            return str(error)

    expected = outcome(lambda: [tokenizer.encode(text, **options) for text in texts])
    same("a batch", outcome(lambda: tokenizer.encode_batch(texts, num_threads=threads, **options)), expected)
    raw = [text.encode() if isinstance(text, str) else bytes(text) for text in texts]
    column = pyarrow.array(raw, pyarrow.binary())
    expected = outcome(lambda: [tokenizer.encode(text, **options) for text in raw])
    same(
        "a column",
        outcome(lambda: tokenizer.encode_arrow(column, num_threads=threads, **options).to_pylist()),
        expected,
    )
    inside = tokenizer._text_encoder
    if not inside.direct:
        return
    rules = inside.policy.rules("all", ())
    sizes = {"thread_text": 1, "longest": 1 + reader.number(64), "block": 1 + reader.number(32)}
    batch = Batch(inside.encoder, texts, rules, threads=threads, **sizes)
    run_together(batch.work, batch.threads)
    same("blocks", batch.lists(), [tokenizer.encode(text, allowed_special="all") for text in texts])


def threads(reader: Reader) -> None:
    """Threads that share a small cache give every text the ids that it has alone."""
    data = reader.tokenizer().data
    shared = Tokenizer.from_data(data, cache_bytes=0)
    texts = [reader.text(60) * 20 for _ in range(4)]
    expected = [Tokenizer.from_data(data).encode_ordinary(text) for text in texts]

    def encode(text: bytes) -> list[list[int]]:
        return [shared.encode_ordinary(text) for _ in range(5)]

    for ids, alone in zip(map_in_threads(encode, texts, 4), expected, strict=True):
        same("the ids of a thread", ids, [alone] * 5)


@cache
def _kept() -> tuple[Path, Path, bytes]:
    """A tokenizer's file, its kept tables, and their content."""
    table_cache.SMALLEST = 0
    os.environ["BPE_CACHE_DIR"] = str(FOLDER / "tables")
    vocab = dict(enumerate([*ONE_BYTE, b"ab", b"abc", b" a", "\u0e01\u0e33".encode()]))
    merges = [(b"a", b"b"), (b"ab", b"c"), (b" ", b"a")]
    path = FOLDER / "kept.json"
    native.write(path, Tokenizer(vocab, merges, special_tokens=["<|endoftext|>"]).data)
    bpe.load(path).encode("ab")
    (tables,) = (FOLDER / "tables").iterdir()
    return path, tables, tables.read_bytes()


def kept_tables(reader: Reader) -> None:
    """Kept tables with a right checksum and any content are refused, or encode to ids that exist."""
    path, tables, content = _kept()
    changed = bytearray(content)
    for _ in range(1 + reader.number(8)):
        at = 9 + reader.number(len(content) - 9)
        changed[at : at + 4] = reader.one_of([bytes([reader.byte()]), (reader.number(1 << 32)).to_bytes(4, "little")])
    checked = bytes(changed[9 : len(content)])
    tables.write_bytes(b"%08x " % zlib.crc32(checked) + checked)
    os.chmod(tables, 0o600)
    tokenizer = bpe.load(path)
    ids = tokenizer.encode(reader.text(40), disallowed_special=())
    tokenizer.decode_bytes(ids)


def format_seeds() -> list[bytes]:
    """A file of each format, small."""
    vocab = dict(enumerate([*ONE_BYTE, b"ab", b"abc", b" a"]))
    made = Tokenizer(vocab, [(b"a", b"b"), (b"ab", b"c"), (b" ", b"a")], special_tokens=["<|endoftext|>"])
    made.save(FOLDER / "native")
    made.to_huggingface(FOLDER / "huggingface")
    made.to_gpt2(FOLDER / "gpt2")
    made.to_tiktoken(FOLDER / "tiktoken")
    pair = (FOLDER / "gpt2" / "vocab.json").read_bytes() + b"\x00\x00" + (FOLDER / "gpt2" / "merges.txt").read_bytes()
    files = [
        (FOLDER / "native").read_bytes(),
        (FOLDER / "huggingface").read_bytes(),
        pair,
        (FOLDER / "tiktoken").read_bytes(),
    ]
    return [bytes([kind]) + file for kind, file in enumerate(files)]


TARGETS = [
    *(scan, encode, decode, train, formats, train_long, tokenizer_json, characters),
    *(batches, threads, kept_tables),
]


def run(data: bytes) -> None:
    """Run the target that the first byte names on the rest."""
    TARGETS[data[0] % len(TARGETS)](Reader(data[1:]))
