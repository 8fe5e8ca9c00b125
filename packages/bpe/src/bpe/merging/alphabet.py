"""The symbols that merging starts from: the 256 bytes, the tokens of a tokenizer, or the characters of a corpus."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from bpe.counting.records import items
from bpe.native.lazy_imports import numpy as np
from bpe.native.printable import SPACE_MARK

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bpe.counting.records import Records
    from bpe.encoding.text_encoder import TextEncoder

CODE_POINTS = 0x110000
SURROGATES = range(0xD800, 0xE000)
NO_SYMBOL = 0xFFFFFFFF
CodeBatches = Iterator[tuple["NDArray[Any]", "NDArray[Any]", "NDArray[Any]"]]  # codes, those of each text, its count
BATCH, BATCH_BYTES = 1 << 14, 1 << 22  # of pretokens that are spelled together


class Alphabet(NamedTuple):
    """The symbols that merging starts from."""

    tokens: list[bytes]  # the bytes of each
    spell: Callable[[Records], Records] | None = None  # from bytes to these symbols; None where they are the 256 bytes
    merges: int = 0  # merges that made tokens of the alphabet

    @classmethod
    def of(cls, encoder: TextEncoder) -> Alphabet:
        """The tokens of a tokenizer, in the order of their ids.

        ValueError where merging the bytes of a token does not give that token. If every token merges from its own
        bytes, appending the new merges equals running the old list, then the new one: merges between two
        borders of tokens depend on the bytes between them alone, and no new merge makes a token that is there already.
        """
        data = encoder.data
        special_ids = set(data.special_tokens.values()) | set(data.added_tokens.values())
        ids = {token: i for i, token in sorted(data.vocab.items()) if i not in special_ids or len(token) == 1}
        never, merge = encoder.never_merged(ids), encoder.merge
        if never:
            raise ValueError(f"the tokenizer cannot be extended: merging never makes its token {never[0]!r}")
        symbol_of = np.zeros(max(ids.values()) + 1, dtype=np.uint32)
        symbol_of[list(ids.values())] = range(len(ids))
        sizes = np.array([len(token) for token in ids])

        def spell(records: Records) -> Records:
            spelled = bytearray()
            for pretokens, counts in batches(records):
                symbols = symbol_of[merge(pretokens)]
                ends = np.cumsum([len(pretoken) for pretoken in pretokens])
                lengths = np.diff(np.searchsorted(np.cumsum(sizes[symbols]), ends) + 1, prepend=0)
                spelled += records_of(symbols, lengths, np.array(counts, dtype=np.uint64))
            return spelled

        return cls(list(ids), spell, len(ids) - 256)

    @classmethod
    def of_characters(
        cls, records: Records, *, add_prefix_space: bool, split_at_spaces: bool, limit: int | None
    ) -> Alphabet:
        """The characters of counted pretokens, in the order in which tokenizers' BpeTrainer numbers them.

        Pretokens are spelled as a SentencePiece-style tokenizer merges them: a mark is a space, and a character that is
        not in the alphabet, or bytes that are not UTF-8, divide a pretoken in two, since no token reaches across them.

        Args:
            add_prefix_space: A pretoken that does not begin with a space gets one: it is the beginning of a text.
            split_at_spaces: Split pretokens, which were split at spaces, at marks that stand for a space.
            limit: The most characters: the space, and the commonest, of equally common ones the first. None for all.
        """

        def code_batches(records: Records) -> CodeBatches:
            for pretokens, numbers in batches(records):
                texts_of_batch, counts = [], []
                for pretoken, number in zip(pretokens, numbers, strict=True):
                    text = pretoken.decode("utf-8", "surrogateescape").replace(SPACE_MARK, " ")
                    if add_prefix_space and text[0] != " ":
                        text = f" {text}"
                    if split_at_spaces and text.rfind(" ") > 0:
                        pieces = re.findall(" [^ ]*|[^ ]+", text)
                        texts_of_batch += pieces
                        counts += [number] * len(pieces)
                    else:
                        texts_of_batch.append(text)
                        counts.append(number)
                codes = np.frombuffer("".join(texts_of_batch).encode("utf-32-le", "surrogatepass"), dtype="<u4")
                yield codes, np.array([len(text) for text in texts_of_batch]), np.array(counts, dtype=np.uint64)

        total = count_codes(code_batches(records))
        total[SURROGATES.start : SURROGATES.stop] = 0
        total[ord(" ")] = np.iinfo(np.uint64).max  # always a token: any text may have one
        characters = sorted(np.flatnonzero(total).tolist(), key=lambda code: -int(total[code]))[:limit]
        characters.sort(key=lambda code: ord(SPACE_MARK) if code == ord(" ") else code)
        symbol_of = dict(zip(characters, range(len(characters)), strict=True))
        tokens = [chr(code).encode() for code in characters]
        return cls(tokens, lambda records: spell_codes(code_batches(records), symbol_of, divide=True))


def batches(records: Records) -> Iterator[tuple[list[bytes], list[int]]]:
    """The pretokens and their counts, BATCH or about BATCH_BYTES of them at a time."""
    pretokens: list[bytes] = []
    counts: list[int] = []
    size = 0
    for pretoken, count in items(records):
        pretokens.append(pretoken)
        counts.append(count)
        size += len(pretoken)
        if len(pretokens) == BATCH or size >= BATCH_BYTES:
            yield pretokens, counts
            pretokens, counts, size = [], [], 0
    if pretokens:
        yield pretokens, counts


def count_codes(code_batches: CodeBatches) -> NDArray[np.uint64]:
    """The number of times that each code point occurs."""
    total = np.zeros(CODE_POINTS, dtype=np.uint64)
    for codes, sizes, counts in code_batches:
        np.add.at(total, codes, np.repeat(counts, sizes))
    return total


def spell_codes(code_batches: CodeBatches, symbol_of: Mapping[int, int], *, divide: bool) -> Records:
    """Records of texts by symbols. divide: a character that is no symbol divides a text in two; else it is left out."""
    table = np.full(CODE_POINTS, NO_SYMBOL, dtype=np.uint32)
    table[list(symbol_of)] = list(symbol_of.values())
    spelled = bytearray()
    for codes, sizes, counts in code_batches:
        symbols = table[codes]
        is_symbol = symbols != NO_SYMBOL
        begins = np.zeros(len(codes), dtype=np.bool_)  # of pieces
        begins[1:] = divide & ~is_symbol[:-1]
        begins[np.cumsum(sizes) - sizes] = True
        counted = np.repeat(counts, sizes)[begins]
        piece = np.cumsum(begins) - 1
        lengths = np.bincount(piece[is_symbol], minlength=len(counted))
        merged = lengths > 1
        spelled += records_of(symbols[is_symbol & merged[piece]], lengths[merged], counted[merged])
    return spelled


def records_of(symbols: NDArray[Any], lengths: NDArray[Any], counts: NDArray[Any]) -> bytes:
    """Records of words that are arrays of symbols: lengths[i] of them make word i, which occurs counts[i] times."""
    if len(lengths) and lengths.max() >= 1 << 30:
        raise ValueError(f"a pretoken of {lengths.max():,} symbols; the most are {(1 << 30) - 1:,}: split it")
    # A record in numbers of 4 bytes: two for the count, one for the size in bytes, the symbols.
    words = np.empty(len(symbols) + 3 * len(lengths), dtype=np.uint32)
    heads = (np.cumsum(lengths + 3) - lengths - 3)[:, None] + np.arange(3)
    words[heads[:, :2]] = counts.view(np.uint32).reshape(-1, 2)
    words[heads[:, 2]] = 4 * lengths
    is_symbol = np.ones(len(words), dtype=np.bool_)
    is_symbol[heads] = False
    words[is_symbol] = symbols
    return words.tobytes()
