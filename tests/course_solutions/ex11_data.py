"""A solution of the exercises of chapter 11."""

import math
import re
from collections import Counter
from hashlib import blake2b
from html.parser import HTMLParser
from itertools import combinations, pairwise

BLOCKS = {"p", "div", "h1", "h2", "h3", "li", "ul", "ol", "br", "tr", "table", "title", "body"}


class Text(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[str] = []
        self.hidden = False

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.hidden = self.hidden or tag in ("script", "style")
        if tag in BLOCKS:
            self.pieces.append("\n")

    def handle_endtag(self, tag: str) -> None:
        self.hidden = self.hidden and tag not in ("script", "style")
        if tag in BLOCKS:
            self.pieces.append("\n")

    def handle_data(self, data: str) -> None:
        if not self.hidden:
            self.pieces.append(re.sub(r"\s+", " ", data))


def extract_text(html: str) -> str:
    parser = Text()
    parser.feed(html)
    parser.close()
    lines = (" ".join(line.split()) for line in "".join(parser.pieces).split("\n"))
    return "\n".join(line for line in lines if line)


def bigrams(text: str) -> Counter[str]:
    return Counter(a + b for a, b in pairwise(text.lower()))


def classify(text: str, profiles: dict[str, Counter[str]]) -> str:
    def score(profile: Counter[str]) -> float:
        total = profile.total() + 1000
        return sum(count * math.log((profile[pair] + 1) / total) for pair, count in bigrams(text).items())

    return max(profiles, key=lambda name: score(profiles[name]))


def mask_emails(text: str) -> tuple[str, int]:
    return re.subn(r"[A-Za-z0-9._%+-]+@(?:[A-Za-z0-9-]+\.)+[A-Za-z]{2,}", "|||EMAIL_ADDRESS|||", text)


def mask_phone_numbers(text: str) -> tuple[str, int]:
    return re.subn(r"(?<!\d)(?:\(\d{3}\)[ -]?|\d{3}[ .-]?)\d{3}[ .-]?\d{4}(?!\d)", "|||PHONE_NUMBER|||", text)


def mask_ips(text: str) -> tuple[str, int]:
    number = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
    return re.subn(rf"(?<!\d)(?<!\d\.){number}(?:\.{number}){{3}}(?!\d|\.\d)", "|||IP_ADDRESS|||", text)


def gopher_rules(text: str) -> list[str]:
    words, lines = text.split(), text.splitlines()
    broken = []
    if not 50 <= len(words) <= 100_000:
        broken.append("words")
    if words and not 3 <= sum(map(len, words)) / len(words) <= 10:
        broken.append("length")
    if sum(line.endswith("...") for line in lines) > 0.3 * len(lines):
        broken.append("ellipsis")
    if sum(any(map(str.isalpha, word)) for word in words) < 0.8 * len(words):
        broken.append("letters")
    return broken


def unique_lines(documents: list[str]) -> list[str]:
    counts = Counter(line for document in documents for line in document.splitlines())
    return ["\n".join(line for line in document.splitlines() if counts[line] == 1) for document in documents]


def hash_of(text: str, seed: int) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8, salt=seed.to_bytes(8, "little")).digest(), "little")


def shingles(text: str, n: int) -> set[str]:
    words = re.findall(r"\w+", text.lower())
    return {" ".join(words[i : i + n]) for i in range(max(1, len(words) - n + 1))}


def minhash(shingles: set[str], count: int) -> list[int]:
    return [min(hash_of(shingle, seed) for shingle in shingles) for seed in range(count)]


def candidates(signatures: list[list[int]], bands: int) -> set[tuple[int, int]]:
    pairs = set()
    for band in range(bands):
        buckets: dict[tuple[int, ...], list[int]] = {}
        for i, signature in enumerate(signatures):
            rows = len(signature) // bands
            buckets.setdefault(tuple(signature[band * rows : (band + 1) * rows]), []).append(i)
        for bucket in buckets.values():
            pairs.update(combinations(bucket, 2))
    return pairs


def near_duplicates(documents: list[str], count: int, bands: int, n: int, threshold: float) -> list[int]:
    sets = [shingles(document, n) for document in documents]
    first = list(range(len(documents)))

    def root(i: int) -> int:
        return i if first[i] == i else root(first[i])

    for i, j in candidates([minhash(each, count) for each in sets], bands):
        if len(sets[i] & sets[j]) / len(sets[i] | sets[j]) >= threshold:
            low, high = sorted((root(i), root(j)))
            first[high] = low
    return [i for i in range(len(documents)) if first[i] == i]
