"""Every SIMD level that this machine has beside every other: scanning, encoding and training give the same at each.

Most tests run at one level, which the last lines of a test run name; those here run all levels, whatever BPE_SIMD says.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import DATA, growing_vocabularies, long_texts

import bpe
from bpe import patterns
from bpe.encoding.encoder import Encoder
from bpe.encoding.ranks import Ranks
from bpe.formats import TokenizerData
from bpe.formats.vocabulary import encoder_tables
from bpe.native import cpu
from bpe.scanning import scanner
from bpe.scanning.special_tokens import Rules, SpecialTokens

NONE = SpecialTokens()
BYTES = [bytes([byte]) for byte in range(256)]


def test_there_is_more_than_one_level_to_compare() -> None:
    assert cpu.available()[0] == "portable"
    if len(cpu.available()) == 1:
        pytest.skip("this machine has only the level portable: THE VECTOR CODE IS NOT TESTED HERE")


def encoders(data: TokenizerData, cache_bytes: int = 0) -> dict[str, Encoder]:
    """An encoder for each level. Without cache_bytes they remember little, so that nearly every pretoken is merged."""
    symbols, ids, merges, _ = encoder_tables(data, set())
    return {
        level: Encoder(
            ranks=Ranks(symbols=symbols, merges=merges, ignore_merges=False, level=level),
            ids=ids,
            scanner=patterns.scanner_of(data.pattern),
            cache_bytes=cache_bytes,
        )
        for level in cpu.available()
    }


def assert_alike(made: dict[str, Encoder], text: bytes) -> None:
    expected = made["portable"].encode_array(text, Rules(NONE, NONE))
    for level, encoder in made.items():
        assert np.array_equal(encoder.encode_array(text, Rules(NONE, NONE)), expected), level


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
    assert_alike(encoders(data), " ".join(words).encode())


@settings(max_examples=50)
@given(vocabulary=growing_vocabularies(), text=long_texts())
def test_long_pretokens(vocabulary: Any, text: str) -> None:
    ids, merges = vocabulary
    vocab = {number: token for token, number in ids.items()}
    assert_alike(encoders(TokenizerData(vocab, merges, {}, patterns.resolve(None))), text.encode())


def test_words_of_every_length_in_every_company() -> None:
    # Of a vocabulary of which a tenth of all pairs seem to merge and do not, so that whoever asks for a wrong one is
    # told.
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
        result = encoders(TokenizerData(vocab, tokenizer.merges, {}, patterns.resolve("gpt2")))
        assert_alike(result, "\n".join(some).encode())
        assert_alike(result, "".join(some).encode())


@given(
    st.lists(st.text("ab é日", min_size=1, max_size=40), min_size=1, max_size=300), st.randoms(use_true_random=False)
)
def test_what_is_remembered_is_found_wherever_the_text_ends(words: list[str], chance: random.Random) -> None:
    vocab = dict(enumerate([*BYTES, b"ab", b" a"]))
    merges = [(b"a", b"b"), (b" ", b"a")]
    result = encoders(TokenizerData(vocab, merges, {}, patterns.resolve("gpt2")), cache_bytes=1 << 20)
    text = " ".join(words).encode()
    for _ in range(4):
        assert_alike(result, text[: chance.randint(0, len(text))])


@pytest.mark.parametrize("name", [name for name in scanner.SCANNED if name is not None])
@given(data=DATA)
def test_scanning(name: str, data: bytes) -> None:
    expected = scanner.split(data, name, level="portable")
    for level in cpu.available():
        assert scanner.split(data, name, level=level) == expected, level


PROGRAM = """
import hashlib, sys
import bpe
from bpe.native import cpu, hash_seed
data = open(sys.argv[1], "rb").read()
tokenizer = bpe.train([data.decode()], 600, num_threads=2)
ids = tokenizer.encode_to_numpy(data + b" " + data.upper())
print(cpu.level(), hash_seed.seed(), hashlib.sha256(repr(tokenizer.merges).encode() + ids.tobytes()).hexdigest())
"""


def run(file: object, level: str) -> subprocess.CompletedProcess[str]:
    settings = {**os.environ, "BPE_SIMD": level}
    return subprocess.run([sys.executable, "-c", PROGRAM, str(file)], capture_output=True, text=True, env=settings)


def test_whole_processes_at_each_level_and_with_other_seeds(tmp_path: Any) -> None:
    chance = random.Random(7)
    words = ["".join(chance.choices("etaoinsrhlé日", k=chance.randint(1, 30))) for _ in range(5_000)]
    file = tmp_path / "text"
    file.write_text(" ".join(words), encoding="utf-8")
    actual = [run(file, level).stdout.split() for level in (*cpu.available(), "")]
    assert [line[0] for line in actual] == [*cpu.available(), cpu.available()[-1]]
    assert len({line[1] for line in actual}) == len(actual), "the seed of the hashes is not random"
    assert len({line[2] for line in actual}) == 1, "the result depends on the level or on the seed of the hashes"


@pytest.mark.parametrize("level", ["fastest", "AVX2", "sse2"])
def test_a_level_that_does_not_exist_is_refused_by_name(level: str, tmp_path: Any) -> None:
    file = tmp_path / "text"
    file.write_text("some text")
    failed = run(file, level)
    assert failed.returncode == 1
    assert failed.stderr.splitlines()[-1].startswith(f"ValueError: BPE_SIMD={level}: ")
    with pytest.raises(ValueError, match=level):
        scanner.split(b"text", "gpt2", level=level)
