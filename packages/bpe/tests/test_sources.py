"""Corpora of every kind give the texts they hold, in bounded memory, or one sentence that names the file."""

import gzip
import io
import json
import lzma
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import DATA, corpus

import bpe
from bpe.corpus import compressed, sources
from bpe.counting.pretoken_counts import PretokenCounts
from bpe.outputs import encode_source
from bpe.scanning.safe_cut import safe_cut
from bpe.scanning.scanner import SCANNED
from bpe.scanning.special_tokens import SpecialTokens

zstandard = pytest.importorskip("zstandard", reason="zstandard is not installed")
TEXT = corpus(6)
OUT = "ids.npy"
SCANNERS = [*SCANNED.values()]
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".xz": lzma.compress,
    ".zst": lambda data: zstandard.ZstdCompressor(write_checksum=True).compress(data),
}


def read(source: sources.Source) -> list[bytes]:
    """The texts of a source, streams joined."""
    return [
        bytes(text.data) if isinstance(text, sources.Document) else b"".join(block for block, _ in text)
        for text in sources.texts(source)
    ]


@pytest.mark.parametrize("suffix", COMPRESS)
def test_compressed_files_are_the_text_they_hold(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"corpus.txt{suffix}"
    compress = COMPRESS[suffix]
    for parts in ([b"a"], [TEXT.encode()], [TEXT.encode()] * 3, [b"\0" * 5_000_000, b"x"], [b""]):
        path.write_bytes(b"".join(map(compress, parts)))  # several members are one text
        assert read(path) == [b"".join(parts)]
    assert sources.size_of(path) == path.stat().st_size


@pytest.mark.parametrize("suffix", COMPRESS)
def test_a_file_cut_short_or_damaged_is_named_and_nothing_is_written(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"corpus.txt{suffix}"
    whole = COMPRESS[suffix](os.urandom(50_000) + TEXT.encode())
    for size in [0, 1, 5, 100, len(whole) // 2, len(whole) - 1]:
        path.write_bytes(whole[:size])
        with pytest.raises(ValueError, match=rf"corpus\.txt\{suffix}: the \w+ data are cut short"):
            bpe.train(path, 300)
    path.write_bytes(whole + whole[: len(whole) // 2])
    with pytest.raises(ValueError, match="cut short"):
        read(path)
    path.write_bytes(b"this is no such file" * 10)
    with pytest.raises(ValueError, match=r"corpus\.txt\.\w+: not whole \w+ data"):
        read(path)
    path.write_bytes(whole[:1000] + bytes(100) + whole[1100:])
    with pytest.raises(ValueError, match=r"corpus\.txt"):
        read(path)


@pytest.mark.parametrize("suffix", COMPRESS)
def test_what_swells_a_thousandfold_comes_in_blocks(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"zeros{suffix}"
    path.write_bytes(COMPRESS[suffix](bytes(40_000_000)))
    actual = sources.texts(path)
    stream = next(actual)
    assert not isinstance(stream, sources.Document)
    sizes = [len(block) for block, _ in stream]
    assert sum(sizes) == 40_000_000
    if suffix != ".zst":
        assert max(sizes) < 2 * compressed.BLOCK + 1


def test_without_a_library_zstandard_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "corpus.zst"
    path.write_bytes(COMPRESS[".zst"](b"text"))
    monkeypatch.setitem(sys.modules, "zstandard", None)
    monkeypatch.setitem(sys.modules, "compression.zstd", None)
    with pytest.raises(ImportError, match=r"groundup-bpe\[zst\]"):
        read(path)


@given(
    st.lists(DATA, max_size=4).map(b"".join),
    st.integers(1, 50),
    st.integers(1, 30),
    st.sampled_from([-1, *SCANNERS]),
)
def test_stretches_of_a_stream_count_as_the_whole(text: bytes, size: int, block: int, scanner: int) -> None:
    special = SpecialTokens(["<|endoftext|>", "<|", " a", "\n"])
    blocks = [(text[at : at + block], 1) for at in range(0, len(text), block)]

    def cut(text: bytes, at: int) -> int:
        return safe_cut(text, at, scanner, special)

    whole, parts = PretokenCounts(), PretokenCounts()
    whole.count(text, max(scanner, 0), special)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "CUT_SEARCH", 16)
        stretches = list(sources._cut_stream(iter(blocks), cut, special.longest, size))
    assert b"".join(bytes(one.text)[one.begin : one.end] for one in stretches) == text
    for one in stretches:
        parts.count(bytes(one.text)[one.begin : one.end], max(scanner, 0), special)
    assert dict(parts.items()) == dict(whole.items())
    assert sum(one.read for one in stretches) == len(blocks)


def test_json_lines(tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    texts = ["one", "two\nlines", "", "dré 中文", "\ud800"]
    path.write_text("\n\n".join(json.dumps({"id": i, "text": text}) for i, text in enumerate(texts)))
    expected = [text.encode("utf-8", "surrogatepass") for text in texts]
    assert read(path) == expected
    assert read(bpe.JsonLines(path)) == expected
    for suffix, compress in COMPRESS.items():
        packed = tmp_path / f"corpus.json{suffix}"
        packed.write_bytes(compress(path.read_bytes() + b"\n"))
        assert read([packed]) == expected
    assert read(bpe.PlainText(path)) == [path.read_bytes()]
    other = tmp_path / "other.ndjson"
    other.write_text('{"content": "x"}\r\n')
    assert read([bpe.JsonLines(other, key="content"), path]) == [b"x", *expected]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "not JSON"),
        (b'"text"', "a JSON object with the key 'text' is expected, not str"),
        (b'{"content": "a", "id": 3}', "no key 'text'; there are 'content', 'id'"),
        (b'{"text": 3}', "the value of 'text' is not a string but 3"),
        (b'{"text": null}', "not a string but null"),
        (b'{"text": "\xff"}', "not UTF-8: byte 0xff"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"text": "a", "n": ' + b"1" * 5000 + b"}", "5000 digits"),
    ],
)
def test_a_bad_line_of_json_is_named(line: bytes, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "corpus.jsonl"
    path.write_bytes(b'{"text": "good"}\n\n' + line + b'\n{"text": "good"}\n')
    with pytest.raises(ValueError, match=rf"corpus\.jsonl, line 3: .*{reason}"):
        bpe.train(path, 300)


def test_a_line_of_json_may_be_longer_than_a_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "BLOCK", 10)
    path = tmp_path / "corpus.jsonl"
    path.write_text("\n".join(json.dumps({"text": word * 20}) for word in ("ab", "c", "d" * 50)))
    assert read(path) == [b"ab" * 20, b"c" * 20, b"d" * 1000]


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_with_a_byte_order_mark_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    text = "some text \U0001f600 日本" * 5
    data = f"\ufeff{text}".encode(encoding)
    monkeypatch.setattr(sources, "BLOCK", 7)  # blocks end inside characters
    (tmp_path / "packed.txt.gz").write_bytes(gzip.compress(data))
    for small in (1 << 20, 10):
        monkeypatch.setattr(sources, "SMALL", small)
        (tmp_path / "plain.txt").write_bytes(data)
        for name in ("plain.txt", "packed.txt.gz"):
            assert read(tmp_path / name) == [text.encode()], (name, small)
    with open(tmp_path / "plain.txt", "rb") as file:
        assert read(file) == [text.encode()]
    (tmp_path / "plain.txt").write_bytes(data[:-1])
    with pytest.raises(ValueError, match=r"plain\.txt: UTF-16 by its first two bytes, but"):
        read(tmp_path / "plain.txt")


def test_parquet(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    pytest.importorskip("pyarrow.parquet")
    path = tmp_path / "corpus.parquet"
    texts = ["one", None, "dré 中文", ""] * 300
    pyarrow.parquet.write_table(pyarrow.table({"text": texts, "n": list(range(1200))}), path, row_group_size=500)
    expected = [text.encode() for text in texts if text is not None]
    assert read(path) == expected
    assert sum(text.read for text in sources.texts(path)) == path.stat().st_size
    assert read(bpe.Parquet(path, column="text")) == expected
    with pytest.raises(ValueError, match=r"corpus\.parquet: no column 'content'; there are text, n"):
        read(bpe.Parquet(path, column="content"))
    with pytest.raises(ValueError, match="column 'n': the array holds int64, not text"):
        read(bpe.Parquet(path, column="n"))
    for kind in (pyarrow.dictionary(pyarrow.int32(), pyarrow.string()), pyarrow.string_view(), pyarrow.binary()):
        pyarrow.parquet.write_table(pyarrow.table({"text": pyarrow.array(texts).cast(kind)}), path)
        assert read(path) == expected, kind
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(ValueError, match=r"corpus\.parquet: not a whole Parquet file"):
        read(path)
    with pytest.raises(FileNotFoundError, match=r"nowhere\.parquet"):
        read(tmp_path / "nowhere.parquet")


def test_without_pyarrow_parquet_names_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "corpus.parquet").touch()
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r"groundup-bpe\[parquet\]"):
        read(tmp_path / "corpus.parquet")


def test_thousands_of_files_with_few_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource", reason="this system sets no limit of descriptors")
    monkeypatch.setattr(sources, "SMALL", 2000)  # some of them are mapped
    paths = [tmp_path / f"{i}.txt" for i in range(600)]
    for i, path in enumerate(paths):
        path.write_text(f"file {i} " * (1 + 400 * (i % 50 == 0)))
    resource = pytest.importorskip("resource", reason="only POSIX systems bound the descriptors of a process")
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (100, limits[1]))
    try:
        tokenizer = bpe.train(paths, 280)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert tokenizer.vocab == bpe.train([path.read_text() for path in paths], 280).vocab


def test_a_str_in_a_list_is_a_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever files the folder holds."""
    monkeypatch.chdir(tmp_path)
    Path("a").write_text("something else")
    Path("one.txt").write_text("something else")
    assert read(["a", "some text"]) == [b"a", b"some text"]
    assert read(["a"]) == [b"a"]
    assert read(["one.txt", Path("one.txt")]) == [b"one.txt", b"something else"]
    for texts in (["a text", "another"], ["see one.txt"], ["one.txt", "is a file"], ["", "x\0y"], [], ["one"] * 3):
        assert sources.files_of(texts) is None
    for names in (["one.txt"], ("data/one.txt", "data/two.jsonl.gz"), ["corpus.PARQUET"]):
        with pytest.raises(TypeError, match=r"in a list a str is a text, .* give pathlib\.Path objects for files"):
            sources.files_of(names)
    assert read(iter(["one.txt", "two.txt"])) == [b"one.txt", b"two.txt"]
    assert sources.files_of([Path("a"), bpe.JsonLines("b")]) == [bpe.PlainText(Path("a")), bpe.JsonLines("b")]


def test_a_json_file_that_is_not_json_lines_is_refused_by_name(tmp_path: Path) -> None:
    for name, text in (
        ("a.json", '[\n{"text": "x"}\n]'),
        ("b.json", '[{"text": "x"}]'),
        ("c.json.gz", '{\n"text": "x"}'),
    ):
        path = tmp_path / name
        path.write_bytes(gzip.compress(text.encode()) if name.endswith(".gz") else text.encode())
        with pytest.raises(ValueError, match=rf"{re.escape(name)}, line 1: .*; a \.json is read as JSON lines"):
            bpe.train(path, 300)


def test_open_files_and_pipes_are_one_text(tmp_path: Path) -> None:
    expected = bpe.train([TEXT], 290).vocab
    assert bpe.train(io.BytesIO(TEXT.encode()), 290).vocab == expected
    assert bpe.train(io.StringIO(TEXT), 290).vocab == expected
    assert bpe.train([io.BytesIO(TEXT.encode())], 290).vocab == expected
    if not hasattr(os, "mkfifo"):
        pytest.skip("this system has no named pipes")
    pipe = tmp_path / "pipe.txt"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_text(TEXT))
    writer.start()
    assert bpe.train(pipe, 290).vocab == expected
    writer.join()
    with pytest.raises(TypeError, match="not int"):
        read([3])


@pytest.mark.parametrize("command", ["count", "encode_file"])
def test_a_file_that_is_cut_short_while_it_is_read_is_named(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(encode_source, "CHUNK", 1 << 18)
    path = tmp_path / "log.txt"
    path.write_bytes(b"a line of a log\n" * (1 << 19))
    tokenizer = bpe.train(["a line of a log"], 260)
    calls = {"count": partial(bpe.count, path), "encode_file": partial(tokenizer.encode_file, path, OUT)}

    def cut_short(phase: str, done: int, total: int | None) -> None:
        os.truncate(path, 1 << 21)  # as `copytruncate` of logrotate does

    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"log\.txt.*8,388,608"):
        calls[command](progress=cut_short, num_threads=1)
    assert not Path(OUT).exists()


def test_what_is_appended_to_a_file_while_it_is_read_is_left_out(tmp_path: Path) -> None:
    path = tmp_path / "log.txt"
    path.write_bytes(b"a line of a log\n" * (1 << 18))
    expected = bpe.count(path)

    def append(phase: str, done: int, total: int | None) -> None:
        with path.open("ab") as file:
            file.write(b"another\n" * 1000)

    assert bpe.count(path, progress=append, num_threads=1) == expected


@given(
    st.lists(DATA, max_size=4).map(b"".join),
    st.integers(1, 50),
    st.integers(0, 40),
    st.sampled_from(SCANNERS),
)
def test_stretches_of_a_large_file_count_as_the_whole(text: bytes, size: int, small: int, scanner: int) -> None:
    special = SpecialTokens(["<|endoftext|>", "<|", " a", "\n"])
    whole, parts = PretokenCounts(), PretokenCounts()
    whole.count(text, scanner, special)

    def cut(data: bytes, at: int) -> int:
        return safe_cut(data, at, scanner, special)

    with pytest.MonkeyPatch.context() as patch, tempfile.NamedTemporaryFile() as file:
        patch.setattr(sources, "SMALL", small)
        patch.setattr(sources, "CUT_SEARCH", 16)
        file.write(text)
        file.flush()
        stretches = list(sources.stretches(Path(file.name), cut, special.longest, size))
    for stretch in stretches:
        parts.count(bytes(stretch.text)[stretch.begin : stretch.end], scanner, special)
    assert dict(parts.items()) == dict(whole.items())
    assert sum(stretch.read for stretch in stretches) == len(text)
    assert [stretch.first for stretch in stretches] == [number == 0 for number in range(len(stretches))]
    assert [stretch.last for stretch in stretches] == [number == len(stretches) - 1 for number in range(len(stretches))]
