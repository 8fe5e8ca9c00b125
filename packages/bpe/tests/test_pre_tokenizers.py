"""The pre-tokenizers and normalizers of a tokenizer.json beside tokenizers: the same pieces of any text."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterable
from typing import Any

import pytest
import tokenizers
from expression_samples import random_text

from bpe import patterns
from bpe.encoding import normalizing
from bpe.expressions import steps
from bpe.expressions.steps import Splitting
from bpe.formats.vocabularies import from_printable
from bpe.scanning import scanner


def split(expression: str, behaviour: str = "Isolated", invert: bool = False, key: str = "Regex") -> dict[str, Any]:
    return {"type": "Split", "pattern": {key: expression}, "behavior": behaviour, "invert": invert}


def byte_level(use_regex: bool = False, add_prefix_space: bool = False) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": add_prefix_space, "trim_offsets": True, "use_regex": use_regex}


LETTERS = r"[^\r\n\p{L}\p{N}]?"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}"
REST = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
CL100K = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{%s}" + (
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)

# Published pre-tokenizers, as facts of their files, in steps of tokenizer.json. All of them are run by automata.
PUBLISHED = {
    "nanochat": [split(CL100K % "1,2"), byte_level()],
    "glm-4, olmo-2": [split(CL100K % "1,3"), byte_level()],
    "tekken": [split(rf"{LETTERS}{UPPER}]*{LOWER}]+|{LETTERS}{UPPER}]+{LOWER}]*|\p{{N}}|{REST}"), byte_level()],
    "nemotron": [
        split(rf"{LETTERS}{UPPER}]*{LOWER}]+|{LETTERS}{UPPER}]+{LOWER}]*|\p{{N}}|{REST}", "Removed", True),
        byte_level(),
    ],
    "gpt-oss": [
        split(
            rf"{LETTERS}{UPPER}]*{LOWER}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|{LETTERS}{UPPER}]+{LOWER}]*"
            rf"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{{N}}{{1,3}}|{REST}"
        ),
        byte_level(),
    ],
    "kimi-k2": [
        split(
            rf"[\p{{Han}}]+|{LETTERS}{UPPER}&&[^\p{{Han}}]]*{LOWER}&&[^\p{{Han}}]]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
            rf"{LETTERS}{UPPER}&&[^\p{{Han}}]]+{LOWER}&&[^\p{{Han}}]]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{{N}}{{1,3}}|"
            r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
        ),
        byte_level(),
    ],
    "qwen-3.5": [
        split(
            r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|"
            r"\s*[\r\n]+|\s+(?!\S)|\s+"
        ),
        byte_level(),
    ],
    "starcoder, smollm, granite": [{"type": "Digits", "individual_digits": True}, byte_level(True)],
    "falcon": [
        {"type": "Punctuation", "behavior": "Contiguous"},
        byte_level(True),
        {"type": "Digits", "individual_digits": False},
        split("[0-9][0-9][0-9]"),
    ],
    "bloom": [split(r" ?[^(\s|[.,!?…。，、।۔،])]+"), byte_level()],
    "olmo": [byte_level(True)],
    "deepseek-llm": [
        split(r"[\r\n]"),
        split(
            r"\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-Ί"
            r"ΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-Ֆა-ჺჽ-ჿᏰ-ᏽ]+"
        ),
        split(r"\s?[!-/:-~！-／：-～‘-‟　-。]+"),
        split(r"\s+$"),
        split("[一-龥ࠀ-一가-퟿]+"),
        {"type": "Digits", "individual_digits": True},
        byte_level(),
    ],
    "command-r": [{"type": "Digits", "individual_digits": True}, byte_level(True)],
}
# Other shapes, held out from what models use; the last column says whether automata run them.
OTHERS = {
    "removed": ([split(r"\s+", "Removed"), byte_level()], False),
    "removed and inverted": ([split(r"\w+", "Removed", True), byte_level()], False),
    "merged with previous": ([split(r"\s", "MergedWithPrevious"), byte_level()], False),
    "merged with next": ([split(r"[\s.]", "MergedWithNext"), byte_level()], False),
    "merged with next, inverted": ([split(r"[\s.]", "MergedWithNext", True), byte_level()], False),
    "merged with previous, inverted": ([split(r"[ab]", "MergedWithPrevious", True), byte_level()], False),
    "contiguous": ([split(r"[ab]", "Contiguous"), byte_level()], True),
    "contiguous and inverted": ([split(r"[ab]", "Contiguous", True), byte_level()], True),
    "string": ([split("ab", key="String"), byte_level()], True),
    "punctuation": ([{"type": "Punctuation"}, byte_level()], True),
    "punctuation removed": ([{"type": "Punctuation", "behavior": "Removed"}, byte_level()], False),
    "whitespace": ([{"type": "Whitespace"}, byte_level()], False),
    "whitespace split": ([{"type": "WhitespaceSplit"}, byte_level()], False),
    "delimiter": ([{"type": "CharDelimiterSplit", "delimiter": "a"}, byte_level()], False),
    "bert": ([{"type": "BertPreTokenizer"}, byte_level()], False),
    "scripts": ([{"type": "UnicodeScripts"}, byte_level()], False),
    "scripts of words": ([{"type": "WhitespaceSplit"}, {"type": "UnicodeScripts"}, byte_level()], False),
    "scripts in bytes": ([byte_level(True), {"type": "UnicodeScripts"}], False),
    "a space before pieces": ([split(r"\s+"), byte_level(True, add_prefix_space=True)], False),
    "twice": ([byte_level(True), byte_level()], False),
    "behind ByteLevel": ([byte_level(), split("[ĠÃ]+"), {"type": "Whitespace"}], False),
    "digits in bytes": ([byte_level(), {"type": "Digits", "individual_digits": True}], True),
    "nothing matched": ([split(r"(?=\d)"), byte_level()], False),
    "nothing matched again": ([split(r"a*"), byte_level()], False),
    "far ahead": ([split(r"\d{1,3}(?=(?:\d{3})*\b)"), byte_level()], False),
    "behind": ([split(r"(?<=a)\s"), byte_level()], False),
    "line ends": ([split(r"^a|\s$"), byte_level()], False),
    "nested": ([{"type": "Sequence", "pretokenizers": [split(r"\s+"), byte_level()]}], True),
}
SHAPES = {name: (steps, True) for name, steps in PUBLISHED.items()} | OTHERS


def flat(steps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for step in steps for one in (flat(step["pretokenizers"]) if step["type"] == "Sequence" else [step])]


def peer_of(steps: list[dict[str, Any]], key: str = "pretokenizers") -> Any:
    """The step of tokenizers that a tokenizer.json with these has."""
    place = {"pretokenizers": "pre_tokenizer", "normalizers": "normalizer"}[key]
    file = {
        "version": "1.0",
        "added_tokens": [],
        place: {"type": "Sequence", key: steps},
        "model": {"type": "BPE", "vocab": {}, "merges": []},
    }
    return getattr(tokenizers.Tokenizer.from_str(json.dumps(file)), place)


def compare(name: str, texts: list[str]) -> None:
    steps, automata = SHAPES[name]
    pattern = patterns.of_steps(flat(steps))
    number = patterns.scanner_of(pattern)
    assert (number >= 0) == automata
    slow = Splitting(tuple(json.loads(pattern.steps))) if pattern.steps else None
    peer = peer_of(steps)
    for text in texts:
        expected = [from_printable(piece) for piece, _ in peer.pre_tokenize_str(text)]
        if automata:
            assert scanner.split(text.encode(), number) == expected, text
        if slow is not None:
            assert slow.split(text.encode()) == expected, text
        else:
            assert patterns.split(text.encode(), pattern) == expected, text


@pytest.mark.parametrize("name", SHAPES)
def test_pieces_of_random_texts(name: str) -> None:
    chance = random.Random(name)
    corners = ["", "²³½ 12345678 ١٢٣ ½²", "!!...  «»\n\n \r\n x"]
    compare(name, [random_text(chance) for _ in range(120)] + corners)


@pytest.mark.soak
@pytest.mark.parametrize("name", SHAPES)
def test_pieces_of_ten_thousand_random_texts(name: str) -> None:
    chance = random.Random(name + "soak")
    compare(name, [random_text(chance) for _ in range(10_000)])


@pytest.mark.soak
@pytest.mark.parametrize("name", PUBLISHED)
def test_pieces_of_every_code_point(name: str) -> None:
    every = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    compare(name, ["".join(every), "a".join(every), " ".join(every), " a1".join(every)])


def test_the_script_of_every_code_point() -> None:
    step = {"type": "UnicodeScripts"}
    every = [chr(code) for code in range(0x110000) if not 0xD800 <= code < 0xE000]
    peer = peer_of([step])
    for text in ["".join(every), *(between.join(every[:0x31000:3]) for between in ["a", " か", "\u30fc"])]:
        expected = [piece for piece, _ in peer.pre_tokenize_str(text)]
        assert steps.script_runs(text) == expected
    assert steps.script_runs("  中か ーab\u0378 é\u0301 ") == ["中か ー", "ab\u0378 é", "\u0301 "]


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_text_may_be_cut_where_the_scanner_says_so(name: str) -> None:
    number = patterns.scanner_of(patterns.of_steps(PUBLISHED[name]))
    chance = random.Random(name)
    cuts = 0
    for _ in range(150):
        text = random_text(chance, 40).encode()
        pieces = scanner.split(text, number)
        ends = {sum(map(len, pieces[:count])) for count in range(len(pieces) + 1)}
        at = scanner.cut(text, chance.randrange(len(text)), number)
        if at < len(text):
            cuts += 1
            assert at in ends, (text, at)
            before, after = scanner.split(text[:at], number), scanner.split(text[at:], number)
            assert before + after == pieces, (text, at)
    assert cuts > 15


NORMALIZERS: dict[str, list[dict[str, Any]]] = {
    "lowercase": [{"type": "Lowercase"}],
    "prepend": [{"type": "Prepend", "prepend": "▁"}],
    "replace": [{"type": "Replace", "pattern": {"String": " "}, "content": "▁"}],
    "replace by expression": [{"type": "Replace", "pattern": {"Regex": r"\s{2,}|[ab]$"}, "content": "<\\1>"}],
    "strip": [{"type": "Strip", "strip_left": True, "strip_right": True}],
    "strip left": [{"type": "Strip", "strip_left": True, "strip_right": False}],
    "strip accents": [{"type": "NFD"}, {"type": "StripAccents"}],
    "nmt": [{"type": "Nmt"}],
    "bert": [{"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "lowercase": True}],
    "bert, accents kept": [
        {"type": "BertNormalizer", "clean_text": False, "handle_chinese_chars": True, "strip_accents": False}
    ],
    "several": [
        {"type": "NFKC"},
        {"type": "Lowercase"},
        {"type": "Replace", "pattern": {"String": "ab"}, "content": ""},
    ],
}


def compare_normalizer(name: str, texts: Iterable[str]) -> None:
    steps = NORMALIZERS[name]
    if "bert" in name:
        steps = [{"strip_accents": None, "clean_text": True, "lowercase": True, **steps[0]}]
    peer = peer_of(steps, "normalizers")
    ours = normalizing.normalizer_of(normalizing.checked(steps))
    for text in texts:
        assert ours(text) == peer.normalize_str(text)


@pytest.mark.parametrize("name", NORMALIZERS)
def test_normalizers(name: str) -> None:
    chance = random.Random(name)
    few = [chr(code) for code in range(0x20000) if not 0xD800 <= code < 0xE000]
    corners = ["", " ", "".join(few), "\u0301".join(few[:0x3000])]
    compare_normalizer(name, [*(random_text(chance) for _ in range(200)), *corners])


@pytest.mark.soak
@pytest.mark.parametrize("name", NORMALIZERS)
def test_normalizers_on_ten_thousand_random_texts(name: str) -> None:
    chance = random.Random(name + "soak")
    compare_normalizer(name, (random_text(chance) for _ in range(10_000)))


@pytest.mark.parametrize(
    "step",
    [
        {"type": "Precompiled"},
        {"type": "Prepend"},
        {"type": "Replace", "pattern": {}, "content": ""},
        {"type": "Replace", "pattern": {"Regex": "a*"}, "content": ""},
        {"type": "Replace", "pattern": {"Regex": "("}, "content": ""},
        {"type": "Strip", "strip_left": 1},
    ],
)
def test_normalizers_that_are_unknown_or_wrong_are_refused(step: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"normalizer|pattern"):
        normalizing.checked([step])


WITHOUT_REGEX = """
import json, sys
sys.path[:0], steps, spellings = json.load(sys.stdin)
sys.modules["regex"] = None  # importing it raises ImportError
import bpe
from bpe.patterns import PATTERNS, of_steps, scanner_of
text = "It's 1234 words: e\\u0301t\\u00e9 \\u4e2d\\u6587\\r\\n  a\\u3000"
given = [*map(of_steps, steps), *PATTERNS, *PATTERNS.values(), None]
for pattern in given:
    tokenizer = bpe.train([text * 3], 270, pattern=pattern, special_tokens=["<|end|>"])
    assert scanner_of(tokenizer.data.pattern) >= 0, pattern
    assert tokenizer.decode(tokenizer.encode(text + "<|end|>", allowed_special="all")) == text + "<|end|>"
    tokenizer.encode_with_unstable(text)
for spelling in spellings:
    ranks = {bytes([byte]): byte for byte in range(256)}
    encoding = bpe.Encoding("", pat_str=spelling, mergeable_ranks=ranks, special_tokens={})
    assert encoding.decode(encoding.encode(text)) == text
assert "regex" not in vars(sys.modules["bpe.native.lazy_imports"].regex)
try:
    bpe.patterns.resolve("gtp2")
except ValueError as error:
    print(error)
"""


def test_published_patterns_need_no_regex() -> None:
    inputs = json.dumps([sys.path, list(PUBLISHED.values()), list(patterns._OTHER_SPELLINGS)])
    done = subprocess.run([sys.executable, "-c", WITHOUT_REGEX], input=inputs, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "did you mean 'gpt2'" in done.stdout
