"""Tokens drawn as HTML."""

import html
import re
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st
from strategies import TEXTS

import bpe
from bpe.reporting import view

TOKENIZER = bpe.train(["the cat sat on the mat"] * 3, 268)


def spans(source: str) -> list[tuple[str, str, str]]:
    """(class, title, text) of each token of a fragment, which holds nothing else."""
    matches = re.findall('<span class="bpe-t ([^"]*)" title="([^"]*)">(.*?)</span>', source, re.DOTALL)
    bare = re.fullmatch(r"<(pre|div) [^>]*>(.*)</\1>\n", source, re.DOTALL)
    assert bare is not None
    assert re.sub("<span .*?</span>", "", bare[2], flags=re.DOTALL) == ""
    return [(kind, title, html.unescape(re.sub("</?i[^>]*>", "", text))) for kind, title, text in matches]


@given(st.one_of(TEXTS, st.text(), st.binary()))
def test_each_token_has_its_id_bytes_and_text(text: str | bytes) -> None:
    ids = TOKENIZER.encode(text, allowed_special="all")
    tokens = spans(view.tokens_html(TOKENIZER, text))
    assert [int(title.split(" · ")[0]) for _, title, _ in tokens] == ids
    assert [bytes.fromhex(title.split(" · ")[2]) for _, title, _ in tokens] == TOKENIZER.decode_tokens_bytes(ids)
    for (one, *_), (other, *_) in pairwise(tokens):
        assert one != other or one == "bpe-special"


def test_a_text_is_drawn_as_it_reads() -> None:
    text = "the <b>&amp; cat\r\n\u202eé\x00\t<|endoftext|>"
    tokens = spans(view.tokens_html(TOKENIZER, text))
    assert (
        "".join(shown for *_, shown in tokens) == "the <b>&amp; cat\\r\n\\xe2\\x80\\xae\\xc3\\xa9\\x00\\t<|endoftext|>"
    )
    assert tokens[-1][:2] == ("bpe-special", "256 · special token · " + b"<|endoftext|>".hex(" "))
    assert "http" not in view.STYLE


def test_tokens_that_form_no_text() -> None:
    ids = [TOKENIZER.encode("the")[0], 97, 97]
    tokens = spans(view.chips_html(TOKENIZER, ids))
    assert [shown for *_, shown in tokens] == ["the", "a", "a"]
    assert tokens[1][1] == "97 · 1 byte · 61"
