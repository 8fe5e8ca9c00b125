"""Models and data from the Hugging Face Hub, by huggingface_hub: resumed, checked, from a mirror (HF_ENDPOINT), with a token.

A model is named hf://OWNER/NAME, and hf://OWNER/NAME@REVISION at a branch, a tag or a commit.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lm.extras import need

MODEL = re.compile(r"hf://(?P<repo>[\w.-]+/[\w.-]+)(?:@(?P<revision>[\w./-]+))?")
# What of a model's repository is downloaded: its sizes, its tokenizer and its weights as safetensors.
WANTED = ("*.json", "*.safetensors", "*.jinja", "merges.txt", "vocab.json")


def model_folder(name: str) -> Path:
    """Downloads a model, or what of it is not in the Hub's cache on this machine yet.

    Args:
        name: hf://OWNER/NAME, with @REVISION if it is not to be the newest.

    Returns:
        The folder it lies in.

    Raises:
        ValueError: The name is none.
        FileNotFoundError, PermissionError, ConnectionError: There is no such model, it is not for everyone, or the Hub cannot
            be reached.
        MissingExtra: huggingface_hub is not installed.
    """
    found = MODEL.fullmatch(name)
    if found is None:
        raise ValueError(f"{name} names no model on the Hub: write hf://OWNER/NAME or hf://OWNER/NAME@REVISION")
    hub = library()
    with in_a_sentence(name):
        patterns = list(WANTED)
        return Path(
            hub.snapshot_download(
                found["repo"], revision=found["revision"], allow_patterns=patterns, endpoint=endpoint()
            )
        )


def library() -> Any:
    """The package huggingface_hub."""
    return need("huggingface_hub", "the Hugging Face Hub", "groundup-lm[hub]")


def endpoint() -> str:
    """The Hub, or the mirror of it that HF_ENDPOINT names. ValueError: it is no address."""
    found = os.environ.get("HF_ENDPOINT", "").rstrip("/") or "https://huggingface.co"
    if not re.match(r"https?://[^/\s]", found):
        raise ValueError(f"HF_ENDPOINT is {os.environ['HF_ENDPOINT']!r}, and no address of a host: write https://HOST")
    return found


@contextlib.contextmanager
def in_a_sentence(what: str) -> Iterator[None]:
    """Says of what the Hub refuses, or of a network that fails, what it was and what to do."""
    errors = library().errors
    try:
        yield
    except errors.GatedRepoError:
        raise PermissionError(f"{what} is not for everyone: ask its publisher, and set HF_TOKEN") from None
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError, errors.EntryNotFoundError) as error:
        if isinstance(error, errors.LocalEntryNotFoundError):
            raise ConnectionError(no_way(what)) from None
        raise FileNotFoundError(
            f"{endpoint()} has no {what}: look at its name, and set HF_TOKEN if it is private"
        ) from None
    except errors.HfHubHTTPError as error:
        status = getattr(error.response, "status_code", None)
        raise ConnectionError(f"{endpoint()} answers {status} to what is asked of {what}: try again later") from None
    except OSError:
        raise
    except Exception as error:
        if type(error).__module__.partition(".")[0] in ("httpx", "httpcore", "requests", "urllib3"):
            raise ConnectionError(no_way(what)) from None
        raise


def no_way(what: str) -> str:
    mirror = "" if os.environ.get("HF_ENDPOINT") else ", or name a mirror in HF_ENDPOINT"
    return f"{what} cannot be had from {endpoint()}: look at the network{mirror}"
