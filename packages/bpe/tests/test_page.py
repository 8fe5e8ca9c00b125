"""The page of `bpe view`: what its JavaScript encodes and draws, asked of a headless Chromium."""

import json
import os
import random
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import chromium
import pytest
import sentencepiece_peers
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sentencepiece_samples import texts
from strategies import PIECES, TEXTS, corpus

import bpe
from bpe import patterns
from bpe.formats import TokenizerData
from bpe.patterns import PATTERNS
from bpe.reporting import javascript, report, view
from bpe.reporting.page import SAMPLE, page
from bpe.tokenizer import Tokenizer

BYTES = {bytes([i]): i for i in range(256)}
CUSTOM = {
    "tiktoken's gpt2": r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s|(?>x+)",
    "an ending": r"\A\w+|\d{2,3}?|(?<=a)b|(?<!a)[b-d]+(?=\w)|\p{Lu}{2}|[[:punct:]]+|\bé\B|\S|\s++\z|\s",
    "without case": r"(?i)straße|ſ+|[k-m]+|.",
    "a sequence": ("(?:ab)+", r"\s", "[^\\]a-c\u4e00-\u9fff-]+"),
}


def some_tokenizers() -> dict[str, Tokenizer]:
    """One of every pattern, and of every way to be a vocabulary."""
    text = corpus(3)
    result = {
        str(name): bpe.train([text], 400, pattern=name, special_tokens=["<|endoftext|>", "<|"])
        for name in (*patterns.PATTERNS, None)
    }
    vocab, merges = result["gpt2"].vocab, result["gpt2"].merges
    for name, pattern in CUSTOM.items():
        result[name] = Tokenizer(vocab, merges, pattern=pattern)
    order = random.Random(1)
    words = ["ab", "ba", "abb", "bba", "aba", " a", "'s", " ab", "12", "\r\n", "  ", "中", "\u0301", "Ab", "zzzzzz"]
    inverted = [word.encode() for word in order.sample(words, len(words))]
    ranks = {**BYTES, **{token: 300 + 7 * i for i, token in enumerate(inverted)}}
    result["ranks, some inverted or unreachable"] = Tokenizer.from_ranks(
        ranks, pattern="o200k", special_tokens={"<|endoftext|>": 1000, "ab": 2000, "abba": 2001}
    )
    resolved = patterns.resolve("qwen2")
    result["whole first, in NFC, with added tokens"] = Tokenizer.from_data(
        TokenizerData(
            {**vocab, 500: b"unreachable", 501: "é".encode(), 502: b"<|", 503: b"wasn"},
            merges,
            {"<|endoftext|>": result["gpt2"].special_tokens["<|endoftext|>"]},
            resolved,
            ignore_merges=True,
            added_tokens={"<|": 502, "wasn": 503},
            normalizer="NFC",
        )
    )
    return result


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[chromium.Chromium]:
    if chromium.PATH is None:
        pytest.skip(f"no Chromium found (looked for {', '.join(chromium.NAMES)}; CHROMIUM names another)")
    with chromium.Chromium(tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture(scope="module")
def tokenizers() -> dict[str, Tokenizer]:
    return some_tokenizers()


@pytest.fixture(scope="module")
def all_of_them(browser: chromium.Chromium, tokenizers: dict[str, Tokenizer], tmp_path_factory: pytest.TempPathFactory):
    """Function from texts to what the page makes of each under each tokenizer."""
    folder = tmp_path_factory.mktemp("page")
    return encoder_of(browser, tokenizers, folder / "page.html")


def encoder_of(browser: chromium.Chromium, tokenizers: dict[str, Tokenizer], path: Path):
    path.write_text(page(tokenizers, ""))
    browser.open(path)

    def encode(texts: list[str], names: tuple[str, ...] = tuple(tokenizers)) -> dict[str, list[list[int]]]:
        if browser.run("document.title + page.columns.length") != f"Tokens{len(tokenizers)}":
            browser.open(path)
        choice = [list(tokenizers).index(name) for name in names]
        encode_all = "(i) => TEXTS.map((text) => page.columns[i].encoder.encode(text).ids)"
        browser.run(f"TEXTS = {json.dumps(texts)}, 0")
        return dict(zip(names, browser.run(f"{choice}.map({encode_all})"), strict=True))

    return encode


def compare(tokenizers: dict[str, Tokenizer], encode, texts: list[str]) -> None:
    for name, rows in encode(texts).items():
        for text, ids in zip(texts, rows, strict=True):
            assert ids == tokenizers[name].encode(text, allowed_special="all"), (name, text)


def test_ids_of_the_corner_cases(tokenizers, all_of_them) -> None:
    choice = random.Random(2)
    texts = ["".join(choice.choices(PIECES, k=choice.randint(0, 40))) for _ in range(250)]
    texts += [unit * 300 for unit in ("a", " ", "^", "中", "ab ", "\n", "'s", "abba", "x\u0301")]
    texts += [
        "",
        "a",
        "\ud800",
        "a\udc00\ud83d",
        "\ud83d\ude00",
        "<|endoftext|",
        "<|<|endoftext|>>",
        "abbabba",
        corpus(9),
    ]
    compare(tokenizers, all_of_them, texts)


def test_ids_of_sentencepiece(browser, tmp_path: Path) -> None:
    """Of every kind of space in front, of merges in a list and by rank, and of characters that are no token."""
    kinds = {}
    for kind in sentencepiece_peers.KINDS:
        sentencepiece_peers.trained(kind).save(str(tmp_path / "tokenizer.json"))
        kinds[kind] = Tokenizer.from_huggingface(tmp_path / "tokenizer.json")
    kinds["by rank"] = Tokenizer.from_data(kinds["llama-2"].data._replace(merges=None))
    encode = encoder_of(browser, kinds, tmp_path / "page.html")
    compare(kinds, encode, ["", " ", "a", "\u2581", " a\u2581b", "中文 字\U0001f600", *texts(1, 300)])


def test_ids_of_every_code_point(tokenizers, all_of_them) -> None:
    """In a context that shows its class, whichever version of Unicode the browser has."""
    texts = []
    for block in [*range(0, 0x3400, 0x400), *range(0xA400, 0xAC00, 0x400), *range(0xF800, 0x20000, 0x400), 0xE0000]:
        characters = [chr(code) for code in range(block, block + 0x400)]
        texts.append("".join(f"x{one} {one}'S" for one in characters))
    families = ("gpt2", "o200k", "qwen3.5", "deepseek-v3", "whole first, in NFC, with added tokens")
    for name, rows in all_of_them(texts, families).items():
        assert rows == [tokenizers[name].encode(text, allowed_special="all") for text in texts], name


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(texts=st.lists(TEXTS, min_size=1, max_size=8))
def test_ids_of_any_text(tokenizers, all_of_them, texts: list[str]) -> None:
    compare(tokenizers, all_of_them, texts)


def test_ids_under_a_vocabulary_of_200_000(browser, tmp_path: Path) -> None:
    letters, choice = "etaoinsrhl", random.Random(4)
    words = {first + second for first in ("", " ") for second in letters}
    while len(words) < 199_000:  # every token is one that stands already, and another
        words |= {
            left + right
            for left, right in zip(*[choice.sample(sorted(words), min(len(words), 40_000))] * 2, strict=True)
        }
        expected = sorted(words, key=len)[:60_000]
        words |= {choice.choice(expected)[:6] + choice.choice(expected)[:6] for _ in range(60_000)}
    ranks = {**BYTES}
    for word in choice.sample(sorted(words), 199_000):
        ranks.setdefault(word.encode(), len(ranks))
    tokenizers = {"large": Tokenizer.from_ranks(ranks, pattern="o200k", special_tokens=["<|endoftext|>"])}
    texts = [" ".join("".join(choice.choices(letters, k=choice.randint(1, 12))) for _ in range(300)) for _ in range(10)]
    compare(tokenizers, encoder_of(browser, tokenizers, tmp_path / "page.html"), texts)


def test_ids_under_published_vocabularies(browser, tmp_path: Path) -> None:
    if "GROUNDUP_DATA" not in os.environ:
        pytest.skip("GROUNDUP_DATA names no folder with the published vocabularies")
    folder = Path(os.environ["GROUNDUP_DATA"])
    end = {"cl100k_base": 100257, "o200k_base": 199999}
    tokenizers = {
        name: Tokenizer.from_tiktoken(
            folder / "vocab" / f"{name}.tiktoken", pattern=name, special_tokens={"<|endoftext|>": number}
        )
        for name, number in end.items()
    }
    for name in ("llama3", "qwen3"):
        tokenizers[name] = Tokenizer.from_huggingface(folder / "vocab" / f"{name}_tokenizer.json")
    tokenizers["gpt2"] = Tokenizer.from_gpt2(folder / "vocab" / "encoder.json", folder / "vocab" / "vocab.bpe")
    texts = [path.read_bytes()[:60_000].decode("utf-8", "replace") for path in sorted((folder / "data").glob("*.txt"))]
    assert texts
    compare(tokenizers, encoder_of(browser, tokenizers, tmp_path / "page.html"), texts)


def test_special_tokens_may_be_ordinary_text(browser, tokenizers, all_of_them) -> None:
    all_of_them([""])
    name = "ranks, some inverted or unreachable"
    column = f"page.columns[{list(tokenizers).index(name)}]"
    message = browser.run(f'{column}.encoder.encode("abba<|endoftext|>", {{special: false}}).ids')
    assert message == tokenizers[name].encode("abba<|endoftext|>", disallowed_special=())


# What is drawn


@pytest.fixture
def opened(browser, tokenizers, tmp_path: Path):
    """Function that opens a page of some tokenizers and a text."""

    def open(text: str, *names: str, title: str = "Tokens") -> chromium.Chromium:
        path = tmp_path / "drawn.html"
        path.write_text(page({name: tokenizers[name] for name in names}, text, title=title), newline="")
        browser.open(path)
        return browser

    return open


def shown(browser: chromium.Chromium, column: int = 0) -> str:
    return browser.run(f"page.columns[{column}].drawn.textContent")


def facts(browser: chromium.Chromium, column: int = 0) -> list[str]:
    return browser.run(
        f"[...page.columns[{column}].section.querySelectorAll('.facts > div')]"
        ".map((fact) => fact.children[0].textContent)"
    )


def test_what_is_typed_is_drawn_and_counted_at_once(opened, tokenizers) -> None:
    browser = opened("the cat", "gpt2", "o200k", title="A & <b>")
    assert browser.run("document.querySelector('h1').textContent") == "A & <b>"
    browser.run("one('text').focus(), one('text').setSelectionRange(7, 7)")
    browser.call("Input.insertText", text=" sat 中文😀\n\tnaïve<|endoftext|>")
    text = "the cat sat 中文😀\n\tnaïve<|endoftext|>"
    for column, name in enumerate(("gpt2", "o200k")):
        ids = tokenizers[name].encode(text, allowed_special="all")
        assert browser.run(f"page.columns[{column}].ids") == ids
        assert shown(browser, column) == text
        size = len(text.encode())
        assert facts(browser, column) == [
            str(len(ids)),
            f"{size / len(ids):.2f}",
            f"{len(text) / len(ids):.2f}",
            str(len(set(ids))),
        ]
    assert browser.run("one('measure').textContent") == f"{len(text)} characters · {size} bytes · 2 lines"


def test_the_headline_compares(opened, tokenizers) -> None:
    browser = opened("aa " * 50, "gpt2", "None")
    counts = [len(tokenizers[name].encode("aa " * 50)) for name in ("gpt2", "None")]
    less, more = sorted(counts)
    name = ("gpt2", "None")[counts.index(less)]
    expected = "Both take" if less == more else f"{name} takes {100 * (1 - less / more):.1f}% fewer tokens"
    assert browser.run("one('headline').textContent").startswith(expected)


@given(st.text(st.characters(exclude_categories=["Cc", "Cf", "Cs"]) | st.sampled_from("\n\t \u200d")))
@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_text_on_the_page_is_the_text(opened, text: str) -> None:
    browser = opened("", "ranks, some inverted or unreachable")
    browser.run(f"one('text').value = {json.dumps(text)}, page.typed(), page.draw()")
    assert shown(browser) == text


def test_bytes_of_a_character_are_chips_and_the_last_token_shows_it(opened) -> None:
    browser = opened("ä\x00\u202e\r\n", "gpt2")
    assert browser.run("[...page.columns[0].drawn.querySelectorAll('.bpe-x')].map((chip) => chip.dataset.x)") == [
        *("C3", "A4", "U+0000", "E2", "80", "AE", "U+202E")
    ]
    assert browser.run("page.columns[0].drawn.children[1].textContent") == "ä"
    assert "carriage returns" in browser.run("one('note').textContent")
    browser.run("page.typed()")
    assert browser.run("one('note').hidden")


def test_a_long_text_is_drawn_as_one_scrolls_and_says_so(opened, tokenizers) -> None:
    text = "\n".join(["the cat sat"] * 4000)
    browser = opened(text, "gpt2")
    count = len(tokenizers["gpt2"].encode(text))
    assert count > 6000
    first = browser.run("page.columns[0].shown")
    assert 3000 <= first < count
    assert browser.run("page.columns[0].more.textContent").startswith(f"{first:,} of {count:,} tokens are drawn")
    browser.run("scrollTo(0, document.body.scrollHeight)")
    while browser.run("page.columns[0].shown") == first:
        pass
    browser.run("while (page.columns[0].shown < page.columns[0].ids.length) page.columns[0].drawMore()")
    assert shown(browser) == text
    assert browser.run("page.columns[0].more.textContent") == ""


def test_a_token_has_its_id_and_bytes_as_its_title(opened, tokenizers) -> None:
    text = "the cat😀<|endoftext|>"
    browser = opened(text, "gpt2")
    drawn = view.tokens_html(tokenizers["gpt2"], text)
    titles = browser.run("[...page.columns[0].drawn.children].map((span) => span.title)")
    assert titles == re.findall('title="([^"]*)"', drawn)


def test_ids_can_be_drawn_in_the_texts_place(opened, tokenizers) -> None:
    browser = opened("the cat", "gpt2")
    browser.run("document.querySelector('input[value=ids]').click()")
    drawn = browser.run("[...page.columns[0].drawn.children].map((span) => span.textContent)")
    assert drawn == list(map(str, tokenizers["gpt2"].encode("the cat")))


def test_what_cannot_be_encoded_is_said(browser, tmp_path: Path) -> None:
    (tmp_path / "few.html").write_text(page(Tokenizer({0: b"a", 1: b"b"}, []), "abc"))
    browser.open(tmp_path / "few.html")
    assert (
        browser.run("page.columns[0].trouble.textContent")
        == "This text cannot be encoded: byte 0x63 has no token in this vocabulary."
    )


# What needs no browser


def test_a_page_stands_alone(tokenizers) -> None:
    source = page(tokenizers["gpt2"], "</script><script>alert(1)</script>{{script}}", title="{{text}}")
    assert "http" not in source.replace("http-equiv", "")
    assert "<script>alert" not in source
    assert "<title>{{text}}</title>" in source
    assert json.dumps(SAMPLE).replace("<", "\\u003c") in page(tokenizers["gpt2"])


def test_a_pattern_beyond_javascript_is_drawn_as_it_stands() -> None:
    source = page(Tokenizer({i: bytes([i]) for i in range(256)}, [], pattern=r"(a|b)\1|\X"), "abb")
    assert "this page&#x27;s encoder does not run" in source
    columns = source.partition('<div id="columns">')[2].partition("</main>")[0]
    assert columns.count('class="bpe-t ') == 3
    assert "data-vocabulary" not in columns


@pytest.mark.skipif(shutil.which("node") is None, reason="needs Node.js")
@pytest.mark.parametrize(
    "pattern", [*PATTERNS, r"(?>a|b)c++|\d{1,2}?|(?<=c)[^\s\p{L}]+|\b\w|c$|(?s:.)", r"(?i:ſ|k)+|[^\d]"]
)
def test_an_expression_matches_in_javascript_as_here(pattern: str) -> None:
    resolved = patterns.resolve(pattern)
    text = SAMPLE + " abcc 12345 \u0660\u2028\u00a0 K\u212a it's IT'S\n\n  "
    pieces = [text]
    for expression in resolved.expressions:
        classes: dict[str, int] = {}
        translated = javascript.javascript(patterns.tree_of(expression, resolved.language), classes)
        program = """
            const [source, classes, pieces] = JSON.parse(require("fs").readFileSync(0));
            const splitter = new RegExp(source.replace(/§(\\d+)§/g, (_, index) => `[${classes[index]}]`), "gu");
            const parts = pieces.flatMap((piece) => {
                let at = 0;
                const found = [];
                for (const match of piece.matchAll(splitter)) {
                    if (match[0]) found.push(piece.slice(at, match.index), match[0]);
                    if (match[0]) at = match.index + match[0].length;
                }
                return [...found, piece.slice(at)].filter((part) => part);
            });
            console.log(JSON.stringify(parts));
        """
        values = json.dumps([translated, list(classes), pieces])
        result = subprocess.run(["node", "-e", program], input=values, capture_output=True, text=True, check=True)
        pieces = json.loads(result.stdout)
    assert [piece.encode() for piece in pieces] == patterns.split(text.encode(), resolved)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"normalizer": "NFKD"}, "does not normalize to NFKD"),
        ({"add_prefix_space": True}, "does not put a space before"),
        ({"normalized": frozenset({"<|endoftext|>"})}, "options of the token &#x27;&lt;|endoftext|&gt;&#x27;"),
        ({"lstrip": frozenset({"<|endoftext|>"})}, "does not know the options"),
        ({"single_word": frozenset({"<|endoftext|>"})}, "does not know the options"),
    ],
)
def test_what_the_pages_encoder_does_not_do_is_drawn_as_it_stands_and_said(
    tokenizers: dict[str, Tokenizer], changed: dict[str, object], said: str
) -> None:
    source = page(
        Tokenizer.from_data(tokenizers["gpt2"].data._replace(**changed)), "the \ufb01ne \u00e9<|endoftext|> cat"
    )
    columns = source.partition('<div id="columns">')[2].partition("</main>")[0]
    assert said in columns
    assert "data-vocabulary" not in columns
    assert columns.count('class="bpe-t ') > 3


def test_a_report_fits_a_telephone_and_its_numbers_stand_to_the_right(browser, tmp_path: Path) -> None:
    """Tables scroll inside their own boxes; a name is told from markup; the page has the dress of the others."""
    named = {"a<b": bpe.train(["a text of its own, a text"], 262), "c": bpe.train(["another text"], 260)}
    (tmp_path / "report.html").write_text(report.measure(named, {"x": [b"some text " * 40]}).html())
    browser.open(tmp_path / "report.html")
    browser.call("Emulation.setDeviceMetricsOverride", width=390, height=800, deviceScaleFactor=1, mobile=False)
    assert browser.run("document.documentElement.scrollWidth <= innerWidth") is True
    browser.call("Emulation.clearDeviceMetricsOverride")
    assert browser.run("document.querySelector('main td').textContent") == "a<b"
    sides = "[...document.querySelectorAll('tbody tr:first-child td')].map(cell => getComputedStyle(cell).textAlign)"
    # Of a text: tokenizer, text, seven numbers. Of a vocabulary: tokenizer, five numbers, the longest tokens. Of two
    # tokenizers: their names and two shares.
    expected = ["left"] * 2 + ["right"] * 7 + ["left"] + ["right"] * 5 + ["left"] * 3 + ["right"] * 2
    assert browser.run(sides) == expected
    assert browser.run("getComputedStyle(document.body).maxWidth") == "1320px"
