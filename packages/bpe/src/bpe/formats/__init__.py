"""A tokenizer as plain data, and what reading and writing it in every format share."""

from __future__ import annotations

import gc
import os
import re
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from bpe.formats.pairs import pairs_of_numbers
from bpe.native.lazy_imports import import_lock, json, lazy_modules
from bpe.native.once import made_once_property
from bpe.patterns import Pattern

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bpe.formats import (  # noqa: F401
        changing,
        folder,
        gpt2,
        huggingface,
        native,
        reading,
        sentencepiece,
        templates,
        tiktoken,
    )
    from bpe.native.atomic_file import StrPath

Pair = tuple[bytes, bytes]

MAX_ID = 2**31 - 1
UTF8_BYTES = frozenset(range(0xF5)) - {0xC0, 0xC1}  # that a text may have; some vocabularies lack the other thirteen

__getattr__ = lazy_modules(
    __name__,
    "changing folder gguf gpt2 huggingface native reading sentencepiece tekken templates tiktoken vocabularies",
)


class Merges(Sequence[Pair]):
    """Merges as pairs of tokens, each made when it is asked for, which few callers do.

    tokens: one for each symbol, or a function that makes their list. halves: the numbers of the left and the right
    token of each merge, as uint32.
    """

    def __init__(self, tokens: list[bytes] | Callable[[], list[bytes]], halves: bytes | bytearray) -> None:
        self._tokens, self.halves = tokens, halves
        self.numbers = memoryview(halves).cast("I")

    @made_once_property
    def tokens(self) -> list[bytes]:
        return self._tokens() if callable(self._tokens) else self._tokens

    def __len__(self) -> int:
        return len(self.numbers) // 2

    def __iter__(self) -> Iterator[Pair]:
        token = self.tokens.__getitem__
        return zip(map(token, self.numbers[::2]), map(token, self.numbers[1::2]), strict=True)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return list(self)[at]
        at = range(len(self))[at]
        return self.tokens[self.numbers[2 * at]], self.tokens[self.numbers[2 * at + 1]]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (list, tuple, Merges)) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]  # as a list's

    def __reduce__(self) -> tuple[type[list[Any]], tuple[list[Pair]]]:
        return list, (list(self),)


def rows_of(merges: Sequence[Pair], symbols: list[bytes]) -> NDArray[Any]:
    """Return merges as rows (left, right, made) of numbers of symbols: see bpe.formats.pairs.pairs_of_numbers()."""
    if isinstance(merges, Merges):
        return pairs_of_numbers(symbols, merges.tokens, merges.numbers)
    halves = list(chain.from_iterable(merges))
    return pairs_of_numbers(symbols, halves, memoryview(array("I", range(len(halves)))))


class Characters(NamedTuple):
    """That the tokens of a vocabulary are merged from characters, as SentencePiece does it, not from bytes."""

    byte_ids: tuple[int, ...]  # the ids of the 256 bytes, which spell the characters that are no token
    # Which texts are given a space in front where they have none: "always", each piece between added tokens; "first",
    # only the first; "never". "text" puts one before a text, and before what follows a special token, even where that
    # begins with a space or with an added token, as sentencepiece does it.
    prepend: str = "never"
    strip: int = 0  # number of spaces that decoding takes from the beginning of a text: 0 or 1
    late: tuple[int, ...] = ()  # where tokens merge by rank: ids of tokens that rank after all others, in this order


class Words(NamedTuple):
    """That tokens are merged from the characters of each pretoken, as tokenizers' model does it: see encoding/words.py.

    metaspace: files write spaces as "▁", and a word begins at each: "always" if a text is given a space in front unless
    it has one, "never" if not. "" where spaces are not written so.
    """

    byte_level: bool  # True if the characters are bytes, False if they are the text's own
    suffix: str = ""  # the "end_of_word_suffix", which the token of the last character ends with
    unk: int = -1  # the id of a character that is no token; -1 where such characters are left out
    fuse_unk: bool = False  # such characters side by side are one token
    between: str = ""  # the text that decoding puts between two tokens
    decoded_suffix: str = ""  # the end of a token that decodes to a space, and to nothing at the end of a text
    metaspace: str = ""


class TokenizerData(NamedTuple):
    """All that decides what a tokenizer does; nothing in it is ever changed.

    Attributes:
        vocab: every token by id, special and added tokens too.
        merges: in order; None where tokens are merged by rank, which is the id (tiktoken).
        special_tokens, added_tokens: {text: id}, both split off the text before anything else. The special ones are
            control tokens, the added ones ordinary text that is always one token.
        ignore_merges: a pretoken that is a token is not merged (tiktoken always, tokenizers where its file says so).
        normalized: tokens of both that are matched in normalized text, after the others were split off.
        lstrip, rstrip: tokens of both that take the white space before or after them.
        single_word: tokens of both that match only if no letter, digit or underscore touches them.
        normalizer: "NFC", "NFD", "NFKC", "NFKD", the steps of a tokenizer.json's normalizer as JSON, or None.
        add_prefix_space: text between split-off tokens that does not begin with a space is given one.
        prefix, suffix: special tokens that the template puts around an encoded text.
        pair: the template of two texts: names of special tokens, and 0 and 1 for the texts.
        characters: None where the vocabulary is byte-level. Otherwise tokens are UTF-8 text with a space for "▁". If
            merges is None, lower ids merge first, except the ids in characters.late.
        unused: the truncation and padding of a tokenizer.json, as JSON; kept, and never applied.
        words: the vocabulary is of the characters of words; None where it is byte-level, or characters is set.
        drops_bytes: bytes that are no token are left out of a text, as tokenizers does it; otherwise they are refused.
        unspelled: ids of tokens that no text is encoded to, as their spelling in a tokenizer.json stands for no bytes.
        trim_offsets: the steps of a tokenizer.json that take white space from the offsets that tokenizers gives:
            "prefix" not the space that was put before the text, "plain" all of it. Kept, and never applied.
        name: the name of the tokenizer, or None.
    """

    vocab: Mapping[int, bytes]
    merges: Sequence[Pair] | None
    special_tokens: dict[str, int]
    pattern: Pattern
    ignore_merges: bool = False
    added_tokens: dict[str, int] = {}  # noqa: RUF012 (never changed, as nothing here is)
    normalized: frozenset[str] = frozenset()
    lstrip: frozenset[str] = frozenset()
    rstrip: frozenset[str] = frozenset()
    single_word: frozenset[str] = frozenset()
    normalizer: str | None = None
    add_prefix_space: bool = False
    prefix: tuple[str, ...] = ()
    suffix: tuple[str, ...] = ()
    pair: tuple[str | int, ...] = (0, 1)
    unused: str = ""
    characters: Characters | None = None
    words: Words | None = None
    drops_bytes: bool = False
    unspelled: frozenset[int] = frozenset()
    trim_offsets: tuple[str, ...] = ()
    name: str | None = None


def split_off_ids(tokenizer: TokenizerData) -> frozenset[int]:
    """The ids of the special and the added tokens, which are split off a text before anything is merged."""
    return frozenset(tokenizer.special_tokens.values()) | frozenset(tokenizer.added_tokens.values())


def ordinary_ids(tokenizer: TokenizerData) -> dict[bytes, int]:
    """{token: id} of the tokens that text is merged to, in the order of the vocabulary."""
    split_off = split_off_ids(tokenizer) | tokenizer.unspelled
    return {token: number for number, token in tokenizer.vocab.items() if number not in split_off}


def check_plain(tokenizer: TokenizerData, path: StrPath, form: str) -> None:
    """Refuse a tokenizer that changes the text before it encodes it, for a format that cannot say so."""
    if tokenizer.characters is not None or tokenizer.words is not None:
        refuse(path, f"a {form} cannot say that tokens are merged from characters")
    if flagged := tokenizer.added_tokens.keys() | tokenizer.lstrip | tokenizer.rstrip | tokenizer.single_word:
        reason = f"holds no added tokens and no flags of tokens, so {min(flagged)!r} would be encoded otherwise"
        refuse(path, f"a {form} {reason}; save() and to_huggingface() keep it")
    if changes := tokenizer.normalizer or ("a space before the text" if tokenizer.add_prefix_space else None):
        refuse(path, f"this tokenizer changes the text first ({changes}), which a {form} cannot say")


def check_merged(never: Sequence[bytes], path: StrPath, form: str) -> None:
    """Refuse tokens that their own bytes are not merged to, for a format that gives them all the same, or never."""
    if never:
        refuse(path, f"merging never makes the token {never[0]!r}, so a {form} would encode otherwise")


def refuse(source: StrPath, reason: str, line: int | None = None) -> NoReturn:
    """Raise ValueError: where, which line, why."""
    location = os.fspath(source) if line is None else f"{os.fspath(source)}, line {line}"
    raise ValueError(f"{location}: {reason}") from None


def read_bytes(path: StrPath) -> bytes:
    """The bytes of a file, by its path or a URL; FileNotFoundError names it where there is none."""
    if "://" in os.fspath(path):
        with import_lock:
            from bpe.corpus import remote

        if remote.is_url(path):
            return remote.read_bytes(os.fspath(path))
    with open(path, "rb") as file:
        return file.read()


def write_bytes(path: StrPath, data: bytes) -> None:
    """Write a file, at a path or a URL, whole or not at all."""
    with import_lock:
        from bpe.corpus import remote  # when it is needed: `import bpe` does without

    with remote.output(path) as file:
        file.write(data)


def parse_text(data: bytes, source: StrPath) -> str:
    """The text of a UTF-8 file."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        refuse(source, f"not UTF-8: byte {error.object[error.start]:#04x}", data.count(b"\n", 0, error.start) + 1)


@contextmanager
def without_collector() -> Iterator[None]:
    """Without Python's collector of cycles, while objects that form none are made by the hundred thousand."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def parse_json(data: bytes, source: StrPath) -> Any:
    """Return the value of a JSON file. ValueError if an object names a key twice, or a text is half of a character."""
    text, twice = parse_text(data, source), []

    def unique(items: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(items)
        if len(result) < len(items):
            twice.extend(Counter(key for key, _ in items).most_common(1))
        return result

    try:
        value = json.loads(text, object_pairs_hook=unique)
        if re.search(r"\\u[dD][89a-fA-F]", text):  # JSON can spell lone surrogates
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        end = " (the file may be cut short)" if error.pos >= len(error.doc.rstrip()) else ""
        refuse(source, f"not JSON: {error.msg}, column {error.colno}{end}", error.lineno)
    except RecursionError:
        refuse(source, "not JSON of ours: nested too deeply")
    except UnicodeEncodeError as error:
        refuse(source, f"a text holds a lone surrogate, {error.object[error.start]!r}")
    except ValueError as error:  # a number of thousands of digits
        refuse(source, f"not JSON of ours: {str(error).partition(';')[0]}")
    if twice:
        refuse(source, f"the key {twice[0][0]!r} stands twice in one object")
    return value


def are_ids(numbers: Collection[Any]) -> bool:
    """True if all are ints from 0 to MAX_ID, each once."""
    if not {*map(type, numbers)} <= {int} or (numbers and not 0 <= min(numbers) <= max(numbers) <= MAX_ID):
        return False
    return isinstance(numbers, Mapping) or len({*numbers}) == len(numbers)


def check_ids(vocab: Mapping[Any, bytes]) -> None:
    """Refuse a vocabulary with an id that is none."""
    if not are_ids(vocab):
        raise ValueError(f"the ids of a vocabulary are whole numbers from 0 to {MAX_ID}")


def check_id(number: object, source: StrPath, token: object) -> int:
    """number, where it is an int from 0 to MAX_ID."""
    if type(number) is not int or not 0 <= number <= MAX_ID:
        refuse(source, f"the id of {token!r} is {number!r}: ids are whole numbers from 0 to {MAX_ID}")
    return number


def missing_bytes(tokens: Container[bytes]) -> list[int]:
    """Return the bytes that are no token."""
    return [byte for byte in range(256) if bytes([byte]) not in tokens]


def check_bytes(tokens: Container[bytes], source: StrPath, needed: Container[int] = range(256)) -> None:
    """Refuse a vocabulary that lacks a token for a needed byte: it could not encode every text."""
    if missing := list(filter(needed.__contains__, missing_bytes(tokens))):
        more = f" and {len(missing) - 1} other bytes" if len(missing) > 1 else ""
        refuse(source, f"not a whole byte-level vocabulary: no token for byte {missing[0]:#04x}{more}")
