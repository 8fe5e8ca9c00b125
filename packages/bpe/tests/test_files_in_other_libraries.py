"""The files that this package writes, loaded by the libraries they are for: they encode there as it does here."""

from __future__ import annotations

import functools
import logging
import os
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tiktoken
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import PRETOKENS, TEXTS, corpus
from tiktoken.load import load_tiktoken_bpe

import bpe
from bpe import patterns
from bpe.tokenizer import Tokenizer

EOT = "<|endoftext|>"
Encode = Callable[[str], list[int]]

data_folder = os.environ.get("GROUNDUP_DATA")
needs_data = pytest.mark.skipif(
    data_folder is None, reason="GROUNDUP_DATA names no folder with the published vocabularies"
)


@functools.cache
def trained(pattern: str | None, tie_break: str = "bytes") -> Tokenizer:
    return bpe.train([corpus(12)], 600, pattern=pattern, special_tokens=[EOT, "<|pad|>"], tie_break=tie_break)


def changed(tokenizer: Tokenizer, **changes: Any) -> Tokenizer:
    return Tokenizer.from_data(tokenizer._data._replace(**changes))


def by_rank() -> Tokenizer:
    ranks = {token: number for number, token in trained("o200k", "ids").vocab.items() if number < 598}
    return Tokenizer.from_ranks(ranks, pattern="o200k", special_tokens={EOT: 598, "<|far|>": 700})


MADE: dict[str, Callable[[], Tokenizer]] = {
    "gpt2": lambda: trained("gpt2"),
    "as tokenizers trains": lambda: trained("gpt2", "huggingface"),
    "no pattern": lambda: trained(None),
    "cl100k": lambda: trained("cl100k"),
    "o200k": lambda: trained("o200k"),
    "llama3": lambda: trained("llama3"),
    "deepseek": lambda: trained("deepseek-v3"),
    "an expression": lambda: changed(trained("gpt2"), pattern=patterns.resolve(r"\p{L}+| ?[^\s\p{L}]+|\s+")),
    "qwen2, NFC": lambda: changed(trained("qwen2"), normalizer="NFC"),
    "a space before": lambda: changed(trained("gpt2"), add_prefix_space=True),
    "a template": lambda: changed(trained("llama3"), prefix=(EOT,), suffix=("<|pad|>",)),
    "looked up whole": lambda: changed(trained("gpt2"), ignore_merges=True),
    "by rank": by_rank,
}


def in_tokenizers(path: Path) -> Encode:
    loaded = tokenizers.Tokenizer.from_file(str(path))
    return lambda text: loaded.encode(text).ids


def in_transformers(path: Path) -> Encode:
    logging.getLogger("transformers").setLevel(logging.ERROR)  # it has much to say of torch
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from transformers import PreTrainedTokenizerFast

        loaded = PreTrainedTokenizerFast(tokenizer_file=str(path))
    return lambda text: loaded.encode(text)


@functools.cache
def everywhere(name: str, folder: Path) -> tuple[Tokenizer, list[Encode]]:
    tokenizer = MADE[name]()
    path = folder / f"{name}.json"
    tokenizer.to_huggingface(path)
    return tokenizer, [in_tokenizers(path), in_transformers(path)]


@pytest.mark.parametrize("name", MADE)
@settings(max_examples=25)
@given(text=st.one_of(PRETOKENS, TEXTS, st.just(corpus(13, 300)), st.just(f"a{EOT} <|pad|>b<|far|>")))
def test_a_tokenizer_json(tmp_path_factory: pytest.TempPathFactory, name: str, text: str) -> None:
    ours, others = everywhere(name, tmp_path_factory.getbasetemp())
    expected = ours.post_process(ours.encode(text, allowed_special="all"))
    for encode in others:
        assert encode(text) == expected


@settings(max_examples=25)
@given(text=st.one_of(PRETOKENS, st.just(corpus(13, 300))))
def test_vocab_json_and_merges_txt(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    folder = tmp_path_factory.getbasetemp() / "gpt2"
    ours = trained("gpt2")
    if not folder.exists():
        ours.to_gpt2(folder)
    loaded = tokenizers.ByteLevelBPETokenizer.from_file(str(folder / "vocab.json"), str(folder / "merges.txt"))
    assert loaded.encode(text).ids == ours.encode(text, disallowed_special=())


@pytest.mark.parametrize("make", [by_rank, lambda: trained("cl100k", "ids"), lambda: trained("gpt2", "ids")])
def test_a_tiktoken_file(tmp_path: Path, make: Callable[[], Tokenizer]) -> None:
    ours = make()
    ours.to_tiktoken(tmp_path / "ours.tiktoken")
    theirs = tiktoken.Encoding(
        "ours",
        pat_str=ours._data.pattern.expressions[0],
        mergeable_ranks=load_tiktoken_bpe(str(tmp_path / "ours.tiktoken")),
        special_tokens=dict(ours.special_tokens),
    )
    for text in (corpus(13, 2000), "".join(map(chr, range(0x20, 0x3000))), f"a{EOT} <|far|>b"):
        assert theirs.encode(text, allowed_special="all") == ours.encode(text, allowed_special="all")
    assert theirs.n_vocab == ours.n_vocab


@pytest.mark.soak
@needs_data
@pytest.mark.parametrize("name", ["llama3", "qwen3", "deepseek_v3"])
def test_published_files_in_transformers(tmp_path: Path, name: str) -> None:
    ours = Tokenizer.from_huggingface(Path(str(data_folder), "vocab", f"{name}_tokenizer.json"))
    ours.to_huggingface(tmp_path / "tokenizer.json")
    encode = in_transformers(tmp_path / "tokenizer.json")
    text = Path(str(data_folder), "data", "udhr_all.txt").read_text(errors="replace")[:200_000]
    assert encode(text) == ours.post_process(ours.encode(text, allowed_special="all"))
