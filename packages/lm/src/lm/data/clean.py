"""Text worth learning from, out of pages of the web: extraction, language, quality, duplicates.

Documents pass, in this order: extraction from HTML (resiliparse), the language (py3langid), the rules of Gopher (Rae et
al. 2021, arXiv:2112.11446, table A1), a classifier (scikit-learn), repeated lines, exact duplicates, near duplicates
(MinHash, Broder 1997, by rensa).
"""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import re
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from lm.data.documents import documents
from lm.extras import need
from lm.files import atomic_file

EXTRA = "groundup-lm[clean]"
BATCH = 64  # documents that a process takes at a time
LANGUAGE_CHARACTERS = 1000  # the beginning, which is enough to tell the language
HASHES, BANDS = 128, 16  # of MinHash: documents of a similarity of 0.8 share a band of 8 with a probability of 0.95
SHINGLE = 5  # words
STOP_WORDS = {"the", "be", "to", "of", "and", "that", "have", "with"}
SEPARATOR = b"<|endoftext|>"  # between the documents of a text file
Item = TypeVar("Item")
Result = TypeVar("Result")


@dataclass(frozen=True)
class Recipe:
    """Settings of the documents that stay.

    Attributes:
        language: As ISO 639-1; None: any.
        gopher: Apply the rules of Gopher; that of stop words to English only.
        like, unlike: Files of texts as they should be, and as they should not: a classifier that learns from both
            decides. Without them there is none.
        max_line_copies: Lines that occur more often, in all documents together, are left out; None: none is.
        similarity: Of documents whose shingles have at least this Jaccard similarity, the first stays; None: all.
    """

    language: str | None = "en"
    gopher: bool = True
    like: tuple[str, ...] = ()
    unlike: tuple[str, ...] = ()
    max_line_copies: int | None = None
    similarity: float | None = 0.8

    def __post_init__(self) -> None:
        if bool(self.like) != bool(self.unlike):
            raise ValueError("a classifier learns from texts of both kinds: give like and unlike, or neither")
        if self.max_line_copies is not None and self.max_line_copies < 1:
            raise ValueError(f"max_line_copies must be at least 1, got {self.max_line_copies}")
        if self.similarity is not None and not 0 < self.similarity <= 1:
            raise ValueError(f"similarity must be above 0 and at most 1, got {self.similarity}")


@dataclass
class Cleaned:
    """Documents and bytes of text that stay, and the number of documents left out, by reason."""

    documents: int = 0
    bytes: int = 0
    left_out: Counter[str] = field(default_factory=Counter)


def clean(
    paths: Sequence[str | Path],
    out: str | Path,
    recipe: Recipe,
    *,
    key: str = "text",
    html: bool = False,
    jobs: int | None = None,
) -> Cleaned:
    """Write the documents that stay as JSON lines of {"text": …}, in their order.

    Args:
        paths: Files of HTML, WARC, text, JSON lines or Parquet, compressed or not as their names say.
        out: The file to write, whole or not at all.
        recipe: Which documents stay.
        key: The place of the text in JSON lines and Parquet.
        html: Texts in JSON lines and Parquet are HTML too.
        jobs: Processes; None: one for each processor.

    Raises:
        MissingExtra: A library of the extra `clean` is missing.
    """
    if recipe.language:
        need("py3langid.langid", "the language", EXTRA)  # in a process of the pool it would be a broken pool
    cleaned, copies = Cleaned(), Counter[bytes]()
    start = recipe, classifier(recipe, key)
    with contextlib.ExitStack() as stack:
        passed = stack.enter_context(tempfile.TemporaryFile("w+"))
        pool = None
        if jobs == 1:
            Worker.start(*start)
        else:
            spawn = multiprocessing.get_context("spawn")
            pool = stack.enter_context(ProcessPoolExecutor(jobs, spawn, Worker.start, start))
        source = (page for path in paths for page in pages(path, key, html))
        for texts, left_out in in_batches(pool, Worker.filtered, source):
            cleaned.left_out += left_out
            for text in texts:
                passed.write(json.dumps(text) + "\n")
                if recipe.max_line_copies:
                    copies.update(map(digest, text.splitlines()))
        passed.seek(0)
        repeated = {line for line, count in copies.items() if count > (recipe.max_line_copies or 0)}
        remaining = (without(json.loads(line), repeated) for line in passed)
        signed = (pair for batch in in_batches(pool, Worker.signed, remaining) for pair in batch)
        with atomic_file(out, "w") as file:
            for text in unique(signed, recipe.similarity, cleaned.left_out):
                file.write(json.dumps({"text": text}, ensure_ascii=False) + "\n")
                cleaned.documents += 1
                cleaned.bytes += len(text.encode())
    return cleaned


def in_batches(
    pool: Executor | None, function: Callable[[list[Item]], Result], items: Iterable[Item]
) -> Iterator[Result]:
    """The results of all batches, in order; a pool has eight of them under way, so that memory does not grow."""
    items = iter(items)
    futures = deque[Any]()
    while batch := list(islice(items, BATCH)):
        if pool is None:
            yield function(batch)
            continue
        futures.append(pool.submit(function, batch))
        if len(futures) == 8:
            yield futures.popleft().result()
    yield from (future.result() for future in futures)


def pages(path: str | Path, key: str, html: bool) -> Iterator[tuple[bytes, bool]]:
    """Documents of a file, each with True if it is HTML."""
    name = str(path).lower()
    if name.endswith((".html", ".htm")):
        yield Path(path).read_bytes(), True
    elif name.endswith((".warc", ".warc.gz")):
        warc = need("fastwarc.warc", "WARC", EXTRA)
        with Path(path).open("rb") as file:
            for record in warc.ArchiveIterator(file, record_types=warc.WarcRecordType.response):
                if "html" in (record.http_content_type or ""):
                    yield record.reader.read(), True
    else:
        for document in documents(path, separator=SEPARATOR, key=key):
            yield bytes(document), html


def text_of(page: tuple[bytes, bool]) -> str:
    """The text of a document; of HTML the main text, without menus, footers and the like."""
    data, html = page
    if not html:
        return data.decode(errors="replace")
    encoding = need("resiliparse.parse.encoding", "HTML", EXTRA).detect_encoding(data)
    tree = need("resiliparse.parse.html", "HTML", EXTRA).HTMLTree.parse_from_bytes(data, encoding)
    html2text = need("resiliparse.extract.html2text", "HTML", EXTRA)
    return str(html2text.extract_plain_text(tree, main_content=True, alt_texts=False))


def classifier(recipe: Recipe, key: str) -> Any:
    """A classifier of texts into like (True) and unlike, by words and pairs of words; None without examples."""
    if not recipe.like:
        return None
    kinds = [(path, kind) for kind in (True, False) for path in (recipe.like if kind else recipe.unlike)]
    examples = [(text_of(page), kind) for path, kind in kinds for page in pages(path, key, False)]
    words = need("sklearn.feature_extraction.text", "a classifier", EXTRA).HashingVectorizer(ngram_range=(1, 2))
    linear = need("sklearn.linear_model", "a classifier", EXTRA)
    model = linear.SGDClassifier(loss="log_loss", class_weight="balanced", random_state=0)
    return need("sklearn.pipeline", "a classifier", EXTRA).make_pipeline(words, model).fit(*zip(*examples, strict=True))


class Worker:
    """The work of a process, with the recipe that it was started with."""

    recipe: Recipe
    model: Any
    identifier: Any

    @classmethod
    def start(cls, recipe: Recipe, model: Any) -> None:
        cls.recipe, cls.model = recipe, model
        if recipe.language:
            langid = need("py3langid.langid", "the language", EXTRA)
            cls.identifier = langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)

    @classmethod
    def filtered(cls, batch: list[tuple[bytes, bool]]) -> tuple[list[str], Counter[str]]:
        """The texts that stay, and how many do not, by reason."""
        left_out: Counter[str] = Counter()
        texts = []
        for text in map(text_of, batch):
            language, sure = cls.identifier.classify(text[:LANGUAGE_CHARACTERS]) if cls.recipe.language else (None, 1)
            if language != cls.recipe.language or sure < 0.5:
                left_out["language"] += 1
            elif cls.recipe.gopher and (rule := broken_rule(text, language)):
                left_out[rule] += 1
            else:
                texts.append(text)
        if cls.model is not None and texts:
            kinds = cls.model.predict(texts)
            left_out["classifier"] = sum(not kind for kind in kinds)
            texts = [text for text, kind in zip(texts, kinds, strict=True) if kind]
        return texts, +left_out

    @classmethod
    def signed(cls, batch: list[str]) -> list[tuple[str, Any]]:
        """Each text, with the MinHash of its shingles; None where near duplicates stay."""
        if cls.recipe.similarity is None:
            return [(text, None) for text in batch]
        hashes = [need("rensa", "MinHash", EXTRA).RMinHash(num_perm=HASHES, seed=1) for _ in batch]
        for text, minhash in zip(batch, hashes, strict=True):
            words = re.findall(r"\w+", text.lower())
            minhash.update([" ".join(words[i : i + SHINGLE]) for i in range(max(1, len(words) - SHINGLE + 1))])
        return list(zip(batch, hashes, strict=True))


def broken_rule(text: str, language: str | None = "en") -> str:
    """The first of Gopher's rules that a text breaks; empty if there is none."""
    words, lines = text.split(), text.splitlines()
    count = max(1, len(words))
    rules = {
        "words": not 50 <= len(words) <= 100_000,
        "word length": not 3 <= sum(map(len, words)) / count <= 10,
        "symbols": max(text.count("#"), text.count("...") + text.count("…")) > 0.1 * count,
        "bullets": sum(line.lstrip().startswith(("•", "-", "*")) for line in lines) > 0.9 * len(lines),
        "ellipses": sum(line.rstrip().endswith(("...", "…")) for line in lines) > 0.3 * len(lines),
        "letters": sum(any(map(str.isalpha, word)) for word in words) < 0.8 * count,
        "stop words": language == "en" and len(STOP_WORDS & {word.lower() for word in words}) < 2,
    }
    return next((name for name, broken in rules.items() if broken), "")


def digest(text: str) -> bytes:
    return blake2b(text.encode(errors="surrogatepass"), digest_size=16).digest()


def without(text: str, repeated: set[bytes]) -> str:
    """A text without its repeated lines."""
    return "\n".join(line for line in text.splitlines() if digest(line) not in repeated) if repeated else text


def unique(signed: Iterator[tuple[str, Any]], similarity: float | None, left_out: Counter[str]) -> Iterator[str]:
    """The texts that are neither empty, nor equal or similar to one before them."""
    seen: set[bytes] = set()
    stored: list[Any] = []
    index = similarity and need("rensa", "MinHash", EXTRA).RMinHashLSH(similarity, HASHES, BANDS)
    for text, minhash in signed:
        if not text.strip():
            left_out["empty"] += 1
        elif (key := digest(text)) in seen:
            left_out["exact duplicates"] += 1
        elif index and any(stored[i].jaccard(minhash) >= similarity for i in index.query(minhash)):
            left_out["near duplicates"] += 1
        else:
            seen.add(key)
            if index:
                index.insert(len(stored), minhash)
                stored.append(minhash)
            yield text
