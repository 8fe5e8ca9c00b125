"""Exercises of chapter 11: data. Fill in the bodies, then run `python grade.py 11`."""

import math
import re
from collections import Counter
from hashlib import blake2b
from html.parser import HTMLParser


def extract_text(html: str) -> str:
    """The text that a page shows: a line for each block, without tags, comments, scripts and styles.

    A tag of BLOCKS begins a new line, and its end too. Entities are characters (&amp; is &). Runs of white space are
    one space, and there are no empty lines. HTMLParser calls handle_starttag, handle_endtag and handle_data.
    """


BLOCKS = {"p", "div", "h1", "h2", "h3", "li", "ul", "ol", "br", "tr", "table", "title", "body"}


def bigrams(text: str) -> Counter[str]:
    """Count each pair of neighbouring characters of the text, in lower case."""


def classify(text: str, profiles: dict[str, Counter[str]]) -> str:
    """The class whose profile makes the text's bigrams likeliest.

    The probability of a bigram in a profile is (its count + 1) / (the sum of all counts + 1000). The score of a class
    is the sum of the logarithms over all bigrams of the text, in lower case. Of equal scores the first class in the
    dictionary wins.
    """


def mask_emails(text: str) -> tuple[str, int]:
    """The text with each e-mail address replaced by |||EMAIL_ADDRESS|||, and how many there were.

    An address: letters, digits and ._%+- , then @, then two labels or more of letters, digits and hyphens, joined by
    dots. The last one has two letters or more and nothing else.
    """


def mask_phone_numbers(text: str) -> tuple[str, int]:
    """The text with each phone number replaced by |||PHONE_NUMBER|||, and how many there were.

    A number has ten digits: three, which may stand in parentheses, three and four. One blank, hyphen or dot may stand
    between these, and behind the parentheses a hyphen, a blank, or nothing. No digit stands before or behind.
    """


def mask_ips(text: str) -> tuple[str, int]:
    """The text with each IPv4 address replaced by |||IP_ADDRESS|||, and how many there were.

    An address is four numbers from 0 to 255, joined by dots. What is part of a longer row of digits and dots, as in
    1.2.3.4.5, is none.
    """


def gopher_rules(text: str) -> list[str]:
    """The rules that a document breaks, of these, in this order (words: text.split(); lines: text.splitlines()):

    "words": fewer than 50 words, or more than 100,000
    "length": words of fewer than 3 or more than 10 characters on average (not asked of a text without words)
    "ellipsis": more than 30% of the lines end with "..."
    "letters": fewer than 80% of the words have a letter
    """


def unique_lines(documents: list[str]) -> list[str]:
    """The documents without the lines that occur more than once in all of them together.

    All copies go, empty lines among them. What is left of a document is joined by line breaks.
    """


def hash_of(text: str, seed: int) -> int:
    """A hash of 64 bits, another one for each seed. (This one is written.)"""
    return int.from_bytes(blake2b(text.encode(), digest_size=8, salt=seed.to_bytes(8, "little")).digest(), "little")


def shingles(text: str, n: int) -> set[str]:
    """Every n neighbouring words of a text, in lower case, without punctuation, joined by spaces.

    Words are runs of letters, digits and underscores (\\w+). A text of fewer than n words has one: all of it.
    """


def minhash(shingles: set[str], count: int) -> list[int]:
    """For each seed from 0 to count - 1 the least hash_of(shingle, seed)."""


def candidates(signatures: list[list[int]], bands: int) -> set[tuple[int, int]]:
    """Pairs (i, j), i < j, whose signatures are equal in at least one band.

    A signature is cut into `bands` bands of equal length.
    """


def near_duplicates(documents: list[str], count: int, bands: int, n: int, threshold: float) -> list[int]:
    """The documents that stay, by their index: of each cluster of near duplicates the first one.

    Candidates whose shingles have a Jaccard similarity (common / all) of at least the threshold belong to one cluster,
    and so do those that are joined by others. Every document has a word.
    """
