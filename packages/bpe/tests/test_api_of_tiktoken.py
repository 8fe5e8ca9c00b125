"""The same calls on tiktoken.Encoding and on Encoding and Tokenizer: arguments, results, exceptions."""

from __future__ import annotations

import copy
import functools
import inspect
import multiprocessing
import pickle
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st
from strategies import PRETOKENS, corpus
from tiktoken.model import MODEL_PREFIX_TO_ENCODING, MODEL_TO_ENCODING
from tiktoken_ext import openai_public

import bpe
from bpe import published
from bpe.formats.vocabulary import data_of_ranks
from bpe.patterns import resolve
from bpe.tokenizer import Tokenizer

EOT = "<|endoftext|>"
FAR = "<|far|>"
NAMES = [name for name in dir(tiktoken.Encoding) if not name.startswith("_")]
BOTH_NAMES = [*NAMES, "name", "max_token_value"]  # these two are set by __init__


def make() -> tuple[tiktoken.Encoding, Tokenizer, bpe.Encoding]:
    trained = bpe.train([corpus(8)], 700, special_tokens=[], tie_break="ids")
    ranks = {token: number for number, token in trained.vocab.items()}
    special = {EOT: 700, FAR: 5000}
    theirs = tiktoken.Encoding(
        "both", pat_str=openai_public.r50k_pat_str, mergeable_ranks=ranks, special_tokens=special
    )
    ours = Tokenizer.from_ranks(ranks, pattern="gpt2", special_tokens=special, name="both")
    encoding = bpe.Encoding("both", pat_str=openai_public.r50k_pat_str, mergeable_ranks=ranks, special_tokens=special)
    return theirs, ours, encoding


THEIRS, OURS, ENCODING = make()


def outcome(call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """The value of a call, made comparable, or the type of its exception."""
    try:
        result = call(*arguments, **named)
    except BaseException as error:  # Rust panics are no Exception
        return type(error)
    if isinstance(result, np.ndarray):
        return (result.dtype, result.tolist())
    if call.__name__ == "encode_with_unstable":
        return result[0], sorted(result[1])
    return result


def same(name: str, *arguments: Any, **named: Any) -> None:
    theirs = outcome(getattr(THEIRS, name), *arguments, **named)
    for one in (OURS, ENCODING):
        ours = outcome(getattr(one, name), *arguments, **named)
        assert ours == theirs, (name, arguments, named)
        assert type(ours) is type(theirs)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("one", [bpe.Encoding, OURS, ENCODING], ids=["class", "Tokenizer", "Encoding"])
def test_every_public_name_takes_the_same_arguments(one: Any, name: str) -> None:
    """On the class, and on objects, whose methods are not all those of the class."""
    kind = tiktoken.Encoding if one is bpe.Encoding else THEIRS
    assert callable(getattr(bpe.Encoding, name)) == callable(getattr(tiktoken.Encoding, name))
    if callable(getattr(kind, name)):
        theirs, ours = (list(inspect.signature(getattr(each, name)).parameters.values()) for each in (kind, one))
        more = {p.name for p in ours} - {p.name for p in theirs}
        assert more <= {"skip_special_tokens"}
        assert all(p.kind is p.KEYWORD_ONLY and p.default is False for p in ours if p.name in more)
        assert [(p.name, p.kind, p.default) for p in ours if p.name not in more] == [
            (p.name, p.kind, p.default) for p in theirs
        ]


def test_what_they_are() -> None:
    for name in BOTH_NAMES:
        if not callable(getattr(THEIRS, name)):
            assert getattr(OURS, name) == getattr(ENCODING, name) == getattr(THEIRS, name), name
    assert OURS.token_byte_values() == THEIRS.token_byte_values()
    neither = [
        tiktoken.Encoding("x", pat_str=".", mergeable_ranks=THEIRS._mergeable_ranks, special_tokens={}),
        Tokenizer.from_ranks(THEIRS._mergeable_ranks, pattern=None),
    ]
    for one in neither:
        with pytest.raises(KeyError, match="endoftext"):
            _ = one.eot_token  # type: ignore[attr-defined]


@given(text=st.one_of(PRETOKENS, st.text(max_size=40), st.text(st.characters(), max_size=20)))
def test_texts(text: str) -> None:
    for name in ("encode", "encode_ordinary", "encode_to_numpy"):
        same(name, text)
    for allowed in ("all", set(), {EOT}, frozenset([EOT, FAR]), {"unknown"}):
        for disallowed in ("all", (), {FAR}, [FAR, "unknown"], ()):
            same("encode", text, allowed_special=allowed, disallowed_special=disallowed)
            same("encode_to_numpy", text, allowed_special=allowed, disallowed_special=disallowed)
    for name in ("encode_batch", "encode_ordinary_batch"):
        same(name, [text, "a", text + EOT])


SURROGATES = ["a\ud800", "\ud83d\ude00", "\ude00\ud83d", "\udc00" + EOT]
TEXT_CALLS = ["encode", "encode_to_numpy", "encode_with_unstable"]


@pytest.mark.parametrize("name", TEXT_CALLS)
@pytest.mark.parametrize(
    "named",
    [
        {},
        {"allowed_special": "all"},
        {"allowed_special": {EOT}},
        {"allowed_special": {"unknown"}},
        {"allowed_special": {"unknown"}, "disallowed_special": ()},
        {"allowed_special": None},
        {"allowed_special": "none"},
        {"allowed_special": "none", "disallowed_special": ()},
        {"allowed_special": {3}, "disallowed_special": ()},
        {"allowed_special": "all", "disallowed_special": {EOT}},
        {"disallowed_special": ()},
        {"disallowed_special": None},
        {"disallowed_special": {"unknown"}},
        {"disallowed_special": {"far"}},
        {"disallowed_special": {""}},
        {"disallowed_special": {3}},
        {"disallowed_special": 3},
        {"disallowed_special": "text"},  # its characters, in tiktoken
        {"disallowed_special": "xyz"},
        {"no_such": 1},
    ],
)
def test_odd_arguments_of_encoding(name: str, named: dict[str, Any]) -> None:
    for text in ("", "a", EOT, FAR, f"the {EOT}cat{FAR}", EOT[:-1]):
        same(name, text, **named)
    if named.get("allowed_special") not in ("none", {3}):  # of two mistakes at once either may be named
        for text in SURROGATES:
            same(name, text, **named)
    for nothing in (None, 3, [EOT]):
        same(name, nothing)
    same(name, "a", "all")
    same(name)


def test_the_constructor_is_that_of_tiktoken() -> None:
    theirs, ours = (inspect.signature(one.__init__).parameters for one in (tiktoken.Encoding, bpe.Encoding))
    assert [(p.name, p.kind, p.default) for p in ours.values()] == [
        (p.name, p.kind, p.default) for p in theirs.values()
    ]
    ranks, pattern = THEIRS._mergeable_ranks, openai_public.r50k_pat_str
    inputs: dict[str, Any] = {"pat_str": pattern, "mergeable_ranks": ranks, "special_tokens": {EOT: 700}}
    assert bpe.Encoding("x", **inputs, explicit_n_vocab=701).n_vocab == 701
    for wrong in (700, 702):
        with pytest.raises(AssertionError):
            tiktoken.Encoding("x", **inputs, explicit_n_vocab=wrong)
        with pytest.raises(ValueError, match=f"explicit_n_vocab is {wrong}, but there are 701"):
            bpe.Encoding("x", **inputs, explicit_n_vocab=wrong)
    assert repr(bpe.Encoding("x", **inputs)) == repr(tiktoken.Encoding("x", **inputs)) == "<Encoding 'x'>"
    with pytest.raises(ValueError, match="same rank"):
        bpe.Encoding("x", pat_str=pattern, mergeable_ranks={b"a": 0, b"b": 0}, special_tokens={})


def test_two_special_tokens_may_share_an_id() -> None:
    inputs: dict[str, Any] = {"pat_str": openai_public.r50k_pat_str, "mergeable_ranks": THEIRS._mergeable_ranks}
    names = {"<|one|>": 800, EOT: 700, "<|two|>": 800}
    theirs, ours = (one("x", **inputs, special_tokens=names) for one in (tiktoken.Encoding, bpe.Encoding))
    text = f"a<|two|>{EOT}<|one|>"
    assert ours.encode(text, allowed_special="all") == theirs.encode(text, allowed_special="all")
    assert ours.encode_single_token("<|two|>") == theirs.encode_single_token("<|two|>") == 800
    assert ours.special_tokens_set == theirs.special_tokens_set
    assert ours.decode([800]) == "<|one|>"  # the first; tiktoken's is the one that its hash table has last
    copied = pickle.loads(pickle.dumps(ours))
    assert copied.encode(text, allowed_special="all") == ours.encode(text, allowed_special="all")


def test_a_refusal_says_what_to_do() -> None:
    with pytest.raises(ValueError, match=r"allowed_special=\{'<\|far\|>'\}.*disallowed_special=\(\)"):
        OURS.encode(f"the {FAR}")


@pytest.mark.parametrize("name", ["encode_batch", "encode_ordinary_batch"])
def test_odd_batches(name: str) -> None:
    for batch in ([], ["a", "the cat"], ("a",), "ab", {"a": 1}, None, 3, [None], [3], [EOT], ["a\ud800"]):
        same(name, batch)
    for threads in (0, -1, 1, 3, "a", None):
        same(name, ["a", "b"], num_threads=threads)
    theirs, ours = (outcome(getattr(one, name), iter(["a", "b"])) for one in (THEIRS, OURS))
    assert ours == theirs
    same("encode_batch", [EOT], allowed_special="all")
    same("encode_batch", [EOT], disallowed_special=())
    same("encode_batch", ["a"], disallowed_special=3)


IDS = [
    *[[], (), [1, 2], (1, 2), range(4), b"ab", bytearray(b"ab"), memoryview(b"ab"), [True], [np.int64(3), np.uint8(4)]],
    *[[700], [5000], [701], [4999], [5001], [-1], [2**31], [2**32 - 1], [2**32], [2**63], [10**30], [-(10**30)]],
    *[[1.0], [None], ["a"], [[1]], ["1"], "ab", None, 5, [np.float32(3)], [np.array(3)], [b"a"], [1j]],
    *[np.array([1, 2], dtype=kind) for kind in "bBhHiIlLqQ"],
    *[np.array([1, 2], dtype=kind) for kind in (">u2", ">i8", "<i4")],
    *[np.arange(40)[::-3], np.arange(40, dtype=np.uint16)[::2], np.arange(12).reshape(3, 4)[:, 1]],
    *[np.array([]), np.array([], dtype=bool), np.array([1.0]), np.array(5), np.array([[1, 2]])],
    *([np.array([True])] if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else []),  # an index before, which warned
    *[np.array([-1]), np.array([2**32]), np.array([2**64 - 1], dtype=np.uint64), np.array([701], dtype=np.uint16)],
    *[np.array([1, 2], dtype=object), np.array([1, "a"], dtype=object), np.array(["a"]), np.array([-1], dtype=np.int8)],
]


@pytest.mark.parametrize("name", ["decode", "decode_bytes", "decode_tokens_bytes", "decode_with_offsets"])
@pytest.mark.parametrize("tokens", IDS, ids=lambda tokens: repr(tokens)[:40].partition(" at 0x")[0])
def test_odd_ids(name: str, tokens: Any) -> None:
    same(name, tokens)


@pytest.mark.parametrize(
    "token", [0, 97, 700, 5000, 701, -1, 2**32, 10**30, True, 1.0, None, "a", b"a", [1], np.int32(4), np.float64(1)]
)
def test_odd_single_ids(token: Any) -> None:
    same("decode_single_token_bytes", token)
    if type(token) in (int, bool):  # theirs is a bare assertion, for NumPy's integers too
        same("is_special_token", token)


@pytest.mark.parametrize(
    "text", ["a", b"a", EOT, EOT.encode(), "no such token", b"\xff\xfe", 3, None, "\ud800", "", []]
)
def test_odd_single_tokens(text: Any) -> None:
    same("encode_single_token", text)


def test_errors_of_decoding() -> None:
    broken = [0xE4, 0xB8]
    assert OURS.decode_bytes(broken) == b"\xe4\xb8"
    for errors in ("strict", "ignore", "replace", "backslashreplace", "unknown", None, 3):
        same("decode", broken, errors)
        same("decode", [97], errors=errors)
        same("decode_batch", [broken], errors=errors)
    for name in ("decode_batch", "decode_bytes_batch"):
        for batch in ([], [[1], [2]], [[]], [1], [[-1]], [[701]], None, [None], [np.array([1, 2])], ([1],)):
            same(name, batch)
        for threads in (0, -1, 1, 3, "a"):
            same(name, [[1]], num_threads=threads)


@given(data=st.binary(max_size=60), sizes=st.lists(st.integers(0, 5)))
def test_offsets(data: bytes, sizes: list[int]) -> None:
    same("decode_with_offsets", list(data))
    ids = OURS.encode(data, disallowed_special=())
    same("decode_with_offsets", ids)
    text, begins = OURS.decode_bytes_with_offsets(ids)
    assert text == data
    assert [data[begin:] for begin in begins] == [b"".join(OURS.decode_tokens_bytes(ids[i:])) for i in range(len(ids))]


# What tiktoken refuses and this package takes: bytes for text, any collection of names, any iterable of ids.
def test_what_is_taken_besides() -> None:
    ids = OURS.encode("the cat")
    for text in (b"the cat", bytearray(b"the cat"), memoryview(b"the cat")):
        assert outcome(THEIRS.encode, text) is TypeError
        assert OURS.encode(text) == OURS.encode_to_numpy(text).tolist() == ids
    assert OURS.encode_single_token(bytearray(b"a")) == OURS.encode_single_token("a")
    assert OURS.encode(EOT, allowed_special=[EOT]) == [700]
    assert outcome(THEIRS.decode, iter(ids)) is TypeError
    assert OURS.decode(iter(ids)) == "the cat"
    with pytest.raises(TypeError):
        OURS.encode_single_token(3)  # type: ignore[arg-type]


UNSTABLE = [
    "",
    " ",
    "  ",
    "\n",
    " \n",
    "\t",
    "\u3000",
    " \u3000",
    "\x85",
    " \x85",
    "\x1c",
    " \x1c",
    "é",
    "中",
    "😀",
    EOT,
]


def test_unfinished_texts_have_the_same_completions() -> None:
    text = corpus(8).replace(EOT, " ")
    rng = random.Random(1)
    for at in range(60):
        end = rng.randrange(len(text))
        cut = text[max(0, end - rng.randrange(20)) : end] + UNSTABLE[at % len(UNSTABLE)]
        same("encode_with_unstable", cut, allowed_special="all")
    for cut in (EOT[:5], f"{EOT}a", f"a{EOT}", "the " * 3, "a\n\n \t"):
        same("encode_with_unstable", cut, disallowed_special=())
    for stable, completions in [OURS.encode_with_unstable("the c"), OURS.encode_with_unstable(b"the c")]:
        assert b"the c".startswith(OURS.decode_bytes(stable))
        assert all(OURS.decode_bytes(stable + ids).startswith(b"the c") for ids in completions)


def test_completions_where_merging_and_looking_up_differ() -> None:
    ranks = {bytes([i]): i for i in range(256)} | {b"abcd": 256, b"bc": 257, b" ab": 258, b"  ": 259}
    theirs = tiktoken.Encoding("x", pat_str=openai_public.r50k_pat_str, mergeable_ranks=ranks, special_tokens={})
    ours = Tokenizer.from_ranks(ranks, pattern="gpt2")
    for text in ("a", "abc", "abcd", " a", "ab", "\xe9", "x   ", "   ab", "b", "ab \u3000"):
        expected, actual = theirs.encode_with_unstable(text), ours.encode_with_unstable(text)
        assert (actual[0], sorted(actual[1])) == (expected[0], sorted(expected[1])), text


def test_completions_under_any_pattern() -> None:
    ours = Tokenizer.from_ranks(THEIRS._mergeable_ranks, pattern=r"[a-c]+|\s|(?s:.)")
    stable, completions = ours.encode_with_unstable("xyz abc")
    assert ours.decode(stable) == "xyz "
    assert all(ours.decode(stable + ids).startswith("xyz abc") for ids in completions)


# As a citizen


TEXT = f"the naïve cat's 中文 dinner{EOT} and more"
EXPECTED = OURS.encode(TEXT, allowed_special="all")


def test_copies_are_as_good() -> None:
    for one in (pickle.loads(pickle.dumps(ENCODING)), copy.copy(ENCODING)):
        assert type(one) is bpe.Encoding
        assert (one.name, one.encode(TEXT, allowed_special="all")) == ("both", EXPECTED)
    for one in (pickle.loads(pickle.dumps(OURS)), copy.copy(OURS), copy.deepcopy(OURS)):
        assert one.encode(TEXT, allowed_special="all") == EXPECTED
        assert (one.name, one.special_tokens, one.fingerprint) == (OURS.name, OURS.special_tokens, OURS.fingerprint)


# Published encodings by name and by model


def test_names_are_those_of_tiktoken() -> None:
    assert bpe.list_encoding_names() == sorted(tiktoken.list_encoding_names(), key=bpe.list_encoding_names().index)
    with pytest.raises(ValueError, match="no published encoding is named 'nope'"):
        bpe.get_encoding("nope")
    with pytest.raises(ValueError, match="named 3"):
        bpe.get_encoding(3)  # type: ignore[arg-type]


def test_models_have_the_encodings_tiktoken_gives_them() -> None:
    models = [
        *MODEL_TO_ENCODING,
        *(prefix + "x" for prefix in MODEL_PREFIX_TO_ENCODING),
        "gpt-4o-2024-05-13",
        "o1-",
        "o1",
    ]
    for model in models:
        assert bpe.encoding_name_for_model(model) == tiktoken.encoding_name_for_model(model), model
    for model in ("", "gpt", "nope", "gpt-6", "x-gpt-4"):
        with pytest.raises(KeyError):
            tiktoken.encoding_name_for_model(model)
        with pytest.raises(KeyError, match="no encoding is known for the model"):
            bpe.encoding_name_for_model(model)
    assert {bpe.encoding_name_for_model(model) for model in models} <= set(published.DOWNLOADS)


def test_an_encoding_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ranks = {bytes([i]): i for i in range(256)}
    loaded: list[str] = []

    def parse(name: str, contents: list[bytes]) -> bpe.TokenizerData:
        loaded.append(name)
        return data_of_ranks(ranks, {EOT: 256}, resolve("cl100k"), name)

    monkeypatch.setattr(published, "_fetch", lambda url, sha256: b"")
    monkeypatch.setattr(published, "_parse", parse)
    bpe.get_encoding.cache_clear()
    try:
        assert bpe.get_encoding("cl100k_base") is bpe.encoding_for_model("gpt-4") is bpe.get_encoding("cl100k_base")
        assert loaded == ["cl100k_base"]
    finally:
        bpe.get_encoding.cache_clear()


@pytest.mark.parametrize("method", ["spawn", "fork"])
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_methods_go_to_processes(method: str) -> None:
    texts = ["some words", "more words 12"]
    with multiprocessing.get_context(method).Pool(1) as pool:
        for one in (OURS, ENCODING):
            for name in ("encode", "encode_ordinary"):
                assert pool.map(getattr(one, name), texts) == [getattr(THEIRS, name)(text) for text in texts]
            encode = functools.partial(one.encode, allowed_special="all")
            assert pool.map(encode, [f"a{EOT}"]) == [THEIRS.encode(f"a{EOT}", allowed_special="all")]
            (ids,) = pool.map(one.encode_to_numpy, ["words"])
            assert ids.tolist() == THEIRS.encode("words")


def test_a_method_called_with_another_object_is_a_type_error() -> None:
    for wrong in (5, object.__new__(object), bpe.Encoding.__new__(bpe.Encoding)):
        for name in ("encode", "encode_ordinary", "encode_to_numpy"):
            with pytest.raises(TypeError, match=type(wrong).__name__):
                getattr(bpe.Encoding, name)(wrong, "text")
