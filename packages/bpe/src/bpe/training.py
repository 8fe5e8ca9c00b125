"""train() and train_sentencepiece(): a source of text to a Tokenizer; train_from_counts(); extend()."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple

from bpe import formats, patterns
from bpe.corpus import sources
from bpe.counting.count import count_source
from bpe.counting.pretoken_counts import PretokenCounts
from bpe.counting.records import number_of_records
from bpe.counts import Counts, checked_names, checked_resources
from bpe.encoding.encoder import SpelledCounts
from bpe.formats import Characters, Merges, TokenizerData
from bpe.merging.alphabet import Alphabet
from bpe.merging.conventions import CONVENTIONS, Convention, TieBreak
from bpe.merging.learn import Rule, learn
from bpe.merging.superbpe import NO_BOUND, SuperBPE, Superwords, settings_of
from bpe.native.atomic_file import StrPath
from bpe.native.checks import integer
from bpe.native.lazy_imports import import_lock
from bpe.native.progress import Progress, reporter
from bpe.native.warn import warn_caller
from bpe.scanning.special_tokens import SpecialTokens
from bpe.tokenizer import Tokenizer

if TYPE_CHECKING:
    from bpe.counting.records import Records


HEADER_BYTES = 12  # of a record


def train(
    source: sources.Source,
    vocab_size: int,
    *,
    pattern: str | tuple[str, ...] | None = "gpt2",
    special_tokens: Iterable[str] = ("<|endoftext|>",),
    tie_break: TieBreak = "bytes",
    superwords: Superwords = None,
    min_count: int = 1,
    max_token_bytes: int | None = None,
    num_threads: int | None = None,
    memory_limit: int | None = None,
    checkpoint: StrPath | None = None,
    progress: Progress | bool | None = None,
) -> Tokenizer:
    """Train byte-level BPE (Sennrich et al. 2016; Radford et al. 2019) on a corpus.

    The corpus is split into pretokens, these are counted, and the commonest pair of neighbouring symbols in them is
    merged into a new symbol, again and again. The result depends on nothing but the text and these arguments: not on
    num_threads, memory, or the order of the files.

    Args:
        source: A path (str or PathLike); a bpe.JsonLines, bpe.Parquet or bpe.PlainText; an open file; or an iterable of
            these or of texts. In an iterable a str is a text, and a file is a PathLike. A path is read as its name
            says: .gz, .xz and .zst are decompressed; .jsonl, .ndjson and .json are JSON lines, the text of each under
            "text"; .parquet has a text a row in the column "text"; anything else is one text.
        vocab_size: Number of tokens, the 256 bytes and the special tokens included.
        pattern: The split pattern: a name, a regular expression (slower), several in sequence, or None for no split.
        special_tokens: They split the text before the pattern does, and are never counted.
        tie_break: The pair that is merged first among pairs of equal count, and the ids that tokens get:
            "bytes": the greatest (left bytes, right bytes), as in CS336; ids: bytes, special tokens, merges.
            "huggingface": the smallest pair of ids, as tokenizers' BpeTrainer; ids: special tokens, bytes, merges.
            "ids": the smallest pair of ids, as rustbpe; ids: bytes, merges, special tokens.
        superwords: Tokens of several words, such as " of the". The source is read twice, so an iterator will not do.
            "superbpe", or a bpe.SuperBPE with its settings: across any white space, after a transition.
        min_count: Minimum count of a pair that is merged.
        max_token_bytes: Maximum number of bytes of a merged token.
        num_threads: Threads that count; all processors by default.
        memory_limit: Bytes that counting, and then learning, may hold. More counts go to temporary files; fewer pairs
            are looked at a time. The distinct pretokens as symbols are the least; a warning says if they exceed it.
        checkpoint: A folder for the counts. A later call with the same corpus, pattern and special tokens reads them
            instead of the corpus and learns the merges again, with the same result. Of an iterable of texts, the counts
            are written after each gibibyte; a later call skips the texts that were counted.
        progress: True for bars, or a function of (phase, done, total).

    Returns:
        The tokenizer.

    Raises:
        ValueError: The vocabulary is smaller than the bytes and special tokens, or larger than the corpus allows (it
            says how large); special tokens or the pattern are wrong; a file is cut short or not what its name says; the
            checkpoint is that of another corpus, pattern or special tokens.
        TypeError: An item of the source is no text and no file.
        OSError: A file cannot be read.

    Example:
        >>> import bpe
        >>> tokenizer = bpe.train(["the cat and the hat sat with the rat"], 262)
        >>> tokenizer.merges
        ((b't', b'h'), (b'a', b't'), (b'th', b'e'), (b' ', b'the'), (b'w', b'i'))
        >>> tokenizer.encode(" the")
        [260]
    """
    goal = Goal.checked(vocab_size, special_tokens, tie_break, min_count, max_token_bytes)
    corpus = Corpus(
        source, patterns.resolve(pattern), goal.special_tokens, *checked_resources(num_threads, memory_limit)
    )
    settings = settings_of(superwords)
    with reporter(progress) as report:
        if settings is not None:
            return _train_superwords(corpus, goal, settings, checkpoint, report)
        counts = corpus.counts(checkpoint, report)
        merges = goal.learn(counts, report, consume=True, memory_limit=corpus.memory_limit)
        return goal.tokenizer(merges, counts.pattern)


def train_sentencepiece(
    source: sources.Source,
    vocab_size: int,
    *,
    special_tokens: Iterable[str] = ("<unk>", "<s>", "</s>"),
    add_prefix_space: bool = True,
    split_at_spaces: bool = True,
    split_lines: bool = True,
    limit_alphabet: int | None = None,
    min_count: int = 1,
    max_token_bytes: int | None = None,
    num_threads: int | None = None,
    memory_limit: int | None = None,
    checkpoint: StrPath | None = None,
    progress: Progress | bool | None = None,
) -> Tokenizer:
    """Train SentencePiece-style BPE (Kudo and Richardson 2018), as of Llama 2, Mistral and Gemma, on a corpus.

    Characters are merged, not bytes; a character that is no token is spelled by the tokens of its bytes. The tokens and
    their ids equal tokenizers' BpeTrainer's after Metaspace, given the special tokens and then "<0x00>" to
    "<0xFF>" as its special tokens. Ids: special tokens, bytes, characters, merges. Ties go to the pair with the
    smallest ids.

    Args:
        source: The corpus, as train() takes it.
        vocab_size: Number of tokens, the special tokens, the 256 bytes and the characters included.
        special_tokens: They split the text before anything else does, and are never counted.
        add_prefix_space: A text that does not begin with a space is given one, as by Llama 2 and not by Gemma.
        split_at_spaces: No token goes on across a space. If not, a text is merged as a whole, as tokenizers does
            without a pre-tokenizer, which takes about 40 bytes of memory for each byte of the longest text.
        split_lines: Each line, its "\\n" included, is a text of its own, as it is to tokenizers in a file. If not, each
            file is one text, and so is each item of an iterable, as it is to tokenizers' train_from_iterator().
        limit_alphabet: Maximum number of characters that become tokens: the space, and the commonest; all of the
            corpus, if None. The others are spelled by bytes, and divide what is merged. (BpeTrainer leaves them out,
            and merges across; and it has no token for the space where a corpus has none.)
        min_count, max_token_bytes, num_threads, memory_limit, checkpoint, progress: As for train().

    Returns:
        The tokenizer. Its encode() adds no `<s>`, for which a template would have to ask.

    Raises:
        ValueError: The vocabulary is smaller than the special tokens, the bytes and the characters, or larger than the
            corpus allows (it says how large); limit_alphabet is below 1; and as train() does.
        TypeError, OSError: As train() does.

    Example:
        >>> import bpe
        >>> tokenizer = bpe.train_sentencepiece(["the cat and the hat sat with the rat"], 275)
        >>> tokenizer.merges[:3]
        ((b'a', b't'), (b't', b'h'), (b' ', b'th'))
        >>> tokenizer.decode_tokens_bytes(tokenizer.encode("the rat ü"))
        [b' the', b' ', b'r', b'at', b' ', b'\xc3', b'\xbc']
    """
    names = checked_names(special_tokens)
    _, rule = _checked_rule("ids", min_count, max_token_bytes)
    first = [*(name.encode() for name in names), *(bytes([byte]) for byte in range(256))]
    _missing(vocab_size, len(first))
    settings: dict[str, Any] = {
        "add_prefix_space": bool(add_prefix_space),
        "split_at_spaces": bool(split_at_spaces),
        "limit": None if limit_alphabet is None else integer("limit_alphabet", limit_alphabet),
    }
    counted = patterns.resolve(formats.sentencepiece.counted_by(split_at_spaces, split_lines), "fancy-regex")
    corpus = Corpus(source, counted, names, *checked_resources(num_threads, memory_limit))
    with reporter(progress) as report:
        records = corpus.counts(checkpoint, report)._records
        alphabet = Alphabet.of_characters(records, **settings)
        there = len(first) + len(alphabet.tokens)
        what = "256 bytes, the special tokens and the characters of the corpus are {} already (see limit_alphabet)"
        merges = _learn(records, alphabet, _missing(vocab_size, there, what), rule, report, True, corpus.memory_limit)

    vocab = dict(enumerate([*first, *merges.tokens]))
    _check_reached(vocab_size, index(vocab_size) - len(vocab))
    byte_ids = tuple(range(len(names), len(first)))
    prepend = "always" if add_prefix_space else "never"
    characters = Characters(byte_ids, prepend, int(bool(add_prefix_space)))
    pattern = patterns.resolve(formats.sentencepiece.SPLIT if split_at_spaces else None, "fancy-regex")
    special = dict(zip(names, range(len(names)), strict=True))
    return Tokenizer.from_data(TokenizerData(vocab, merges, special, pattern, characters=characters))


def train_from_counts(
    counts: Counts,
    vocab_size: int,
    *,
    tie_break: TieBreak = "bytes",
    min_count: int = 1,
    max_token_bytes: int | None = None,
    progress: Progress | bool | None = None,
) -> Tokenizer:
    """Train on counts: the tokenizer that train() makes of the text that was counted.

    Args:
        counts: What count() gave, or Counts.load(), or Counts.from_mapping(). Pattern and special tokens are theirs.
        vocab_size, tie_break, min_count, max_token_bytes, progress: As for train().

    Returns:
        The tokenizer.

    Raises:
        ValueError: As train() does.

    Example:
        >>> import bpe
        >>> counts = bpe.count(["a cat and a hat"])
        >>> bpe.train_from_counts(counts, 258).merges
        ((b'a', b't'),)
    """
    goal = Goal.checked(vocab_size, counts.special_tokens, tie_break, min_count, max_token_bytes)
    with reporter(progress) as report:
        merges = goal.learn(counts, report)
        return goal.tokenizer(merges, counts.pattern)


def extend(
    tokenizer: Tokenizer,
    source: sources.Source,
    vocab_size: int,
    *,
    tie_break: TieBreak = "bytes",
    min_count: int = 1,
    max_token_bytes: int | None = None,
    num_threads: int | None = None,
    memory_limit: int | None = None,
    checkpoint: StrPath | None = None,
    progress: Progress | bool | None = None,
) -> Tokenizer:
    """Enlarge a tokenizer's vocabulary on a corpus. Every id it had keeps its meaning.

    The corpus is encoded as the tokenizer encodes it, and merging goes on from there. New tokens get the ids after the
    largest.

    Args:
        tokenizer: The tokenizer, which stays as it is. Pattern and special tokens are its own, and the result merges by
            a list or by rank as it does.
        source: The corpus, as train() takes it.
        vocab_size: Number of tokens of the result, the tokenizer's own included.
        tie_break, min_count, max_token_bytes, num_threads, memory_limit, checkpoint, progress: As for train().

    Returns:
        The larger tokenizer.

    Raises:
        ValueError: As train() does; and the tokenizer changes text before it encodes it, or has a token that merging
            never makes.

    Example:
        >>> import bpe
        >>> small = bpe.train(["the cat and the hat"], 259)
        >>> large = bpe.extend(small, ["the dog and the frog"], 260)
        >>> [large.decode_single_token_bytes(259), large.merges[: len(small.merges)] == small.merges]
        [b'og', True]
    """
    data = tokenizer._data
    _, rule = _checked_rule(tie_break, min_count, max_token_bytes)
    merge_count = _missing(vocab_size, len(data.vocab), "the tokenizer has {} tokens already")
    if data.characters is not None:
        raise ValueError("a SentencePiece-style tokenizer cannot be extended: train a larger one")
    if data.normalizer is not None:
        raise ValueError(f"a tokenizer that normalizes text ({data.normalizer}) cannot be extended")
    if data.add_prefix_space or data.lstrip or data.rstrip or data.single_word:
        raise ValueError(
            "a tokenizer that puts a space before a text, or whose tokens take the spaces beside them or are found as "
            "words only, cannot be extended"
        )
    alphabet = Alphabet.of(tokenizer._text_encoder)
    names = checked_names(data.added_tokens | data.special_tokens)
    corpus = Corpus(source, data.pattern, names, *checked_resources(num_threads, memory_limit))
    with reporter(progress) as report:
        records = corpus.counts(checkpoint, report)._records
        merges = _learn(records, alphabet, merge_count, rule, report, True, corpus.memory_limit)
    new_tokens = merges.tokens[len(alphabet.tokens) :]
    _check_reached(vocab_size, merge_count - len(new_tokens))
    vocab = {**data.vocab, **dict(enumerate(new_tokens, max(data.vocab) + 1))}
    all_merges = None if data.merges is None else [*data.merges, *merges]
    return Tokenizer.from_data(data._replace(vocab=vocab, merges=all_merges, name=None))


class Corpus(NamedTuple):
    """A source, and how it is counted."""

    source: sources.Source
    pattern: patterns.Pattern
    special_tokens: tuple[str, ...]
    num_threads: int
    memory_limit: int | None

    def counts(self, checkpoint: StrPath | None, report: Progress) -> Counts:
        """Return the counts: those in the checkpoint, if there are any."""
        if checkpoint is None:
            records = self.records(report)
        else:
            with import_lock:
                from bpe.counting.checkpoint import counted

            def count(source: sources.Source) -> Records:
                return self._replace(source=source).records(report)

            records = counted(checkpoint, self.source, self.pattern, self.special_tokens, count)
        if self.memory_limit is not None:
            _warn_of_merging(records, self.memory_limit)
        return Counts(records, self.pattern, self.special_tokens)

    def records(self, report: Progress, new_table: Callable[[], PretokenCounts] = PretokenCounts) -> Records:
        """Return the records of the source's pretokens. new_table: see count_source()."""
        special = SpecialTokens(self.special_tokens)
        return count_source(self.source, self.pattern, special, self.num_threads, report, self.memory_limit, new_table)


class Goal(NamedTuple):
    """The goal of training: the number of merges, the rule of ties, and how their tokens are numbered."""

    vocab_size: int
    special_tokens: tuple[str, ...]
    convention: Convention
    rule: Rule

    @classmethod
    def checked(
        cls,
        vocab_size: int,
        special_tokens: Iterable[str],
        tie_break: str,
        min_count: int,
        max_token_bytes: int | None,
    ) -> Goal:
        """Check the arguments of a training, before anything is counted."""
        goal = cls(vocab_size, checked_names(special_tokens), *_checked_rule(tie_break, min_count, max_token_bytes))
        _missing(vocab_size, goal.smallest)
        return goal._replace(vocab_size=index(vocab_size))

    @property
    def names(self) -> tuple[bytes, ...]:
        """The special tokens as bytes."""
        return SpecialTokens(self.special_tokens).names

    @property
    def smallest(self) -> int:
        """Number of tokens before the first merge."""
        return self.convention.smallest_vocabulary(self.names)

    def learn(
        self, counts: Counts, report: Progress, *, consume: bool = False, memory_limit: int | None = None
    ) -> Merges:
        """Return the merges of counted pretokens. consume, memory_limit: see _learn()."""
        alphabet, merges = Alphabet(self.convention.alphabet(self.names)), self.vocab_size - self.smallest
        return _learn(counts._records, alphabet, merges, self.rule, report, consume, memory_limit)

    def tokenizer(self, merges: Merges, pattern: patterns.Pattern) -> Tokenizer:
        """Return the tokenizer of merges. ValueError where they are too few."""
        vocab, special_ids = self.convention.number(merges.tokens, self.names)
        _check_reached(self.vocab_size, self.vocab_size - len(vocab))
        return Tokenizer.from_data(TokenizerData(vocab, merges, special_ids, pattern))


def _train_superwords(
    corpus: Corpus, goal: Goal, settings: SuperBPE, checkpoint: StrPath | None, report: Progress
) -> Tokenizer:
    """Train SuperBPE: words up to the transition, then superwords in a second reading of the source.

    The second reading counts pretokens of another pattern as arrays of symbols, which the merges of words make of them.
    """
    if isinstance(corpus.source, Iterator):
        raise ValueError("superwords are counted in a second reading of the source, and an iterator can be read once")
    words = goal._replace(vocab_size=settings.tokens_before(goal.vocab_size, goal.smallest))
    second = corpus._replace(pattern=patterns.resolve(settings.pattern))
    counts = corpus.counts(checkpoint, report)
    size = counts.total_bytes
    merges = words.learn(counts, report, consume=True, memory_limit=corpus.memory_limit)

    vocab = dict(enumerate(merges.tokens))
    encoder = Tokenizer.from_data(TokenizerData(vocab, merges, {}, patterns.resolve(None)))._text_encoder.encoder
    tables: list[SpelledCounts] = []

    def new_table() -> SpelledCounts:
        tables.append(SpelledCounts())
        tables[-1].spell_by(encoder, merges.tokens)
        return tables[-1]

    records = second.records(report, new_table)
    read = sum(table.text_bytes for table in tables)
    if read != size:
        raise ValueError(
            f"the source gave {size:,} bytes of text, and {read:,} when it was read again: superwords need a source "
            "that can be read twice, such as paths or a list of texts"
        )
    alphabet = Alphabet(merges.tokens, lambda records: records, len(merges))
    rule = goal.rule._replace(max_words=settings.max_words or NO_BOUND)
    missing = goal.vocab_size - goal.smallest - len(merges)
    more = _learn(records, alphabet, missing, rule, report, True, corpus.memory_limit)
    return goal.tokenizer(Merges(more.tokens, merges.halves + more.halves), second.pattern)


def _learn(
    records: Records,
    alphabet: Alphabet,
    merge_count: int,
    rule: Rule,
    report: Progress,
    consume: bool = False,
    memory_limit: int | None = None,
) -> Merges:
    """Return the merges of records, whose tokens are the alphabet's and then one for each merge.

    consume: use the memory of the records, if they are a bytearray, for merging, which leaves none of them.
    memory_limit: bytes that merging may hold, but for the words themselves: two or four for each of their symbols.
    """
    if alphabet.spell is not None:
        unspelled, records = records, alphabet.spell(records)
        if consume and records is not unspelled and isinstance(unspelled, bytearray):
            unspelled.clear()
    tokens, halves = learn(
        records, alphabet.tokens, merge_count, rule, spelled=alphabet.spell is not None, made_before=alphabet.merges,
        consume=consume, memory_limit=memory_limit, report=report,
    )  # fmt: skip
    return Merges(tokens, halves)


def _checked_rule(tie_break: str, min_count: int, max_token_bytes: int | None) -> tuple[Convention, Rule]:
    if tie_break not in CONVENTIONS:
        raise ValueError(f"expected tie_break to be one of {', '.join(CONVENTIONS)}, got {tie_break!r}")
    convention = CONVENTIONS[tie_break]
    longest = None if max_token_bytes is None else integer("max_token_bytes", max_token_bytes)
    return convention, Rule(convention.by_bytes, integer("min_count", min_count), convention.longest_merge(longest))


def _missing(vocab_size: int, there: int, what: str = "256 bytes and the special tokens are {} already") -> int:
    """Number of tokens that a vocabulary lacks when it has these. ValueError for a vocabulary that is too small."""
    if integer("vocab_size", vocab_size) < there:
        raise ValueError(f"vocab_size is {vocab_size}, but {what.format(there)}; ask for at least that")
    if vocab_size >= 1 << 31:
        raise ValueError(f"vocab_size is {vocab_size:,}, and ids go up to {(1 << 31) - 1:,}")
    return index(vocab_size) - there


def _check_reached(vocab_size: int, missing: int) -> None:
    if missing:
        raise ValueError(
            f"the corpus is too small for a vocabulary of {vocab_size}: it has pairs to merge for "
            f"{vocab_size - missing} tokens and no more; ask for that many, or train on more text"
        )


def _warn_of_merging(records: Records, memory_limit: int) -> None:
    """Warn that the words alone, which merging holds as arrays of symbols, take more than the limit."""
    needed = 2 * (len(records) - (HEADER_BYTES - 1) * number_of_records(records))
    if needed > memory_limit:
        warn_caller(
            f"merging the distinct pretokens takes {needed:,} bytes or more for these alone, more than the "
            f"memory_limit of {memory_limit:,}"
        )
