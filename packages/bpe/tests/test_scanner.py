"""The scanners against the regular expressions they stand for."""

import pickle
import random
import unicodedata

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from strategies import DATA, PIECES

import bpe
from bpe import patterns, reference
from bpe.expressions import automaton
from bpe.native import cpu
from bpe.scanning import scanner

SCANNERS = [name for name in scanner.SCANNED if name is not None]

EVERYTHING = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
# Each character of the scripts where neighbours differ, and one of every hundred of those where hundreds are alike.
VARIED = [
    c
    for c in EVERYTHING
    if unicodedata.category(c) not in ("Cn", "Co") and not "\u3400" <= c < "\ud7a4" and c < "\U00017000"
]
VARIED += EVERYTHING[::101]


def test_the_named_patterns_all_have_scanners() -> None:
    assert set(SCANNERS) == set(patterns.PATTERNS)


@pytest.mark.parametrize("name", SCANNERS)
@given(data=DATA)
@example(data=b"")
@example(data=b"\xe3\x80")  # a character cut off
@example(data=("x" * 62 + "\u3000 y").encode())  # a space of three bytes across two words
@example(data=b"x" * 62 + b"'ll" + b"l" * 70)  # a contraction across two words
def test_a_scanner_splits_as_its_pattern(name: str, data: bytes) -> None:
    expected = reference.pretokenize(data, name)
    for level in cpu.AVAILABLE:
        assert scanner.split(data, name, level=level) == expected, level


@pytest.mark.parametrize("name", SCANNERS)
@given(
    before=st.integers(0, 70),
    middle=st.lists(st.sampled_from(PIECES), max_size=6).map("".join),
    after=st.integers(0, 70),
)
def test_nothing_changes_where_words_of_sixty_four_bytes_meet(name: str, before: int, middle: str, after: int) -> None:
    data = b"x" * before + middle.encode() + b" " * after + middle.encode()
    assert scanner.split(data, name) == reference.pretokenize(data, name)


@pytest.mark.parametrize("name", SCANNERS)
def test_a_run_is_split_alike_wherever_words_of_sixty_four_bytes_meet_in_it(name: str) -> None:
    for run in (
        "1234567",
        "\u0661\u0662\u0663\u0664\u0665",
        "'ll've",
        " \n\n  \n",
        "!!\r\n/",
        "ABCdeFG",
        "e\u0301e\u0301",
    ):
        texts = ["x" * before + run for before in range(50, 65)]
        data = "".join(text + "x" * (128 - len(text.encode())) for text in texts).encode()
        assert scanner.split(data, name) == reference.pretokenize(data, name), run


@pytest.mark.parametrize("name", SCANNERS)
def test_every_code_point_alone_and_in_context(name: str) -> None:
    pattern = patterns.resolve(name)
    for context, characters in [
        ("{0}", EVERYTHING),  # where a character is taken for another kind than its neighbours, a boundary shows
        ("\n\n!a{0}", VARIED),
        ("\n\n!a {0}b{0}{0} '{0}1{0}\n{0}", VARIED),
        ("1..{0}Ab{0}Ab1{0}Ab\u4e2d{0}'s", VARIED),
    ]:
        # One text of all, each between characters that no pretoken spans, so that one call asks about many.
        text = "".join(map(context.format, characters)).encode()
        assert scanner.split(text, name) == patterns.split(text, pattern)


@pytest.mark.parametrize("name", SCANNERS)
@given(data=DATA, at=st.integers(0, 210))
def test_a_cut_changes_no_pretoken(name: str, data: bytes, at: int) -> None:
    cut = scanner.cut(data, at, name)
    assert min(at, len(data)) <= cut <= len(data)
    assert scanner.split(data[:cut], name) + scanner.split(data[cut:], name) == scanner.split(data, name)


@pytest.mark.parametrize("name", SCANNERS)
@given(data=DATA, more=DATA, at=st.integers(0, 210))
@example(data="a\u00e9".encode()[:2], more="\u00e9".encode()[1:], at=1)  # what is cut off may be a letter
def test_a_cut_is_safe_whatever_is_added_to_the_text(name: str, data: bytes, more: bytes, at: int) -> None:
    cut = scanner.cut(data, at, name)
    if cut < len(data):
        whole = data + more
        assert scanner.split(whole[:cut], name) + scanner.split(whole[cut:], name) == scanner.split(whole, name)


@pytest.mark.parametrize("name", SCANNERS)
@pytest.mark.parametrize("letters", ["a", "7", "aZ09", "é", "中", "a中é7𐐀ক", "a'", "é\u0301"])
def test_a_cut_is_found_behind_many_letters(name: str, letters: str) -> None:
    chance = random.Random(1)
    for count in (1, 63, 64, 65, 255, 256, 257, 330, 1_000):
        text = ("x" + "".join(chance.choices(letters, k=count)) + "x").encode()
        for at in {0, 1, 2, 3, len(text) // 2, len(text) - 1}:
            assert scanner.cut(text + b" b", at, name) == len(text)
            assert scanner.cut(text, at, name) == len(text)


@pytest.mark.parametrize("name", SCANNERS)
def test_ordinary_text_can_be_cut_nearly_anywhere(name: str) -> None:
    for line in (
        "one two three, four: five\n",
        "x = {1: 2.5,\n",
        "我能吞下玻璃，而不伤身体。",
        "أنا قادر على أكل الزجاج",
        "ฉันกินกระจกได้ ",
    ):
        text = (line * 10).encode()
        size = len(line.encode())
        assert all(scanner.cut(text, at, name) - at < size for at in range(len(text) - size))


def test_without_a_pattern_the_text_is_one_pretoken() -> None:
    assert scanner.split(b"one two\n" * 1000, None) == [b"one two\n" * 1000]
    assert scanner.split(b"", None) == []
    assert scanner.cut(b"one two", 1, None) == 7


def test_a_pattern_without_a_scanner_says_so() -> None:
    assert patterns.scanner_of(patterns.resolve("(?<=a)b|[a-z]+|[^a-z]+")) == -1
    assert patterns.scanner_of(patterns.resolve(None)) >= 0
    with pytest.raises(KeyError):
        scanner.split(b"text", "[a-z]+")


def test_scanners_of_ones_own_are_unmade() -> None:
    level = automaton.scanner_level(patterns._automaton_of("[a-z]+|[^a-z]+", "fancy-regex"), False)
    for _ in range(5000):  # the table had room for 4,096, and the next pattern of the process was split by `regex`
        assert scanner.split(b"ab1", scanner.register_splitter([level])) == [b"ab", b"1"]
        assert scanner.split(b"ab1", scanner.register_joins([b"ab"], False)) == [b"ab", b"1"]
    number = scanner.register_splitter([level])
    plain = int(number)
    del number
    with pytest.raises(KeyError):
        scanner.split(b"ab1", plain)


def test_a_tokenizer_keeps_the_scanner_of_its_pattern() -> None:
    tokenizer = bpe.train(["ab ab 12"], 258, pattern="[a-z]+|[^a-z]+", special_tokens=[])
    expected = tokenizer.encode("ab12")
    patterns._scanner_of_automata.cache_clear()  # type: ignore[attr-defined]
    others = [patterns.scanner_of(patterns.resolve(f"[a-z]{{1,{n}}}|[^a-z]")) for n in range(2, 9)]
    assert tokenizer.encode("ab12") == expected
    assert tokenizer._text_encoder._scanner not in others
    assert pickle.loads(pickle.dumps(tokenizer)).encode("ab12") == expected


@pytest.mark.parametrize(
    ("expressions", "reason"),
    [
        (("[a-z]+", "(?<=a)b|c"), "behind"),
        ((r"(?r)[a-z]+",), "an expression of fancy-regex"),
        (tuple(f"[{letter}]+" for letter in "abcdefghi"), "more than 8 expressions"),
    ],
)
def test_the_warning_says_why_no_scanner_serves(expressions: tuple[str, ...], reason: str) -> None:
    pattern = patterns.resolve(expressions)
    assert patterns.scanner_of(pattern) == -1
    assert reason in patterns.slow_warning(pattern)


@pytest.mark.parametrize("name", SCANNERS)
def test_long_runs_cross_words_and_blocks(name: str) -> None:
    runs = [*"a \n1./A\u3000\u0663\u0301\u4e2d\u30fb\x00\U0001f600", "'s", "a b", "aB"]
    for run in runs:
        for before, after in [
            ("", ""),
            ("x", "x"),
            ("..", "a"),
            ("\n", "\n"),
            (".\n", "1"),
            ("1", "'s"),
            ("\u4e2d", "a"),
            ("a", "B "),
        ]:
            for times in (70, 5000):
                data = (before + run * times + after).encode()
                assert scanner.split(data, name) == reference.pretokenize(data, name), (before, run, after)
