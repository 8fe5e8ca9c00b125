"""Tables kept on disk: a tokenizer that is loaded from them is the one of its file, whatever state the folder is in."""

from __future__ import annotations

import json
import os
import pickle
import random
import subprocess
import sys
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from format_samples import BYTES, TEXTS, VARIANTS, needs_data, sample, vocabulary
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import growing_vocabularies

import bpe
from bpe import patterns
from bpe.encoding.encoder import Encoder, Ranks
from bpe.formats import TokenizerData, native, table_cache
from bpe.formats.table_cache import KeptVocabulary
from bpe.formats.vocabulary import make_tables
from bpe.scanning.special_tokens import Rules, SpecialTokens


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the kept tables, not there yet; tokenizers of any size are kept."""
    folder = tmp_path / "caches" / "tables"
    monkeypatch.setenv("BPE_CACHE_DIR", str(folder))
    monkeypatch.setattr(table_cache, "SMALLEST", 0)
    return folder


def written(folder: Path, data: TokenizerData | None = None) -> Path:
    path = folder / "tok.json"
    native.write(path, sample() if data is None else data)
    return path


def is_kept(tokenizer: bpe.Tokenizer) -> bool:
    return isinstance(tokenizer.data.vocab, KeptVocabulary)


def loaded_twice(load: Callable[[], bpe.Tokenizer]) -> tuple[bpe.Tokenizer, bpe.Tokenizer]:
    """A tokenizer as its file has it, and as it was kept."""
    result = load()
    assert not is_kept(result)
    rest = load()
    assert is_kept(rest)
    return result, rest


def assert_same(made: bpe.Tokenizer, kept: bpe.Tokenizer, texts: list[str]) -> None:
    for text in texts:
        ids = made.encode(text, allowed_special="all")
        assert kept.encode(text, allowed_special="all") == ids
        assert kept.encode_to_numpy(text, allowed_special="all").tolist() == ids
        assert kept.decode_bytes(ids) == made.decode_bytes(ids)
    assert kept.data == made.data
    assert list(kept.vocab.items()) == list(made.vocab.items())
    assert (repr(kept), kept.fingerprint, kept.n_vocab) == (repr(made), made.fingerprint, made.n_vocab)
    assert pickle.loads(pickle.dumps(kept)).data == made.data


SPLITS = [
    patterns.resolve(r"\s+|\S+", "fancy-regex"),
    patterns.of_steps([{"type": "Digits", "individual_digits": True}, {"type": "ByteLevel", "use_regex": False}]),
]


@pytest.mark.parametrize(
    "data",
    [*(sample(**changes) for changes in VARIANTS), sample(merges=None), *(sample(pattern=split) for split in SPLITS)],
    ids=str,
)
def test_the_same_as_the_file(folder: Path, tmp_path: Path, data: TokenizerData) -> None:
    path = written(tmp_path, data)
    result, rest = loaded_twice(lambda: bpe.load(path))
    assert_same(result, rest, TEXTS)
    assert rest.data.merges is None or rest.merges == result.merges


def test_every_format(folder: Path, tmp_path: Path) -> None:
    tokenizer = bpe.train(TEXTS, 270, special_tokens=["<|endoftext|>"])
    tokenizer.to_huggingface(tmp_path / "tokenizer.json")
    tokenizer.to_tiktoken(tmp_path / "trained.tiktoken")
    tokenizer.to_gpt2(tmp_path)
    names = ["<|endoftext|>"]
    loads: list[Callable[[], bpe.Tokenizer]] = [
        lambda: bpe.load(tmp_path / "tokenizer.json"),
        lambda: bpe.load(tmp_path / "vocab.json", pattern="gpt2"),
        lambda: bpe.load(tmp_path / "trained.tiktoken", pattern="gpt2", special_tokens=names),
        lambda: bpe.load(tmp_path / "trained.tiktoken", pattern=r"\s+|\S+", special_tokens={"<|endoftext|>": 500}),
        lambda: bpe.Tokenizer.from_tiktoken(tmp_path / "trained.tiktoken", pattern=None, special_tokens=iter(names)),
    ]
    for count, load in enumerate(loads, 1):
        result, rest = loaded_twice(load)
        assert_same(result, rest, TEXTS)
        assert len(list(folder.iterdir())) == count  # what is given beside a file is part of what is kept


def test_characters(folder: Path, tmp_path: Path) -> None:
    """Tokens that are merged from characters, some of which stand for several ids."""
    path = tmp_path / "tokenizer.json"
    bpe.train_sentencepiece(["low lower low 世界 世界"], 270).to_huggingface(path)
    result, rest = loaded_twice(lambda: bpe.load(path))
    assert_same(result, rest, ["low lower 世界丗 世x", "é low"])
    assert rest.merges == result.merges


@settings(max_examples=50)
@given(
    vocabulary=growing_vocabularies(),
    by_rank=st.booleans(),
    ignore_merges=st.booleans(),
    words=st.lists(st.text("abc", min_size=1, max_size=70), min_size=1, max_size=40),
)
def test_any_ranks(vocabulary: Any, by_rank: bool, ignore_merges: bool, words: list[str]) -> None:
    ids, merges = vocabulary
    vocab = {number: token for token, number in ids.items()}
    data = TokenizerData(vocab, None if by_rank else merges, {}, patterns.resolve("gpt2"), ignore_merges=ignore_merges)
    tables = make_tables(data, ignore_merges)
    none, text = SpecialTokens(), " ".join(words).encode()
    encoders = [
        Encoder(ranks=ranks, ids=tables.ids, scanner=patterns.scanner_of(data.pattern), cache_bytes=0)
        for ranks in (tables.ranks, Ranks(parts=tables.ranks.parts()))
    ]
    result, again = (encoder.encode_array(text, Rules(none, none)) for encoder in encoders)
    assert np.array_equal(result, again)


@needs_data
@pytest.mark.parametrize("name", ["r50k_base.tiktoken", "vocab.bpe", "qwen3_tokenizer.json"])
def test_published_vocabularies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("BPE_CACHE_DIR", str(tmp_path))
    result, rest = loaded_twice(lambda: bpe.load(vocabulary(name)))
    assert_same(result, rest, ["Hello, world! \u4f60\u597d 12345 <|endoftext|>\n\n  x"])


@pytest.mark.parametrize("change", ["cut", "flipped", "empty", "other", "version", "no line", "no sections"])
def test_damage_costs_only_time(folder: Path, tmp_path: Path, change: str) -> None:
    path = written(tmp_path)
    result, _ = loaded_twice(lambda: bpe.load(path))
    (rest,) = folder.iterdir()
    content = rest.read_bytes()
    begin = content.index(b"\n") + 1

    assert mended(content) == content
    damaged = {
        "cut": [content[:size] for size in range(0, len(content), len(content) // 20)],
        "flipped": [
            content[:at] + bytes([content[at] ^ 1 << at % 8]) + content[at + 1 :]
            for at in [*range(0, begin, 23), *range(begin, len(content), len(content) // 25)]
        ],
        "empty": [b""],
        "other": [b"\n", b"{}\n", b"[]\n" + content[begin:], b"\xff" * 1000 + b"\n"],
        "version": [content.replace(b"version", b"variant", 1)],
        "no line": [b"x" * 1000],
        "no sections": [mended(b" " * 9 + json.dumps({"format": table_cache.FORMAT, "sections": {}}).encode() + b"\n")],
    }
    for wrong in damaged[change]:
        rest.write_bytes(wrong)
        again = bpe.load(path)
        assert not is_kept(again)
        assert_same(result, again, TEXTS)
        assert rest.read_bytes() == content  # made anew
        assert is_kept(bpe.load(path))


FORGED = 100  # files


def mended(content: bytes) -> bytes:
    """A file of tables whose checksum is that of its content."""
    return b"%08x " % zlib.crc32(content[9:]) + content[9:]


def forged(content: bytes, chance: random.Random) -> bytes:
    """The same with some bytes or words changed: in the sections' sizes, in the texts, in the numbers."""
    begin = content.index(b"\n") + 1
    changed = bytearray(content)
    for _ in range(chance.choice([1, 1, 2, 20])):
        at = chance.randrange(9, begin) if chance.random() < 0.2 else chance.randrange(begin, len(content))
        if chance.random() < 0.5:
            changed[at] = chance.randrange(256)
        else:
            at = at // 8 * 8
            changed[at : at + 4] = chance.choice([0, 1, 300, 0xFFFFF, 2**31 - 1, 2**32 - 1]).to_bytes(4, "little")
    return mended(bytes(changed[: len(content)]))


@pytest.mark.parametrize("kind", ["merges", "ranks", "characters"])
def test_files_with_a_right_checksum_and_wrong_content_do_no_harm(folder: Path, tmp_path: Path, kind: str) -> None:
    """They are refused, or they encode with numbers that exist: never a crash, never an error of Python's own."""
    data = sample() if kind == "merges" else sample(merges=None, ignore_merges=True)
    path = written(tmp_path, data) if kind != "characters" else tmp_path / "tokenizer.json"
    if kind == "characters":
        bpe.train_sentencepiece(["ab ba xyz é 世界 the cat"] * 3, 285).to_huggingface(path)
    result = bpe.load(path)
    expected = [result.encode(text, disallowed_special=()) for text in TEXTS]
    (file,) = folder.iterdir()
    content, chance, accepted = file.read_bytes(), random.Random(kind), 0
    for _ in range(FORGED):
        file.write_bytes(forged(content, chance))
        tokenizer = bpe.load(path)
        accepted += is_kept(tokenizer)
        ids = [tokenizer.encode(text, disallowed_special=()) for text in TEXTS]
        assert is_kept(tokenizer) or ids == expected
        for numbers in ids:
            tokenizer.decode_bytes(numbers)  # every id is one of the vocabulary
        assert len(list(tokenizer.data.merges or ())) == len(result.data.merges or ())
    assert 0 < accepted < FORGED  # some changes only make other merges


@pytest.mark.skipif(os.name != "posix", reason="owners and modes of POSIX")
def test_tables_of_somebody_else_are_not_read(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path)
    loaded_twice(lambda: bpe.load(path))
    (file,) = folder.iterdir()
    assert file.stat().st_mode & 0o777 == 0o600
    for place, mode in ((file, 0o620), (file, 0o602), (folder, 0o770), (folder, 0o707)):
        usual = place.stat().st_mode & 0o777
        place.chmod(mode)
        tokenizer = bpe.load(path)
        assert not is_kept(tokenizer)
        assert tokenizer.encode("the") == bpe.Tokenizer.from_data(sample()).encode("the")
        place.chmod(usual)
        assert is_kept(bpe.load(path))
    monkeypatch.setattr(os, "geteuid", lambda: file.stat().st_uid + 1)
    assert not is_kept(bpe.load(path))


def test_another_content_is_another_tokenizer(folder: Path, tmp_path: Path) -> None:
    path = written(tmp_path)
    loaded_twice(lambda: bpe.load(path))
    other = sample(vocab={**sample().vocab, 400: b"more"})
    written(tmp_path, other)
    result, rest = loaded_twice(lambda: bpe.load(path))
    assert result.data == rest.data == other
    assert len(list(folder.iterdir())) == 2


def test_other_code_does_not_read_what_is_kept(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path)
    loaded_twice(lambda: bpe.load(path))
    monkeypatch.setattr(table_cache, "_code", lambda: [[1, 2]])
    assert not is_kept(bpe.load(path))


@pytest.mark.parametrize("why", ["small", "an empty name"])
def test_nothing_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    if why == "an empty name":
        monkeypatch.setattr(table_cache, "SMALLEST", 0)
    monkeypatch.setenv("BPE_CACHE_DIR", str(tmp_path / "caches") if why == "small" else "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "caches"))
    path = written(tmp_path)
    for _ in range(2):
        tokenizer = bpe.load(path)
        tokenizer.encode("a")
        assert not is_kept(tokenizer)
    assert not (tmp_path / "caches").exists()


def test_nothing_is_kept_of_a_wrong_file(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "tok.json"
    path.write_text(written(tmp_path).read_text().replace('"name":null', '"name":"x"'))
    for _ in range(2):
        with pytest.raises(ValueError, match="checksum"):
            bpe.load(path)
    with pytest.raises(ValueError, match="ids of a vocabulary"):
        bpe.Tokenizer.from_tiktoken(ranks_file(tmp_path), pattern="gpt2", special_tokens={"<s>": -1})
    assert not folder.exists()


def ranks_file(folder: Path) -> Path:
    path = folder / "small.tiktoken"
    bpe.Tokenizer.from_ranks({byte: number for number, byte in enumerate(BYTES)}, pattern=None).to_tiktoken(path)
    return path


def test_warnings_of_a_file_come_each_time(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "tokenizer.json"
    bpe.train(TEXTS, 270).to_huggingface(path)
    file = json.loads(path.read_text())
    path.write_text(json.dumps(file | {"truncation": {"max_length": 5}}))
    for _ in range(2):
        with pytest.warns(UserWarning, match="truncation"):
            bpe.load(path).encode("a")
    with pytest.warns(UserWarning, match="truncation"):
        assert is_kept(bpe.load(path))


# The folder


@pytest.mark.skipif(sys.platform != "linux", reason="where the folder is depends on the system")
def test_the_usual_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_cache, "SMALLEST", 0)
    monkeypatch.delenv("BPE_CACHE_DIR")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert table_cache.folder() == tmp_path / ".cache" / "groundup-bpe"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    path = written(tmp_path)
    loaded_twice(lambda: bpe.load(path))
    rest = tmp_path / "xdg" / "groundup-bpe"
    assert rest.stat().st_mode & 0o777 == 0o700
    monkeypatch.setattr(os, "geteuid", lambda: rest.stat().st_uid + 1)
    assert not is_kept(bpe.load(path))  # somebody else could have written what is there
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert table_cache.folder() is None


def test_a_folder_that_cannot_be_made(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    path = written(tmp_path)
    for place in (tmp_path / "file", tmp_path / "file" / "below", Path("/proc/tables"), Path("\0")):
        try:
            monkeypatch.setenv("BPE_CACHE_DIR", str(place))
        except ValueError:  # no such name can be in the environment
            continue
        for _ in range(2):
            tokenizer = bpe.load(path)
            assert tokenizer.encode("the")
            assert not is_kept(tokenizer)


def test_a_full_disk_leaves_nothing(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path)

    class Full:
        def __init__(self, file: Any) -> None:
            self.file = file

        def close(self) -> None:
            self.file.close()

        def fileno(self) -> int:
            return int(self.file.fileno())

        def write(self, data: bytes) -> int:
            return int(self.file.write(data))

        def writelines(self, parts: list[bytes]) -> None:
            self.file.write(parts[0])
            raise OSError(28, "No space left on device")

    monkeypatch.setattr("bpe.native.atomic_file.open", lambda *asked: Full(open(*asked)), raising=False)  # noqa: SIM115
    tokenizer = bpe.load(path)
    assert tokenizer.encode("the") == bpe.Tokenizer.from_data(sample()).encode("the")
    assert list(folder.iterdir()) == []


def test_what_is_not_used_goes(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def keep(number: int) -> Path:
        path = tmp_path / f"{number}.json"
        native.write(path, sample(vocab={**sample().vocab, 400 + number: b"more"}))
        expected = set(folder.glob("*")) if folder.exists() else set()
        bpe.load(path).encode("a")
        (rest,) = set(folder.iterdir()) - expected
        os.utime(rest, (number, number))
        return rest

    first = keep(1)
    monkeypatch.setattr(table_cache, "LARGEST_FOLDER", 3 * first.stat().st_size + 1000)
    second, third = keep(2), keep(3)
    assert is_kept(bpe.load(tmp_path / "1.json"))  # used again, so the second goes first
    fourth = keep(4)
    assert {*folder.iterdir()} == {first, third, fourth}
    assert not second.exists()


def test_threads_and_processes_at_once(folder: Path, tmp_path: Path) -> None:
    path = written(tmp_path)
    ids = bpe.Tokenizer.from_data(sample()).encode(TEXTS[1])
    program = (
        "import sys, bpe; from bpe.formats import table_cache; table_cache.SMALLEST = 0\n"
        "for _ in range(20): assert str(bpe.load(sys.argv[1]).encode(sys.argv[2])) == sys.argv[3]\n"
    )
    arguments = [sys.executable, "-c", program, str(path), TEXTS[1], str(ids)]
    processes = [subprocess.Popen(arguments) for _ in range(2)]
    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lambda _: bpe.load(path).encode(TEXTS[1]) == ids, range(40)))
    assert [process.wait() for process in processes] == [0, 0]
    assert len(list(folder.iterdir())) == 1


def test_lists_need_no_numpy(folder: Path, tmp_path: Path) -> None:
    path = written(tmp_path)
    loaded_twice(lambda: bpe.load(path))
    program = (
        "import sys, bpe; from bpe.formats import table_cache; table_cache.SMALLEST = 0\n"
        "tokenizer = bpe.load(sys.argv[1])\n"
        "assert tokenizer.decode(tokenizer.encode('the path', allowed_special='all')) == 'the path'\n"
        "assert 'numpy' not in sys.modules\n"
        "assert tokenizer.encode_to_numpy('the path').tolist() == tokenizer.encode('the path')\n"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=True)
