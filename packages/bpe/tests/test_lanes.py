"""Pretokens merged side by side: with this machine's vectors as without them."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from test_windows import growing_vocabularies

import bpe
from bpe import patterns
from bpe.encoding.encoder import Encoder
from bpe.encoding.ranks import Ranks
from bpe.formats import TokenizerData
from bpe.scanning.scanner import scanner_of
from bpe.scanning.special_tokens import Rules, SpecialTokens
from bpe.vocabulary import encoder_tables

NONE = SpecialTokens()


def twins(data: TokenizerData, cache_bytes: int = 0) -> list[Encoder]:
    """Two encoders: as this machine can, and as any could. They remember nothing, so that every pretoken is merged."""
    symbols, ids, merges = encoder_tables(data, set())
    return [
        Encoder(
            ranks=Ranks(symbols=symbols, merges=merges, whole_first=False, portable=portable),
            ids=ids,
            scanner=scanner_of(data.pattern),
            cache_bytes=cache_bytes,
            portable=portable,
        )
        for portable in (False, True)
    ]


def assert_alike(encoders: list[Encoder], text: bytes) -> None:
    found, expected = (encoder.encode_array(text, Rules(NONE, NONE)) for encoder in encoders)
    assert found is not None
    assert expected is not None
    assert np.array_equal(found, expected)


@settings(max_examples=100)
@given(
    vocabulary=growing_vocabularies(),
    by_rank=st.booleans(),
    words=st.lists(st.text("abc", min_size=1, max_size=70), min_size=1, max_size=40),
)
def test_any_vocabulary(vocabulary: Any, by_rank: bool, words: list[str]) -> None:
    ids, merges = vocabulary
    vocab = {number: token for token, number in ids.items()}
    data = TokenizerData(vocab, None if by_rank else merges, {}, patterns.resolve("gpt2"))
    assert_alike(twins(data), " ".join(words).encode())


def test_words_of_every_length_in_every_company() -> None:
    # Of a vocabulary of which a tenth of all pairs seem to merge and do not, so that whoever asks for a wrong one is told.
    chance = random.Random(4)
    words = ["".join(chance.choices("etaoinsrhlETAOIN", k=chance.randint(1, 12))) for _ in range(20_000)]
    tokenizer = bpe.train([" ".join(words)], 3000, special_tokens=[])
    shuffled = list(range(3000))
    chance.shuffle(shuffled)
    mixed = {shuffled[number]: token for number, token in tokenizer.vocab.items()}
    # What lies beyond the end of a lane is mostly symbol 0, so let that be one that much merges with.
    at = next(number for number, token in mixed.items() if token == b"e")
    mixed[0], mixed[at] = mixed[at], mixed[0]
    mixed = dict(sorted(mixed.items()))
    some = ["".join(chance.choices("etaoinsrhlETAOINxyz", k=length)) for length in range(1, 80) for _ in range(80)]
    some += ["".join(chance.choices("0123456789", k=8 * chance.randint(1, 8))) for _ in some]  # which merge nowhere
    chance.shuffle(some)
    for vocab in (tokenizer.vocab, mixed):
        encoders = twins(TokenizerData(vocab, tokenizer.merges, {}, patterns.resolve("gpt2")))
        assert_alike(encoders, "\n".join(some).encode())
        assert_alike(encoders, "".join(some).encode())


@given(
    st.lists(st.text("ab é日", min_size=1, max_size=40), min_size=1, max_size=300), st.randoms(use_true_random=False)
)
def test_what_is_remembered_is_found_wherever_the_text_ends(words: list[str], chance: random.Random) -> None:
    vocab = dict(enumerate([*(bytes([byte]) for byte in range(256)), b"ab", b" a"]))
    merges = [(b"a", b"b"), (b" ", b"a")]
    encoders = twins(TokenizerData(vocab, merges, {}, patterns.resolve("gpt2")), cache_bytes=1 << 20)
    text = " ".join(words).encode()
    for _ in range(4):
        assert_alike(encoders, text[: chance.randint(0, len(text))])
