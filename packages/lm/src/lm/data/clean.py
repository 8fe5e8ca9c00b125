"""Text worth learning from, out of pages of the web: a pipeline of datatrove's steps.

Documents pass, in this order: extraction from HTML (resiliparse), the language (py3langid), the filters of Gopher (Rae
et al. 2021), C4 (Raffel et al. 2020) and FineWeb (Penedo et al. 2024), a search for texts of benchmarks, a classifier
(scikit-learn), near duplicates (MinHash, Broder 1997), masks over addresses.
"""

from __future__ import annotations

import functools
import json
import re
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from os import cpu_count
from pathlib import Path
from typing import Any

from lm.data.documents import documents
from lm.extras import need
from lm.files import atomic_write

EXTRA = "groundup-lm[clean]"
LANGUAGE_CHARACTERS = 1000  # the beginning, which is enough to tell the language
SEPARATOR = b"<|endoftext|>"  # between the documents of a text file
TASKS = 64  # at most, and as many Parquet files: each takes some of the files, and is done as a whole
FILTERS = {
    "gopher-quality": "GopherQualityFilter",
    "gopher-repetition": "GopherRepetitionFilter",
    "c4": "C4QualityFilter",
    "fineweb": "FineWebQualityFilter",
}
PHONE = re.compile(r"(?<![\w.])(?:\+?1[ .-]?)?(?:\(\d{3}\)|\d{3})[ .-]?\d{3}[ .-]?\d{4}(?!\w)")
MASKS = {"email_replacement": "|||EMAIL_ADDRESS|||", "ip_replacement": "|||IP_ADDRESS|||"}


@dataclass(frozen=True)
class Recipe:
    """Settings of the documents that stay.

    Attributes:
        language: As ISO 639-1; None: any, whose words are split as English.
        filters: Names of FILTERS; Gopher's rule of stop words applies to English only.
        like, unlike: Files of texts as they should be, and as they should not: a classifier that learns from both
            decides. Without them there is none.
        benchmarks: Files of texts with which no document may share 12 words in a row.
        keep_duplicates: Leave near duplicates in. Else the first of them stays.
        mask: Mask addresses, see mask().
    """

    language: str | None = "en"
    filters: tuple[str, ...] = ("gopher-quality", "gopher-repetition")
    like: tuple[str, ...] = ()
    unlike: tuple[str, ...] = ()
    benchmarks: tuple[str, ...] = ()
    keep_duplicates: bool = False
    mask: bool = False

    def __post_init__(self) -> None:
        if bool(self.like) != bool(self.unlike):
            raise ValueError("a classifier learns from texts of both kinds: give like and unlike, or neither")
        if unknown := [name for name in self.filters if name not in FILTERS]:
            raise ValueError(f"expected filters among {', '.join(FILTERS)}, got {unknown[0]!r}")


def clean(
    paths: Sequence[str | Path],
    out: str | Path,
    recipe: Recipe,
    *,
    key: str = "text",
    html: bool = False,
    jobs: int | None = None,
) -> tuple[int, Counter[str]]:
    """Write the documents that stay to a folder of Parquet files, in their order. The same call continues.

    Args:
        paths: Files or URLs of HTML, WARC, text, JSON lines or Parquet, compressed or not as their names say.
        out: The folder. A call that was stopped leaves its work in the folder `work` there.
        recipe: Which documents stay.
        key: The place of the text in JSON lines and Parquet.
        html: Texts in JSON lines and Parquet are HTML too.
        jobs: Processes; None: one for each processor.

    Returns:
        The number of documents that stay, and of those left out, by reason.

    Raises:
        MissingExtra: A library of the extra `clean` is missing.
        ValueError: The folder was begun with other files or another recipe.
    """
    local = need("datatrove.executor.local", "cleaning", EXTRA)
    writers = need("datatrove.pipeline.writers", "cleaning", EXTRA)
    reader = need("datatrove.pipeline.readers", "cleaning", EXTRA).JsonlReader
    minhash = need("datatrove.pipeline.dedup.minhash", "near duplicates", EXTRA)
    names, work = [str(path) for path in paths], Path(out, "work")
    _begin(work, {"files": names, "recipe": asdict(recipe), "key": key, "html": html})

    def run(name: str, tasks: int, *steps: Any) -> None:
        workers = min(tasks, jobs or cpu_count() or 1)
        local.LocalPipelineExecutor(list(steps), tasks, workers, logging_dir=str(work / "logs" / name)).run()

    filtered, signatures, buckets, duplicates = (f"{work}/{name}" for name in ("filtered", "signed", "buckets", "same"))
    read = functools.partial(pages, names, key, html)
    run("filter", min(TASKS, len(names)), read, *filters(recipe, work, key), writers.JsonlWriter(filtered))
    files = len(list(Path(filtered).glob("*.jsonl.gz")))
    last: list[Any] = [masked] if recipe.mask else []
    if files and not recipe.keep_duplicates:
        config = minhash.MinhashConfig(hash_config=_sha1())
        signing = minhash.MinhashDedupSignature(signatures, config, recipe.language or "en")
        run("signatures", files, reader(filtered), signing)
        run("buckets", config.num_buckets, minhash.MinhashDedupBuckets(signatures, buckets, config=config))
        run("duplicates", 1, minhash.MinhashDedupCluster(buckets, duplicates, config))
        last.insert(0, minhash.MinhashDedupFilter(duplicates))
    if files:
        run("write", files, reader(filtered), *last, writers.ParquetWriter(str(out)))
    result = _summary(work)
    shutil.rmtree(work)
    return result


def pages(names: list[str], key: str, html: bool, _: Any, rank: int, tasks: int) -> Iterator[Any]:
    """Yield the documents of a task's files, as datatrove's, with the main text of HTML."""
    from datatrove.data import Document

    for name in names[len(names) * rank // tasks : len(names) * (rank + 1) // tasks]:
        for number, (data, is_html) in enumerate(raw_pages(name, key, html)):
            if (text := text_of(data) if is_html else data.decode(errors="replace")).strip():
                yield Document(text, f"{name}/{number}")


def raw_pages(name: str, key: str = "text", html: bool = False) -> Iterator[tuple[bytes, bool]]:
    """Yield the documents of a file, each with True if it is HTML."""
    opened = functools.partial(need("datatrove.io", "HTML", EXTRA).open_file, name, "rb", compression=None)
    if name.lower().endswith((".html", ".htm")):
        with opened() as file:
            yield file.read(), True
    elif name.lower().endswith((".warc", ".warc.gz")):
        warc = need("fastwarc.warc", "WARC", EXTRA)
        with opened() as file:
            for record in warc.ArchiveIterator(file, record_types=warc.WarcRecordType.response):
                if "html" in (record.http_content_type or ""):
                    yield record.reader.read(), True
    else:
        for document in documents(name, separator=SEPARATOR, key=key):
            yield bytes(document), html


def text_of(page: bytes, *, main_content: bool = True) -> str:
    """Extract the text of a page of HTML in whatever encoding; main_content leaves out menus, footers and the like."""
    encoding = need("resiliparse.parse.encoding", "HTML", EXTRA).detect_encoding(page)
    tree = need("resiliparse.parse.html", "HTML", EXTRA).HTMLTree.parse_from_bytes(page, encoding)
    html2text = need("resiliparse.extract.html2text", "HTML", EXTRA)
    return str(html2text.extract_plain_text(tree, main_content=main_content, alt_texts=False))


def filters(recipe: Recipe, work: Path, key: str) -> list[Any]:
    """The steps of datatrove that leave documents out, but for near duplicates."""
    library = need("datatrove.pipeline.filters", "filters", EXTRA)
    language, steps = {"language": recipe.language or "en"}, []
    if recipe.language:
        identifier()  # in a process of the pool it would be a long error
        steps.append(library.LambdaFilter(functools.partial(is_in, recipe.language)))
    for name in recipe.filters:
        rules = {"min_stop_words": None} if name == "gopher-quality" and recipe.language != "en" else {}
        steps.append(getattr(library, FILTERS[name])(**rules, **language))
    if recipe.benchmarks:
        steps.append(decontamination(recipe.benchmarks, work / "benchmarks", key, language))
    if recipe.like:
        like, unlike = (
            [page.decode(errors="replace") for name in names for page, _ in raw_pages(name, key)]
            for names in (recipe.like, recipe.unlike)
        )
        steps.append(library.LambdaFilter(functools.partial(is_like, text_classifier(like, unlike))))
    return steps


@functools.cache
def identifier() -> Any:
    """The identifier of languages, which a process loads once."""
    langid = need("py3langid.langid", "the language", EXTRA)
    return langid.LanguageIdentifier.from_model_file(langid.MODEL_FILE, norm_probs=True)


def identify_language(text: str) -> tuple[str, float]:
    """Identify the language of a text: its ISO 639-1 code, and its probability."""
    language, probability = identifier().classify(text[:LANGUAGE_CHARACTERS])
    return language, float(probability)


def is_in(language: str, document: Any) -> tuple[bool, str]:
    """True for a document in a language, and the reason otherwise."""
    likely, probability = identify_language(document.text)
    return bool(likely == language and probability >= 0.5), "language"


def decontamination(benchmarks: Sequence[str], folder: Path, key: str, language: dict[str, str]) -> Any:
    """datatrove's filter of documents that share 12 words in a row with a text; its index lies in a folder."""
    import numpy as np

    library = need("datatrove.pipeline.decont.n_grams", "benchmarks", EXTRA)
    step = library.NGramsDecontFilter(str(folder), library.NGramsDecontConfig(hash_config=_sha1()), **language)
    hashes = set[int]()
    for name in benchmarks:
        for text, _ in raw_pages(name, key):
            words = step.tokenizer.word_tokenize(library.simplify_text(text.decode(), step.config.norm_config))
            hashes.update(step.hash_func(" ".join(words)) for words in library.ngrams(words, step.config.n_grams))
    folder.mkdir(exist_ok=True)
    np.array(list(hashes), step.config.hash_config.np_descr).tofile(folder / "texts.index.hashes")
    return step


def _sha1() -> Any:
    return need("datatrove.utils.hashing", "hashes", EXTRA).HashConfig(hash_fc="sha1")  # xxhash 4 takes no str


def text_classifier(like: Sequence[str], unlike: Sequence[str]) -> Any:
    """Learn to tell texts apart by their words and pairs of words: quality, toxic speech, a topic.

    Args:
        like, unlike: Examples of both kinds.

    Returns:
        A pipeline of scikit-learn: predict(texts) gives True for like, and predict_proba(texts) the probabilities of
        unlike and like.
    """
    examples = [(text, kind) for texts, kind in ((like, True), (unlike, False)) for text in texts]
    words = need("sklearn.feature_extraction.text", "a classifier", EXTRA).HashingVectorizer(ngram_range=(1, 2))
    linear = need("sklearn.linear_model", "a classifier", EXTRA)
    model = linear.SGDClassifier(loss="log_loss", class_weight="balanced", random_state=0)
    return need("sklearn.pipeline", "a classifier", EXTRA).make_pipeline(words, model).fit(*zip(*examples, strict=True))


def is_like(model: Any, document: Any) -> tuple[bool, str]:
    """True for a document that a classifier puts with those it should be like, and the reason otherwise."""
    return bool(model.predict([document.text])[0]), "classifier"


def mask(text: str) -> str:
    """Replace e-mail addresses and public IP addresses (by datatrove), and North American phone numbers, by names.

    Example:
        >>> mask("Write to ann@example.org or call (510) 555-0123.")
        'Write to |||EMAIL_ADDRESS||| or call |||PHONE_NUMBER|||.'
    """
    library = need("datatrove.pipeline.formatters", "masking", EXTRA)
    return PHONE.sub("|||PHONE_NUMBER|||", str(library.PIIFormatter(**MASKS).format(text)))


def masked(data: Iterator[Any], rank: int, tasks: int) -> Iterator[Any]:
    """Yield documents with masks, as a step of datatrove."""
    for document in data:
        document.text = mask(document.text)
        yield document


def _begin(work: Path, request: dict[str, Any]) -> None:
    """Note the request of a call. ValueError where another is under way in the folder."""
    place, text = work / "request.json", json.dumps(request)
    if not place.exists():
        if any(work.parent.glob("*.parquet")):
            raise ValueError(f"{work.parent} has Parquet files already: name another folder, or remove them")
        work.mkdir(parents=True, exist_ok=True)
        atomic_write(place, text)
    elif place.read_text() != text:
        raise ValueError(f"{work.parent} was begun with other files or settings: name another folder, or remove it")


def _summary(work: Path) -> tuple[int, Counter[str]]:
    """Sum what datatrove counted in each task."""
    written, left_out = 0, Counter[str]()
    for step in (step for path in work.glob("logs/*/stats/*.json") for step in json.loads(path.read_text())):
        for name, stat in step["stats"].items():
            count = int(stat["total"] if isinstance(stat, dict) else stat)
            if name.startswith("dropped_"):
                left_out[name.removeprefix("dropped_")] += count
            elif name == "dropped" and "MinHash" in step["name"]:
                left_out["near_duplicate"] += count
            elif name == "total" and "Parquet" in step["name"]:
                written += count
    return written, left_out
