"""train(): from any source, the same tokenizer, as the reference makes it."""

import io
import os
import pickle
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import DATA, corpus

import bpe
from bpe import patterns, reference
from bpe.counting import count as counting
from bpe.native import progress
from bpe.tokenizer import Tokenizer


@pytest.mark.parametrize("tie_break", ["bytes", "huggingface", "ids"])
def test_trains_as_the_reference(tie_break: str) -> None:
    text = corpus(1)
    special = ["<|endoftext|>", "<|pad|>"]
    counts = reference.count_pretokens([text.encode()], "gpt2", special)
    vocab, merges = reference.train(counts, 400, special_tokens=special, tie_break=tie_break)
    tokenizer = bpe.train([text], 400, special_tokens=special, tie_break=tie_break)
    assert tokenizer.vocab == vocab
    assert list(tokenizer.merges) == merges
    assert tokenizer.special_tokens == {name: next(i for i in vocab if vocab[i] == name.encode()) for name in special}


@given(st.lists(DATA, max_size=6), st.integers(0, 30), st.sampled_from(["bytes", "huggingface", "ids"]))
def test_any_bytes_train_as_the_reference(texts: list[bytes], extra: int, tie_break: str) -> None:
    counts = reference.count_pretokens(texts, "gpt2", ["<|endoftext|>"])
    vocab, merges = reference.train(counts, 257 + extra, tie_break=tie_break)
    if len(vocab) == 257 + extra:
        tokenizer = bpe.train(texts, 257 + extra, tie_break=tie_break, num_threads=2)
        assert (tokenizer.vocab, list(tokenizer.merges)) == (vocab, merges)
    else:
        with pytest.raises(ValueError, match=f"pairs to merge for {len(vocab)} tokens and no more"):
            bpe.train(texts, 257 + extra, tie_break=tie_break, num_threads=2)


def test_merges_that_are_made_when_asked_for_are_a_list() -> None:
    tokenizer = bpe.train([corpus(3)], 300)
    merges, data = list(tokenizer.merges), tokenizer._data
    assert data.merges is not None
    assert (len(data.merges), list(data.merges)) == (43, merges)
    assert [data.merges[i] for i in (0, 42, -1, -43)] == [merges[i] for i in (0, 42, -1, -43)]
    assert data.merges[1:9:2] == merges[1:9:2]
    assert data.merges == merges
    assert data.merges != merges[1:]
    assert merges[7] in data.merges
    with pytest.raises(IndexError):
        data.merges[43]
    assert pickle.loads(pickle.dumps(data)) == data._replace(merges=merges) == data


def test_workers_chunks_and_order_change_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = []
    for i in range(5):
        paths.append(tmp_path / f"{i}.txt")
        paths[-1].write_text(corpus(i))
    expected = bpe.train(paths, 500, num_threads=1).merges
    monkeypatch.setattr(counting, "CHUNK", 1000)
    for num_threads in (1, 2, 5):
        assert bpe.train(paths[::-1], 500, num_threads=num_threads).merges == expected
        assert bpe.train([path.read_bytes() for path in paths], 500, num_threads=num_threads).merges == expected
        assert bpe.train((path.read_text() for path in paths), 500, num_threads=num_threads).merges == expected
        assert bpe.train(iter(paths), 500, num_threads=num_threads, memory_limit=1 << 20).merges == expected


def test_a_special_token_that_is_a_byte_or_holds_another() -> None:
    tokenizer = bpe.train(["ab\nab\nab"], 259, special_tokens=["\n", "<a>", "<a><b>"])
    assert tokenizer.special_tokens == {"\n": 10, "<a>": 256, "<a><b>": 257}
    assert tokenizer.encode("ab\n<a><b>", allowed_special="all") == [258, 10, 257]


def test_progress_tells_both_phases(tmp_path: Path) -> None:
    path = tmp_path / "corpus.txt"
    path.write_text(corpus(3))
    calls: list[tuple[str, int, int | None]] = []
    bpe.train(path, 400, progress=lambda *args: calls.append(args))
    size = os.path.getsize(path)
    assert ("counting bytes", size, size) in calls
    assert calls[-1] == ("merging", 400 - 257, 400 - 257)


@given(
    st.lists(DATA, max_size=6),
    st.lists(DATA, max_size=6),
    st.integers(0, 15),
    st.integers(0, 15),
    st.sampled_from(["bytes", "huggingface", "ids"]),
    st.sampled_from([None, 2, 3]),
)
def test_extending_as_the_reference(
    first: list[bytes], second: list[bytes], start: int, extra: int, tie_break: str, longest: int | None
) -> None:
    counts = reference.count_pretokens(first, "gpt2", ["<|endoftext|>"])
    vocab, merges = reference.train(counts, 257 + start, tie_break=tie_break)
    special = {"<|endoftext|>": next(number for number in vocab if vocab[number] == b"<|endoftext|>")}
    tokenizer = Tokenizer(vocab, merges, special_tokens=special)
    ranks, ids = reference.rank_merges(merges), {token: number for number, token in vocab.items()}
    expected, new = reference.extend(
        reference.count_pretokens(second, "gpt2", special),
        vocab,
        lambda pretoken: reference.encode_pretoken_by_merges(pretoken, ranks, ids),
        len(vocab) + extra,
        tie_break=tie_break,
        max_token_bytes=longest,
    )
    if len(expected) < len(vocab) + extra:
        with pytest.raises(ValueError, match=f"pairs to merge for {len(expected)} tokens and no more"):
            bpe.extend(tokenizer, second, len(vocab) + extra, tie_break=tie_break, max_token_bytes=longest)
        return
    larger = bpe.extend(tokenizer, second, len(vocab) + extra, tie_break=tie_break, max_token_bytes=longest)
    assert (larger.vocab, list(larger.merges)) == (expected, merges + new)
    assert larger.special_tokens == special
    by_rank = {token: number for number, token in vocab.items() if number not in special.values()}
    if by_rank and tie_break == "bytes":
        ranked = bpe.extend(
            Tokenizer.from_ranks(by_rank, pattern="gpt2", special_tokens=special), second, len(vocab) + extra,
            max_token_bytes=longest,
        )  # fmt: skip
        assert ranked.vocab == expected
        for text in [*first, *second]:
            assert ranked.encode(text, disallowed_special=()) == larger.encode(text, disallowed_special=())


def test_extending_ranks_that_are_out_of_order() -> None:
    # As cl100k has it: four spaces rank before three, of which they are made elsewhere.
    tokens = [bytes([i]) for i in range(256)] + [b"  ", b"    ", b"   ", b"x "]
    ranks = {token: rank for rank, token in enumerate(tokens)}
    text = "a" + " " * 7 + "b" + " " * 3 + "xx x " * 3
    start = Tokenizer.from_ranks(ranks, pattern=None)
    vocab, _ = reference.extend(
        {text.encode(): 1}, start.vocab, lambda pretoken: reference.encode_pretoken_by_ranks(pretoken, ranks), 266
    )
    larger = bpe.extend(start, [text], 266)
    assert larger.vocab == vocab
    assert larger.decode(larger.encode(text)) == text


def test_what_cannot_be_extended_is_refused() -> None:
    vocab = {i: bytes([i]) for i in range(256)}
    vocab |= {256: b"ab", 257: b"abc", 258: b"bc"}
    text = ["abcabc abc"] * 3
    with pytest.raises(ValueError, match="merging never makes its token b'abc'"):
        bpe.extend(Tokenizer(vocab, [(b"a", b"b"), (b"b", b"c")]), text, 270)
    with pytest.raises(ValueError, match="merging never makes its token b'abc'"):
        bpe.extend(Tokenizer(vocab, [(b"b", b"c"), (b"a", b"b"), (b"ab", b"c")]), text, 270)
    normalizes = Tokenizer(vocab, [(b"a", b"b"), (b"ab", b"c"), (b"b", b"c")])._data._replace(normalizer="NFC")
    with pytest.raises(ValueError, match=r"normalizes text \(NFC\)"):
        bpe.extend(Tokenizer.from_data(normalizes), text, 270)
    normalizes = normalizes._replace(special_tokens={"<s>": 259})
    for change in ({"add_prefix_space": True}, {"lstrip": frozenset({"<s>"})}, {"single_word": frozenset({"<s>"})}):
        with pytest.raises(ValueError, match="cannot be extended"):
            bpe.extend(Tokenizer.from_data(normalizes._replace(normalizer=None, **change)), text, 270)
    with pytest.raises(ValueError, match="has 259 tokens already"):
        bpe.extend(Tokenizer(vocab, [(b"a", b"b"), (b"ab", b"c"), (b"b", b"c")]), text, 258)


def test_every_named_pattern_trains_as_the_reference() -> None:
    text = corpus(7, words=1500) + " DON'T we'll 12345 ÉTÉ été\r\n\n  x\u00a0y 中文カナ ไทย !?..//\n" * 5
    for pattern in [*patterns.PATTERNS, None]:
        piece = text if pattern else text[:600]
        counts = reference.count_pretokens([piece.encode()], pattern, ["<|endoftext|>"])
        vocab, merges = reference.train(counts, 300)
        tokenizer = bpe.train([piece], 300, pattern=pattern)
        assert (tokenizer.vocab, list(tokenizer.merges)) == (vocab, merges), pattern


def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    text = ["some text"]
    with pytest.raises(ValueError, match="vocab_size is 256, but 256 bytes and the special tokens are 257"):
        bpe.train(text, 256)
    with pytest.raises(ValueError, match="the corpus is too small for a vocabulary of 999"):
        bpe.train(text, 999)
    with pytest.raises(ValueError, match="pairs to merge for 257 tokens"):
        bpe.train([], 300)
    with pytest.raises(ValueError, match="tie_break to be one of"):
        bpe.train(text, 258, tie_break="random")
    with pytest.raises(ValueError, match="num_threads is 0"):
        bpe.train(text, 258, num_threads=0)
    with pytest.raises(ValueError, match="memory_limit is 0"):
        bpe.train(text, 258, memory_limit=0)
    for name in ("min_count", "max_token_bytes"):
        for wrong in (-1, 0, 1 << 63):
            with pytest.raises(ValueError, match=f"{name} is {wrong}"):
                bpe.train(text, 258, **{name: wrong})
    for name in ("vocab_size", "min_count", "max_token_bytes", "num_threads", "memory_limit"):
        for wrong in ("300", 300.0):
            with pytest.raises(TypeError, match=f"{name} must be a whole number, got {wrong!r}"):
                bpe.train(text, **{"vocab_size": 300, name: wrong})
    with pytest.raises(ValueError, match=r"vocab_size is 99,999,999,999, and ids go up to 2,147,483,647"):
        bpe.train(text, 99_999_999_999)
    with pytest.raises(ValueError, match="too small for a vocabulary of 2000000000: it has pairs to merge for 264"):
        bpe.train(text, 2_000_000_000)
    with pytest.raises(ValueError, match="'<x>' is given twice"):
        bpe.train(text, 300, special_tokens=["<x>", "<y>", "<x>"])
    with pytest.raises(FileNotFoundError, match=r"nowhere\.txt"):
        bpe.train(tmp_path / "nowhere.txt", 300)
    with pytest.raises(IsADirectoryError):
        bpe.train(tmp_path, 300)
    for wrong in (5, None):
        with pytest.raises(TypeError, match=f"the name of a special token is a str, not {wrong}"):
            bpe.train(text, 300, special_tokens=[wrong])
    with pytest.raises(TypeError, match="put a single text into a list"):
        bpe.train(b"text", 300)
    with pytest.raises(TypeError, match="not int"):
        bpe.train([3], 300)


def test_without_tqdm_bars_name_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tqdm", None)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    with pytest.raises(ImportError, match=r"progress bars need tqdm: pip install groundup-bpe\[progress\]"):
        bpe.train(["some text"], 258, progress=True)


def test_a_failing_source_stops_the_threads(tmp_path: Path) -> None:
    def texts():
        yield "some text"
        raise OSError("the disk has gone")

    before = threading.active_count()
    with pytest.raises(OSError, match="the disk has gone"):
        bpe.train(texts(), 300, num_threads=4)
    assert threading.active_count() == before


def test_a_special_token_that_is_a_space_is_not_the_byte_that_is_spelled_otherwise() -> None:
    """tokenizers spells the byte 0x20 "Ġ", so that the special token " " is a token of its own."""
    special, text = [" ", "\u4e2d"], "aa ab aa"
    counts = reference.count_pretokens([text.encode()], "gpt2", special)
    vocab, merges = reference.train(counts, 259, special_tokens=special, tie_break="huggingface")
    tokenizer = bpe.train([text], 259, special_tokens=special, tie_break="huggingface")
    assert (tokenizer.vocab, list(tokenizer.merges)) == (vocab, merges)
    space, byte = (number for number, token in vocab.items() if token == b" ")
    assert tokenizer.encode(" ", allowed_special="all") == [space]
    assert tokenizer.encode_ordinary(" ") == [byte], "the id of a special token never stands for ordinary text"


SLOW = r"(?<!x)[a-z]+|[^a-z]+"


def test_warnings_name_the_line_of_the_caller(tmp_path: Path) -> None:
    path = tmp_path / "corpus.txt"
    path.write_text(corpus(1))
    start = bpe.train([corpus(2)], 300, pattern=None)
    slow = Tokenizer.from_data(start.data._replace(pattern=patterns.resolve(SLOW)))
    calls = [
        lambda: bpe.train(path, 300, pattern=SLOW),
        lambda: bpe.count(path, pattern=SLOW),
        lambda: bpe.extend(slow, path, 301),
        lambda: bpe.train(path, 300, memory_limit=1000),
        lambda: bpe.extend(start, path, 301, memory_limit=1000),
    ]
    for call in calls:
        with pytest.warns(UserWarning, match="no compiled scanner serves|more than the memory_limit") as caught:
            call()
        assert [warning.filename for warning in caught] == [__file__] * len(caught)


@pytest.mark.parametrize(("interval", "expected"), [(0.0, "merging: 10 of 10 (100%)"), (1000.0, "")])
def test_a_log_has_plain_lines(monkeypatch: pytest.MonkeyPatch, interval: float, expected: str) -> None:
    log = io.StringIO()
    monkeypatch.setattr(sys, "stderr", log)
    monkeypatch.setattr(progress, "_LOG_INTERVAL", interval)
    with progress.reporter(True) as report:
        for done in range(0, 11, 5):
            report("merging", done, 10)
    lines = log.getvalue().splitlines()
    assert (lines[-1] if lines else "") == expected
    assert "\r" not in log.getvalue()
