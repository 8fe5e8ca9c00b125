"""The same ids as tiktoken and tokenizers, for the published vocabularies and for small ones, on everything that is
text.

With GROUNDUP_DATA the published vocabularies are taken: a sample here, all of it under `nox -s soak`. Without it
vocabularies trained here take their place, under the same patterns.
"""

from __future__ import annotations

import functools
import json
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import tiktoken
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import PIECES, PRETOKENS, corpus
from tiktoken.load import load_tiktoken_bpe
from tokenizers import models, pre_tokenizers

import bpe
from bpe import patterns
from bpe.tokenizer import Tokenizer

DATA = os.environ.get("GROUNDUP_DATA")
needs_data = pytest.mark.skipif(
    DATA is None, reason="GROUNDUP_DATA names no folder with published vocabularies and texts"
)
EOT = "<|endoftext|>"

# As tiktoken's openai_public has them, where the patterns here are spelled otherwise.
R50K = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s"
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+"
    r"|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
)


@dataclass(frozen=True)
class Pair:
    """Two tokenizers that should be one. theirs: of many texts at once. special: a token that both cut out of a text
    first.
    """

    ours: Callable[[str], list[int]]
    theirs: Callable[[list[str]], list[list[int]]]
    special: str

    def check(self, texts: list[str]) -> None:
        for text, expected in zip(texts, self.theirs(texts), strict=True):
            if self.ours(text) != expected:  # not an assert on lists of a million ids
                raise ValueError(f"the ids differ on {shortest(self, text)!r}")


def shortest(pair: Pair, text: str) -> str:
    """A part of a text on which two tokenizers differ, as short as halving finds it."""
    while len(text) > 1:
        halves = [text[: len(text) // 2], text[len(text) // 2 :], text[len(text) // 4 : -(len(text) // 4)]]
        smaller = [half for half in halves if pair.ours(half) != pair.theirs([half])[0]]
        if not smaller:
            break
        text = smaller[0]
    return text


def with_tiktoken(ours: Tokenizer, pat_str: str, ranks: dict[bytes, int]) -> Pair:
    theirs = tiktoken.Encoding("x", pat_str=pat_str, mergeable_ranks=ranks, special_tokens={EOT: 10**6})
    return Pair(
        lambda text: ours.encode(text, allowed_special="all"),
        lambda texts: [theirs.encode(text, allowed_special="all") for text in texts],
        EOT,
    )


def with_tokenizers(ours: Tokenizer, theirs: tokenizers.Tokenizer) -> Pair:
    return Pair(
        lambda text: ours.encode(text, allowed_special="all"),
        lambda texts: [actual.ids for actual in theirs.encode_batch_fast(texts, add_special_tokens=False)],
        next(iter(ours.special_tokens)),
    )


def published(name: str) -> Pair:
    folder = Path(str(DATA), "vocab")
    if name in TIKTOKEN:
        path, pattern, pat_str = folder / f"{name}_base.tiktoken", *TIKTOKEN[name]
        ours = Tokenizer.from_tiktoken(path, pattern=pattern, special_tokens={EOT: 10**6})
        return with_tiktoken(ours, pat_str, load_tiktoken_bpe(str(path)))
    if name == "gpt2":
        merges = [tuple(line.split(" ")) for line in (folder / "vocab.bpe").read_text().splitlines()[1:]]
        model = models.BPE(vocab=json.loads((folder / "encoder.json").read_text()), merges=merges)
        theirs = tokenizers.Tokenizer(model)
        theirs.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        theirs.add_special_tokens([EOT])
        return with_tokenizers(Tokenizer.from_gpt2(folder / "encoder.json", folder / "vocab.bpe"), theirs)
    path = folder / f"{name}_tokenizer.json"
    return with_tokenizers(Tokenizer.from_huggingface(path), tokenizers.Tokenizer.from_file(str(path)))


def small(name: str) -> Pair:
    pattern = {"r50k": "gpt2", "p50k": "gpt2", "qwen3": "qwen2", "deepseek_v3": "deepseek-v3"}.get(name, name)
    if name in TIKTOKEN:
        trained = bpe.train([corpus(21)], 700, pattern=pattern, special_tokens=[], tie_break="ids")
        ranks = {token: number for number, token in trained.vocab.items()}
        ours = Tokenizer.from_ranks(ranks, pattern=pattern, special_tokens={EOT: 10**6})
        return with_tiktoken(ours, TIKTOKEN[name][1], ranks)
    ours = bpe.train([corpus(22)], 700, pattern=pattern, special_tokens=[EOT], tie_break="huggingface")
    if name == "qwen3":
        ours = Tokenizer.from_data(ours._data._replace(normalizer="NFC"))
    if name == "llama3":
        ours = Tokenizer.from_data(ours._data._replace(ignore_merges=True))
    path = Path(os.environ["PYTEST_CURRENT_TEST_FOLDER"], f"{name}.json")
    ours.to_huggingface(path)
    return with_tokenizers(ours, tokenizers.Tokenizer.from_file(str(path)))


TIKTOKEN = {
    "r50k": ("gpt2", R50K),
    "p50k": ("gpt2", R50K),
    "cl100k": ("cl100k", CL100K),
    "o200k": ("o200k", patterns.PATTERNS["o200k"][0]),
}
NAMES = [*TIKTOKEN, "gpt2", "llama3", "qwen3", "deepseek_v3"]


@functools.cache
def pair(name: str) -> Pair:
    return small(name) if DATA is None else published(name)


@pytest.fixture(autouse=True, scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    os.environ["PYTEST_CURRENT_TEST_FOLDER"] = str(tmp_path_factory.mktemp("identical"))
    yield
    del os.environ["PYTEST_CURRENT_TEST_FOLDER"]
    pair.cache_clear()


def test_the_patterns_are_those_that_tiktoken_publishes() -> None:
    source = Path(str(tiktoken.__file__)).parent.parent / "tiktoken_ext" / "openai_public.py"
    text = source.read_text()
    assert R50K in text
    assert CL100K in text


# Texts


@needs_data
@pytest.mark.parametrize("name", NAMES)
def test_a_sample_of_every_text(name: str) -> None:
    rng = random.Random(7)
    for path in sorted(Path(str(DATA), "data").rglob("*.*")):
        with path.open("rb") as file:
            for _ in range(3):
                file.seek(rng.randrange(max(1, path.stat().st_size - 6000)))
                pair(name).check([file.read(6000).decode("utf-8", "replace")])


@needs_data
@pytest.mark.soak
@pytest.mark.parametrize("name", NAMES)
def test_every_text(name: str) -> None:
    for path in sorted(Path(str(DATA), "data").rglob("*.*")):
        text = path.read_bytes().decode("utf-8", "replace")
        parts = [text[begin : begin + 50_000] for begin in range(0, len(text), 50_000)]
        for begin in range(0, len(parts), 64):
            pair(name).check(parts[begin : begin + 64])


@pytest.mark.parametrize("name", NAMES)
def test_made_up_text(name: str) -> None:
    rng = random.Random(name)
    texts = [corpus(seed, 400) for seed in range(3)]
    texts += ["".join(rng.choices(PIECES, k=60)) for _ in range(60)]
    pair(name).check(texts)


# Corner cases: contractions with U+017F, 0x1c to 0x1f, runs of spaces and line ends, digits, marks, emoji, cases

CASES = st.lists(
    st.one_of(
        st.sampled_from(PIECES),
        st.text(alphabet="'sStTdDmMlLvVrReE\u017f\u212a\u0130", max_size=5),
        st.text(alphabet=" \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\xa0\u2028\u200b\u3000", max_size=6),
        st.text(alphabet="09\u0663\u00bd\u2167\u09e6\U0001d7d8", max_size=7),
        st.text(alphabet="aA\u01c5\u02b0\u0301\u05d0\u0903\u20e0\u4e2d", max_size=6),
        st.sampled_from(
            ["\U0001f468\u200d\U0001f469\u200d\U0001f467", "\u2764\ufe0f", "\U0001f1e9\U0001f1ea", "1\ufe0f\u20e3"]
        ),
        st.sampled_from([EOT, EOT * 2, EOT[:-1], EOT[1:], f"<|{EOT}|>", f"<|endof{EOT}text|>"]),
        st.text(max_size=3),
    ),
    max_size=25,
).map("".join)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=150)
@given(text=CASES)
def test_corner_cases(name: str, text: str) -> None:
    pair(name).check([text])


@pytest.mark.soak
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20_000)
@given(text=CASES)
def test_many_corner_cases(name: str, text: str) -> None:
    pair(name).check([text])


@pytest.mark.parametrize("name", TIKTOKEN)
@given(text=st.text(st.characters(categories=["Cs", "Ll", "So", "Zs"]), max_size=12))
def test_lone_surrogates(name: str, text: str) -> None:  # a str that holds them cannot be given to tokenizers at all
    pair(name).check([text])


# Code points

CONTEXTS = ["{0}", "a{0}", "{0}a", " {0}", "{0}{0}", "1{0}", "{0}1", "{0} b", "\n{0}", ".{0}", "'{0}", "{0}'s", "A{0}"]
CONTEXTS += ["{0}Aa", "{0}\n", "  {0}", "{0}\u0301", "\u0301{0}", "{0}\u4e2d"]


def in_context(code_points: range, context: str) -> list[str]:
    return [context.replace("{0}", chr(code)) for code in code_points if not 0xD800 <= code < 0xE000]


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_of_code_points(name: str) -> None:
    for index, context in enumerate(CONTEXTS):
        pair(name).check(in_context(range(index, 0x3400, 37), context))
        pair(name).check(in_context(range(0x3400 + index, 0x110000, 4999), context))


@pytest.mark.soak
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("context", CONTEXTS, ids=ascii)
def test_every_code_point_alone_and_in_context(name: str, context: str) -> None:
    """Between special tokens a text is encoded as if it were alone, and so thousands of them in one call."""
    for begin in range(0, 0x110000, 1 << 12):
        pair(name).check([pair(name).special.join(in_context(range(begin, begin + (1 << 12)), context))])


# Special tokens that overlap, touch, nest or are cut in half: the longest at the leftmost place, as tokenizers has it


@functools.cache
def plain() -> Tokenizer:
    return bpe.train([corpus(22)], 300, special_tokens=[], tie_break="huggingface")


NESTED = ["<a>", "<a><b>", "<b>", "b><", "<a", "a>", "<", "<a><b><c>"]


@given(
    names=st.lists(st.sampled_from(NESTED), unique=True), text=st.text(alphabet="<>abc ", max_size=40), extra=PRETOKENS
)
def test_special_tokens_of_every_kind(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], text: str, extra: str
) -> None:
    base = plain()
    names = [name for name in names if len(name) > 1]
    ours = Tokenizer(base.vocab, base.merges, special_tokens=names)
    path = tmp_path_factory.mktemp("written") / "nested.json"
    ours.to_huggingface(path)
    theirs = tokenizers.Tokenizer.from_file(str(path))
    for whole in (text, f"{text}{extra}{text}"):
        assert ours.encode(whole, allowed_special="all") == theirs.encode(whole).ids
