"""The commands that look at tokenizers and texts: tokens, vocab, check, validate."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest
from command_line import TEXT, pipe, refused, said

import bpe
from bpe.commands import check
from bpe.commands.main import main


@pytest.fixture
def tokenizer(trained: Path) -> bpe.Tokenizer:
    return bpe.load(trained / "tok.json")


def test_tokens_are_counted_as_wc_counts_words(
    trained: Path, tokenizer: bpe.Tokenizer, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    tok, text = trained / "tok.json", trained / "corpus.txt"
    (trained / "more").mkdir()
    (trained / "more" / "a.jsonl").write_text('{"text": "low"}\n{"text": "the low<|endoftext|>"}\n')
    expected = [tokenizer.count_tokens(text.read_text(), allowed_special="all")]
    expected.append(sum(tokenizer.count_tokens(one, allowed_special="all") for one in ("low", "the low<|endoftext|>")))
    lines = said(capfdbinary, "tokens", text, trained / "more", "--tokenizer", tok).decode().splitlines()
    assert [line.split() for line in lines] == [
        [str(expected[0]), str(text.stat().st_size), str(text)],
        [str(expected[1]), "23", str(trained / "more")],
        [str(sum(expected)), str(text.stat().st_size + 23), "total"],
    ]
    pipe(monkeypatch, b"low<|endoftext|>")
    row = json.loads(said(capfdbinary, "tokens", "--tokenizer", tok, "--special", "ignore", "--json"))
    assert row == {"tokens": len(tokenizer.encode_ordinary("low<|endoftext|>")), "bytes": 16, "name": "-"}
    assert "no such file" in refused(capfdbinary, "tokens", trained / "none.txt", "--tokenizer", tok).lower()


def test_a_vocabulary_is_listed(
    trained: Path, tokenizer: bpe.Tokenizer, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    tok, text = trained / "tok.json", trained / "corpus.txt"
    rows = [line.split("\t") for line in said(capfdbinary, "vocab", tok).decode().splitlines()]
    assert [int(row[0]) for row in rows] == sorted(tokenizer.vocab)
    for number, rank, token, halves in rows:
        value = ast.literal_eval(token)
        assert (value.encode() if isinstance(value, str) else value) == tokenizer.vocab[int(number)]
        assert bool(rank) == bool(halves)
    last = rows[-1]
    assert int(last[1]) == len(tokenizer.merges) - 1
    counted = said(capfdbinary, "vocab", tok, "--on", text, "--sort", "count", "--json").decode().splitlines()
    ids = tokenizer.encode(TEXT, allowed_special="all")
    first = json.loads(counted[0])
    assert first["count"] == max(map(ids.count, set(ids)))
    assert sum(json.loads(line)["count"] for line in counted) == len(ids)
    assert "--on" in refused(capfdbinary, "vocab", tok, "--sort", "count")
    longest = said(capfdbinary, "vocab", tok, "--sort", "length").decode().splitlines()[0].split("\t")
    assert len(tokenizer.vocab[int(longest[0])]) == max(map(len, tokenizer.vocab.values()))


def test_a_good_file_has_no_warnings(trained: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    bpe.load(trained / "tok.json").to_huggingface(trained / "tokenizer.json")
    printed = said(capfdbinary, "check", trained / "tokenizer.json", "--on", trained / "corpus.txt").decode()
    assert "warning" not in printed
    assert "llama.cpp: its split pattern 'gpt-2'" in printed
    assert "tiktoken (.tiktoken): can be written" in printed
    assert "tokenizers 1.0: reads that file" in printed


def test_what_tokenizers_1_refuses() -> None:
    """As its release candidate 3 did; tests_published compares the files of others with it."""
    data = bpe.train([TEXT], 400, special_tokens=[]).data
    plain = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    steps = [plain, {"type": "Digits", "individual_digits": True}]
    vocab = {number: token for number, token in data.vocab.items() if token != b"\x01"}
    for changes, reason in (
        ({"pattern": bpe.patterns.resolve("llama3")}, None),
        ({"pattern": bpe.patterns.resolve("cl100k")}, "split pattern"),
        ({"add_prefix_space": True}, "add_prefix_space"),
        ({"pattern": bpe.patterns.of_steps(steps)}, "steps follow ByteLevel"),
        ({"vocab": vocab, "drops_bytes": True}, "bytes have no token"),
    ):
        findings = check.check(bpe.Tokenizer.from_data(data._replace(**changes)), None)
        (text,) = (finding.text for finding in findings if finding.text.startswith("tokenizers 1.0: "))
        assert (reason or "reads that file") in text


def test_mistakes_in_a_file_are_warned_of(trained: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    path = trained / "tokenizer.json"
    bpe.load(trained / "tok.json").to_huggingface(path)
    file = json.loads(path.read_text())
    expression = r"[^\r\n\p{L}]?\p{L}+"
    split = {"type": "Split", "pattern": {"String": expression}, "behavior": "Isolated", "invert": False}
    file["pre_tokenizer"] = {"type": "Sequence", "pretokenizers": [split, file["pre_tokenizer"]]}
    path.write_text(json.dumps(file))
    assert main(["check", str(path), "--json"]) == 1
    findings = [json.loads(line) for line in capfdbinary.readouterr().out.splitlines()]
    warnings = [finding["text"] for finding in findings if finding["kind"] == "warning"]
    assert any(repr(expression) in text and "looks like an expression" in text for text in warnings)


def test_what_text_never_gives_and_what_it_should_not_give_is_warned_of() -> None:
    vocab = {byte: bytes([byte]) for byte in range(256)} | dict(enumerate([b"ab", b"bc", b"abc", b"low"], 256))
    vocab[300] = b"<s>"
    merges = [(b"a", b"b"), (b"b", b"c"), (b"a", b"bc")]
    tokenizer = bpe.Tokenizer(vocab, merges, pattern="gpt2", special_tokens={"<s>": 300, "ab": 261})
    texts: dict[str, list[str]] = {"warning": [], "note": []}
    for finding in check.check(tokenizer, None):
        texts[finding.kind].append(finding.text)
    assert any("1 merges never apply, as of 'abc'" in text for text in texts["warning"])
    assert any("tokens are given by no text" in text and "'low'" in text for text in texts["warning"])
    assert any("the special token 'ab' can be given by ordinary text" in text for text in texts["warning"])
    assert any("39 ids up to 300 have no token" in text for text in texts["note"])


def test_ids_are_validated_beside_tokenizers(
    trained: Path, capfdbinary: pytest.CaptureFixture[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("tokenizers")
    path = trained / "tokenizer.json"
    bpe.load(trained / "tok.json").to_huggingface(path)
    (trained / "lines.jsonl").write_text('{"text": "low"}\n{"text": "the low<|endoftext|>"}\n')
    printed = said(capfdbinary, "validate", path, trained / "corpus.txt", trained / "lines.jsonl").decode()
    assert printed.startswith("3 of 3 documents")
    assert "times as fast" in printed
    monkeypatch.setattr(bpe.Tokenizer, "encode_batch", lambda self, texts, **_: [[1, 2]] * len(texts))
    assert main(["validate", str(path), str(trained / "lines.jsonl")]) == 1
    printed = capfdbinary.readouterr().out.decode()
    assert "document 1 differs at id 0: [1, 2] for tokenizers's" in printed
    assert "0 of 2 documents" in printed


def test_ids_are_validated_beside_tiktoken(trained: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    pytest.importorskip("tiktoken")
    ranks = {token: i for i, token in bpe.train([TEXT], 400, special_tokens=[]).vocab.items()}
    bpe.Tokenizer.from_ranks(ranks, pattern="cl100k", special_tokens=["<|endoftext|>"]).save(trained / "ranks.bpe")
    printed = said(capfdbinary, "validate", trained / "ranks.bpe", trained / "corpus.txt").decode()
    assert "1 of 1 documents" in printed
    assert "tiktoken" in printed
    assert "no other library" in refused(capfdbinary, "validate", trained / "tok.json", trained / "corpus.txt")
