"""Models and data from the Hugging Face Hub or a mirror (HF_ENDPOINT), resumed and checked, by huggingface_hub.

A model is named hf://OWNER/NAME, and hf://OWNER/NAME@REVISION at a branch, a tag or a commit.
"""

from __future__ import annotations

import contextlib
import functools
import http.client
import importlib
import itertools
import json
import os
import re
import shutil
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lm.extras import need
from lm.files import atomic_write, sha256

MODEL = re.compile(r"hf://(?P<repo>[\w.-]+(?:/[\w.-]+)?)(?:@(?P<revision>[\w./-]+))?")
# Files of a model to download: sizes, tokenizer, weights as safetensors, and its card, whose checksum our exports have.
PATTERNS = ("*.json", "*.safetensors", "*.jinja", "merges.txt", "README.md")
TRIES = 5  # in a row that bring nothing
WAIT = 1.0  # seconds before the second try, and twice as many before each other


@functools.lru_cache(maxsize=8)
def model_folder(name: str) -> Path:
    """Download a model, hf://OWNER/NAME or hf://OWNER/NAME@REVISION, to the Hub's cache; return its folder.

    Its newest revision is looked up once. FileNotFoundError, PermissionError, ConnectionError: in a sentence.
    """
    parts = MODEL.fullmatch(name)
    if parts is None:
        raise ValueError(f"{name} names no model on the Hub: write hf://OWNER/NAME or hf://OWNER/NAME@REVISION")
    hub, where = library(), {"revision": parts["revision"], "endpoint": endpoint()}
    with in_a_sentence(name):
        return Path(hub.snapshot_download(parts["repo"], allow_patterns=list(PATTERNS), **where))


@dataclass(frozen=True)
class HubFile:
    """A file of a dataset on the Hub at one commit; or, where `repo` is "", a file at the address `path`."""

    repo: str
    commit: str
    path: str
    size: int | None = None
    sha256: str | None = None
    split: str = "train"  # of its documents, see prepare.Input


class Cancelled(Exception):
    """The download was stopped; it continues from the bytes that have arrived."""


def dataset_commit(repo: str) -> str:
    """The newest commit of a dataset."""
    with in_a_sentence(repo):
        commit = library().HfApi(endpoint=endpoint()).dataset_info(repo, revision="main").sha
    if not isinstance(commit, str):
        raise ConnectionError(f"{endpoint()} does not answer as the Hub does: look at what stands between")
    return commit


def dataset_files(repo: str, commit: str, pattern: str, split: str) -> Iterator[HubFile]:
    """The files of a dataset whose paths match a pattern that begins with their folder, in the Hub's order."""
    folder = re.match(r"(?:[\w.-]+/)*", pattern)
    inside = (folder[0].rstrip("/") if folder else "") or None
    api = library().HfApi(endpoint=endpoint())
    with in_a_sentence(repo):
        for entry in api.list_repo_tree(repo, inside, recursive=True, revision=commit, repo_type="dataset"):
            if hasattr(entry, "size") and re.fullmatch(pattern, entry.path):
                digest = None if entry.lfs is None else entry.lfs.sha256
                yield HubFile(repo, commit, entry.path, entry.size, digest, split)


def download(
    file: HubFile, folder: Path, *, most: int | None = None, end: bytes = b"\n", stop: threading.Event
) -> Path:
    """Download a file under its path in the repository, or continue where an earlier call was stopped; return its path.

    It is whole, and checked against the SHA-256 that its publisher states. most: download no more than these bytes of
    its beginning, up to an `end` of a document; stop: Cancelled once it is set. ConnectionError, FileNotFoundError,
    PermissionError: in a sentence.
    """
    name, mismatches = f"{file.repo}/{file.path}", 0
    for tries in itertools.count(1):
        try:
            if not file.repo:
                return from_address(file.path, folder)
            with in_a_sentence(name):
                if most is not None:
                    return beginning_of(file, folder / file.path, most, end, stop)
                where = {"repo_type": "dataset", "revision": file.commit, "local_dir": folder, "endpoint": endpoint()}
                bar = cancelled_by(stop)
                path = Path(library().hf_hub_download(file.repo, file.path, tqdm_class=bar, **where))
        except ConnectionError:
            if tries == TRIES:
                raise
        else:
            if file.sha256 is None or sha256(path) == file.sha256:
                return path
            path.unlink()
            shutil.rmtree(folder / ".cache", ignore_errors=True)
            mismatches += 1
            if mismatches == 2:
                raise ValueError(f"{name} arrived twice with another SHA-256 than its publisher states")
        if stop.wait(WAIT * 2 ** (tries - 1)):
            break
    raise Cancelled


def cancelled_by(stop: threading.Event) -> Any:
    """Return a progress bar for huggingface_hub that shows nothing, and ends the download on request."""
    from tqdm import tqdm

    class Progress(tqdm):  # type: ignore[misc]  # tqdm has no types
        def __init__(self, *arguments: Any, **more: Any) -> None:
            super().__init__(*arguments, **{**more, "disable": True})

        def update(self, n: float | None = 1) -> None:
            if stop.is_set():
                raise Cancelled

    return Progress


def beginning_of(file: HubFile, path: Path, most: int, end: bytes, stop: threading.Event) -> Path:
    """Download the first `most` bytes of a file up to the last `end` in them, unless they are there."""
    hub, part, last = library(), path.with_name(path.name + ".part"), 0
    if path.exists():
        return path
    part.parent.mkdir(parents=True, exist_ok=True)
    url = hub.hf_hub_url(file.repo, file.path, repo_type="dataset", revision=file.commit, endpoint=endpoint())
    headers = {**hub.utils.build_hf_headers(), "Range": f"bytes=0-{most - 1}"}
    with open(part, "wb") as out, hub.utils.http_stream_backoff("GET", url, headers=headers) as response:
        hub.utils.hf_raise_for_status(response)
        for block in response.iter_bytes(1 << 18):
            if stop.is_set():
                raise Cancelled
            if (place := block.rfind(end, 0, most - out.tell())) >= 0:
                last = out.tell() + place + len(end)
            if out.write(block[: most - out.tell()]) < len(block):  # the server ignores the range, and sends all of it
                break
        out.truncate(last or None)
    os.replace(part, path)
    return path


def from_address(url: str, folder: Path) -> Path:
    """Download a small file from an address that is not the Hub's. ConnectionError: with the reason."""
    path = folder / url.rsplit("/", 1)[1]
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with urllib.request.urlopen(url, timeout=60) as response:
            atomic_write(path, response.read())
    except (OSError, http.client.HTTPException) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # it is an open response too
        raise ConnectionError(f"{url} could not be downloaded ({error}): check the network, or try later") from None
    return path


def library() -> Any:
    """The package huggingface_hub, with its modules errors and utils."""
    package = need("huggingface_hub", "the Hugging Face Hub", "groundup-lm[hub]")
    for module in ("errors", "utils"):
        importlib.import_module(f"huggingface_hub.{module}")
    return package


def endpoint() -> str:
    """The Hub, or the mirror of it that HF_ENDPOINT names. ValueError: it is no address."""
    address = os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"
    if not re.match(r"https?://[^/\s]", address):
        raise ValueError(f"expected HF_ENDPOINT to be https://HOST, got {os.environ['HF_ENDPOINT']!r}")
    return address


@contextlib.contextmanager
def in_a_sentence(what: str) -> Iterator[None]:
    """Turn errors of the Hub and of the network into a sentence with a remedy."""
    errors, hub = library().errors, endpoint()
    unreachable = f"{what} could not be downloaded from {hub}: check the network, or name a mirror in HF_ENDPOINT"
    try:
        yield
    except errors.GatedRepoError:
        raise PermissionError(f"{what} is not for everyone: ask its publisher, and set HF_TOKEN") from None
    except errors.LocalEntryNotFoundError:
        raise ConnectionError(unreachable) from None
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.EntryNotFoundError):
        raise FileNotFoundError(f"{hub} has no {what}: look at its name; a private one needs HF_TOKEN") from None
    except errors.HfHubHTTPError as error:
        status = getattr(error.response, "status_code", None)
        if status in (401, 403):
            raise PermissionError(f"{hub} refuses {what} ({status}): set HF_TOKEN to a token for it") from None
        raise ConnectionError(f"{hub} answers {status} to a request for {what}: try again later") from None
    except (KeyError, TypeError, AttributeError, StopIteration, json.JSONDecodeError):
        raise ConnectionError(f"{hub} does not answer as the Hub does: look at what stands between") from None
    except Exception as error:
        if type(error).__module__.partition(".")[0] in ("httpx", "httpx2", "httpcore", "httpcore2"):
            raise ConnectionError(unreachable) from None
        raise
