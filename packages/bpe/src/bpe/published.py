"""The encodings that tiktoken publishes, from tiktoken's own cache folder or downloaded, checked by hash."""

from __future__ import annotations

import functools
import hashlib
import os
import pkgutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from bpe.formats import TokenizerData, folder, ordinary_ids, tiktoken
from bpe.formats.table_cache import load
from bpe.formats.vocabulary import data_of_ranks
from bpe.native.atomic_file import write_atomically
from bpe.native.lazy_imports import import_lock
from bpe.native.once import made_once
from bpe.patterns import resolve
from bpe.tokenizer import Encoding, Tokenizer

HOST = "https://openaipublic.blob.core.windows.net"
TIMEOUT = 60.0  # seconds without a byte

_END = "<|endoftext|>"
_FILL = ("<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>")
_END_OF_PROMPT = "<|endofprompt|>"

# Named by tiktoken's openai_public (0.14); the numbers between these are reserved, up to 201087.
_HARMONY = {
    "<|startoftext|>": 199998,
    _END: 199999,
    "<|return|>": 200002,
    "<|constrain|>": 200003,
    "<|channel|>": 200005,
    "<|start|>": 200006,
    "<|end|>": 200007,
    "<|message|>": 200008,
    "<|call|>": 200012,
    _END_OF_PROMPT: 200018,
}


@dataclass(frozen=True)
class Download:
    """Source of an encoding, and what its files do not hold."""

    files: tuple[tuple[str, str], ...]  # paths below HOST and SHA-256 of a .tiktoken file, or of GPT-2's pair
    pattern: str
    special_tokens: dict[str, int]


_R50K = (("/encodings/r50k_base.tiktoken", "306cd27f03c1a714eca7108e03d66b7dc042abe8c258b44c199a7ed9838dd930"),)
_P50K = (("/encodings/p50k_base.tiktoken", "94b5ca7dff4d00767bc256fdd1b27e5b17361d7b8a5f968547f9f23eb70d2069"),)
_CL100K = (("/encodings/cl100k_base.tiktoken", "223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7"),)
_O200K = (("/encodings/o200k_base.tiktoken", "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"),)
_GPT2 = (
    ("/gpt-2/encodings/main/vocab.bpe", "1ce1664773c50f3e0cc8842619a93edc4624525b728b188a9e0be33b7726adc5"),
    ("/gpt-2/encodings/main/encoder.json", "196139668be63f3b5d6574427317ae82f612a97c5d1cdaf36ed2256dbf636783"),
)
_RESERVED = {  # 200018 has two names: its own, and that of a reserved token
    f"<|reserved_{number}|>": number
    for number in range(200000, 201088)
    if number not in _HARMONY.values() or number == 200018
}

DOWNLOADS: dict[str, Download] = {
    "gpt2": Download(_GPT2, "gpt2", {_END: 50256}),
    "r50k_base": Download(_R50K, "gpt2", {_END: 50256}),
    "p50k_base": Download(_P50K, "gpt2", {_END: 50256}),
    "p50k_edit": Download(_P50K, "gpt2", {_END: 50256, **dict(zip(_FILL, range(50281, 50284), strict=True))}),
    "cl100k_base": Download(
        _CL100K,
        "cl100k",
        {_END: 100257, **dict(zip(_FILL, range(100258, 100261), strict=True)), _END_OF_PROMPT: 100276},
    ),
    "o200k_base": Download(_O200K, "o200k", {_END: 199999, _END_OF_PROMPT: 200018}),
    "o200k_harmony": Download(_O200K, "o200k", _HARMONY | _RESERVED),
}


# Which encoding a model takes, as tiktoken 0.14 has it: by its name, or by how its name begins, written with a star.
_MODELS = {
    "o200k_base": "o1 o1-* o3 o3-* o4-mini o4-mini-* gpt-5* gpt-4.5-* gpt-4.1 gpt-4.1-* gpt-4o gpt-4o-* chatgpt-4o-* "
    "ft:gpt-4o*",
    "cl100k_base": "gpt-4 gpt-4-* gpt-3.5 gpt-3.5-turbo gpt-3.5-turbo-* gpt-35-turbo gpt-35-turbo-* davinci-002 "
    "babbage-002 text-embedding-ada-002 text-embedding-3-small text-embedding-3-large ft:gpt-4* ft:gpt-3.5-turbo* "
    "ft:davinci-002* ft:babbage-002*",
    "p50k_base": "text-davinci-003 text-davinci-002 code-davinci-002 code-davinci-001 code-cushman-002 "
    "code-cushman-001 davinci-codex cushman-codex",
    "r50k_base": "text-davinci-001 text-curie-001 text-babbage-001 text-ada-001 davinci curie babbage ada "
    "text-similarity-davinci-001 text-similarity-curie-001 text-similarity-babbage-001 text-similarity-ada-001 "
    "text-search-davinci-doc-001 text-search-curie-doc-001 text-search-babbage-doc-001 text-search-ada-doc-001 "
    "code-search-babbage-code-001 code-search-ada-code-001",
    "p50k_edit": "text-davinci-edit-001 code-davinci-edit-001",
    "gpt2": "gpt2 gpt-2",
    "o200k_harmony": "gpt-oss-*",
}


@made_once
def get_encoding(encoding_name: str) -> Tokenizer:
    """A published encoding, read from tiktoken's own cache folder, or downloaded into it, and checked by hash.

    That folder is the one that TIKTOKEN_CACHE_DIR or DATA_GYM_CACHE_DIR names, else data-gym-cache in the folder for
    temporary files; an empty name means that nothing is kept.

    Args:
        encoding_name: one of list_encoding_names().

    Returns:
        A tokenizer, the same at every call.

    Raises:
        ValueError: another name, or a download of the wrong content.
        ConnectionError: the file is not kept, and cannot be downloaded.
        OSError: the folder that is named cannot be written.

    Example:
        >>> bpe.get_encoding("gpt2").encode("hello world")  # doctest: +SKIP
        [31373, 995]
    """
    if encoding_name not in DOWNLOADS and encoding_name in (constructors := _plugins()):
        return Encoding(**constructors[encoding_name]())
    if encoding_name not in DOWNLOADS:
        names = ", ".join(list_encoding_names())
        raise ValueError(f"no published encoding is named {encoding_name!r}: the names are {names}")
    contents = [_fetch(HOST + path, sha256) for path, sha256 in DOWNLOADS[encoding_name].files]
    return Tokenizer._made(*load(lambda: _parse(encoding_name, contents), contents, "published", encoding_name))


def encoding_for_model(model_name: str) -> Tokenizer:
    """The published encoding that a model of OpenAI's takes, as get_encoding().

    Raises:
        KeyError: no encoding is known for the model.

    Example:
        >>> bpe.encoding_for_model("gpt-4o").name  # doctest: +SKIP
        'o200k_base'
    """
    return get_encoding(encoding_name_for_model(model_name))


def encoding_name_for_model(model_name: str) -> str:
    """The name of the encoding that a model of OpenAI's takes.

    Raises:
        KeyError: none is known.

    Example:
        >>> bpe.encoding_name_for_model("gpt-oss-120b")
        'o200k_harmony'
    """
    for encoding, models in _MODELS.items():
        for name in models.split():
            if model_name == name or (name.endswith("*") and model_name.startswith(name[:-1])):
                return encoding
    raise KeyError(
        f"no encoding is known for the model {model_name!r}; name the encoding itself: {', '.join(DOWNLOADS)}"
    )


def list_encoding_names() -> list[str]:
    """The names of the published encodings, and of plug-ins: modules of the namespace package tiktoken_ext.

    Example:
        >>> bpe.list_encoding_names()[:3]
        ['gpt2', 'r50k_base', 'p50k_base']
    """
    return [*DOWNLOADS, *_plugins()]


@functools.cache
def _plugins() -> dict[str, Callable[[], dict[str, Any]]]:
    """The encodings of other packages, {name: constructor}, found as tiktoken finds them."""
    constructors: dict[str, Callable[[], dict[str, Any]]] = {}
    path = import_module("tiktoken_ext").__path__ if find_spec("tiktoken_ext") is not None else []
    for module in pkgutil.iter_modules(path, "tiktoken_ext."):
        if module.name == "tiktoken_ext.openai_public":  # tiktoken's own, which DOWNLOADS has
            continue
        plugin = getattr(import_module(module.name), "ENCODING_CONSTRUCTORS", None)
        if plugin is None:
            raise ValueError(f"the tiktoken plug-in {module.name} does not define ENCODING_CONSTRUCTORS")
        for name in plugin:
            if name in constructors or name in DOWNLOADS:
                raise ValueError(f"the tiktoken plug-in {module.name} defines {name!r}, which another one has already")
        constructors |= plugin
    return constructors


def _parse(name: str, contents: list[bytes]) -> TokenizerData:
    download = DOWNLOADS[name]
    urls = [HOST + path for path, _ in download.files]
    if len(contents) == 2:
        ranks = ordinary_ids(folder.parse_pair(contents[1], contents[0], {}, urls[1], urls[0], special_tokens=()))
        ranks = {token: number for token, number in ranks.items() if number not in download.special_tokens.values()}
    else:
        ranks = tiktoken.parse(contents[0], urls[0])
    return data_of_ranks(ranks, dict(download.special_tokens), resolve(download.pattern), name)


def _fetch(url: str, sha256: str) -> bytes:
    named = os.environ.get("TIKTOKEN_CACHE_DIR", os.environ.get("DATA_GYM_CACHE_DIR"))
    if named == "":
        return _download(url, sha256, None)
    folder = Path(tempfile.gettempdir(), "data-gym-cache") if named is None else Path(named)
    cached = folder / hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest()
    with suppress(OSError):
        data = cached.read_bytes()
        if hashlib.sha256(data).hexdigest() == sha256:
            return data
    data = _download(url, sha256, cached)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        write_atomically(cached, data)
    except OSError:
        if named is not None:
            raise  # the default folder is a convenience, one that was asked for is not
    return data


def _download(url: str, sha256: str, cached: Path | None) -> bytes:
    with import_lock:  # here, for it takes megabytes and milliseconds that only a download needs
        import urllib.request
        from http.client import HTTPException
        from urllib.error import HTTPError

    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT) as response:
            data: bytes = response.read()
    except (OSError, HTTPException) as error:
        reason = getattr(error, "reason", None) or error
        if isinstance(error, HTTPError):
            error.close()  # it is an open response too
        note, remedy = (f", and {cached} does not hold it", ", or put the file there") if cached else ("", "")
        message = f"{url} could not be downloaded ({reason}){note}: connect to the network{remedy}"
        raise ConnectionError(message) from None
    if (digest := hashlib.sha256(data).hexdigest()) != sha256:
        wrong = f"the download has SHA-256 {digest} and not {sha256}"
        raise ValueError(f"{url}: {wrong}: it was cut short or altered, try again")
    return data
