"""Corpora as their publishers serve them: where they are, in what form, and what of them is held out."""

from __future__ import annotations

import os
import re
import threading
import urllib.parse
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from lm.config import did_you_mean
from lm.data.download import get_json

HUB = "https://huggingface.co"


@dataclass(frozen=True)
class Corpus:
    """A published corpus. train, heldout: what the paths of its files match in the repository, each begun with its folder.

    Where there is no heldout, documents are held out by their hash; where it is one text, its end is (`url`, not `repo`).
    """

    about: str
    repo: str = ""
    train: str = ""
    heldout: str = ""
    url: str = ""
    key: str = "text"


CORPORA = {
    "tinystories": Corpus(
        "2.2 GB of short stories written by GPT-4 (Eldan and Li 2023)",
        repo="roneneldan/TinyStories",
        train=r"TinyStoriesV2-GPT4-train\.txt",
        heldout=r"TinyStoriesV2-GPT4-valid\.txt",
    ),
    "openwebtext": Corpus(
        "40 GB of pages that Reddit linked to (Gokaslan and Cohen 2019)",
        repo="Skylion007/openwebtext",
        train=r"plain_text/train-\d+-of-\d+\.parquet",
    ),
    "fineweb-edu-10bt": Corpus(
        "10 billion tokens of educational pages (Penedo et al. 2024)",
        repo="HuggingFaceFW/fineweb-edu",
        train=r"sample/10BT/\d+_\d+\.parquet",
    ),
    "slimpajama": Corpus(
        "627 billion tokens of web, code, books and papers, deduplicated (Soboleva et al. 2023)",
        repo="cerebras/SlimPajama-627B",
        train=r"train/chunk\d+/example_train_\d+\.jsonl\.zst",
        heldout=r"validation/chunk\d+/example_holdout_\d+\.jsonl\.zst",
    ),
    "shakespeare": Corpus(
        "1.1 MB of plays, the usual first text (Karpathy 2015)",
        url="https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
    ),
}


@dataclass(frozen=True)
class Remote:
    """A file to be had: split is "train", "heldout", "hash" (each document by its hash) or "tail" (its end is held out)."""

    url: str
    name: str
    split: str
    size: int | None = None
    sha256: str | None = None

    def table(self) -> dict[str, Any]:
        return asdict(self)


def corpus(name: str) -> Corpus:
    if name not in CORPORA:
        raise ValueError(f"no corpus is named {name!r}{did_you_mean(name, CORPORA)}")
    return CORPORA[name]


def files(name: str, *, limit: int | None = None, stop: threading.Event | None = None) -> list[Remote]:
    """The files of a corpus as its publisher lists them now, at the commit that is the newest now: held-out ones first.

    limit: bytes of training text; the files after those that hold as many are left out, a tenth as much of the held-out ones.
    ConnectionError: the publisher cannot be asked.
    """
    chosen = corpus(name)
    if chosen.url:
        return [Remote(chosen.url, chosen.url.rsplit("/", 1)[1], "tail")]
    try:
        return files_of(chosen, limit, stop)
    except (KeyError, TypeError, AttributeError):
        raise ConnectionError(f"{endpoint()} does not answer as the Hub does: look at what stands between") from None


def files_of(chosen: Corpus, limit: int | None, stop: threading.Event | None) -> list[Remote]:
    """The files of a corpus that is on the Hub."""
    base = f"{endpoint()}/api/datasets/{chosen.repo}"
    commit = get_json(f"{base}/revision/main", hub_token(), stop)[0]["sha"]
    if not isinstance(commit, str):
        raise TypeError(f"{base} has the commit {commit!r}")
    found: list[Remote] = []
    for pattern, split in ((chosen.heldout, "heldout"), (chosen.train, "train" if chosen.heldout else "hash")):
        most = limit if limit is None or split != "heldout" else held_out_limit(limit)
        size = 0
        for entry in listed(base, commit, pattern, stop) if pattern else ():
            if most is not None and size > most:
                break
            url = f"{endpoint()}/datasets/{chosen.repo}/resolve/{commit}/{urllib.parse.quote(entry['path'])}"
            lfs = entry.get("lfs") or {}
            found.append(Remote(url, entry["path"], split, lfs.get("size", entry.get("size")), lfs.get("oid")))
            size += entry.get("size") or 0  # a compressed file holds more text than that, so the limit is reached
        if pattern and size == 0:
            raise ValueError(
                f"{chosen.repo} has no files like {pattern} at {commit[:12]}: its publisher has moved them, "
                f"and this version of lm does not know where"
            )
    return found


def listed(base: str, commit: str, pattern: str, stop: threading.Event | None) -> Iterator[dict[str, Any]]:
    """What the Hub lists of a dataset's files that match: path, size and, for large files, lfs with their SHA-256 (oid)."""
    folder = re.match(r"(?:[\w.-]+/)*", pattern)
    inside = folder[0].rstrip("/") if folder else ""
    page: str | None = f"{base}/tree/{commit}" + (f"/{inside}" if inside else "") + "?recursive=true"
    while page is not None:
        entries, page = get_json(page, hub_token(), stop)
        for entry in entries:
            if entry.get("type") == "file" and re.fullmatch(pattern, entry["path"]):
                yield entry


def held_out_limit(limit: int) -> int:
    """How much held-out text goes with so much for training: a tenth."""
    return -(-limit // 10)


def endpoint() -> str:
    """The Hub, or the mirror of it that HF_ENDPOINT names, as for Hugging Face's own programs. ValueError: it is no address."""
    found = os.environ.get("HF_ENDPOINT", "").rstrip("/") or HUB
    if not re.match(r"https?://[^/\s]", found):
        raise ValueError(f"HF_ENDPOINT is {os.environ['HF_ENDPOINT']!r}, and no address of a host: write https://HOST")
    return found


def hub_token() -> str | None:
    """The token that HF_TOKEN holds, which gated datasets ask for."""
    return os.environ.get("HF_TOKEN") or None
