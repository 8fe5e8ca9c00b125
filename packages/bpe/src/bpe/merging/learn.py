"""Learning merges from counts, in steps of some dozens, between which progress is reported."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

from bpe.counting.records import approximate_kth_largest_count, total_size
from bpe.merging.merger import Merger
from bpe.native.progress import Progress, silent, spend

if TYPE_CHECKING:
    from bpe.counting.records import Records

STEP = 64  # merges between two reports
SMALL_COUNT = 16  # below it a lower floor brings in many more pairs
# Below FEW nearly all pairs would be kept, and counting them again costs less, where the records exceed MANY_BYTES for
# each merge.
FEW = 4
MANY_BYTES = 32


class Rule(NamedTuple):
    """The order in which pairs are merged, and the pairs that never are."""

    by_bytes: bool  # ties to the greatest (left bytes, right bytes), or to the smallest (left symbol, right symbol)
    min_count: int  # no pair that counts less
    longest: int  # no pair whose token has more bytes; 0 for no bound
    max_words: int = 0  # no pair whose token has more words, or a space after a colon; 0 for neither rule


def learn(
    records: Records,
    tokens: list[bytes],
    merge_count: int,
    rule: Rule,
    *,
    spelled: bool = False,
    made_before: int = 0,
    consume: bool = False,
    memory_limit: int | None = None,
    report: Progress = silent,
) -> tuple[list[bytes], bytearray]:
    """Merge the commonest pair of symbols, again and again.

    Args:
        records: The pretokens and their counts (see bpe.counting.records).
        tokens: The bytes of the first symbols: the 256 bytes in any order, or any tokens if the records are `spelled`.
        spelled: Each pretoken is an array of symbols (uint32) instead of bytes.
        made_before: Number of the first symbols that are merged ones.
        consume: Merging may use the memory of the records, if they are a bytearray, and leaves none of them.
        memory_limit: See Merger.

    Returns:
        The bytes of each symbol, `tokens` first, then one for each merge; and the symbols that each merge joins, two
        uint32 for each. Fewer than `merge_count` where no pair is left that the rule allows.
    """
    if merge_count == 0:
        return list(tokens), bytearray()
    begun = time.thread_time()
    merger = Merger(
        records,
        tokens=tokens,
        spelled=spelled,
        by_bytes=rule.by_bytes,
        most=min(merge_count, len(records)),  # each merge removes at least one symbol
        min_count=rule.min_count,
        max_token_bytes=rule.longest,
        floor=likely_last_count(records, made_before + merge_count, 4 if spelled else 1),
        consume=consume and isinstance(records, bytearray),
        max_words=rule.max_words,
        memory_limit=memory_limit or 0,
    )
    merges = 0
    report("merging", merges, merge_count)
    while (now := merger.advance(STEP)) > merges:
        merges = now
        report("merging", merges, merge_count)
    result = merger.result()
    spend("merging", time.thread_time() - begun)
    if consume and isinstance(records, bytearray):
        del merger  # the bytearray cannot be emptied while its memory is used
        records.clear()
    return result


def likely_last_count(records: Records, merges: int, symbol_bytes: int = 1) -> int:
    """Guess the count of the last of `merges` merges, too low rather than too high.

    The commonest words become tokens: the count of the last word to become one is close, and below. Where words are
    long and rare, as without spaces, few do; but counts that fall as 1/rank, and make up most of the text, end at
    symbols / (n ln n). Random text often ends below that. A quarter of it costs little while counts are large, and
    saves that all pairs are counted again: 40 MB of base64 are merged in 0.75 s instead of 1.25.

    symbol_bytes: what a symbol takes in the records.
    """
    log = 0.69 * (merges + 2).bit_length()  # ln(merges + 2), or a little more; `math` would be a tenth of a megabyte
    of_words = approximate_kth_largest_count(records, merges + 1)
    of_size = int(total_size(records) / (symbol_bytes * 5 * merges * log))
    guess = max(of_words, min(of_size, SMALL_COUNT), of_size // 4)
    return max(guess, FEW) if of_words == 1 and len(records) > MANY_BYTES * merges else guess
