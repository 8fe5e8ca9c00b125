"""A config.json from the Hugging Face Hub: its cache on this machine, else over HTTPS by the standard library."""

from __future__ import annotations

import os
import re

NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
SECONDS = 20  # to wait for an answer
MOST = 16 << 20  # bytes of a config.json


def contents(name: str) -> bytes:
    """The contents of the config.json of owner/name.

    HF_HOME and HF_HUB_CACHE name the cache, HF_ENDPOINT the server, HF_TOKEN a token for models that need one, and with
    HF_HUB_OFFLINE the cache alone is looked at: as huggingface_hub reads them. OSError: no such model, one that needs a
    token, or no network.
    """
    return _cached(name) or _fetched(name)


def _cached(name: str) -> bytes | None:
    """The contents of the newest file in the cache, None if there is none."""
    home = os.environ.get("HF_HOME") or os.path.join(os.path.expanduser("~"), ".cache", "huggingface")
    cache = os.environ.get("HF_HUB_CACHE") or os.path.join(home, "hub")
    folder = os.path.join(cache, "models--" + name.replace("/", "--"), "snapshots")
    if not os.path.isdir(folder):
        return None
    files = [os.path.join(folder, one, "config.json") for one in os.listdir(folder)]
    files = sorted(filter(os.path.exists, files), key=os.path.getmtime)
    if not files:
        return None
    with open(files[-1], "rb") as file:
        return file.read()


def _fetched(name: str) -> bytes:
    from urllib.error import HTTPError, URLError
    from urllib.request import Request, urlopen

    remedy = "give the path of its config.json"
    if os.environ.get("HF_HUB_OFFLINE", "").lower() in ("1", "true", "yes", "on"):
        raise OSError(f"{name} is not in the cache of Hugging Face, and HF_HUB_OFFLINE is set: {remedy}")
    endpoint = (os.environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
    if not endpoint.startswith(("https://", "http://")):
        raise ValueError(f"expected HF_ENDPOINT as an address of https, got {endpoint!r}")
    headers = {"User-Agent": "groundup-accounting"}
    if token := os.environ.get("HF_TOKEN"):
        headers["Authorization"] = f"Bearer {token}"
    request = Request(f"{endpoint}/{name}/resolve/main/config.json", headers=headers)
    try:
        with urlopen(request, timeout=SECONDS) as answer:
            data: bytes = answer.read(MOST + 1)
    except HTTPError as error:
        error.close()
        reasons = {401: "needs a token in HF_TOKEN, or does not exist", 403: "is not open to this token"}
        reason = reasons.get(error.code, "has no config.json there" if error.code == 404 else f"answers {error.code}")
        raise OSError(f"{name} on {endpoint} {reason}: {remedy}") from None
    except (URLError, TimeoutError, ConnectionError) as error:
        cause = error.reason if isinstance(error, URLError) else error
        raise OSError(f"{endpoint} cannot be reached for {name} ({cause}): {remedy}") from None
    if len(data) > MOST:
        raise ValueError(f"the config.json of {name} is larger than {MOST:,} bytes: {remedy}")
    return data
