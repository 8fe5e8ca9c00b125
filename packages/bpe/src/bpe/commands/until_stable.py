"""`bpe train --until-stable SHARE`: read as much text as the merges need, and no more."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any

import bpe
from bpe import patterns
from bpe.corpus import sources
from bpe.scanning.safe_cut import safe_cut
from bpe.scanning.special_tokens import SpecialTokens

FIRST = 8 << 20  # bytes of text that are counted before the first comparison; each later one has twice as many
HELD_OUT = 1 << 20  # bytes that both tokenizers of a comparison encode


def share(text: str) -> float:
    """The number of --until-stable, above 0 and below 1."""
    value = float(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError(f"expected a share above 0 and below 1, as 0.99, got {text}")
    return value


def train_until_stable(
    source: Any, stable: float, how: dict[str, Any], learn: Callable[[bpe.Counts], bpe.Tokenizer]
) -> bpe.Tokenizer:
    """Train on twice as much text each time, until the last doubling has changed little.

    The first HELD_OUT bytes are encoded by both tokenizers of a comparison. Its share is that of the new one's ids
    whose tokens the old one has too; `stable` is the share at which to stop. how: pattern, special_tokens, num_threads
    and memory_limit of bpe.count(). The result is the tokenizer of bpe.train() on the text that was read, the held-out
    text included.
    """
    counts = bpe.count([], **how)
    scanner, special = patterns.scanner_of(counts.pattern), SpecialTokens(counts.special_tokens)
    stretches = sources.stretches(
        source, lambda text, at: safe_cut(text, at, scanner, special), special.longest, HELD_OUT
    )
    size, old = 0, None

    def read(room: int) -> Iterator[bytes]:
        """Yield the next stretches of text, of about `room` bytes. Counted apart, they count as the whole does."""
        nonlocal size
        end = size + room
        while size < end and (stretch := next(stretches, None)) is not None:
            text, begin, stop, *_ = stretch
            size += stop - begin
            yield bytes(memoryview(text)[begin:stop])

    held_out = list(read(HELD_OUT))
    counts = counts.merge(bpe.count(held_out, **how))
    while True:
        before = size
        counts = counts.merge(bpe.count(read(max(FIRST, size)), **how))
        if size == before:
            print(f"all {size:,} bytes were read, and the merges still change", file=sys.stderr)
            return learn(counts) if old is None else old
        try:
            new = learn(counts)
        except ValueError:  # there are too few pairs for the vocabulary so far
            continue
        if old is not None:
            tokens = set(old.token_byte_values())
            texts = [text.decode(errors="replace") for text in held_out]
            ids = chain.from_iterable(new.encode_batch(texts, allowed_special="all"))
            same = [new.decode_single_token_bytes(token) in tokens for token in ids]
            now = sum(same) / max(1, len(same))
            print(f"{size:,} bytes: {now:.4f} of the held-out tokens were tokens at half of them", file=sys.stderr)
            if now >= stable:
                return new
        old = new
