"""The split patterns: what each does by hand, and against the engines they were published for."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bpe import patterns, reference
from bpe.patterns import PATTERNS, Pattern, resolve


def pieces(text: str, pattern: Any) -> list[str]:
    return [piece.decode() for piece in reference.pretokenize(text.encode(), pattern)]


# By hand


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("gpt2", "Hello, it's 12345 words!", ["Hello", ",", " it", "'s", " 12345", " words", "!"]),
        ("gpt2", "IT'S", ["IT", "'", "S"]),
        ("gpt2", "a   b \n c  ", ["a", "  ", " b", " \n", " c", "  "]),
        ("gpt2", "a\n\nb", ["a", "\n", "\n", "b"]),
        ("gpt2", "e\u0301t", ["e", "\u0301", "t"]),
        ("cl100k", "IT'S 12345", ["IT", "'S", " ", "123", "45"]),
        ("cl100k", "(word) end.\n\nx", ["(word", ")", " end", ".\n\n", "x"]),
        ("cl100k", "a \n  ", ["a", " \n  "]),
        ("cl100k", "a \n  b", ["a", " \n", " ", " b"]),
        ("llama3", "a \n  ", ["a", " \n", "  "]),
        ("llama3", "12345", ["123", "45"]),
        ("qwen2", "12345", ["1", "2", "3", "4", "5"]),
        ("qwen2", "e\u0301t", ["e", "\u0301t"]),
        ("qwen3.5", "e\u0301t", ["e\u0301t"]),
        ("qwen3.5", ".\u0301", [".\u0301"]),
        ("o200k", "camelCase HTTPServer it'S", ["camel", "Case", " HTTPServer", " it'S"]),
        ("o200k", "path//\n/x", ["path", "//\n/", "x"]),
        ("deepseek-v3", "12345世界です abc.def", ["123", "45", "世界です", " abc", ".def"]),
        ("deepseek-v3", "a世b", ["a", "世", "b"]),
        ("deepseek-v3", "a\u00ad\u00adb", ["a", "\u00ad", "\u00adb"]),
        (None, "any text at all", ["any text at all"]),
    ],
)
def test_by_hand(name: str | None, text: str, expected: list[str]) -> None:
    assert pieces(text, name) == expected


@pytest.mark.parametrize("name", [*PATTERNS, None])
def test_nothing_in_nothing_out(name: str | None) -> None:
    assert reference.pretokenize(b"", name) == []


def test_the_long_s_contracts_where_case_is_ignored() -> None:
    assert pieces("it'\u017f", "cl100k") == ["it", "'\u017f"]
    assert pieces("it'\u017f", "gpt2") == ["it", "'", "\u017f"]


def test_separators_that_only_python_calls_space() -> None:
    assert pieces("a \x1c\x1d\x1e\x1f b", "gpt2") == ["a", " \x1c\x1d\x1e\x1f", " b"]
    assert pieces("a\x85\u2028\u00a0b", "gpt2") == ["a", "\x85\u2028", "\u00a0", "b"]


def test_text_between_matches_is_a_piece() -> None:
    assert pieces("ab12cd!", r"\d+") == ["ab", "12", "cd!"]
    assert pieces("ab12cd!", (r"\d+", "c")) == ["ab", "12", "c", "d!"]
    assert pieces("no match", r"\d+") == ["no match"]


def test_a_later_split_sees_only_its_piece() -> None:
    # the space before the number ends its piece, so the look-ahead (?!\S) holds there
    assert pieces("a  1", ("1", r"\s+(?!\S)|\S+|\s+")) == ["a", "  ", "1"]


def test_bytes_that_are_not_utf8() -> None:
    split = reference.pretokenize
    assert split(b"a\xffb \xc3( \xe2\x82", "gpt2") == [b"a", b"\xff", b"b", b" \xc3(", b" \xe2\x82"]
    assert split(b"\xed\xa0\x80", r"[\s\S]") == [b"\xed", b"\xa0", b"\x80"]  # a surrogate is not well-formed
    assert split("é".encode()[:1], "llama3") == [b"\xc3"]
    assert split(b"\xffabc", "llama3") == [b"\xffabc"]  # like any one character that is no letter


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=30), st.sampled_from([*PATTERNS, None, r"\d", r"(?:a|b)+"]))
def test_no_byte_is_lost(text: bytes, name: str | None) -> None:
    parts = reference.pretokenize(text, name)
    assert b"".join(parts) == text
    assert all(parts)


# Resolving


def test_names() -> None:
    assert resolve("gpt2") == Pattern("gpt2", PATTERNS["gpt2"])
    assert resolve("r50k_base") == resolve("p50k_base") == resolve("gpt2")
    assert resolve("cl100k_base").name == "cl100k"
    assert resolve("o200k_base").name == "o200k"
    assert resolve("qwen3").name == "qwen2"
    assert resolve(None) == Pattern(None, ())
    assert resolve(r"\w+|\W+") == Pattern(None, (r"\w+|\W+",))
    assert resolve(r"\w+|\W+").argument == r"\w+|\W+"
    assert resolve((r"\w+", r"\d")).argument == (r"\w+", r"\d")
    for name, expressions in PATTERNS.items():
        assert resolve(expressions) == resolve(resolve(name)) == Pattern(name, expressions)
    assert resolve(PATTERNS["llama3"][0]).name == "llama3"
    assert resolve(r"(a)\1|\s+|\S").language == "regex"


def test_tiktokens_own_spellings_are_known() -> None:
    public = pytest.importorskip("tiktoken_ext.openai_public", reason="the spellings are those of tiktoken")
    assert resolve(public.r50k_pat_str).name == "gpt2"
    for spelling, name in patterns._OTHER_SPELLINGS.items():
        assert resolve(spelling) == resolve(name)


@pytest.mark.parametrize(
    ("pattern", "says"),
    [
        ("", "'' is empty"),
        ("(", "does not compile"),
        (r"\p{Nonsense}", "does not compile"),
        ("a*", "can match the empty string"),
        (r"\b", "can match the empty string"),
        ("(?=[A-Z])", "can match the empty string"),
        ("a+|", "can match the empty string"),
        ((r"\d+", "b?"), "'b\\?' can match the empty string"),
        ("gpt5", "no split pattern is named 'gpt5'.*cl100k"),
    ],
)
def test_refused(pattern: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        resolve(pattern)


def test_an_empty_match_that_no_probe_found_is_refused_where_it_happens() -> None:
    pattern = resolve(r"x(?:y)|(?=Q\d)")
    with pytest.raises(ValueError, match="can match the empty string"):
        patterns.split(b"aQ1", pattern)


@pytest.mark.parametrize("pattern", [7, b"gpt2", ("a", 1), ["a", None]])
def test_wrong_types(pattern: Any) -> None:
    with pytest.raises(TypeError, match="a split pattern is"):
        resolve(pattern)


# Against the engines they were published for

CORNERS = [
    *"aAbBsSdDtTmMlLrRvVeE", "ll", "re", "'", "'s", "'S", "'ll", "'\u017f", "’",
    "\u017f", "K", "ǅ", "ʰ", "ª", "é", "e\u0301",
    *" \t\n\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\u00a0\u2003\u2028\u3000\u200b", "  ", "   ", "\r\n", "\n\n", " \n ",
    *"0127٣Ⅷ½²", "123", "1234",
    *".,!?-_/()[]{}<>@#$%^&*+=|~`\"\\", "//", "...", "€", "🙂", "👩\u200d🚀", "🇩🇪",
    *"你世界はカナー한ㄱไ\u0e31ह\u093f\u094d", "\u0301",
    "\u00ad", "\ufeff", "\ufffd", "\u0000", "\u007f", "\ud7ff", "\ue000", "\U0010ffff",
]  # fmt: skip


def settled(character: str) -> bool:
    """Return True if every version of Unicode in use gives a character the category it has had since 3.2."""
    category = unicodedata.ucd_3_2_0.category(character)
    return category not in ("Cn", "Cs") and category == unicodedata.category(character)


@pytest.fixture(scope="module")
def tokenizers() -> Any:
    return pytest.importorskip("tokenizers", reason="compares with the engine of tokenizers")


@pytest.fixture(scope="module")
def tiktoken() -> Any:
    return pytest.importorskip("tiktoken", reason="compares with the engine of tiktoken")


hostile = st.lists(st.sampled_from(CORNERS), max_size=14).map("".join) | st.text(
    st.characters(codec="utf-8").filter(settled), max_size=12
)


@settings(max_examples=300, deadline=None)
@given(text=hostile, name=st.sampled_from(list(PATTERNS)))
@example(text="a \n \n  ", name="cl100k")
@example(text="a \n \n  ", name="llama3")
@example(text="it'\u017f 'ſT", name="o200k")
def test_splits_as_tokenizers_does(tokenizers: Any, text: str, name: str) -> None:
    split = tokenizers.pre_tokenizers.Split
    peer = tokenizers.pre_tokenizers.Sequence(
        [split(tokenizers.Regex(expression), "isolated") for expression in PATTERNS[name]]
    )
    assert pieces(text, name) == [piece for piece, _ in peer.pre_tokenize_str(text)]


@settings(max_examples=300, deadline=None)
@given(text=hostile, name=st.sampled_from(["r50k_base", "cl100k_base", "o200k_base"]))
@example(text="a \n \n  ", name="cl100k_base")
@example(text="1234567", name="cl100k_base")
def test_splits_as_tiktoken_does(tiktoken: Any, text: str, name: str) -> None:
    # Where every substring is a token, every pretoken is one token, and the tokens are the pretokens.
    data = text.encode()
    tokens = {bytes([byte]) for byte in range(256)}
    tokens |= {data[i:j] for i in range(len(data)) for j in range(i + 1, len(data) + 1)}
    ranks = {token: number for number, token in enumerate(sorted(tokens))}
    peer = tiktoken.Encoding("test", pat_str=pat_str(name), mergeable_ranks=ranks, special_tokens={})
    assert reference.pretokenize(data, name) == peer.decode_tokens_bytes(peer.encode_ordinary(text))


def pat_str(name: str) -> str:
    spellings = {resolved: spelling for spelling, resolved in patterns._OTHER_SPELLINGS.items()}
    expected = resolve(name).name
    assert expected is not None
    return spellings.get(expected, PATTERNS[expected][0])
