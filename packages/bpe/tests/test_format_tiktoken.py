"""The .tiktoken format: there and back, and wrong files refused by line."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from format_samples import BYTES, says, write_text
from hypothesis import given, settings
from hypothesis import strategies as st

import bpe
from bpe import reference
from bpe.formats import tiktoken as tiktoken_format
from bpe.formats.rank_lines import ranks_of_lines

RANKS = {token: number for number, token in enumerate([*BYTES, b"th", b" the", "é".encode()])}


def lines_of(ranks: dict[bytes, int]) -> list[str]:
    return [f"{base64.b64encode(token).decode()} {rank}" for token, rank in ranks.items()]


def test_tiktoken_there_and_back(tmp_path: Path) -> None:
    path = tmp_path / "vocab.tiktoken"
    ranks = {**RANKS, b"gap": 5000}
    bpe.Tokenizer.from_ranks(ranks, pattern=None).to_tiktoken(path)
    assert path.read_bytes().startswith(b"AA== 0\nAQ== 1\n")
    assert tiktoken_format.read(path) == tiktoken_format.read(str(path)) == ranks
    load = pytest.importorskip("tiktoken.load", reason="reads the file with tiktoken itself")
    assert load.load_tiktoken_bpe(str(path)) == ranks


def test_tiktoken_in_any_order_with_blank_lines_and_windows_line_ends(tmp_path: Path) -> None:
    path = write_text(tmp_path, "x.tiktoken", "\r\n".join(reversed(lines_of(RANKS))) + "\r\n\r\n")
    assert tiktoken_format.read(path) == RANKS


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("dGhl", "not a token in base64, a space and a rank: b'dGhl'"),
        ("dGhl 259 1", "not a token in base64"),
        (" 259", "not a token in base64"),
        ("dGh 259", "not base64: b'dGh'"),
        ("d*Gh 259", "not base64"),
        ("dGhl x", "not a token in base64, a space and a rank: b'dGhl x'"),
        ("dGhl -1", "b'dGhl -1'"),
        ("dGhl " + "9" * 5000, "not a token in base64"),
        ("dGg= 259", "the token b'th' stands twice, with ranks 256 and 259"),
    ],
)
def test_a_wrong_tiktoken_file(tmp_path: Path, line: str, reason: str) -> None:
    path = write_text(tmp_path, "x.tiktoken", "\n".join([*lines_of(RANKS), line]) + "\n")
    with pytest.raises(ValueError, match=says(f"{path}, line 260: ", reason)):
        tiktoken_format.read(path)


damage = st.tuples(
    st.integers(0, 3000), st.integers(0, 3), st.sampled_from([b"", b"=", b"==", b" ", b"\n", b"0", b"/", b"\0"])
)


@settings(max_examples=300, deadline=None)
@given(damages=st.lists(damage, max_size=2))
def test_damaged_lines_are_read_at_once_as_one_by_one(damages: list[tuple[int, int, bytes]]) -> None:
    data = ("\n".join(lines_of(RANKS)) + "\n").encode()
    for at, size, replacement in damages:
        data = data[:at] + replacement + data[at + size :]
    at_once = ranks_of_lines(data, bpe.formats.MAX_ID)
    try:
        expected = tiktoken_format.parse_lines(data, "x")
    except ValueError:
        assert at_once is None
    else:
        assert at_once in (None, expected)
        assert damages or at_once


def test_ranks_are_ids_each_once(tmp_path: Path) -> None:
    for rank, reason in ((97, "the id 97 stands twice, for b'a' and b'the'"), (1 << 31, "2147483648: ids are")):
        path = write_text(tmp_path, "x.tiktoken", "\n".join([*lines_of(RANKS), f"dGhl {rank}"]))
        with pytest.raises(ValueError, match=says(f"{path}: ", reason)):
            tiktoken_format.read(path)


def test_a_tiktoken_file_without_some_bytes(tmp_path: Path) -> None:
    path = write_text(tmp_path, "x.tiktoken", "\n".join(lines_of(RANKS)[:200]))
    with pytest.raises(ValueError, match="no token for byte 0xc8 and 55 other bytes"):
        tiktoken_format.read(path)
    with pytest.raises(ValueError, match="no token for byte 0x00"):
        tiktoken_format.read(write_text(tmp_path, "empty.tiktoken", ""))
    tokenizer = bpe.Tokenizer.from_ranks({token: rank for token, rank in RANKS.items() if rank != 255}, pattern=None)
    with pytest.raises(ValueError, match="no token for byte 0xff"):
        tokenizer.to_tiktoken(tmp_path / "not.tiktoken")
    assert not (tmp_path / "not.tiktoken").exists()


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (r"\p{Han}+|[\p{L}&&[^\p{Han}]]{1,2}|\P{L}+", "abc中文 a&b中"),  # letters that are not Han, as Kimi has them
        (r"[[:alpha:]]+|[^[:alpha:]]+", "abc déjà 12"),  # letters of ASCII
        (r"\h{1,2}|[^0-9A-Fa-f]+", "12fg 0x1Fé"),  # hexadecimal digits
    ],
)
def test_the_pattern_of_a_file_is_read_in_tiktokens_language(tmp_path: Path, pattern: str, text: str) -> None:
    peer = pytest.importorskip("tiktoken", reason="compares with the engine of tiktoken")
    tokens = {text[i:j].encode() for i in range(len(text)) for j in range(i + 1, len(text) + 1)}
    ranks = {token: number for number, token in enumerate([*BYTES, *sorted(tokens - set(BYTES), key=len)])}
    path = tmp_path / "x.tiktoken"
    bpe.Tokenizer.from_ranks(ranks, pattern=None).to_tiktoken(path)
    theirs = peer.Encoding("x", pat_str=pattern, mergeable_ranks=ranks, special_tokens={}).encode_ordinary(text)
    assert bpe.Tokenizer.from_tiktoken(path, pattern=pattern).encode(text) == theirs
    loaded = bpe.load(path, pattern=pattern)
    assert loaded.encode(text) == theirs
    loaded.save(tmp_path / "x.bpe")
    assert bpe.load(tmp_path / "x.bpe").encode(text) == theirs
    assert bpe.Tokenizer.from_ranks(ranks, pattern=pattern).encode(text) == theirs


small_ranks = st.lists(st.text(alphabet="ab", min_size=2, max_size=5), unique=True, max_size=12)


@settings(max_examples=150, deadline=None)
@given(tokens=small_ranks, text=st.text(alphabet="ab", min_size=1, max_size=12))
def test_merges_from_ranks_encode_as_the_ranks_do(tokens: list[str], text: str) -> None:
    ranks = {token: number for number, token in enumerate([b"a", b"b", *(t.encode() for t in sorted(tokens, key=len))])}
    merges = reference.rank_merges(tiktoken_format.merges_from_ranks(ranks))
    pretoken = text.encode()
    by_merges = reference.encode_pretoken_by_merges(pretoken, merges, ranks, ignore_merges=True)
    assert by_merges == reference.encode_pretoken_by_ranks(pretoken, ranks)
