"""Sources and outputs by URL: of a real S3 server on this machine, over connections that break, and of fsspec's own."""

from __future__ import annotations

import gzip
import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import refused, said
from object_store import Breaking, breaking
from strategies import corpus

import bpe
from bpe.corpus import remote
from bpe.outputs import encode_source, writers

fsspec = pytest.importorskip("fsspec")

END = "<|endoftext|>"
TEXT = corpus(7, words=4000) + END + corpus(8, words=4000)
TOKENIZER = bpe.train([corpus(5)], 300)
IDS = TOKENIZER.encode(TEXT, allowed_special="all")


@pytest.fixture(scope="module")
def server() -> Iterator[Breaking]:
    """An S3 server behind a proxy; s3:// means it while the tests of this file run."""
    pytest.importorskip("s3fs")
    moto = pytest.importorskip("moto.server")
    logging.getLogger("werkzeug").setLevel(logging.CRITICAL)
    store = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    store.start()
    _, port = store.get_host_and_port()
    with breaking(port) as proxy, pytest.MonkeyPatch.context() as patch:
        for name, value in {
            "AWS_ACCESS_KEY_ID": "tester",
            "AWS_SECRET_ACCESS_KEY": "tester",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_MAX_ATTEMPTS": "1",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{proxy.port}",
        }.items():
            patch.setenv(name, value)
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "AWS_PROFILE"):
            patch.delenv(name, raising=False)
        yield proxy
    store.stop()


@pytest.fixture
def bucket(server: Breaking, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The URL of an empty bucket; waits between attempts are short."""
    import s3fs

    s3fs.S3FileSystem.clear_instance_cache()
    monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
    monkeypatch.setattr(remote, "FIRST_WAIT", 0.001)
    server.mend()
    files, _ = fsspec.core.url_to_fs("s3://corpora")
    if files.exists("corpora"):
        files.rm("corpora", recursive=True)
    files.mkdir("corpora")
    yield "s3://corpora"
    server.mend()


def put(url: str, data: bytes) -> str:
    files, path = fsspec.core.url_to_fs(url)
    if url.startswith("file"):
        files.makedirs(path.rpartition("/")[0], exist_ok=True)
    files.pipe_file(path, data)
    return url


def get(url: str) -> bytes:
    return remote.read_bytes(url)


def test_versions_come_from_one_listing(bucket: str, monkeypatch: pytest.MonkeyPatch) -> None:
    urls = [put(f"{bucket}/listed/{number}.txt", b"a" * number) for number in range(5)]
    expected = {url: remote.version_of(url) for url in urls}
    monkeypatch.setattr(remote, "about", None)  # no request for each
    assert remote.versions_of([*urls, "a/path"]) == expected
    assert remote.versions_of([*urls, f"{bucket}/listed/none.txt"]) == expected


def names(folder: str) -> list[str]:
    """The files of a folder or a bucket."""
    files, path = fsspec.core.url_to_fs(folder)
    files.invalidate_cache()
    return sorted(str(name)[len(path) :].lstrip("/") for name in files.find(path))


@pytest.fixture(params=["s3", "memory", "file"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a folder that is empty."""
    if request.param == "s3":
        return str(request.getfixturevalue("bucket"))
    if request.param == "file":
        return tmp_path.as_uri()
    files, _ = fsspec.core.url_to_fs("memory://corpora")
    if files.exists("/corpora"):
        files.rm("/corpora", recursive=True)
    return "memory://corpora"


def test_a_corpus_by_url_is_the_corpus(folder: str) -> None:
    lines = "".join(json.dumps({"text": line}) + "\n" for line in TEXT.split(END)).encode()
    plain = put(f"{folder}/text.txt", TEXT.encode())
    packed = put(f"{folder}/text.txt.gz", gzip.compress(TEXT.encode()))
    expected = bpe.count([TEXT])
    assert bpe.count(plain) == expected
    with remote.opened(plain) as file:
        assert file.read() == TEXT.encode()
    assert bpe.count(packed) == expected
    assert bpe.count(put(f"{folder}/text.jsonl", lines)) == expected
    assert bpe.train(plain, 300).merges == bpe.train([TEXT], 300).merges
    out = f"{folder}/new/ids.npy"
    assert TOKENIZER.encode_file(packed, out) == len(IDS)
    assert remote.version_of(out)[0] == writers.NPY_HEADER + 2 * len(IDS)
    assert names(f"{folder}/new") == ["ids.json", "ids.npy"]


def test_a_table_by_url_is_read_group_by_group(folder: str, tmp_path: Path) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [corpus(number, words=50) for number in range(40)]
    parquet.write_table(arrow.table({"text": rows}), tmp_path / "t.parquet", row_group_size=10)
    url = put(f"{folder}/t.parquet", (tmp_path / "t.parquet").read_bytes())
    assert bpe.count(url) == bpe.count(iter(rows))


@pytest.mark.parametrize("format", ["npy", "bin", "megatron", "datatrove", "llmc", "parquet", "arrow"])
def test_every_format_by_url_holds_the_bytes_of_the_file(folder: str, tmp_path: Path, format: Any) -> None:
    if folder.startswith("s3") and format not in ("npy", "megatron"):
        pytest.skip("as elsewhere")
    if format in ("parquet", "arrow"):
        pytest.importorskip("pyarrow")
    ending = writers.writer_of(format).ending
    here = tmp_path / "here"
    here.mkdir()
    source = tmp_path / "text.txt"
    source.write_text(TEXT)
    for size in (None, len(IDS) // 2):
        TOKENIZER.encode_file(source, here / f"train{ending}", format=format, shard_tokens=size)
        TOKENIZER.encode_file(source, f"{folder}/out/train{ending}", format=format, shard_tokens=size)
    result = sorted(path.name for path in here.iterdir())
    assert names(f"{folder}/out") == result
    for name in result:
        assert get(f"{folder}/out/{name}") == (here / name).read_bytes(), name


def test_tokenizers_and_counts_by_url(folder: str) -> None:
    for name, save in {"tok.bpe": TOKENIZER.save, "tokenizer.json": TOKENIZER.to_huggingface}.items():
        save(f"{folder}/{name}")
        assert bpe.load(f"{folder}/{name}").encode(TEXT, allowed_special="all") == IDS
    TOKENIZER.to_gpt2(f"{folder}/gpt2")
    assert bpe.load(f"{folder}/gpt2/merges.txt", pattern="gpt2").encode(TEXT, allowed_special="all") == IDS
    counts = bpe.count([TEXT])
    counts.save(f"{folder}/text.counts")
    assert bpe.Counts.load(f"{folder}/text.counts") == counts
    put(f"{folder}/wrong.json", b"{}")
    with pytest.raises(ValueError, match=f"^{folder}/wrong.json: "):
        bpe.load(f"{folder}/wrong.json")


def test_the_commands_take_urls(folder: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    put(f"{folder}/texts/a.txt", TEXT.encode())
    put(f"{folder}/texts/b.txt", TEXT.encode())
    tokenizer = f"{folder}/tok.bpe"
    for corpora in ([f"{folder}/texts/*.txt"], [f"{folder}/texts"], [f"{folder}/texts/a.txt", f"{folder}/texts/b.txt"]):
        assert said(capfdbinary, "train", *corpora, "--vocab-size", 300, "--out", tokenizer).startswith(
            tokenizer.encode()
        )
        assert bpe.load(tokenizer).merges == bpe.train([TEXT, TEXT], 300).merges
    said(capfdbinary, "count", f"{folder}/texts", "--out", f"{folder}/text.counts")
    said(
        capfdbinary, "train", "--counts", f"{folder}/text.counts", "--vocab-size", 300, "--out", tmp_path / "again.bpe"
    )
    assert bpe.load(tmp_path / "again.bpe").fingerprint == bpe.load(tokenizer).fingerprint
    ids = bpe.load(tokenizer).encode(TEXT, allowed_special="all")
    out = f"{folder}/out/ids.bin"
    said(capfdbinary, "encode", tokenizer, f"{folder}/texts/a.txt", "--format", "bin", "--out", out)
    assert np.frombuffer(get(out), dtype="<u2").tolist() == ids
    said(capfdbinary, "encode", tokenizer, f"{folder}/texts/a.txt", "--out", f"{folder}/out/ids.txt")
    assert [int(word) for word in get(f"{folder}/out/ids.txt").split()] == ids
    said(capfdbinary, "decode", tokenizer, f"{folder}/out/ids.txt", "--out", f"{folder}/out/back.txt")
    assert get(f"{folder}/out/back.txt") == TEXT.encode()
    error = refused(capfdbinary, "encode", tokenizer, f"{folder}/no.txt", "--out", f"{folder}/out/no.npy")
    assert f"{folder}/no.txt" in error
    assert "no.npy" not in str(names(f"{folder}/out"))
    error = refused(
        capfdbinary, "encode", tokenizer, f"{folder}/texts/a.txt", "--format", "bin", "--out", f"{folder}/texts/a.txt"
    )
    assert "would be written over while it is read" in error


def test_what_is_not_there_is_named(bucket: str, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path) -> None:
    for url in (f"{bucket}/none.txt", "s3://no-such-bucket/x.txt"):
        with pytest.raises(FileNotFoundError) as error:
            bpe.count(url)
        assert error.value.filename == url
    with pytest.raises(FileNotFoundError, match="s3://no-such-bucket"):
        TOKENIZER.encode_file([TEXT], "s3://no-such-bucket/x.npy")
    with pytest.raises(ValueError, match="names no file"):
        TOKENIZER.encode_file([TEXT], f"{bucket}/")
    put(f"{bucket}/tok.json", b"{}")
    with pytest.raises(FileExistsError, match=r"tok\.json is there and is no description of ids"):
        TOKENIZER.encode_file([TEXT], f"{bucket}/tok.npy")
    assert "s3://corpora/none/*.txt" in refused(
        capfdbinary, "train", f"{bucket}/none/*.txt", "--vocab-size", 300, "--out", tmp_path / "t"
    )


def test_reading_goes_on_after_a_connection_broke(
    bucket: str, server: Breaking, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As often as it is tried, at the beginning of the file and again in the midst of it."""
    data = TEXT.encode() * 8
    monkeypatch.setattr(remote, "BLOCK", 1 << 14)
    for name, content in {"text.txt": data, "text.txt.gz": gzip.compress(data)}.items():
        url = put(f"{bucket}/{name}", content)
        server.cut_after, server.cuts, server.broken = 5_000, remote.ATTEMPTS - 1, 0
        with remote.Reader(url) as reader:
            begin = reader.read(1 << 14)
            assert server.broken == remote.ATTEMPTS - 1
            server.cuts = remote.ATTEMPTS - 1
            assert begin + reader.read() == content
        server.cuts = remote.ATTEMPTS - 1
        assert bpe.count(url) == bpe.count(iter([TEXT * 8]))
        server.mend()


def test_a_table_is_read_over_a_connection_that_breaks(
    bucket: str, server: Breaking, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    arrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    rows = [corpus(number, words=300) for number in range(60)]
    parquet.write_table(arrow.table({"text": rows}), tmp_path / "t.parquet", row_group_size=10, compression="none")
    url = put(f"{bucket}/t.parquet", (tmp_path / "t.parquet").read_bytes())
    server.cut_after, server.cuts = 30_000, 3
    assert bpe.count(url) == bpe.count(iter(rows))
    assert server.broken


def test_reading_that_never_goes_on_is_one_sentence(
    bucket: str, server: Breaking, capfdbinary: pytest.CaptureFixture[bytes], tmp_path: Path
) -> None:
    url = put(f"{bucket}/text.txt", TEXT.encode())
    server.refuses = True
    with pytest.raises(ConnectionError, match=f"^{url}: "):
        bpe.count(url)
    error = refused(capfdbinary, "train", url, "--vocab-size", 300, "--out", tmp_path / "t")
    assert url in error
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_changes_while_it_is_read_is_refused(
    bucket: str, server: Breaking, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote, "BLOCK", 1 << 14)
    url = put(f"{bucket}/text.txt", TEXT.encode())
    with remote.Reader(url) as reader:
        reader.read(1 << 14)
        put(url, TEXT.upper().encode())
        with pytest.raises((ValueError, ConnectionError), match="changed"):
            reader.read()


def test_an_output_whose_connection_broke_is_written_again_or_not_at_all(bucket: str, server: Breaking) -> None:
    out = f"{bucket}/out/ids.npy"
    texts = [TEXT] * 4
    server.cut_after, server.cuts = 20_000, 2
    assert TOKENIZER.encode_file(texts, out) == 4 * len(IDS)
    assert server.broken == 2
    server.mend()
    whole = {name: get(f"{bucket}/{name}") for name in names(bucket)}
    assert sorted(whole) == ["out/ids.json", "out/ids.npy"]
    server.cut_after, server.cuts = 20_000, 1000  # every attempt at the ids breaks; what is small comes through
    with pytest.raises(ConnectionError, match=f"^{out}: "):
        TOKENIZER.encode_file([*texts, "and another"], out)
    server.mend()
    assert get(out) == whole["out/ids.npy"], "what was there is there"
    assert names(bucket) == sorted(whole)
    server.cut_after, server.cuts = 20_000, 1000
    with pytest.raises(ConnectionError, match=r"new\.npy: "):
        TOKENIZER.encode_file(texts, f"{bucket}/out/new.npy")
    server.mend()
    assert "out/new.npy" not in names(bucket)


def test_shards_by_url_go_on_where_the_connection_ended(bucket: str, server: Breaking, tmp_path: Path) -> None:
    source = tmp_path / "text.jsonl"
    source.write_text("".join(json.dumps({"text": corpus(number, words=400)}) + "\n" for number in range(30)))

    def encode(out: Any) -> int:
        return TOKENIZER.encode_file(source, out, format="bin", shard_tokens=5000, end_of_text=END)

    (tmp_path / "here").mkdir()
    total = encode(tmp_path / "here" / "train.bin")
    upload, made = remote.upload, 0

    def breaking_later(file: Path, url: str) -> None:
        nonlocal made
        made += 1
        server.refuses = made > 9
        upload(file, url)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encode_source, "CHUNK", encode_source.CHUNK)
        patch.setattr(remote, "upload", breaking_later)
        with pytest.raises(ConnectionError):
            encode(f"{bucket}/out/train.bin")
    server.mend()
    record = json.loads(get(f"{bucket}/out/train.shards.json"))
    assert not record["finished"]
    assert record["done"]["shards"] == 2
    assert encode(f"{bucket}/out/train.bin") == total
    for path in sorted((tmp_path / "here").iterdir()):
        assert get(f"{bucket}/out/{path.name}") == path.read_bytes(), path.name
    assert names(f"{bucket}/out") == sorted(path.name for path in (tmp_path / "here").iterdir())


def test_elsewhere_a_file_is_renamed_when_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that is no object store may show a file while it is written."""
    monkeypatch.setattr(remote, "FIRST_WAIT", 0.001)
    out = tmp_path / "out" / "ids.npy"
    TOKENIZER.encode_file(["cat"], out.as_uri())
    before = {path.name: path.read_bytes() for path in out.parent.iterdir()}
    files, _ = fsspec.core.url_to_fs(out.as_uri())

    def cut_short(self: Any, here: str, there: str, *rest: Any, **options: Any) -> None:
        Path(there).write_bytes(Path(here).read_bytes()[:-1])

    monkeypatch.setattr(type(files), "put_file", cut_short)
    with pytest.raises(ConnectionError, match="bytes came"):
        TOKENIZER.encode_file(["a mat"], out.as_uri())
    assert {path.name: path.read_bytes() for path in out.parent.iterdir()} == before


def test_without_fsspec_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(ImportError, match=r"need fsspec: pip install groundup-bpe\[remote\]"):
        bpe.count("s3://corpora/text.txt")
