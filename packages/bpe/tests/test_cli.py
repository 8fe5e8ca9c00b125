"""The command, from the outside: train, report, view, convert, and mistakes."""

import argparse
import gzip
import json
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import TEXT, pipe, refused, said

from bpe import training
from bpe.commands.corpus import size
from bpe.commands.main import main
from bpe.tokenizer import Tokenizer


def test_encode_and_decode_are_filters(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    pipe(monkeypatch, TEXT.encode())
    assert main(["encode", str(trained / "tok.json")]) == 0
    ids = capfdbinary.readouterr().out
    pipe(monkeypatch, ids)
    assert main(["decode", str(trained / "tok.json")]) == 0
    sys.stdout.flush()
    assert capfdbinary.readouterr().out == TEXT.encode()


def test_a_misspelled_option_names_the_nearest(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["train", "corpus.txt", "--vocabsize", "300", "--out", "tok.json"])
    assert "there is no option --vocabsize: did you mean --vocab-size?" in capsys.readouterr().err


def test_report_and_view(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tok, text = str(trained / "tok.json"), str(trained / "corpus.txt")
    assert main(["report", tok, "--on", text]) == 0
    printed = capsys.readouterr().out
    assert "bytes/token" in printed
    assert "unreachable" in printed
    assert main(["report", tok, tok, "--on", text, "--html", str(trained / "report.html")]) == 0
    assert "bytes/token" in (trained / "report.html").read_text()
    capsys.readouterr()
    assert main(["report", tok, "--on", text, "--json"]) == 0
    actual = json.loads(capsys.readouterr().out)
    (row,) = actual["texts"]
    assert row["bytes"] == len(TEXT.encode())
    assert row["bytes_per_token"] == pytest.approx(len(TEXT.encode()) / row["tokens"])
    assert main(["view", tok, "--text", text, "--out", str(trained / "page.html")]) == 0
    assert "<html" in (trained / "page.html").read_text()
    (trained / "other").mkdir()
    other = shutil.copy(tok, trained / "other")  # of the same name: still two side by side
    assert main(["view", tok, str(other), "--out", str(trained / "page.html")]) == 0
    assert all(json.dumps(str(name)) in (trained / "page.html").read_text() for name in (tok, other))


def test_training_from_anywhere(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = (trained / "tok.json").read_bytes()
    out = trained / "new.json"
    settings = ["--vocab-size", "280", "--out", str(out)]
    folder = trained / "folder" / "inner"
    folder.mkdir(parents=True)
    (folder / "corpus.jsonl.gz").write_bytes(gzip.compress(json.dumps({"content": TEXT}).encode()))
    (folder / ".hidden").write_text("nothing")
    (folder / "broken.txt").symlink_to(folder / "nowhere")
    for corpus_arguments in (
        [str(trained / "folder"), "--text-key", "content"],
        [str(trained / "corp*.txt"), "--memory-limit", "1GiB"],
        [str(trained / "corpus.txt"), "--checkpoint", str(trained / "run")],
        [str(trained / "corpus.txt"), "--checkpoint", str(trained / "run")],
        ["-"],
    ):
        pipe(monkeypatch, TEXT.encode())
        out.unlink(missing_ok=True)
        assert main(["train", *corpus_arguments, *settings]) == 0
        assert out.read_bytes() == expected
    assert f"{folder / 'broken.txt'} is left out: a symbolic link" in capsys.readouterr().err
    assert main(["train", str(trained / "corpus.txt"), "--extend", str(trained / "tok.json"), *settings]) == 0
    assert out.read_bytes() == expected
    assert main(["train", str(trained / "corpus.txt"), "--memory-limit", "1kB", *settings]) == 0
    assert "more than the memory_limit" in capsys.readouterr().err


@pytest.mark.parametrize(("stopped", "at"), [(training, "learn"), (Tokenizer, "save")])
def test_a_run_that_is_stopped_says_how_to_go_on(
    trained: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], stopped: object, at: str
) -> None:
    def stop(*_: object, **settings: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(stopped, at, stop)
    command = ["train", str(trained / "corpus.txt"), "--vocab-size", "280", "--out", str(trained / "new.json")]
    monkeypatch.setattr("sys.argv", ["bpe", *command])
    before = signal.getsignal(signal.SIGINT)
    try:
        assert main() == 130
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN, "the second Ctrl-C meets the interpreter's end"
    finally:
        signal.signal(signal.SIGINT, before)
    assert "nothing was written" in capsys.readouterr().err
    assert main([*command, "--checkpoint", str(trained / "run")]) == 130
    assert "the same command goes on from there" in capsys.readouterr().err


def test_sizes() -> None:
    sizes = {"1000": 1000, "500MB": 5 * 10**8, "2GiB": 2**31, "1.5 k": 1500, "3g": 3 * 10**9}
    assert {text: size(text) for text in sizes} == sizes
    for text in ("", "MB", "-1", "5 fathoms"):
        with pytest.raises(argparse.ArgumentTypeError, match="a size is a number of bytes"):
            size(text)


def test_mistakes_are_one_sentence_and_status_two(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    corpus, tok, out = (str(trained / name) for name in ("corpus.txt", "tok.json", "new.json"))
    to = ["--vocab-size", "300", "--out", out]
    train = ["train", corpus, *to]
    (trained / "empty").mkdir()
    (trained / "utf16.txt").write_bytes(TEXT.encode("utf-16")[:-1])
    (trained / "short.gz").write_bytes(gzip.compress(TEXT.encode())[:-9])
    for arguments, expected in [
        (["train", corpus, "--vocab-size", "100", "--out", out], "256 bytes"),
        (["train", corpus, "--vocab-size", "9999", "--out", out], "too small"),
        (["train", "nowhere.txt", *to], "nowhere.txt: No such file"),
        (["train", str(trained / "*.doc"), *to], "no file has such a name"),
        (["train", str(trained / "empty"), *to], "no file in this folder"),
        (["train", str(trained / "short.gz"), *to], "short.gz: the gzip data are cut short"),
        (["train", corpus, "--vocab-size", "300", "--out", str(trained / "nowhere" / "tok.json")], "no such folder"),
        (["train", corpus, "--vocab-size", "300", "--out", str(trained / "empty")], "empty: a folder"),
        (["view", tok, "--out", str(trained / "nowhere" / "page.html")], "no such folder"),
        (["convert", tok, "--to", "tiktoken", "--out", str(trained / "no" / "t")], "such folder"),
        (["encode", tok, str(trained / "utf16.txt")], "utf16.txt: UTF-16 by its first two bytes"),
        (["train", corpus, "--vocab-size", "9" * 12, "--out", out], "ids go up to 2,147,483,647"),
        ([*train, "--min-count", "9" * 20], "min_count is 999"),
        ([*train, "--max-token-bytes", "-1"], "max_token_bytes is -1"),
        ([*train, "--pattern", "[a-z]*"], "can match the empty string"),
        ([*train, "--pattern", ""], "the split pattern '' is empty"),
        ([*train, "--special", ""], "a special token is empty"),
        ([*train, "--extend", tok, "--special", "x"], "leave out --pattern and --special"),
        (["train", corpus, "--vocab-size", "300", "--out", corpus], "would be written over"),
        (["train", str(trained), "--vocab-size", "300", "--out", str(trained / "short.gz")], "would be written over"),
        (["encode", tok, corpus, "--out", corpus], "would be written over"),
        (["decode", tok, corpus, "--out", corpus], "would be written over"),
        (["encode", corpus], "not a tokenizer"),
        (["encode", tok, corpus, "--out", "train.bin"], "name its --format"),
        (["decode", "nowhere.json"], "nowhere.json: no such file"),
        (["report", tok, "--on", "nowhere.txt"], "nowhere.txt: No such file"),
    ]:
        assert main(arguments) == 2
        error = capsys.readouterr().err
        assert expected in error
        assert len(error.splitlines()) == 1
    assert not Path(out).exists()
    assert Path(corpus).read_text() == TEXT


def test_any_format_is_read_and_every_one_written(trained: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    text = trained / "corpus.txt"
    expected = said(capfdbinary, "encode", trained / "tok.json", text)
    for format, out in (("huggingface", "tokenizer.json"), ("gpt2", "gpt2"), ("native", "copy")):
        said(capfdbinary, "convert", trained / "tok.json", "--to", format, "--out", trained / out)
        assert said(capfdbinary, "encode", trained / out, text) == expected
        said(capfdbinary, "convert", trained / out, "--to", "native", "--out", trained / "again")
        assert said(capfdbinary, "encode", trained / "again", text) == expected
    assert said(capfdbinary, "encode", trained / "gpt2" / "merges.txt", text) == expected
    assert said(capfdbinary, "encode", trained, text) == expected, "a folder that holds a tokenizer.json"
    said(capfdbinary, "convert", trained / "tok.json", "--to", "tiktoken", "--out", trained / "t.tiktoken")
    assert "neither split pattern" in refused(capfdbinary, "encode", trained / "t.tiktoken", text)
    special = f"<|endoftext|>={Tokenizer.load(trained / 'tok.json').eot_token}"
    arguments = ("--pattern", "gpt2", "--special", special, "--to", "native", "--out", trained / "back")
    said(capfdbinary, "convert", trained / "t.tiktoken", *arguments)
    assert said(capfdbinary, "encode", trained / "back", text) == expected
    assert "its own split pattern" in refused(capfdbinary, "convert", trained / "tok.json", *arguments)


def test_names_that_are_nearly_right(trained: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    text = trained / "corpus.txt"
    assert "did you mean o200k_base" in refused(capfdbinary, "encode", "o200k_bas", text)
    assert "cl100k_base" in refused(capfdbinary, "encode", "nothing-like-it", text)
    assert "not a tokenizer of any format" in refused(capfdbinary, "encode", text, text)
    arguments = ("--vocab-size", 300, "--out", trained / "new", "--pattern", "gtp2")
    assert "did you mean 'gpt2'" in refused(capfdbinary, "train", text, *arguments)


def test_training_by_command_makes_no_tables_for_other_commands(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text(TEXT)
    arguments = ["train", str(tmp_path / "corpus.txt"), "--vocab-size", "280", "--out", str(tmp_path / "tok.json")]
    program = f"""if True:
        import sys
        from bpe.commands.main import main
        assert main({arguments!r}) == 0
        print("regex" in sys.modules)
    """
    actual = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert actual.splitlines()[-1] == "False", "it would be most of the memory that training takes"


def test_nested_sizes_are_those_of_trainings_apart(trained: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, out = str(trained / "corpus.txt"), trained / "nested.json"
    assert main(["train", text, "--sizes", "300,320", "--out", str(out), "--json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert row["outputs"] == {str(trained / "nested-300.json"): 300, str(trained / "nested-320.json"): 320}
    assert {"reading", "splitting", "counting", "merging"} == row["cpu_seconds"].keys()
    assert all(spent >= 0 for spent in row["cpu_seconds"].values())
    assert sum(row["cpu_seconds"].values()) > 0
    for vocab_size in (300, 320):
        assert main(["train", text, "--vocab-size", str(vocab_size), "--out", str(out)]) == 0
        assert (trained / f"nested-{vocab_size}.json").read_bytes() == out.read_bytes()
    assert "CPU seconds: reading" in capsys.readouterr().out
    for wrong in (["--superwords", "superbpe"], ["--extend", str(out)]):
        assert main(["train", text, "--sizes", "300", "--out", str(out), *wrong]) == 2
    with pytest.raises(SystemExit):
        main(["train", text, "--sizes", "many", "--out", str(out)])


def test_sizes_may_have_a_k(trained: Path) -> None:
    from bpe.commands.train import _named_by_size, _sizes

    assert _sizes("16k,32K,500") == {"16k": 16_000, "32K": 32_000, "500": 500}
    assert _named_by_size(Path("a.b/x.json"), "16k") == Path("a.b/x-16k.json")
    assert _named_by_size(Path("a.b/x"), "16k") == Path("a.b/x-16k")
    assert _named_by_size("s3://a.b/x", "16k") == "s3://a.b/x-16k"
    assert _named_by_size("s3://a.b/x.json", "16k") == "s3://a.b/x-16k.json"
