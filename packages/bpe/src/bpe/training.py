"""train(): a source of text to a Tokenizer.

Text is counted in threads, each with a table of its own, cut where a cut changes no pretoken; the tables are added up, the
counts merged, and the merges made into a vocabulary by the convention of the tie-break.
"""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor

from bpe import patterns, sources
from bpe._intern import PretokenCounts, safe_cut
from bpe._merge import Merger
from bpe._scan import scanner_of
from bpe._special import SpecialTokens
from bpe.formats.gpt2 import PRINTABLE
from bpe.progress import Progress, reporter
from bpe.sources import Buffer
from bpe.tokenizer import Tokenizer

CHUNK = 4 << 20  # bytes: large enough that handing chunks out costs nothing, small enough that Ctrl-C is heard at once

Chunk = list[tuple[Buffer, int, int]]  # stretches of text, each by its first byte and the one after its last


def train(
    source: sources.Source,
    vocab_size: int,
    *,
    pattern: str | tuple[str, ...] | None = "gpt2",
    special_tokens: Iterable[str] = ("<|endoftext|>",),
    tie_break: str = "bytes",
    min_count: int = 1,
    max_token_bytes: int | None = None,
    workers: int | None = None,
    progress: Progress | bool | None = None,
) -> Tokenizer:
    """Train byte-level BPE (Sennrich et al. 2016; Radford et al. 2019) on a corpus.

    source: a path, several, or an iterable of str or bytes, each item a text of its own. vocab_size: how many tokens, the
    256 bytes and the special tokens included. pattern: the split pattern, by name, as a regular expression (slower), or
    None for no split. special_tokens split the text before anything else and are never counted. min_count: no pair that
    occurs less often is merged; max_token_bytes: nor one that makes a longer token. workers: threads (all cores).
    progress: True for bars, or a function of (phase, done, total).

    tie_break, among pairs of equal count, and the ids:
      "bytes"        the greatest (left bytes, right bytes), as CS336; ids: bytes, special tokens, merges
      "huggingface"  the smallest pair of ids, as tokenizers' BpeTrainer; ids: special tokens, its alphabet, merges
      "ids"          the smallest pair of ids, as rustbpe and minbpe; ids: bytes, merges, special tokens

    The result depends on nothing but the text and these arguments: not on workers, chunks, or the order of files.
    Raises ValueError for a vocabulary smaller than the bytes and special tokens, for a corpus from which the vocabulary
    cannot be reached (it says what can), for wrong special tokens or a wrong pattern; the error of the file for one
    that cannot be read.
    """
    resolved = patterns.resolve(pattern)
    names = [special_tokens] if isinstance(special_tokens, str) else list(special_tokens)
    special = SpecialTokens(names)
    conventions = ("bytes", "huggingface", "ids")
    if tie_break not in conventions:
        raise ValueError(f"tie_break is one of {', '.join(conventions)}, not {tie_break!r}")
    own_bytes = set(PRINTABLE) if tie_break == "huggingface" else set(map(chr, range(128)))
    smallest = 256 + sum(name.decode() not in own_bytes for name in special.names)
    if vocab_size < smallest:
        raise ValueError(
            f"vocab_size is {vocab_size}, but 256 bytes and the special tokens are {smallest} already; ask for at least that"
        )
    if workers is not None and workers < 1:
        raise ValueError(f"workers is {workers}; it takes at least 1")
    alphabet = bytes(range(256))
    bound = max_token_bytes or 0
    if tie_break == "huggingface":
        alphabet = bytes(sorted(alphabet, key=lambda byte: PRINTABLE[byte]))
        bound = (
            max(2, bound - 1) if bound else 0
        )  # how BpeTrainer reads max_token_length: below it, pairs of bytes aside
    with reporter(progress) as report:
        counts = count(source, resolved, special, workers or os.cpu_count() or 1, report)
        tokens, merges = merge(
            counts,
            vocab_size - smallest,
            alphabet=alphabet,
            by_bytes=tie_break == "bytes",
            min_count=min_count,
            max_token_bytes=bound,
            report=report,
        )
    missing = vocab_size - smallest + 256 - len(tokens)
    if missing:
        raise ValueError(
            f"the corpus is too small for a vocabulary of {vocab_size}: it has pairs to merge for {vocab_size - missing} "
            "tokens and no more; ask for that many, or train on more text"
        )
    vocab, special_ids = number(tokens, special.names, tie_break)
    return Tokenizer(vocab, merges, pattern=pattern, special_tokens=special_ids)


def count(
    source: sources.Source, pattern: patterns.Pattern, special: SpecialTokens, workers: int, report: Progress
) -> PretokenCounts:
    """The pretokens of a source and how often each occurs."""
    scanner = scanner_of(pattern)
    if scanner < 0:
        warnings.warn(
            f"no compiled scanner serves the pattern {' then '.join(pattern.expressions)!r}: splitting goes through `regex`, "
            "in one thread, some thirty times slower",
            stacklevel=3,
        )
    total = sources.size_of(source)
    tables = [PretokenCounts() for _ in range(workers)]
    turn, stop = threading.Lock(), threading.Event()
    chunks = _chunks(source, scanner, special)
    done = 0

    def work(table: PretokenCounts) -> None:
        nonlocal done
        while not stop.is_set():
            with turn:
                chunk = next(chunks, None)
            if chunk is None:
                return
            for text, begin, end in chunk:
                stretch = memoryview(text)[begin:end]
                if scanner >= 0:
                    table.count(stretch, scanner, special)
                else:
                    for piece, index in special.split(stretch):
                        if index < 0:
                            table.count_pieces(patterns.split(piece, pattern))
                stretch.release()
                sources.release(text, begin, end)
            with turn:
                done += sum(end - begin for _, begin, end in chunk)
                report("counting bytes", done, total)

    with ThreadPoolExecutor(workers) as pool:
        try:
            for future in [pool.submit(work, table) for table in tables]:
                future.result()
        finally:
            stop.set()
    counts = max(tables, key=len)
    for table in tables:
        if table is not counts:
            counts.merge(table)
    return counts


def _chunks(source: sources.Source, scanner: int, special: SpecialTokens) -> Iterator[Chunk]:
    """The source in chunks of about CHUNK bytes: a large text cut where that is safe, small ones together."""
    small: Chunk = []
    gathered = 0
    for text in sources.texts(source):
        size, begin = len(text), 0
        while size - begin > CHUNK:
            end = safe_cut(text, begin + CHUNK, scanner, special)
            yield [(text, begin, end)]
            begin = end
        if begin < size:
            small.append((text, begin, size))
            gathered += size - begin
        if gathered >= CHUNK:
            yield small
            small, gathered = [], 0
    if small:
        yield small


def merge(
    counts: PretokenCounts,
    wanted: int,
    *,
    alphabet: bytes,
    by_bytes: bool,
    min_count: int,
    max_token_bytes: int,
    report: Progress,
) -> tuple[list[bytes], list[tuple[bytes, bytes]]]:
    """At most `wanted` tokens beyond the bytes: (the bytes in the order of the alphabet and those tokens, the merges).

    `counts` is left empty.
    """
    tokens = [bytes([byte]) for byte in alphabet]
    merges: list[tuple[bytes, bytes]] = []
    if wanted == 0:
        return tokens, merges
    # The commonest words become tokens: the count of the last word to fit is close to that of the last merge, and below it.
    largest = counts.largest_counts(wanted)
    floor = int(largest[0]) if len(largest) == wanted else 1
    merger = Merger(
        counts,
        alphabet=alphabet,
        by_bytes=by_bytes,
        min_count=min_count,
        max_token_bytes=max_token_bytes,
        floor=floor,
    )
    for left, right, _ in merger.merges():
        merges.append((tokens[left], tokens[right]))
        tokens.append(tokens[left] + tokens[right])
        if len(merges) % 64 == 0 or len(merges) == wanted:
            report("merging", len(merges), wanted)
        if len(merges) == wanted:
            break
    return tokens, merges


def number(tokens: list[bytes], special: tuple[bytes, ...], tie_break: str) -> tuple[dict[int, bytes], dict[str, int]]:
    """Ids by the convention of the tie-break: (vocab, the special tokens by name).

    A special token of one byte is that byte's token; for "huggingface", one spelled as a byte is spelled there.
    """
    if tie_break == "huggingface":
        spelled = {PRINTABLE[token[0]].encode(): token for token in tokens[:256]}
        first = [spelled.get(token, token) for token in special]
        order = first + [token for token in tokens if len(token) > 1 or token not in first]
        return dict(enumerate(order)), {token.decode(): i for i, token in enumerate(special)}
    others = [token for token in special if len(token) > 1]
    order = [*tokens[:256], *others, *tokens[256:]] if tie_break == "bytes" else [*tokens, *others]
    ids = {token: i for i, token in reversed(list(enumerate(order)))}
    return dict(enumerate(order)), {token.decode(): ids[token] for token in special}
