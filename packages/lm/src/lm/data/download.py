"""One file from an address to a place on disk: resumed where it stopped, tried again where the network fails, and checked.

What has arrived lies in X.part, and X.part.json says of which version of the file (its ETag) it is. A later attempt asks for
the rest with Range and If-Range (RFC 9110), so that a file that has changed meanwhile comes whole instead.
"""

from __future__ import annotations

import contextlib
import email.utils
import hashlib
import http.client
import json
import os
import re
import shutil
import socket
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

TIMEOUT = 60.0  # seconds without a byte
TRIES = 8  # in a row that bring nothing
UNREACHABLE_TRIES = 3  # in a row that do not even reach the host
LONGEST_WAIT = 600.0  # seconds that a Retry-After is heeded for
BLOCK = 1 << 18
AGAIN = (408, 425, 429, 500, 502, 503, 504)  # what a server answers when it may answer otherwise later

Report = Callable[[int], None]  # bytes of the file that have arrived


class Cancelled(Exception):
    """The download was told to stop; what has arrived stays, to go on from."""


class Stop(threading.Event):
    """Tells downloads to stop; one that waits for bytes, which may not come for a minute, hears of it at once."""

    def __init__(self) -> None:
        super().__init__()
        self.response: Any = None  # what is being read

    def set(self) -> None:
        super().set()
        with (
            contextlib.suppress(OSError, ValueError, AttributeError),  # there is none, or it is closed by now
            socket.socket(fileno=os.dup(self.response.fileno())) as connection,
        ):
            connection.shutdown(socket.SHUT_RDWR)


class Again(Exception):
    """An attempt failed in a way that the next may not. reached: whether the host answered at all."""

    def __init__(self, reason: str, wait: float = 0.0, reached: bool = True) -> None:
        super().__init__(reason)
        self.wait, self.reached = wait, reached


def fetch(
    url: str,
    path: Path,
    *,
    size: int | None = None,
    sha256: str | None = None,
    most: int | None = None,
    token: str | None = None,
    stop: Stop | None = None,
    report: Report | None = None,
) -> None:
    """Downloads url to path, or goes on from where an earlier call was stopped; path appears when it is whole and checked.

    size, sha256: what its publisher states, where it does. most: only the file's first so many bytes. token: shown to the host
    of url as a bearer, and not to one that it sends us on to. stop: ends the download when it is set.

    ConnectionError: there is no way to the host, or it fails again and again. FileNotFoundError, PermissionError: it has no
    such file, or not for everyone. ValueError: what arrived, twice, is not what the publisher states.
    """
    part = path.with_name(path.name + ".part")
    stop = stop or Stop()
    wrong = failures = 0
    while True:
        before = size_of(part)
        try:
            transfer(url, part, size=size, most=most, token=token, stop=stop, report=report)
        except Again as again:
            failures = 1 if size_of(part) > before else failures + 1
            if failures >= (TRIES if again.reached else UNREACHABLE_TRIES):
                raise ConnectionError(give_up(url, again)) from None
            if pause(stop, max(min(0.5 * 2 ** (failures - 1), 30.0), min(again.wait, LONGEST_WAIT))):
                raise Cancelled(url) from None
            continue
        found = hash_of(part) if sha256 is not None and most is None else None
        if found == sha256 or found is None:
            os.replace(part, path)
            beside(part).unlink(missing_ok=True)
            return
        forget(part)
        wrong += 1
        if wrong > 1:
            raise ValueError(
                f"{url} arrived with SHA-256 {found[:16]}…, and its publisher states {sha256[:16] if sha256 else ''}…, twice: "
                f"something on the way alters it"
            )


def transfer(
    url: str,
    part: Path,
    *,
    size: int | None,
    most: int | None,
    token: str | None,
    stop: Stop,
    report: Report | None,
) -> None:
    """One attempt to complete `part`. Again: it is not complete, for a reason that may pass."""
    end = size if most is None else min(most, size) if size is not None else most
    have = size_of(part)
    if end is not None and have > end:
        forget(part)
        have = 0
    if end is not None and have == end and have:
        return
    try:
        etag = json.loads(beside(part).read_text())["etag"] if have else None
    except (
        FileNotFoundError,
        ValueError,
        KeyError,
        TypeError,
    ):  # a kill between the two: of what version it is, is not known
        forget(part)
        have, etag = 0, None
    headers = {"Accept-Encoding": "identity"}
    if have or most is not None:
        headers["Range"] = f"bytes={have}-{'' if most is None else most - 1}"
    if have and etag and not etag.startswith("W/"):
        headers["If-Range"] = etag
    with ask(url, headers, token) as response:
        version = response.headers.get("ETag")
        if response.status == 416 or (response.status == 206 and content_range(response)[0] != have):
            # The file is no longer than what is there, or the answer is to another question.
            total = content_range(response)[1]
            if response.status == 416 and total == have and have and size in (None, have):
                return
            forget(part)
            raise Again("it has changed since the download began")
        if (
            response.status == 206
            and have
            and etag
            and version
            and etag.removeprefix("W/") != version.removeprefix("W/")
        ):
            forget(part)
            raise Again("it has changed since the download began")
        if response.status == 206:
            total = content_range(response)[1]
        else:
            have, length = 0, response.headers.get("Content-Length")
            total = int(length) if length and length.isdigit() else None
        if size is not None and total is not None and total != size:
            forget(part)
            raise Again(f"it is {total:,} bytes long, and its publisher states {size:,}")
        end = total if most is None else most if total is None else min(most, total)
        if end is not None:
            check_room(part, end - have)
        with open(part, "r+b" if have else "wb", buffering=0) as file:  # a kill loses nothing that arrived
            beside(part).write_text(json.dumps({"etag": version}))
            file.seek(have)
            stop.response = response
            while end is None or have < end:
                if stop.is_set():
                    raise Cancelled(url)
                try:
                    block = response.read1(BLOCK if end is None else min(BLOCK, end - have))
                except (OSError, http.client.HTTPException) as error:
                    raise Again(reason_of(error)) from None
                if not block:
                    break
                file.write(block)
                have += len(block)
                if report is not None:
                    report(have)
            os.fsync(file.fileno())
    if stop.is_set() and (end is None or have < end):
        raise Cancelled(url)
    if end is not None and have < end:
        raise Again(f"the connection ended after {have:,} of {end:,} bytes")


def ask(url: str, headers: dict[str, str], token: str | None) -> Any:
    """The answer to a request, when it is one that says something of the file. Again, or the error that is final."""
    request = urllib.request.Request(url, headers=headers)
    if token:
        request.add_unredirected_header("Authorization", f"Bearer {token}")
    try:
        return urllib.request.urlopen(request, timeout=TIMEOUT)
    except urllib.error.HTTPError as error:
        if error.code == 416:
            return error
        with error:
            if error.code in AGAIN:
                raise Again(f"it answers {error.code} {error.reason}", retry_after(error.headers)) from None
            if error.code in (401, 403):
                raise PermissionError(
                    f"{url} is not given to everyone ({error.code} {error.reason}): accept its terms on its page, "
                    f"and put a token of yours into the environment variable HF_TOKEN"
                ) from None
            if error.code in (404, 410):
                raise FileNotFoundError(f"{url} is not there ({error.code} {error.reason})") from None
            raise ConnectionError(f"{url} answers {error.code} {error.reason}") from None
    except (OSError, http.client.HTTPException) as error:
        cause = getattr(error, "reason", error)
        unreachable = isinstance(cause, (socket.gaierror, ConnectionRefusedError)) or (
            isinstance(cause, OSError) and not isinstance(cause, (TimeoutError, ConnectionError))
        )
        raise Again(reason_of(error), reached=not unreachable) from None


def get_json(url: str, token: str | None, stop: threading.Event | None = None) -> tuple[Any, str | None]:
    """A JSON answer, and the address of the next page where there is one; tried again as a download is."""
    failures = 0
    while True:
        try:
            with ask(url, {"Accept": "application/json"}, token) as response:
                return json.load(response), next_page(response.headers.get("Link"))
        except (Again, OSError, http.client.HTTPException, ValueError) as error:
            if isinstance(error, (PermissionError, FileNotFoundError)):
                raise
            again = error if isinstance(error, Again) else Again(reason_of(error))
            failures += 1
            if failures >= (TRIES if again.reached else UNREACHABLE_TRIES):
                raise ConnectionError(give_up(url, again)) from None
            if pause(stop or threading.Event(), max(0.5 * 2 ** (failures - 1), min(again.wait, LONGEST_WAIT))):
                raise Cancelled(url) from None


def pause(stop: threading.Event, seconds: float) -> bool:
    """Waits before the next attempt; whether it was told to stop meanwhile."""
    return stop.wait(seconds)


def next_page(link: str | None) -> str | None:
    """The address of rel="next" in a Link header. (RFC 8288)"""
    for target, parameters in re.findall(r"<([^>]*)>([^,]*)", link or ""):
        if re.search(r';\s*rel="?next"?', parameters):
            return str(target)
    return None


def content_range(response: Any) -> tuple[int | None, int | None]:
    """First byte and total of `Content-Range: bytes 5-9/10` or `bytes */10`; None where it does not say."""
    found = re.fullmatch(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)", response.headers.get("Content-Range", ""))
    if found is None:
        return None, None
    return (int(found[1]) if found[1] else None), (int(found[2]) if found[2] != "*" else None)


def retry_after(headers: Any) -> float:
    """Seconds that a server asks to be left alone for: given as such, or as a date."""
    value = headers.get("Retry-After")
    with contextlib.suppress(TypeError, ValueError):
        return max(0.0, float(value))
    with contextlib.suppress(TypeError, ValueError):
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    return 0.0


def give_up(url: str, again: Again) -> str:
    host = urllib.parse.urlsplit(url).hostname
    if not again.reached:
        mirror = ", or a mirror, named in the environment variable HF_ENDPOINT" if host == "huggingface.co" else ""
        return f"there is no way from here to {host} ({again}): this needs the network{mirror}"
    return f"{url} fails again and again, at last because {again}: try later, the same command goes on from here"


def reason_of(error: BaseException) -> str:
    cause = getattr(error, "reason", None) or error
    if isinstance(cause, TimeoutError):
        return f"nothing came for {TIMEOUT:g} s"
    return str(getattr(cause, "strerror", None) or cause) or type(cause).__name__


def check_room(part: Path, wanted: int) -> None:
    free = shutil.disk_usage(part.parent).free
    if wanted > free:
        raise OSError(
            f"{part.parent} has {free:,} bytes free, and {wanted:,} are still to come: make room, or choose another disk"
        )


def size_of(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def beside(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def forget(part: Path) -> None:
    part.unlink(missing_ok=True)
    beside(part).unlink(missing_ok=True)


def hash_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
