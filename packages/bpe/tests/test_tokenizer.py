"""Tokenizer as a citizen: counts, streams, offsets, warnings, and formats that cannot hold all of it."""

import re
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import DATA, TEXTS, corpus

import bpe
from bpe.encoding import text_encoder
from bpe.tokenizer import Tokenizer

BYTES = {i: bytes([i]) for i in range(256)}
EOT = "<|endoftext|>"


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return bpe.train([corpus(6)], 320, special_tokens=[EOT, "<|im start|>", "<|im"])


def test_it_is_shown_by_its_name_size_and_pattern(tokenizer: Tokenizer) -> None:
    assert repr(tokenizer) == "<Tokenizer 'bpe': 320 ids, pattern 'gpt2'>"


def test_wrong_ids_are_named(tokenizer: Tokenizer) -> None:
    for call in (
        tokenizer.decode,
        tokenizer.decode_bytes,
        tokenizer.decode_tokens_bytes,
        tokenizer.decode_with_offsets,
    ):
        with pytest.raises(KeyError, match="no token has the id 320; ids go up to 319"):
            call([97, 320])
        for bad in (-1, 2**32, 10**30):
            with pytest.raises(OverflowError, match=f"from 0 to 4294967295, not {bad}"):
                call([97, bad])
        with pytest.raises(OverflowError, match="not -1"):
            call(np.array([97, -1]))
        with pytest.raises(TypeError, match="'float' object cannot be interpreted as an integer"):
            call([97.0])
        with pytest.raises(TypeError, match="ids are integers, not items of float64"):
            call(np.array([97.0]))
        with pytest.raises(TypeError, match="one dimension, not of 2"):
            call(np.array([[97]]))
        for moment in (
            np.datetime64(97, "s"),
            np.timedelta64(97, "s"),
        ):  # their buffers have no strides, whatever is asked for
            with pytest.raises(TypeError, match="not iterable"):
                call(moment)
    with pytest.raises(KeyError, match="no token has the id 320"):
        tokenizer.decode_single_token_bytes(320)


@given(text=TEXTS | DATA)
def test_tokens_are_counted_as_they_are_encoded(tokenizer: Tokenizer, text: str | bytes) -> None:
    for allowed in ("all", frozenset(), frozenset([EOT])):
        for disallowed in ("all", (), {EOT}):
            named: Any = {"allowed_special": allowed, "disallowed_special": disallowed}
            try:
                expected = len(tokenizer.encode(text, **named))
            except ValueError as error:
                with pytest.raises(ValueError, match=re.escape(str(error))):
                    tokenizer.count_tokens(text, **named)
            else:
                assert tokenizer.count_tokens(text, **named) == expected
    assert tokenizer.count_tokens("a\ud800") == len(tokenizer.encode("a\ud800"))


def test_what_it_is_made_of_is_read_only_and_made_once(tokenizer: Tokenizer) -> None:
    ranked = Tokenizer.from_ranks({token: i for i, token in BYTES.items()} | {b"ab": 256}, pattern="gpt2")
    for one in (tokenizer, ranked):
        for name in ("vocab", "merges", "special_tokens", "pattern"):
            assert getattr(one, name) is getattr(one, name)
        assert type(one.merges) is tuple
        with pytest.raises(TypeError):
            one.vocab[0] = b"x"  # type: ignore[index]
        with pytest.raises(TypeError):
            one.special_tokens["<x>"] = 3  # type: ignore[index]


def test_a_subclass_may_encode_in_its_own_way(tokenizer: Tokenizer) -> None:
    class Shouting(Tokenizer):
        def encode(self, text: Any, **named: Any) -> list[int]:
            return super().encode(text.upper(), **named)

    assert Shouting.from_data(tokenizer.data).encode("abc") == tokenizer.encode("ABC")
    assert Shouting.from_data(tokenizer.data).encode_ordinary("abc") == tokenizer.encode("abc")


@pytest.mark.parametrize(
    "call",
    [
        lambda tokenizer: tokenizer.encode("ab"),
        lambda tokenizer: tokenizer.encode_batch(["ab"] * 40, num_threads=2),
        lambda tokenizer: list(tokenizer.encode_iterable(["ab"])),
        lambda tokenizer: tokenizer.count_tokens("ab"),
        lambda tokenizer: tokenizer.encode_file(["ab"] * 40, "ids.npy", num_threads=2),
    ],
)
def test_a_slow_pattern_warns_once_and_names_the_callers_line(
    call: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(text_encoder, "_slow", set())
    tokenizer = Tokenizer(BYTES, [], pattern="(?<!x)[a-z]|(?s:.)")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for one in (tokenizer, tokenizer, Tokenizer.from_data(tokenizer.data)):
            call(one)
    assert [(warning.filename, str(warning.message)[:19]) for warning in caught] == [(__file__, "no compiled scanner")]


def test_surrogate_halves_in_two_chunks_meet(tokenizer: Tokenizer) -> None:
    assert tokenizer.decode(list(tokenizer.encode_iterable(["a\ud83d", "\ude00b"]))) == "a😀b"
    assert tokenizer.decode(list(tokenizer.encode_iterable(["a\ud83d"]))) == "a\ufffd"
    for after in ("\ude00b", "\ud83d", "b", "", b"b"):
        session = tokenizer.encode_session()
        session.append("a\ud83d")
        assert tokenizer.decode(session.ids) == "a\ufffd"
        session.append(after)
        whole = "a\ud83d" + after if isinstance(after, str) else "a\ufffdb"
        assert session.ids.tolist() == tokenizer.encode(whole)


@given(text=TEXTS)
def test_a_decode_stream_never_breaks_a_character(tokenizer: Tokenizer, text: str) -> None:
    stream = tokenizer.decode_stream()
    parts = [stream.step(number) for number in tokenizer.encode(text, allowed_special="all")]
    assert "".join(parts) == text
    assert stream.finish() == ""


def test_a_decode_stream_ends_a_broken_character(tokenizer: Tokenizer) -> None:
    stream = tokenizer.decode_stream()
    first, *rest = "中".encode()
    assert stream.step([97, first]) == "a"
    assert stream.step(np.array(rest[:1])) == ""
    assert stream.finish() == "\ufffd"
    assert stream.step(98) == "b"


@given(text=TEXTS)
def test_offsets(tokenizer: Tokenizer, text: str) -> None:
    ids, begins = tokenizer.encode_with_offsets(text, allowed_special="all")
    assert ids == tokenizer.encode(text, allowed_special="all")
    decoded, offsets = tokenizer.decode_with_offsets(ids)
    assert decoded == text
    assert offsets == begins
    _, in_bytes = tokenizer.encode_with_offsets(text.encode(), allowed_special="all")
    assert [len(text.encode()[:at].decode(errors="ignore")) for at in in_bytes] == begins


def test_what_a_pickle_calls_is_a_name_of_a_module(tokenizer: Tokenizer) -> None:
    call = tokenizer.__reduce__()[0]  # Ray's and Dask's pickles copy any other function, with all that it refers to
    assert getattr(sys.modules[call.__module__], call.__qualname__) is call


@pytest.mark.parametrize("format", ["to_tiktoken", "to_gpt2"])
def test_what_a_format_cannot_say_is_not_written(format: str, tmp_path: Path) -> None:
    plain = Tokenizer(BYTES | {256: b"ab", 257: b"abc"}, [(b"a", b"b")])
    for data, expected in {
        "normalizes": (plain.data._replace(normalizer="NFC"), r"changes the text first \(NFC\)"),
        "puts a space": (plain.data._replace(add_prefix_space=True), "a space before the text"),
        "takes whole": (plain.data._replace(ignore_merges=True), "merging never makes the token b'abc'"),
        "by rank": (
            Tokenizer.from_ranks({token: i for i, token in BYTES.items()} | {b"xyz": 256}, pattern="gpt2").data,
            "merging never makes the token b'xyz'",
        ),
        "never": (plain.data, "merging never makes the token b'abc'"),
        "twice": (Tokenizer(BYTES | {256: b"a"}, []).data, "two ids hold the same bytes|stands twice"),
        "adds": (bpe.train(["the cat"], 257).add_tokens(["    "]).data, "encoded otherwise"),
        "flags": (bpe.train(["the cat"], 257).data._replace(lstrip=frozenset({EOT})), "encoded otherwise"),
    }.values():
        never_made = data.merges is None and format == "to_tiktoken", data is plain.data and format == "to_gpt2"
        if any(never_made):  # ranks are what the one holds, and a list of merges the other
            getattr(Tokenizer.from_data(data), format)(tmp_path / "written")
            continue
        with pytest.raises(ValueError, match=expected):
            getattr(Tokenizer.from_data(data), format)(tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


@given(
    merges=st.lists(st.tuples(*[st.text("abc", min_size=1, max_size=3)] * 2), max_size=6),
    texts=st.lists(st.text("abc", max_size=12), min_size=5, max_size=20),
)
def test_a_tiktoken_file_encodes_the_same_or_is_not_written(
    tmp_path_factory: pytest.TempPathFactory, merges: list[tuple[str, str]], texts: list[str]
) -> None:
    tokens = {b"a", b"b", b"c"}
    listed = []
    for pair in merges:
        left, right = (half.encode() for half in pair)
        if {left, right} <= tokens and left + right not in tokens:
            listed.append((left, right))
            tokens.add(left + right)
    vocab = BYTES | {256 + i: left + right for i, (left, right) in enumerate(listed)}
    ours = Tokenizer(vocab, listed, pattern=None)
    path = tmp_path_factory.mktemp("written") / "ranks.tiktoken"
    try:
        ours.to_tiktoken(path)
    except ValueError as error:
        if "merging never makes the token" not in str(error):
            raise
        return
    ranked = Tokenizer.from_tiktoken(path, pattern=None)
    for text in texts:
        assert ranked.encode(text) == ours.encode(text)
