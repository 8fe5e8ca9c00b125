"""A vocabulary as the encoder wants it: special tokens with their ids, symbols, and the merges between them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from bpe import formats
from bpe.encoding.encoder import Ranks
from bpe.formats import Pair, TokenizerData, rows_of
from bpe.native.lazy_imports import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bpe.patterns import Pattern


MARK = "▁".encode()  # which is a space to a tokenizer of characters

SpecialNames = Mapping[str, int] | Iterable[str]
Symbols = tuple[dict[bytes, int], Sequence[Pair] | None, dict[int, tuple[int, ...]]]  # see encoder_tables()


class Tables(NamedTuple):
    """Parts of the encoder of a tokenizer."""

    ranks: Ranks  # the symbols and the merges between them
    ids: NDArray[np.uint32] | memoryview  # of each symbol, as uint32
    merges: NDArray[Any] | None  # see rows_of(); None where the tokenizer has no list of merges
    stands_for: dict[int, tuple[int, ...]]  # the ids that each of some ids stands for: see encoder_tables()


def make_tables(data: TokenizerData, ignore_merges: bool) -> Tables:
    """The tables of a tokenizer. ValueError for merges that contradict the vocabulary.

    ignore_merges: data.ignore_merges, or False where no pretoken is to be looked up whole.
    """
    symbols, ids, merges, stands_for = encoder_tables(data)
    aliases = {} if data.characters is None else {symbols.index(MARK): symbols.index(b" ")}
    ranks = Ranks(
        symbols=symbols, merges=merges, ignore_merges=ignore_merges, aliases=aliases, drops_bytes=data.drops_bytes
    )
    return Tables(ranks, ids, merges, stands_for)


def vocabulary_of_ranks(ranks: Mapping[bytes, int]) -> dict[int, bytes]:
    """{id: token} of {token: rank}. ValueError where two tokens have the same rank."""
    vocab = dict(zip(ranks.values(), ranks, strict=True))
    if len(vocab) != len(ranks):
        raise ValueError("two tokens have the same rank; every rank is an id, so each must have its own")
    return vocab


def data_of_merges(
    vocab: Mapping[int, bytes], merges: Iterable[Pair], special_tokens: SpecialNames, pattern: Pattern
) -> TokenizerData:
    """The tokenizer of a vocabulary and its merges. TypeError and ValueError as of Tokenizer()."""
    for number, token in vocab.items():
        if type(token) is not bytes or not token:
            kind = ValueError if token == b"" else TypeError
            raise kind(f"the token of id {number!r} is {token!r}; a token is bytes, at least one")
    tokens, pairs = dict(vocab), list(merges)
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or [isinstance(half, bytes) for half in pair] != [True, True]:
            raise TypeError(f"a merge is a pair of bytes, not {pair!r}")
    special = number_special_tokens(special_tokens, tokens)
    return TokenizerData(tokens, [(left, right) for left, right in pairs], special, pattern)


def data_of_ranks(
    ranks: Mapping[bytes, int], special_tokens: SpecialNames, pattern: Pattern, name: str | None
) -> TokenizerData:
    """The tokenizer that merges by rank, as tiktoken does. ValueError where two ranks or two ids are equal."""
    vocab = vocabulary_of_ranks(ranks)
    special = number_special_tokens(special_tokens, vocab)
    return TokenizerData(vocab, None, special, pattern, ignore_merges=True, name=name)


def merges_of(data: TokenizerData) -> tuple[Pair, ...]:
    """Return the pairs that a tokenizer merges, in order of rank; derived where it has no list of merges."""
    if data.merges is not None:
        return tuple(data.merges)
    if data.characters is not None:
        return tuple(formats.sentencepiece.merges_of_ranks(data))
    return tuple(formats.tiktoken.merges_from_ranks(formats.ordinary_ids(data)))


def fixed_names(special_tokens: SpecialNames) -> SpecialNames:
    """The same as a dict or a list, which can be gone through twice."""
    if isinstance(special_tokens, Mapping):
        return dict(special_tokens)
    return special_tokens if isinstance(special_tokens, str) else list(special_tokens)


def number_special_tokens(special_tokens: SpecialNames, vocab: dict[int, bytes]) -> dict[str, int]:
    """{name: id} for special tokens; those that the vocabulary lacks are added to it.

    Two names given with ids may share one, as two of o200k_harmony do; the first is what the id is decoded to.
    """
    if isinstance(special_tokens, str):
        raise TypeError(f"special_tokens is a list of names or {{name: id}}, not the str {special_tokens!r}")
    names = list(special_tokens)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"the name of a special token is a str, not {name!r}")
    if "" in names:
        raise ValueError("a special token is empty; give it at least one byte or leave it out")
    if len(set(names)) < len(names):
        raise ValueError(f"a special token is given twice in {names}; give each once")
    ids: dict[str, int] = {}
    if isinstance(special_tokens, Mapping):
        named: set[int] = set()
        for name, number in special_tokens.items():
            if number not in named and vocab.setdefault(number, name.encode()) != name.encode():
                raise ValueError(f"special token {name!r} has the id {number}, but that is {vocab[number]!r} already")
            ids[name] = number
            named.add(number)
        return ids
    name_bytes = {name.encode() for name in names}
    named_tokens = [(number, token) for number, token in vocab.items() if token in name_bytes] if name_bytes else []
    id_of = {token: number for number, token in sorted(named_tokens, reverse=True)}  # the lowest id of each
    for name in names:
        ids[name] = id_of[name.encode()] if name.encode() in id_of else max(vocab, default=-1) + 1
        vocab[ids[name]] = name.encode()
    return ids


def encoder_tables(
    data: TokenizerData,
) -> tuple[list[bytes], NDArray[Any], NDArray[Any] | None, dict[int, tuple[int, ...]]]:
    """The symbols, the id of each, and the merges between them (see rows_of()), as Ranks of bpe.encoding.encoder wants
    them; and of each id that is no token's, the ids of bytes that it stands for.
    """
    special = formats.split_off_ids(data)
    number_of, merges, stands_for = (_of_bytes if data.characters is None else _of_characters)(data, special)
    symbols, numbers = list(number_of), number_of.values()
    ids = np.fromiter(numbers, dtype=np.uint32, count=len(numbers))
    return symbols, ids, None if merges is None else rows_of(merges, symbols), stands_for


def _of_characters(data: TokenizerData, special: Collection[int]) -> Symbols:
    """The symbols of a tokenizer whose tokens are merged from characters: they are merged out of bytes all the same.

    Merges that come before all others join the bytes of each character that is a token. They may leave the beginning
    of a character that is none: such a symbol has an id of its own. MARK is joined too, and is no token: it has to be
    an alias of the space.
    """
    assert data.characters is not None
    byte_ids = data.characters.byte_ids
    apart = {data.vocab[number] for number in special}
    for left, right in data.merges or ():  # as Gemma 3's runs of spaces, which are added tokens that text is merged to
        apart -= {left, right, left + right}
    of_bytes = set(byte_ids)
    tokens = {
        token: number
        for number, token in sorted(data.vocab.items(), reverse=True)
        if number not in of_bytes and (number not in special or token not in apart)
    }
    # By rank, where there is no list of merges.
    rank_of = {number: rank for rank, number in enumerate(data.characters.late, max(data.vocab) + 1)}
    tokens = dict(sorted(tokens.items(), key=lambda item: rank_of.get(item[1], item[1])))
    characters = [MARK, *(token for token in tokens if 1 < len(token) <= 4 and len(token.decode()) == 1)]
    prefixes = {token[:size]: token[size - 1 : size] for token in characters for size in range(2, len(token) + 1)}
    partial = {prefix: 0 for prefix in prefixes if prefix not in tokens}
    base = max(data.vocab) + 1
    stands_for = {}
    for number, prefix in enumerate(partial, base):
        partial[prefix] = number
        stands_for[number] = tuple(byte_ids[byte] for byte in prefix)
    single = {bytes([byte]): tokens.get(bytes([byte]), byte_ids[byte]) for byte in range(256)}
    number_of = {**single, **partial, **dict.fromkeys(characters, 0), **tokens}
    first = [(prefix[:-1], last) for prefix, last in sorted(prefixes.items(), key=lambda item: len(item[0]))]
    return number_of, None if data.merges is None else [*first, *data.merges], stands_for


def _of_bytes(data: TokenizerData, special: Collection[int]) -> Symbols:
    """The symbols of a byte-level tokenizer.

    Two ids of the same bytes are one symbol: of an id that is not special before a special one, then of the lower. A
    special token is no symbol unless it is a single byte or the merges make it.
    """
    if data.unspelled:
        data = data._replace(vocab={n: token for n, token in data.vocab.items() if n not in data.unspelled})
    apart = {data.vocab[number] for number in special if len(data.vocab[number]) > 1}
    number_of = dict(zip(data.vocab.values(), data.vocab, strict=True))
    # The merges are searched only where such a token is two tokens joined, which is hardly ever.
    cuts = {(token[:cut], token[cut:]) for token in apart for cut in range(1, len(token))}
    if any(left in number_of and right in number_of for left, right in cuts):
        apart -= {left + right for left, right in data.merges or () if (left, right) in cuts}
    if len(number_of) == len(data.vocab):
        for token in apart:
            del number_of[token]
    else:
        number_of = {
            token: number
            for number, token in sorted(data.vocab.items(), key=lambda item: (item[0] not in special, -item[0]))
            if number not in special or token not in apart
        }
    numbers = list(number_of.values())
    if data.merges is None and numbers != sorted(numbers):  # they merge in the order of their ids
        number_of = dict(sorted(number_of.items(), key=lambda item: item[1]))
    return number_of, data.merges, {}
