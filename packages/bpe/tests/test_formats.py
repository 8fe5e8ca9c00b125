"""Properties that all formats share, and the published files."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from format_samples import ALL, encode, needs_data, peer_of, read_pair, vocabulary, write_text

import bpe
from bpe import patterns
from bpe.formats import TokenizerData, huggingface, native, reading
from bpe.formats import tiktoken as tiktoken_format
from bpe.native.atomic_file import write_atomically


@pytest.mark.parametrize("kind", ["native", "huggingface"])
def test_a_number_too_long_is_refused_by_name(tmp_path: Path, kind: str) -> None:
    with pytest.raises(ValueError, match=r"file\.json: not JSON of ours: .*5000 digits"):
        reading.read(write_text(tmp_path, "file.json", f'{{"model": {"1" * 5000}}}'), kind)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    missing = tmp_path / "missing"
    there = write_text(tmp_path, "vocab.json", f"{{{ALL}}}")
    readers: list[Callable[[], Any]] = [
        lambda: tiktoken_format.read(missing),
        lambda: bpe.Tokenizer.from_gpt2(missing, there),
        lambda: bpe.Tokenizer.from_gpt2(there, missing),
        lambda: reading.read(missing, "huggingface").data,
        lambda: reading.read(missing, "native"),
    ]
    for read in readers:
        with pytest.raises(FileNotFoundError, match="missing"):
            read()


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_text(tmp_path, "file", "old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match=r"No space left on device: .*file"):
            write_atomically(path, b"new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]
    write_atomically(path, b"new")
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(FileNotFoundError, match="nowhere"):
        write_atomically(tmp_path / "nowhere" / "file", b"")


@pytest.mark.skipif(os.name != "posix", reason="pipes and links of POSIX")
def test_what_is_no_file_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    """`--out /dev/null` by who may do anything would put a file in its place."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    write_atomically(pipe, b"through")
    assert os.read(reader, 100) == b"through"
    os.close(reader)
    assert pipe.is_fifo()
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to(target)
    for data in (b"new", b"newer"):
        write_atomically(link, data)
        assert target.read_bytes() == data
    assert link.is_symlink()
    assert sorted(tmp_path.iterdir()) == [link, pipe, target]


@needs_data
@pytest.mark.parametrize("name", ["r50k_base", "p50k_base", "cl100k_base", "o200k_base"])
def test_published_tiktoken_files(tmp_path: Path, name: str) -> None:
    path = vocabulary(f"{name}.tiktoken")
    ranks = tiktoken_format.read(path)
    bpe.Tokenizer.from_ranks(ranks, pattern=name.removesuffix("_base")).to_tiktoken(tmp_path / "copy")
    assert (tmp_path / "copy").read_bytes() == path.read_bytes()


@needs_data
def test_published_gpt2_files(tmp_path: Path) -> None:
    vocab, merges = read_pair(vocabulary("encoder.json"), vocabulary("vocab.bpe"))
    assert (len(vocab), len(merges), vocab[50256]) == (50257, 50000, b"<|endoftext|>")
    bpe.Tokenizer(vocab, merges).to_gpt2(tmp_path)
    assert (tmp_path / "merges.txt").read_bytes() == vocabulary("vocab.bpe").read_bytes()
    assert json.loads((tmp_path / "vocab.json").read_bytes()) == json.loads(vocabulary("encoder.json").read_bytes())


PROSE = (
    "The quick brown fox isn't 12345 years old; naïve façade, e\u0301tude — ΑΒΓ «цитата» "
    "世界の皆さん、こんにちは 안녕하세요 ไทย हिन्दी 👩\u200d🚀🇩🇪 \t\n\n"
    "    def f(x):\r\n        return x**2 // 3  # ok\n"
    "<think>hm</think> <|im_start|><｜User｜> www.example.com/a_b?c=1 \n "
)


@needs_data
@pytest.mark.parametrize(
    ("name", "pattern", "size"),
    [("llama3", "llama3", 128256), ("qwen3", "qwen2", 151669), ("deepseek_v3", "deepseek-v3", 129280)],
)
def test_published_tokenizer_jsons(tmp_path: Path, name: str, pattern: str, size: int) -> None:
    path = vocabulary(f"{name}_tokenizer.json")
    data = reading.read(path, "huggingface").data
    assert (data.pattern.name, len(data.vocab)) == (pattern, size)
    assert encode(data, PROSE) == peer_of(path).encode(PROSE, add_special_tokens=False).ids

    copy = tmp_path / "tokenizer.json"
    huggingface.write(copy, data)
    assert peer_of(copy).encode(PROSE).ids == encode(data, PROSE)
    native.write(copy, data)
    assert reading.read(copy, "native").data == data


@needs_data
@pytest.mark.parametrize("name", ["p50k_base", "cl100k_base"])
def test_published_ranks_as_a_tokenizer_json(tmp_path: Path, name: str) -> None:
    tiktoken = pytest.importorskip("tiktoken", reason="compares with the ids of tiktoken")
    ranks = tiktoken_format.read(vocabulary(f"{name}.tiktoken"))
    data = TokenizerData(
        vocab={number: token for token, number in ranks.items()} | {200_000: b"<think>"},
        merges=tiktoken_format.merges_from_ranks(ranks),
        special_tokens={"<think>": 200_000},
        pattern=patterns.resolve(name),
        ignore_merges=True,
    )
    path = tmp_path / "tokenizer.json"
    huggingface.write(path, data)
    peer = tiktoken.Encoding(
        name, pat_str=data.pattern.expressions[0], mergeable_ranks=ranks, special_tokens=data.special_tokens
    )
    assert peer_of(path).encode(PROSE).ids == peer.encode(PROSE, allowed_special="all")
