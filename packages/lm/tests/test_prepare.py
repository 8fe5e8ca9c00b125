"""Text to token files: whole, in order, split the same way every time, and stopped anywhere without a trace."""

from __future__ import annotations

import fcntl
import importlib
import importlib.util
import itertools
import json
import signal
import sys

import numpy as np
import pytest
from corpora import END, as_gzip, as_json_lines, as_text, read_back, restored, stories
from models import random_model

from lm import to_huggingface
from lm.commands.cli import main
from lm.data import TokenWriter, open_data, open_tokens, token_files, write_tokens
from lm.data.documents import documents, is_one_text
from lm.data.infill import NAMES, FillInTheMiddle
from lm.data.prepare import Recipe, prepare
from lm.data.rows import files_in

pytestmark = pytest.mark.skipif(importlib.util.find_spec("bpe") is None, reason="the package bpe is not installed")

needs_parquet = pytest.mark.skipif(importlib.util.find_spec("pyarrow") is None, reason="pyarrow is not installed")
needs_zstandard = pytest.mark.skipif(importlib.util.find_spec("zstandard") is None, reason="zstandard is not installed")


def command(tmp_path, *texts, more=()):
    out = tmp_path / "out"
    return [
        "data",
        "prepare",
        *map(str, texts),
        "--tokenizer",
        str(tmp_path / "tok.json"),
        "--out",
        str(out),
        "--quiet",
        *more,
    ]


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.glob("*.npy")}


@pytest.mark.parametrize(
    "kind",
    [
        "txt",
        "jsonl",
        "txt.gz",
        "jsonl.gz",
        pytest.param("jsonl.zst", marks=needs_zstandard),
        pytest.param("parquet", marks=needs_parquet),
    ],
)
def test_every_form_of_text_gives_the_same_tokens(tmp_path, tok, capsys, kind):
    documents = stories(400)
    path = tmp_path / f"text.{kind}"
    if kind == "parquet":
        import pyarrow
        import pyarrow.parquet

        pyarrow.parquet.write_table(pyarrow.table({"meta": range(400), "text": documents}), path, row_group_size=64)
    else:
        data = as_text(documents) if kind.startswith("txt") else as_json_lines(documents)
        if kind.endswith("zst"):
            import zstandard

            data = zstandard.compress(data)
        path.write_bytes(as_gzip(data) if kind.endswith("gz") else data)
    assert main(command(tmp_path, path, more=["--heldout", "0.1"])) == 0
    train, heldout = (open_tokens(paths) for paths in token_files(tmp_path / "out"))
    learned, heldout_texts = read_back(tok, train), read_back(tok, heldout)
    assert sorted(learned + heldout_texts) == sorted(documents)
    assert learned == [text for text in documents if text in set(learned)]  # in their order
    assert 20 <= len(heldout_texts) <= 65
    assert train.bytes == sum(len(text.encode()) for text in learned)
    assert (train.tokenizer, train.end_of_text) == (tok.fingerprint, tok.special_tokens[END])
    stdout = capsys.readouterr().out
    assert f"{len(train):,} tokens to train on, of {len(learned):,} documents and {train.bytes:,} bytes" in stdout
    assert main(["data", "verify", str(tmp_path / "out"), "--tokenizer", str(tmp_path / "tok.json")]) == 0
    assert f"2 files hold: {len(train) + len(heldout):,} tokens" in capsys.readouterr().out


def test_a_document_goes_to_the_same_side_wherever_it_stands(tmp_path, tok):
    documents = stories(300)
    sides = []
    for name, texts in (("a", documents), ("b", documents[::-1])):
        (tmp_path / "t.txt").write_bytes(as_text(texts))
        recipe = Recipe(tok, END, share=0.2)
        prepare([tmp_path / "t.txt"], recipe, tmp_path / name, {})
        sides.append(sorted(read_back(tok, open_data(tmp_path / name).heldout[""])))
    assert sides[0] == sides[1]
    assert 30 < len(sides[0]) < 90


def test_the_end_of_a_text_that_is_all_one_is_held_out(tmp_path, tok):
    text = "".join(f"line {i} of the play\n" for i in range(1000))
    (tmp_path / "play.txt").write_text(text)
    assert main(command(tmp_path, tmp_path / "play.txt")) == 0
    train, heldout = (read_back(tok, open_tokens(paths)) for paths in token_files(tmp_path / "out"))
    assert train[0] + heldout[0] == text
    assert train[0].endswith("\n")
    assert abs(len(heldout[0]) / len(text) - 0.1) < 0.01


@pytest.mark.parametrize("text", ["a line without an end", "two lines,\nthe last without an end", "two\nlines\n"])
def test_nothing_of_a_text_is_held_out_where_nothing_is_asked_for(tmp_path, tok, text):
    (tmp_path / "play.txt").write_text(text)
    assert main(command(tmp_path, tmp_path / "play.txt", more=["--heldout", "0"])) == 0
    train, heldout = token_files(tmp_path / "out")
    assert read_back(tok, open_tokens(train)) == [text]
    assert not heldout


def test_a_document_may_hold_the_name_of_a_special_token(tmp_path, tok):
    documents = ["plain", f"it writes {END} and <|fim_prefix|> as text", "the end"]
    (tmp_path / "t.jsonl").write_bytes(as_json_lines(documents))
    prepare([tmp_path / "t.jsonl"], Recipe(tok, END, share=0.0), tmp_path / "out", {})
    ids = open_data(tmp_path / "out").parts[0].tokens.ids[:].tolist()
    ends = [i for i, token in enumerate(ids) if token == tok.special_tokens[END]]
    assert len(ends) == 3
    assert tok.decode_bytes(ids[ends[0] + 1 : ends[1]]).decode() == documents[1]


def test_a_large_text_is_read_in_blocks(tmp_path, tok, monkeypatch):
    """Of whatever size the blocks are, which cut documents and separators."""
    texts = stories(9000)
    (tmp_path / "t.txt").write_bytes(as_text(texts))
    (tmp_path / "one.txt").write_bytes(as_text(texts).replace(END.encode(), b""))
    sources = importlib.import_module("bpe.corpus.sources")
    assert (tmp_path / "t.txt").stat().st_size > sources.SMALL, "a smaller file is read whole"
    for size in (7, 4096, 1 << 20):
        monkeypatch.setattr(sources, "BLOCK", size)
        parts = documents(tmp_path / "t.txt", separator=END.encode())
        assert [bytes(document).decode() for document in itertools.islice(parts, 200)] == texts[:200]
        assert not is_one_text(tmp_path / "t.txt", END.encode())
        assert size == 7 or is_one_text(tmp_path / "one.txt", END.encode())
    prepare([tmp_path / "t.txt"], Recipe(tok, END, share=0.0), tmp_path / "out", {}, num_threads=2)
    assert read_back(tok, open_data(tmp_path / "out").parts[0].tokens) == texts


def test_a_large_document_is_encoded_as_a_stream(tmp_path, tok, monkeypatch):
    documents = ["small", "they then the " * 5000, "é" * 4000, "last"]
    (tmp_path / "t.txt").write_bytes(as_text(documents))
    prepare([tmp_path / "t.txt"], Recipe(tok, END, share=0.0), tmp_path / "whole", {})
    for name, value in (("LARGE", 3000), ("GROUP", 1000), ("IDS", 700)):
        monkeypatch.setattr(f"lm.data.prepare.{name}", value)
    prepare([tmp_path / "t.txt"], Recipe(tok, END, share=0.0), tmp_path / "streamed", {})
    assert contents(tmp_path / "whole") == contents(tmp_path / "streamed")
    tokens = open_data(tmp_path / "streamed").parts[0].tokens
    assert read_back(tok, tokens) == documents
    assert tokens.bytes == sum(len(text.encode()) for text in documents)


def test_fill_in_the_middle_rearranges_what_is_trained_on_and_nothing_else(tmp_path, tok):
    documents = stories(200)
    (tmp_path / "t.jsonl").write_bytes(as_json_lines(documents))
    fim = ["--fim-rate", "0.5"]
    assert main(command(tmp_path, tmp_path / "t.jsonl", more=["--heldout", "0.2", *fim])) == 0
    data = open_data(tmp_path / "out").parts[0]
    heldout_texts = read_back(tok, data.heldout)
    learned = [text for text in documents if text not in heldout_texts]
    infill = FillInTheMiddle.of(tok.special_tokens)
    pieces = np.split(data.tokens.ids[:], np.flatnonzero(data.tokens.ids[:] == tok.special_tokens[END]) + 1)[:-1]
    marked = 0
    for index, (text, piece) in enumerate(zip(learned, pieces, strict=True)):
        assert tok.decode_bytes(restored(infill, piece[:-1]).tolist()).decode() == text
        marked += tok.special_tokens[NAMES[0]] in piece
        assert (tok.special_tokens[NAMES[0]] in piece) == (infill.cut(text.encode(), index) is not None)
    assert 50 < marked < 110


@pytest.mark.parametrize("fim", [(), ("--fim-rate", "0.7")])
def test_stopped_anywhere_the_same_command_goes_on(tmp_path, tok, monkeypatch, capsys, fim):
    paths = []
    for part in range(3):
        paths.append(tmp_path / f"{part}.jsonl")
        paths[-1].write_bytes(as_json_lines(stories(120, part)))
    monkeypatch.setattr("lm.data.prepare.GROUP", 1000)
    more = ["--shard-tokens", "3000", "--heldout", "0.1", *fim, "--num-threads", "2"]
    assert main(command(tmp_path, *paths, more=more)) == 0
    whole = contents(tmp_path / "out")
    assert len(whole) > 8
    (tmp_path / "out").rename(tmp_path / "whole")
    real, calls = TokenWriter.write, 0

    def write(self, ids):
        nonlocal calls
        calls += 1
        if calls in (7, 30, 75):
            signal.raise_signal((signal.SIGINT, signal.SIGTERM)[calls % 2])
        real(self, ids)

    monkeypatch.setattr("lm.data.prepare.TokenWriter.write", write)
    for _ in range(3):
        assert main(command(tmp_path, *paths, more=more)) == 130
        assert "the same command goes on" in capsys.readouterr().err
        assert not list((tmp_path / "out").glob("*.partial"))
        with pytest.raises(ValueError, match="is not finished"):
            open_data(tmp_path / "out")
    assert len(list((tmp_path / "out").glob("*.npy"))) > 4  # it does go on, and not begin again
    assert main(["data", "verify", str(tmp_path / "out")]) == 1
    assert "is not finished" in capsys.readouterr().err
    assert main(command(tmp_path, *paths, more=more)) == 0
    assert contents(tmp_path / "out") == whole
    before = calls
    assert main(command(tmp_path, *paths, more=more)) == 0  # and once finished there is nothing to do
    assert calls == before


def test_that_nothing_is_held_out_is_said(tmp_path, tok, capsys):
    (tmp_path / "t.jsonl").write_bytes(as_json_lines(["one", "two"]))
    assert main(command(tmp_path, tmp_path / "t.jsonl")) == 0
    assert "nothing is held out" in capsys.readouterr().out


def test_a_limit_ends_the_text_to_train_on(tmp_path, tok):
    (tmp_path / "t.jsonl").write_bytes(as_json_lines(stories(300)))
    assert main(command(tmp_path, tmp_path / "t.jsonl", more=["--limit-bytes", "5000", "--heldout", "0.1"])) == 0
    train = open_data(tmp_path / "out").parts[0].tokens
    sizes = [len(text.encode()) for text in read_back(tok, train)]
    assert 5000 <= sum(sizes) < 5000 + sizes[-1]


def test_what_is_asked_for_must_be_the_same(tmp_path, tok, capsys):
    (tmp_path / "t.txt").write_bytes(as_text(stories(50)))
    assert main(command(tmp_path, tmp_path / "t.txt")) == 0
    for more, says in (
        (["--heldout", "0.2"], "heldout = 0.005, and this call asks for 0.2"),
        (["--fim-rate", "0.5"], "fill_in_the_middle"),
    ):
        assert main(command(tmp_path, tmp_path / "t.txt", more=more)) == 2
        assert says in capsys.readouterr().err
    (tmp_path / "t.txt").write_bytes(as_text(stories(51)))
    assert main(command(tmp_path, tmp_path / "t.txt")) == 2
    assert "was begun with texts" in capsys.readouterr().err
    (tmp_path / "out" / "prepared.json").write_text("{")
    assert main(command(tmp_path, tmp_path / "t.txt")) == 2
    assert "is damaged: remove" in capsys.readouterr().err
    (tmp_path / "out" / "prepared.json").unlink()
    assert main(command(tmp_path, tmp_path / "t.txt")) == 2
    assert "token files of other commands: choose another folder" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "more", "says"),
    [
        (b"", (), "no text to train on"),
        (b"{", (), "line 1"),
        (b'{"text": 3}', (), "not a string"),
        (b'{"body": "a"}', (), "no key 'text'"),
        (b'{"text": "a"}', ("--heldout", "1"), "at least 0 and less than 1"),
        (b'{"text": "a"}', ("--shard-tokens", "0"), "--shard-tokens must be at least 1"),
        (b'{"text": "a"}', ("--fim-rate", "2"), "rate is a share"),
        (b'{"text": "a"}', ("--fim-rate", "1", "--fim-tokens", "<a>", "<b>", "<c>"), "no special token '<a>'"),
        (b'{"text": "a"}', ("--fim-tokens", "<a>", "<b>", "<c>"), "--fim-tokens has no effect without --fim-rate"),
        (b'{"text": "a"}', ("--fim-spm-rate", "1"), "--fim-spm-rate has no effect without --fim-rate"),
        (b'{"text": "a"}', ("--end-of-text", "<end>"), "no special token '<end>'"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path, tok, capsys, text, more, says):
    (tmp_path / "t.jsonl").write_bytes(text)
    assert main(command(tmp_path, tmp_path / "t.jsonl", more=more)) == 2
    output = capsys.readouterr()
    assert says in output.err
    assert output.err.count("\n") == 1
    assert not list((tmp_path / "out").glob("*.np*"))


def test_a_text_that_failed_does_not_bind_the_folder(tmp_path, tok):
    (tmp_path / "empty.txt").write_bytes(b"")
    assert main(command(tmp_path, tmp_path / "empty.txt")) == 2
    (tmp_path / "t.txt").write_bytes(as_text(stories(50)))
    assert main(command(tmp_path, tmp_path / "t.txt")) == 0


def test_a_library_that_is_missing_is_one_sentence(tmp_path, tok, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "zstandard", None)
    monkeypatch.setitem(sys.modules, "compression.zstd", None)
    (tmp_path / "t.jsonl.zst").write_bytes(b"x")
    assert main(command(tmp_path, tmp_path / "t.jsonl.zst")) == 2
    stderr = capsys.readouterr().err
    assert "pip install zstandard" in stderr
    assert stderr.count("\n") == 1


def test_a_full_disk_is_one_sentence_and_the_same_command_goes_on(tmp_path, tok, capsys, monkeypatch):
    (tmp_path / "t.txt").write_bytes(as_text(stories(400)))
    real, calls = TokenWriter.write, 0

    def write(self, ids):
        nonlocal calls
        calls += 1
        if calls == 12:
            raise OSError(28, "No space left on device")
        real(self, ids)

    monkeypatch.setattr("lm.data.prepare.TokenWriter.write", write)
    monkeypatch.setattr("lm.data.prepare.GROUP", 1000)
    assert main(command(tmp_path, tmp_path / "t.txt", more=["--shard-tokens", "3000"])) == 2
    stderr = capsys.readouterr().err
    assert "the disk is full" in stderr
    assert stderr.count("\n") == 1
    assert main(command(tmp_path, tmp_path / "t.txt", more=["--shard-tokens", "3000"])) == 0
    assert read_back(tok, open_data(tmp_path / "out").parts[0].tokens)


def test_two_at_once_do_not_meet(tmp_path, tok, capsys):
    (tmp_path / "t.jsonl").write_bytes(as_json_lines(["a"]))
    (tmp_path / "out").mkdir()
    with open(tmp_path / "out" / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert main(command(tmp_path, tmp_path / "t.jsonl")) == 2
    assert "another process is at work" in capsys.readouterr().err
    assert main(command(tmp_path, tmp_path / "t.jsonl")) == 0


def test_verify_names_every_damage(tmp_path, capsys):
    for i in range(4):
        write_tokens(tmp_path / f"train-{i}.npy", np.arange(50) + i, tokenizer="t" if i < 3 else "u")
    assert main(["data", "verify", str(tmp_path), "--vocab-size", "53"]) == 1
    assert "files of 2 tokenizers" in capsys.readouterr().err
    data = bytearray((tmp_path / "train-1.npy").read_bytes())
    data[-1] ^= 1
    (tmp_path / "train-1.npy").write_bytes(data)
    (tmp_path / "train-2.npy").write_bytes(b"gone")
    says = json.loads((tmp_path / "train-0.json").read_text())
    (tmp_path / "train-0.json").write_text(json.dumps({**says, "count": 3}))
    (tmp_path / "train-3.json").unlink()
    assert main(["data", "verify", str(tmp_path), "--vocab-size", "52"]) == 1
    stderr = capsys.readouterr().err
    for part in ("train-0.json says 3", "train-1.npy is damaged", "train-2.npy is not a .npy", "no train-3.json to",
                 "train-3.npy holds token id 52"):  # fmt: skip
        assert part in stderr
    assert main(["data", "verify", str(tmp_path / "nowhere")]) == 2


def test_a_vocabulary_of_nothing_is_no_bound(tmp_path, capsys):
    assert main(["data", "verify", str(tmp_path), "--vocab-size", "0"]) == 2
    assert "--vocab-size must be at least 1, got 0" in capsys.readouterr().err


def test_a_disk_that_is_full_from_the_beginning_is_left_as_it_was(tmp_path, tok, capsys, monkeypatch):
    def fail(handle):
        raise OSError(28, "No space left on device")

    (tmp_path / "t.txt").write_bytes(as_text(stories(4)))
    with monkeypatch.context() as patch:
        patch.setattr("lm.data.prepare.os.fsync", fail)
        assert main(command(tmp_path, tmp_path / "t.txt")) == 2
    assert "the disk is full" in capsys.readouterr().err
    assert [path.name for path in (tmp_path / "out").iterdir()] == [".lock"]
    assert main(command(tmp_path, tmp_path / "t.txt")) == 0


def test_bits_per_byte_is_the_same_however_the_tokens_were_made(tmp_path, tok, capsys):
    """By `lm data prepare` and by `bpe encode`: the same bits over the same bytes."""
    text = as_text(stories(3, words=9)) + END.encode()
    (tmp_path / "t.txt").write_bytes(text)
    prepare([tmp_path / "t.txt"], Recipe(tok, END, share=0.0), tmp_path / "prepared", {})
    tok.encode_file([tmp_path / "t.txt"], tmp_path / "encoded.npy")
    model = random_model(tok.n_vocab, 512, 1, 16, 2, 24)
    folder = to_huggingface(model, tmp_path / "model", tokenizer=tmp_path / "tok.json")

    def measured(*arguments):
        assert main(["eval", str(folder), "--json", *arguments]) == 0
        return json.loads(capsys.readouterr().out)

    prepared, encoded = (
        measured("--data", str(tmp_path / name)) for name in ("prepared/train-00000.npy", "encoded.npy")
    )
    assert prepared == encoded
    size = len(text.replace(END.encode(), b""))
    assert prepared["bytes"] == size
    assert prepared["bits_per_byte"] == pytest.approx(prepared["text_nats"] / size / np.log(2))
    assert 0 < prepared["text_nats"] < prepared["nats"]


def test_a_folder_of_folders_is_the_files_in_it(tmp_path):
    """Text, JSON lines and their compressed forms wherever they lie; other files are none."""
    inside = ["b/c/one.txt", "b/two.jsonl.zst", "a.md", "b/d.parquet"]
    for name in [*inside, "picture.png", "b/notes.pdf"]:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("")
    endings = (".txt", ".md", ".jsonl", ".parquet")
    picture = tmp_path / "picture.png"
    assert files_in([tmp_path, picture], endings) == [*sorted(map(tmp_path.joinpath, inside)), picture]
    for path, says in ((tmp_path / "none", "there is no file"), (tmp_path / "b" / "c", r"ends in \.csv")):
        with pytest.raises(FileNotFoundError, match=says):
            files_in([path], [".csv"])
