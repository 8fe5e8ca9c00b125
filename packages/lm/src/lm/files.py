"""Files written whole or not at all, flushed to the disk, hashed and locked, and errors in words."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import filelock


class Locked(ValueError):
    """Another process is at work in a folder."""


def no_model(path: str | Path) -> FileNotFoundError:
    """The error of a path without a model, which names the run that the path lies in."""
    for folder in (here := Path(path)).parents:
        if (folder / "config.toml").is_file() and (folder / "checkpoints").is_dir():
            step = "".join(here.relative_to(folder).parts[1:2]).lstrip("0")
            of_step = f", with step {step} for this checkpoint" if step.isdecimal() else ""
            return FileNotFoundError(f"{path} lies in a run: name its folder, {folder}{of_step}")
    kinds = "neither config.toml (a run) nor config.json (Hugging Face)"
    return FileNotFoundError(f"{path} holds no model: it has {kinds}")


@contextlib.contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """A path for programs that open files themselves, which replaces `path` when the block ends.

    Flushed to the disk, then renamed, so never half written, whatever other processes write there at the same time.
    After an error in the block, or in writing, `path` is as it was and nothing else is left.
    """
    path = Path(path)
    if path.is_dir():
        raise IsADirectoryError(errno.EISDIR, "a folder: name the file to write", str(path))
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.partial")
    try:
        yield temporary
        fsync(temporary)
        os.replace(temporary, path)
    except BaseException as error:
        if isinstance(error, OSError) and str(error.filename) == str(temporary):
            error.filename, error.filename2 = str(path), None  # the requested path
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise
    fsync(path.parent)


@contextlib.contextmanager
def atomic_file(path: str | Path) -> Iterator[BinaryIO]:
    """A file of bytes that takes the place of `path` when the block ends (see atomic_path)."""
    with atomic_path(path) as temporary, open(temporary, "wb") as file:
        yield file


def atomic_write(path: str | Path, content: str | bytes) -> None:
    """Writes a file whole or not at all (see atomic_file); a str in UTF-8."""
    with atomic_file(path) as file:
        file.write(content.encode() if isinstance(content, str) else content)


def read_json(path: Path, *, missing_ok: bool = False) -> dict[str, Any]:
    """Return the JSON object of a file; empty where it may be missing. FileNotFoundError, ValueError: naming it."""
    if missing_ok and not path.is_file():
        return {}
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise ValueError(f"{path}: expected a JSON object, got {type(value).__name__}")
    return value


def refuse_inflation(path: Path) -> None:
    """ValueError: a file of torch.save is compressed, as torch never writes one: it could grow a thousandfold."""
    if zipfile.is_zipfile(path):
        with zipfile.ZipFile(path) as archive:
            if any(entry.compress_type != zipfile.ZIP_STORED for entry in archive.infolist()):
                raise ValueError(f"{path} is compressed, and torch.save stores tensors as they are: save it again")


def sha256(path: str | Path) -> str:
    """SHA-256 of a file, in hex."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fsync(path: str | Path) -> None:
    """Asks the disk itself for what was written, be it a file or the entries of a folder."""
    if os.path.isdir(path) and os.name == "nt":  # Windows cannot open a folder, and needs no such call
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def lock(folder: Path) -> Iterator[None]:
    """Keep other processes from working in a folder; FOLDER/.lock has this one's number. Locked: another is there."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / ".lock"
    file_lock = filelock.FileLock(path, timeout=0)
    try:
        file_lock.acquire()
    except filelock.Timeout:
        number = "" if os.name == "nt" else path.read_text(errors="replace").strip()
        holder = f"process {number}" if number else "another process"
        raise Locked(f"{holder} is at work in {folder}: let it end, or choose another folder") from None
    try:
        if os.name != "nt":  # Windows lets nobody else read or write a locked file
            path.write_text(str(os.getpid()))
        yield
    finally:
        file_lock.release()


def reason(error: BaseException, folder: Path) -> str:
    """Describe an error of the disk, with a remedy."""
    code = errno_of(error)
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


def errno_of(error: BaseException | None) -> int | None:
    """Return errno of an error or of its causes, parsed from the message where safetensors raised it."""
    while error is not None:
        if isinstance(code := getattr(error, "errno", None), int):
            return code
        if (words := re.search(r"\(os error (\d+)\)|\bOs { code: (\d+)", str(error))) is not None:
            return int(words[1] or words[2])
        error = error.__cause__ or error.__context__
    return None
