"""train(): a source of text to a Tokenizer; extend(): a Tokenizer to a larger one.

Text is counted, the counts merged, and the merges made into a vocabulary by the convention of the tie-break. Where there is
a checkpoint, the counts and each merge go through it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from itertools import chain, islice
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple

from bpe import patterns, sources
from bpe.counting.count import count_source
from bpe.counting.records import count_of_rank, items, number_of, symbols_of
from bpe.formats import Merges, StrPath, TokenizerData
from bpe.merging.merger import Merger
from bpe.native.lazy_imports import numpy as np
from bpe.native.parallel import available_cpus
from bpe.native.warn import warn_caller
from bpe.progress import Progress, reporter
from bpe.scanning.special_tokens import SpecialTokens
from bpe.tokenizer import Tokenizer

if TYPE_CHECKING:
    from bpe.counting.checkpoint import Checkpoint
    from bpe.counting.records import Records

CONVENTIONS = ("bytes", "huggingface", "ids")
GOES_ON = "the run is kept in {}: the same command goes on from there"


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
    memory_limit: int | None = None,
    checkpoint: StrPath | None = None,
    progress: Progress | bool | None = None,
) -> Tokenizer:
    """Train byte-level BPE (Sennrich et al. 2016; Radford et al. 2019) on a corpus.

    source: a path, several, or an iterable of str or bytes, each item a text of its own; an open file is one text. A path is
    read as its name says: .gz, .xz and .zst are decompressed, .jsonl, .ndjson and .json hold a text a line under "text",
    .parquet a text a row in "text"; bpe.JsonLines, bpe.Parquet and bpe.PlainText say otherwise. vocab_size: how many tokens,
    the 256 bytes and the special tokens included. pattern: the split pattern, by name, as a regular expression (slower), or
    None for no split. special_tokens split the text before anything else and are never counted. min_count: no pair that
    occurs less often is merged; max_token_bytes: nor one that makes a longer token. workers: threads (all cores).
    memory_limit: bytes that counting may hold; more goes to temporary files. checkpoint: a folder in which the run is kept,
    and from which the same call goes on after it was stopped, however it was. progress: True for bars, or a function of
    (phase, done, total).

    tie_break, among pairs of equal count, and the ids:
      "bytes"        the greatest (left bytes, right bytes), as CS336; ids: bytes, special tokens, merges
      "huggingface"  the smallest pair of ids, as tokenizers' BpeTrainer; ids: special tokens, its alphabet, merges
      "ids"          the smallest pair of ids, as rustbpe and minbpe; ids: bytes, merges, special tokens

    The result depends on nothing but the text and these arguments: not on workers, chunks, memory, or the order of files.
    Raises ValueError for a vocabulary smaller than the bytes and special tokens, for a corpus from which the vocabulary
    cannot be reached (it says what can), for wrong special tokens or a wrong pattern, for a file that is cut short or not
    what its name says, for a checkpoint of another run; the error of the file for one that cannot be read.
    """
    resolved = patterns.resolve(pattern)
    names = [special_tokens] if isinstance(special_tokens, str) else list(special_tokens)
    for name in names:
        if not isinstance(name, (str, bytes, bytearray)):
            raise TypeError(f"the name of a special token is a str, not {name!r}")
    special = SpecialTokens(names)
    vocab_size = index(vocab_size)
    rule = Rule(tie_break, min_count, max_token_bytes)
    spelled = _spelled() if tie_break == "huggingface" else list(map(chr, range(128)))
    smallest = 256 + sum(name.decode() not in spelled for name in special.names)
    if vocab_size < smallest:
        raise ValueError(
            f"vocab_size is {vocab_size}, but 256 bytes and the special tokens are {smallest} already; ask for at least that"
        )
    alphabet = bytes(range(256))
    if tie_break == "huggingface":
        names = [name.decode() for name in special.names]  # a byte that is spelled as one of them has its id
        alphabet = bytes(
            sorted(alphabet, key=lambda byte: ([*names, spelled[byte]].index(spelled[byte]), spelled[byte]))
        )
    tokens, merges = learn(
        source,
        Start([bytes([byte]) for byte in alphabet]),
        vocab_size - smallest,
        pattern=resolved,
        special=special,
        rule=rule,
        workers=workers,
        memory_limit=memory_limit,
        checkpoint=checkpoint,
        progress=progress,
    )
    _check_reached(vocab_size, vocab_size - smallest + 256 - len(tokens))
    vocab, special_ids = number(tokens, special.names, tie_break)
    return Tokenizer.from_data(TokenizerData(vocab, merges, special_ids, resolved))


def extend(
    tokenizer: Tokenizer,
    source: sources.Source,
    vocab_size: int,
    *,
    tie_break: str = "bytes",
    min_count: int = 1,
    max_token_bytes: int | None = None,
    workers: int | None = None,
    memory_limit: int | None = None,
    checkpoint: StrPath | None = None,
    progress: Progress | bool | None = None,
) -> Tokenizer:
    """A tokenizer with its vocabulary enlarged to vocab_size tokens on a corpus; every id it had keeps its meaning.

    The corpus is encoded as the tokenizer encodes it, and merging goes on from there; new tokens get the ids after the
    largest. The pattern and the special tokens are the tokenizer's; the other arguments are those of train(). The result
    merges by list or by rank as the tokenizer did.

    Raises ValueError as train() does, and for a tokenizer that cannot be continued: one that changes text before it encodes
    it, or one with a token that merging never makes.
    """
    rule = Rule(tie_break, min_count, max_token_bytes)
    data = tokenizer._data
    wanted = index(vocab_size) - len(data.vocab)
    if wanted < 0:
        raise ValueError(f"vocab_size is {vocab_size}, but the tokenizer has {len(data.vocab)} tokens already")
    if data.normalizer is not None:
        raise ValueError(f"a tokenizer that normalizes text ({data.normalizer}) cannot be extended")
    if data.add_prefix_space or data.lstrip or data.rstrip or data.single_word:
        raise ValueError(
            "a tokenizer that puts a space before a text, or whose tokens take the spaces beside them or are found as words "
            "only, cannot be extended"
        )
    start = Start.of(tokenizer)
    split_off = {**data.added_tokens, **data.special_tokens}
    tokens, merges = learn(
        source,
        start,
        wanted,
        pattern=data.pattern,
        special=SpecialTokens(list(split_off)),
        rule=rule,
        workers=workers,
        memory_limit=memory_limit,
        checkpoint=checkpoint,
        progress=progress,
    )
    made = tokens[len(start.tokens) :]
    _check_reached(vocab_size, wanted - len(made))
    vocab = {**data.vocab, **dict(enumerate(made, max(data.vocab) + 1))}
    all_merges = None if data.merges is None else [*data.merges, *merges]
    return Tokenizer.from_data(data._replace(vocab=vocab, merges=all_merges, name=None))


def _check_reached(vocab_size: int, missing: int) -> None:
    if missing:
        raise ValueError(
            f"the corpus is too small for a vocabulary of {vocab_size}: it has pairs to merge for {vocab_size - missing} "
            "tokens and no more; ask for that many, or train on more text"
        )


class Rule:
    """Which pair is merged next: tie_break, min_count and max_token_bytes of train()."""

    def __init__(self, tie_break: str, min_count: int, max_token_bytes: int | None) -> None:
        if tie_break not in CONVENTIONS:
            raise ValueError(f"tie_break is one of {', '.join(CONVENTIONS)}, not {tie_break!r}")
        if not 0 <= min_count < 1 << 63:
            raise ValueError(f"min_count is {min_count}; it takes a number from 0 to 2**63 - 1")
        if max_token_bytes is not None and not 1 <= max_token_bytes < 1 << 63:
            raise ValueError(f"max_token_bytes is {max_token_bytes}; it takes a number from 1 to 2**63 - 1, or None")
        self.tie_break, self.min_count = tie_break, index(min_count)
        self.max_token_bytes = None if max_token_bytes is None else index(max_token_bytes)

    @property
    def bound(self) -> int:
        """The bytes that a merged token may have; 0 for no bound."""
        if self.tie_break == "huggingface" and self.max_token_bytes:
            return max(2, self.max_token_bytes - 1)  # BpeTrainer stays below its max_token_length, pairs of bytes aside
        return self.max_token_bytes or 0


class Start(NamedTuple):
    """Where merging starts: the tokens that the first symbols are, and how a pretoken is spelled in them (None: by bytes)."""

    tokens: list[bytes]
    spell: Callable[[Records], Records] | None = None
    name: str = ""  # tells it from any other

    @classmethod
    def of(cls, tokenizer: Tokenizer) -> Start:
        """What a tokenizer makes of text, its symbols in the order of its ids.

        ValueError where a token is none that its bytes alone are merged to. Where all are, what is merged between two borders
        of tokens depends on the bytes there alone, no merge to come makes a token that there is, and the old merges do to the
        longer list what they did before.
        """
        data = tokenizer._data
        split_off = set(data.special_tokens.values()) | set(data.added_tokens.values())
        numbers = {token: i for i, token in sorted(data.vocab.items()) if i not in split_off or len(token) == 1}
        encode = Tokenizer.from_data(data._replace(whole_first=False))._encoder.encode_pieces
        if encode(numbers).tolist() != list(numbers.values()):
            never = next(token for token, number in numbers.items() if encode([token]).tolist() != [number])
            raise ValueError(f"the tokenizer cannot be extended: merging never makes its token {never!r}")
        symbol_of = np.zeros(max(numbers.values()) + 1, dtype=np.uint32)
        symbol_of[list(numbers.values())] = range(len(numbers))
        sizes = np.array([len(token) for token in numbers])

        def spell(records: Records) -> Records:
            import struct

            spelled = bytearray()
            for batch in batched(items(records), 1 << 14):
                symbols = symbol_of[encode([pretoken for pretoken, _ in batch])]
                ends = (
                    np.searchsorted(np.cumsum(sizes[symbols]), np.cumsum([len(pretoken) for pretoken, _ in batch])) + 1
                )
                begin = 0
                for (_, count), end in zip(batch, ends.tolist(), strict=True):
                    spelled += struct.pack("=QI", count, 4 * (end - begin)) + symbols[begin:end].tobytes()
                    begin = end
            return bytes(spelled)

        return cls(list(numbers), spell, tokenizer.fingerprint)


def batched(items: Iterable[tuple[bytes, int]], size: int) -> Iterator[list[tuple[bytes, int]]]:
    """The items in lists of at most `size` (itertools.batched, of Python 3.12)."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch


def learn(
    source: sources.Source,
    start: Start,
    wanted: int,
    *,
    pattern: patterns.Pattern,
    special: SpecialTokens,
    rule: Rule,
    workers: int | None,
    memory_limit: int | None,
    checkpoint: StrPath | None,
    progress: Progress | bool | None,
) -> tuple[list[bytes], Sequence[tuple[bytes, bytes]]]:
    """Count a source and merge, at most `wanted` times: (the token of each symbol, those of `start` first; the merges)."""
    if len(start.tokens) + wanted >= 1 << 31:
        raise ValueError(f"the vocabulary asked for has {wanted:,} tokens to make, and ids go up to {(1 << 31) - 1:,}")
    if workers is not None and workers < 1:
        raise ValueError(f"workers is {workers}; it takes at least 1")
    if memory_limit is not None and memory_limit < 1:
        raise ValueError(f"memory_limit is {memory_limit}; it is a number of bytes, or None for no limit")
    about: dict[str, Any] = {}
    if checkpoint is not None:
        from bpe.counting.checkpoint import Checkpoint, identity

        about = {
            "format": 1,
            "corpus": identity(source),
            "pattern": list(pattern.expressions),
            "special_tokens": [name.decode("utf-8", "surrogateescape") for name in special.names],
            "tie_break": rule.tie_break,
            "min_count": rule.min_count,
            "max_token_bytes": rule.max_token_bytes,
            "start": start.name,
        }

    def counted() -> Records:
        records = None if kept is None else kept.counts()
        if records is None:
            records = count_source(source, pattern, special, workers or available_cpus(), report, memory_limit)
            if kept is not None:
                if identity(source) != about["corpus"]:
                    raise ValueError("the corpus was changed while it was counted; train again, on files that rest")
                kept.write_counts(records)
        _check_memory(records, memory_limit)
        return records

    with (
        reporter(progress) as report,
        Checkpoint(checkpoint, about) if checkpoint is not None else nullcontext() as kept,
    ):
        try:
            return merge(counted, start, wanted, rule=rule, report=report, kept=kept)
        except KeyboardInterrupt as error:
            if checkpoint is not None:
                error.add_note(GOES_ON.format(checkpoint))
            raise


def _check_memory(records: Records, memory_limit: int | None) -> None:
    """Say so where merging, which has every distinct pretoken in memory, takes more than counting was allowed."""
    if memory_limit is None:
        return
    words = number_of(records)
    size = len(records) - 12 * words
    needed = (
        10 * words + 6 * size
    )  # a word's length and count; a byte's symbol, and its place in the postings of a pair
    if needed > memory_limit:
        warn_caller(
            f"merging the {words:,} distinct pretokens takes up to {needed:,} bytes, more than the memory_limit of "
            f"{memory_limit:,}, which bounds the counting only"
        )


def merge(
    counted: Callable[[], Records],
    start: Start,
    wanted: int,
    *,
    rule: Rule,
    report: Progress,
    kept: Checkpoint | None = None,
) -> tuple[list[bytes], Sequence[tuple[bytes, bytes]]]:
    """At most `wanted` merges: (the token of each symbol, those of `start` first; the merges)."""
    if wanted == 0:
        return list(start.tokens), []
    merger = _started(counted(), start, wanted, rule, kept)
    made = merger.advance(0)
    report("merging", made, wanted)
    while (now := merger.advance(64)) > made:
        if kept is not None:
            for merge in merger.made_from(made):
                kept.append(*merge)
        made = now
        report("merging", made, wanted)
    tokens, halves = merger.result()
    return tokens, Merges(tokens, halves)


def _started(records: Records, start: Start, wanted: int, rule: Rule, kept: Checkpoint | None) -> Merger:
    """A Merger that has made the merges that a checkpoint has kept."""
    done = [] if kept is None else kept.merges()[:wanted]
    floor = _floor(records, len(start.tokens) - 256 + wanted)
    if done:
        floor = min(floor, done[-1][2])  # counts only fall, so that no merge that was kept is below it
    merger = Merger(
        records if start.spell is None else start.spell(records),
        tokens=start.tokens,
        spelled=start.spell is not None,
        by_bytes=rule.tie_break == "bytes",
        most=min(wanted, len(records)),  # a merge leaves a symbol less
        min_count=rule.min_count,
        max_token_bytes=rule.bound,
        floor=floor,
    )
    for left, right, count in done:
        if merger.apply(left, right) != count:
            raise ValueError("the merges of the checkpoint do not fit its counts; delete its folder and train anew")
    return merger


def _floor(records: Records, fit: int) -> int:
    """A guess, below rather than above, at the count of the last of `fit` merges.

    The commonest words become tokens: the count of the last word to fit is close, and below. Where words are long and rare,
    as without spaces, few do; but counts that fall as 1/rank and take away most symbols end at symbols / (fit ln fit).
    """
    symbols = symbols_of(records)
    log = 0.69 * (fit + 2).bit_length()  # of fit + 2, or a little more; `math` would be a tenth of a megabyte
    return max(count_of_rank(records, fit), int(symbols / (5 * fit * log)))


def number(tokens: list[bytes], special: tuple[bytes, ...], tie_break: str) -> tuple[dict[int, bytes], dict[str, int]]:
    """Ids by the convention of the tie-break: (vocab, the special tokens by name).

    A special token of one byte is that byte's token; for "huggingface" one spelled as a byte is spelled there, so that
    " " and the byte spelled "Ġ" are two.
    """
    if tie_break == "huggingface":
        byte_of = {_spelled()[token[0]].encode(): token for token in tokens[:256]}
        first = [byte_of.get(token, token) for token in special]
        alphabet = [token for spelling, token in byte_of.items() if spelling not in special]
        return dict(enumerate([*first, *alphabet, *tokens[256:]])), {
            token.decode(): i for i, token in enumerate(special)
        }
    others = [token for token in special if len(token) > 1]
    ids = {token: i for i, token in enumerate(tokens[:256])}
    ids |= {token: i for i, token in enumerate(others, 256 if tie_break == "bytes" else len(tokens))}
    made = islice(tokens, 256, None)
    order = chain(tokens[:256], others, made) if tie_break == "bytes" else chain(tokens, others)
    return dict(enumerate(order)), {token.decode(): ids[token] for token in special}


def _spelled() -> list[str]:
    """How tokenizers spells each byte."""
    from bpe.formats.gpt2 import PRINTABLE

    return PRINTABLE
