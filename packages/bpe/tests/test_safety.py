"""Mistakes of callers: each with the exception of its kind, in a sentence, and the tokenizer as good as
before."""

import array
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import DATA, corpus

import bpe
from bpe.counting import records
from bpe.counting.pretoken_counts import PretokenCounts
from bpe.encoding.encoder import Encoder, Ranks
from bpe.encoding.policy import KEPT
from bpe.formats import reading, tiktoken
from bpe.patterns import PATTERNS
from bpe.scanning.safe_cut import safe_cut
from bpe.scanning.special_tokens import SpecialTokens
from bpe.tokenizer import Tokenizer

BYTES = {i: bytes([i]) for i in range(256)}
TRAINED = {str(name): bpe.train([corpus(1)], 400, pattern=name) for name in (*PATTERNS, None)}
BY_RANK = {
    name: Tokenizer.from_ranks(
        {token: i for i, token in one.vocab.items() if i != one.eot_token},
        pattern=one.pattern,
        special_tokens=one.special_tokens,
    )
    for name, one in TRAINED.items()
}
TOKENIZERS = [*TRAINED.values(), *BY_RANK.values(), Tokenizer(BYTES, [], pattern=r"\w+|\W")]


@given(data=DATA, tokenizer=st.sampled_from(TOKENIZERS))
def test_any_bytes_come_back(data: bytes, tokenizer: Tokenizer) -> None:
    for special in ("all", ()):
        ids = tokenizer.encode(data, allowed_special=special, disallowed_special=())
        assert tokenizer.decode_bytes(ids) == data
        assert tokenizer.decode_bytes(np.array(ids, dtype=np.int64)) == data
        assert tokenizer.encode_to_numpy(data, allowed_special=special, disallowed_special=()).tolist() == ids
        assert b"".join(tokenizer.decode_tokens_bytes(ids)) == data
        assert max(ids, default=0) < tokenizer.n_vocab


METHODS = ["encode", "encode_ordinary", "encode_to_numpy", "count_tokens", "encode_with_offsets"]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "not NoneType"),
        (3, "not int"),
        (1.5, "not float"),
        ([97, 98], "not list"),
        (np.zeros((2, 2), np.uint8), "along one axis"),
        (np.zeros(2, np.uint16), "along one axis"),
        (np.zeros(2), "along one axis"),
        (memoryview(array.array("I", [1, 2])), "along one axis"),
    ],
)
def test_what_is_no_text_is_a_type_error(method: str, text: object, said: str) -> None:
    tokenizer = TRAINED["gpt2"]
    with pytest.raises(TypeError, match=said):
        getattr(tokenizer, method)(text)
    for call in (
        lambda: tokenizer.encode_batch(["a", text]),
        lambda: list(tokenizer.encode_iterable(["a", text])),
        lambda: tokenizer.encode_session().append(text),
        lambda: tokenizer.encode_segments([(text, True)]),
        lambda: tokenizer.encode_single_token(text),
    ):
        with pytest.raises(TypeError, match=said):
            call()
    assert tokenizer.encode("a") == [97]


@pytest.mark.parametrize(
    "text",
    [
        bytearray(b"the cat"),
        memoryview(b"the cat"),
        memoryview(b"tXhXeX XcXaXtX")[::2],
        memoryview(b"tac eht")[::-1],
        np.frombuffer(b"the cat", np.uint8),
        np.frombuffer(b"the cat", np.int8),
        np.frombuffer(b"tXhXeX XcXaXtX", np.uint8)[::2],
        memoryview(b"the cat").cast("c"),
    ],
)
def test_any_buffer_of_bytes_is_a_text(text: object) -> None:
    for name in METHODS:
        method = getattr(TRAINED["gpt2"], name)
        assert np.array_equal(method(text), method(b"the cat"))
    assert list(TRAINED["gpt2"].encode_iterable([text])) == TRAINED["gpt2"].encode("the cat")


def test_nothing_is_nothing(tmp_path: Path) -> None:
    for tokenizer in TOKENIZERS:
        for empty in ("", b"", bytearray(), memoryview(b""), np.empty(0, np.uint8)):
            assert tokenizer.encode(empty) == tokenizer.encode_ordinary(empty) == []
            assert tokenizer.encode_to_numpy(empty).shape == (0,)
            assert tokenizer.encode_with_offsets(empty) == ([], [])
            assert tokenizer.count_tokens(empty) == 0
        assert tokenizer.encode_batch([]) == tokenizer.decode_batch([]) == []
        assert list(tokenizer.encode_iterable([])) == list(tokenizer.encode_iterable(["", b""])) == []
        assert tokenizer.decode([]) == ""
        assert tokenizer.decode_bytes(np.empty(0, np.uint32)) == b""
        assert tokenizer.encode_file([], tmp_path / "ids.npy") == 0
    assert Tokenizer({}, []).encode("") == []


@pytest.mark.parametrize(
    ("arguments", "error", "said"),
    [
        (({-1: b"a"}, []), ValueError, "from 0 to 2147483647"),
        (({2**31: b"a"}, []), ValueError, "from 0 to 2147483647"),
        (({2**70: b"a"}, []), ValueError, "from 0 to 2147483647"),
        (({1.0: b"a"}, []), ValueError, "whole numbers"),
        (({1: "a"}, []), TypeError, "id 1 is 'a'"),
        (({1: bytearray(b"a")}, []), TypeError, "a token is bytes"),
        (({1: b""}, []), ValueError, "at least one"),
        ((BYTES, [("a", "b")]), TypeError, "a pair of bytes"),
        ((BYTES, [(97, 98)]), TypeError, "a pair of bytes"),
        ((BYTES, [(b"a", b"b", b"c")]), TypeError, "a pair of bytes"),
        ((BYTES, [b"ab"]), TypeError, "a pair of bytes"),
        ((BYTES, None), TypeError, "not iterable"),
    ],
)
def test_a_wrong_vocabulary_is_refused(arguments: tuple, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        Tokenizer(*arguments)


@pytest.mark.parametrize("merges", [[(b"a", b"b")], [(b"", b"a")], [(b"a", b"b")] * 2])
def test_wrong_merges_are_refused_at_the_latest_when_they_are_needed(merges: list) -> None:
    with pytest.raises(ValueError, match="merge"):
        Tokenizer({**BYTES, **({256: b"ab"} if len(merges) == 2 else {})}, merges).encode("a")


@pytest.mark.parametrize(
    ("special", "error", "said"),
    [
        ({"x": -1}, ValueError, "from 0"),
        ({"x": 2**40}, ValueError, "from 0"),
        ({"x": 1000.5}, ValueError, "whole numbers"),
        ({"x": 3}, ValueError, "has the id 3"),
        ([""], ValueError, "is empty"),
        (["x", "x"], ValueError, "twice"),
        (["\ud800"], ValueError, "surrogates"),
        ("x", TypeError, "not the str"),
        ([b"x"], TypeError, "is a str, not b'x'"),
        ([3], TypeError, "is a str, not 3"),
    ],
)
def test_wrong_special_tokens_are_refused(special: object, error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        Tokenizer(BYTES, [], special_tokens=special)
    with pytest.raises(error):
        Tokenizer.from_ranks({token: i for i, token in BYTES.items()}, pattern="gpt2", special_tokens=special)


@pytest.mark.parametrize("size", [-1, 2**70])
def test_a_wrong_size_of_the_cache_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"cache_bytes is {size}"):
        Tokenizer(BYTES, [], cache_bytes=size)


def test_where_ids_cannot_be_written_names_what_was_asked_for(tmp_path: Path) -> None:
    tokenizer = TRAINED["gpt2"]
    out = tmp_path / "no" / "ids.npy"
    with pytest.raises(FileNotFoundError, match=re.escape(f"'{out}'")):
        tokenizer.encode_file(["a"], out)
    for num_threads in (0, -1):
        with pytest.raises(ValueError, match=f"num_threads is {num_threads}"):
            tokenizer.encode_file(["a"], tmp_path / "ids.npy", num_threads=num_threads)
    with pytest.raises(ValueError, match="uint16 or uint32, not int64"):
        tokenizer.encode_file(["a"], tmp_path / "ids.npy", np.int64)
    assert list(tmp_path.iterdir()) == []


# Hostile files


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("written")
    BY_RANK["gpt2"].to_tiktoken(folder / "tiktoken")
    TRAINED["gpt2"].to_huggingface(folder / "huggingface")
    TRAINED["gpt2"].save(folder / "native")
    return folder


@pytest.mark.parametrize("name", ["tiktoken", "huggingface", "native"])
@given(at=st.floats(0, 1), drop=st.integers(0, 40), put=st.binary(max_size=8), cut=st.booleans())
def test_a_file_that_was_hurt_is_refused_by_name_or_read(
    written: Path, name: str, at: float, drop: int, put: bytes, cut: bool
) -> None:
    data = (written / name).read_bytes()
    place = int(at * len(data))
    path = written / f"hurt {name}"
    path.write_bytes(data[:place] + put + (b"" if cut else data[place + drop :]))
    message = str(path)
    try:
        tiktoken.read(path) if name == "tiktoken" else reading.read(path, name)
    except ValueError as error:
        message = str(error)
    assert message.startswith(str(path))
    assert "\n" not in message


@pytest.mark.parametrize(
    "content", [b"", b"\x00" * 100, b"[" * 100_000, b"{}", b"null", b"\xff\xfe", b"1e999", b'{"a":' * 5000]
)
@pytest.mark.parametrize("kind", ["tiktoken", "huggingface", "native"])
def test_files_that_are_something_else_are_refused(tmp_path: Path, kind: str, content: bytes) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ValueError, match="file"):
        tiktoken.read(tmp_path / "file") if kind == "tiktoken" else reading.read(tmp_path / "file", kind)


def test_numbers_that_name_nothing_are_errors_of_the_compiled_functions() -> None:
    nothing, ranks = SpecialTokens(), Ranks(symbols=[bytes([byte]) for byte in range(256)])
    for scanner in (100, 5000, (1 << 20) + 4000, (1 << 30)):
        with pytest.raises(KeyError):
            safe_cut(b"abc def", 1, scanner, nothing)
        with pytest.raises(KeyError):
            PretokenCounts().count(b"abc def", scanner, nothing)
        with pytest.raises(KeyError):
            Encoder(ranks=ranks, ids=np.arange(256, dtype=np.uint32), scanner=scanner, cache_bytes=0)
    for damaged in (b"\x01" * 20, b"\x00" * 3):
        for read in (records.items, records.number_of_records):
            with pytest.raises(ValueError, match="whole records"):
                list(read(damaged))


def test_sets_of_names_that_never_come_again_take_no_memory_for_ever() -> None:
    """Each set of allowed names has search tables of its own, of which a bounded number is kept."""
    special = {f"<{number}>": 256 + number for number in range(600)}
    data = bpe.Tokenizer(BYTES, [], special_tokens=special).data
    tokenizer = bpe.Tokenizer.from_data(data._replace(normalizer="NFC", lstrip=frozenset(["<0>"])))
    for name in special:
        tokenizer.encode("é", allowed_special={name}, disallowed_special=())
        tokenizer.encode(f"e\u0301<0>{name}", allowed_special={name}, disallowed_special=())
    assert len(tokenizer._text_encoder._preparation._early_and_late_of) <= KEPT
