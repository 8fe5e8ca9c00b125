"""Files as they have to be written: hashed, on the disk itself, and with words for what can go wrong."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import re
import shutil
from pathlib import Path


def reason(error: BaseException, folder: Path) -> str:
    """What went wrong with the disk, and what to do."""
    code = number_of(error)
    if code is None:
        with contextlib.suppress(OSError):
            code = errno.ENOSPC if shutil.disk_usage(folder).free < 1 << 20 else None
    if code == errno.EFBIG:
        return "a file may not become that large here: raise the limit (ulimit -f) and run the same command again"
    if code in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full: free some space and run the same command again"
    if code in (errno.EEXIST, errno.ENOTDIR):
        return "there is a file where a folder should be: choose another folder"
    if code in (errno.EROFS, errno.EACCES, errno.EPERM):
        return "it may not be written to: choose another folder"
    return str(error)


def number_of(error: BaseException | None) -> int | None:
    """The system's number for what failed: of the error or of what it came from; safetensors has it in its words."""
    while error is not None:
        if isinstance(code := getattr(error, "errno", None), int):
            return code
        if (said := re.search(r"\(os error (\d+)\)", str(error))) is not None:
            return int(said[1])
        error = error.__cause__ or error.__context__
    return None


def hash_file(path: Path) -> str:
    """SHA-256 of a file, in hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync(path: Path) -> None:
    """Asks the disk itself for what was written, be it a file or the entries of a folder."""
    if path.is_dir() and os.name == "nt":  # Windows cannot open a folder, and needs no such call
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def atomic_write(path: Path, content: str | bytes) -> None:
    """Writes a file whole or not at all: what stood there before stays until the new content is on the disk."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)
        sync(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
