from html.parser import HTMLParser
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bpe.reporting import view

SPECIAL = "<|endoftext|>"


class Cuts:
    """A tokenizer that cuts every `size` bytes, wherever that falls in a character."""

    def __init__(self, size=1):
        self.size, self.pieces = size, [SPECIAL.encode()]
        self.special_tokens = {SPECIAL: 0}

    def encode(self, text, *, allowed_special):
        assert allowed_special == "all"
        data, ids = text if isinstance(text, bytes) else text.encode(), []
        for i, part in enumerate(data.split(SPECIAL.encode())):
            cuts = [part[at : at + self.size] for at in range(0, len(part), self.size)]
            ids += [0] * (i > 0) + [self.id(cut) for cut in cuts]
        return ids

    def id(self, piece):
        if piece not in self.pieces:
            self.pieces.append(piece)
        return self.pieces.index(piece)

    def decode_single_token_bytes(self, token):
        return self.pieces[token]


class Tokens(HTMLParser):
    """The tokens of a fragment as (class, id, bytes, text), and all of its text."""

    def __init__(self, source):
        super().__init__()
        self.open, self.tokens, self.words, self.chips = [], [], "", []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        if tag == "meta":
            return
        self.open.append(tag)
        attrs = dict(attrs)
        if "title" in attrs:
            token, message, data = attrs["title"].split(" · ")
            self.tokens.append([attrs["class"], int(token), bytes.fromhex(data), ""])
            assert message in ("special token", "1 byte", f"{len(self.tokens[-1][2])} bytes")
        if "data-x" in attrs:
            self.chips.append((attrs["data-x"], "bpe-bad" in attrs["class"]))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] not in ("style", "title"):
            self.words += data
        if "pre" in self.open and "span" in self.open:
            self.tokens[-1][3] += data


@given(st.text(), st.integers(1, 9))
def test_the_tokens_give_the_text_back(text, size):
    tokenizer = Cuts(size)
    drawn = Tokens(view.tokens_html(tokenizer, text))
    assert b"".join(data for _, _, data, _ in drawn.tokens) == text.encode()
    assert [token for _, token, _, _ in drawn.tokens] == tokenizer.encode(text, allowed_special="all")
    assert not any(bad for _, bad in drawn.chips)


VISIBLE = st.characters(exclude_categories=["Cc", "Cf", "Cs"]) | st.sampled_from("\r\n\t \u200d")


@given(st.text(VISIBLE), st.integers(1, 9))
def test_the_text_on_the_page_is_the_text(text, size):
    drawn = Tokens(view.tokens_html(Cuts(size), text))
    assert drawn.words == text


@given(st.binary(), st.integers(1, 9))
def test_any_bytes_can_be_drawn(data, size):
    drawn = Tokens(view.tokens_html(Cuts(size), data))
    assert b"".join(data for _, _, data, _ in drawn.tokens) == data
    lost = len(data.decode("utf-8", "surrogateescape").encode("utf-8", "ignore"))
    assert sum(bad for _, bad in drawn.chips) == len(data) - lost


@given(st.text(min_size=2), st.integers(1, 3))
def test_neighbours_differ_in_colour(text, size):
    colours = [token[0] for token in Tokens(view.tokens_html(Cuts(size), text)).tokens]
    assert all(a != b for a, b in pairwise(colours))


def test_a_token_keeps_its_colour():
    tokens = Tokens(view.tokens_html(Cuts(2), "abcdabefab")).tokens
    assert len({token[0] for token in tokens if token[2] == b"ab"}) <= 2


def test_bytes_of_a_character_are_chips_and_the_last_token_shows_it():
    drawn = Tokens(view.tokens_html(Cuts(2), " €!"))
    assert [token[3] for token in drawn.tokens] == [" ", "€", "!"]
    assert drawn.chips == [("E2", False), ("82", False), ("AC", False)]


def test_bytes_of_no_character_are_marked():
    assert Tokens(view.tokens_html(Cuts(3), b"a\xffb")).chips == [("FF", True)]


def test_white_space_is_marked_and_kept():
    source = view.tokens_html(Cuts(99), "a  b\n\tc\r\nd\re")
    assert '<i class="bpe-s">  </i>' in source
    assert '<i class="bpe-n">\n</i><i class="bpe-h">\t</i>' in source
    assert '<i class="bpe-n">&#13;\n</i>d<i class="bpe-r">&#13;</i>' in source


def test_what_would_turn_the_page_around_is_a_chip():
    drawn = Tokens(view.tokens_html(Cuts(99), "a\u202eb\x00c\u00a0d"))
    assert drawn.chips == [("U+202E", False), ("U+0000", False), ("U+00A0", False)]
    assert drawn.words == "abc\u00a0d"


def test_special_tokens_stand_out():
    drawn = Tokens(view.tokens_html(Cuts(4), f"one{SPECIAL}two"))
    assert [token[3] for token in drawn.tokens] == ["one", SPECIAL, "two"]
    assert [token[0] == "bpe-t bpe-special" for token in drawn.tokens] == [False, True, False]


def test_text_is_escaped():
    source = view.tokens_html(Cuts(99), "</pre><script>\"&'")
    assert "<script" not in source
    assert Tokens(source).words == "</pre><script>\"&'"


def test_half_a_surrogate_pair_is_a_replacement_character():
    assert Tokens(view.tokens_html(Cuts(3), "\ud83d!")).words == "\ufffd!"


def test_known_ids_are_drawn_and_wrong_ones_refused():
    tokenizer = Cuts(1)
    ids = tokenizer.encode("abc", allowed_special="all")
    assert view.tokens_html(tokenizer, "abc", ids=ids) == view.tokens_html(tokenizer, "abc")
    with pytest.raises(ValueError, match="differ from it at byte 2"):
        view.tokens_html(tokenizer, "abc", ids=ids[:2])
    with pytest.raises(ValueError, match="differ from it at byte 0"):
        view.tokens_html(tokenizer, "xyz", ids=ids)


def test_no_text_is_no_tokens():
    assert Tokens(view.tokens_html(Cuts(), "")).tokens == []


def test_chips_stand_alone():
    tokenizer = Cuts(2)
    ids = [*tokenizer.encode("€ab", allowed_special="all"), 0]
    drawn = Tokens(view.chips_html(tokenizer, ids))
    assert [token[1] for token in drawn.tokens] == ids
    assert [bad for _, bad in drawn.chips] == [True, True, True]
    assert drawn.tokens[-1][0] == "bpe-t bpe-special"
