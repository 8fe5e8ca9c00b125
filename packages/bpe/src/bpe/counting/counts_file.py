"""Counts in a file: a header that says what was counted, and the records as bpe.counting.records has them.

16 bytes   MAGIC
 4 bytes   0x01020304, in the byte order of the machine that wrote it, as the numbers of the records are
 4 bytes   the size of the description
32 bytes   SHA-256 of all the rest
           the description: JSON
           the records
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from bpe.corpus import remote
from bpe.counting.records import check_records
from bpe.native.atomic_file import StrPath
from bpe.native.lazy_imports import hashlib, json

if TYPE_CHECKING:
    from bpe.counting.records import Records

MAGIC = b"bpe counts 2\n\0\0\0"
BYTE_ORDER = 0x01020304
START = struct.Struct("=16sII")
HEADER_SIZE = START.size + 32


def write(path: StrPath, about: Any, records: Iterable[Any]) -> None:
    """Write blocks of records, whole or not at all; about: description of what was counted, any JSON."""
    description = json.dumps(about).encode()
    start = START.pack(MAGIC, BYTE_ORDER, len(description))
    digest = hashlib.sha256(start + description)
    with remote.output(path) as file:
        file.write(start + bytes(32) + description)
        for block in records:
            digest.update(block)
            file.write(block)
        file.seek(len(start))
        file.write(digest.digest())


def read(path: StrPath) -> tuple[Any, Records]:
    """The description, and the records as a map of the file (of a copy, for a URL). ValueError for another file."""
    name = os.fspath(path)
    with ExitStack() as stack:
        here = stack.enter_context(remote.copied(name)) if remote.is_url(path) else path
        file = stack.enter_context(open(here, "rb"))
        header = file.read(HEADER_SIZE)
        if len(header) < HEADER_SIZE or not header.startswith(MAGIC):
            raise ValueError(f"{name}: not a file of counts")
        mapped = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    (_, order, size), digest = START.unpack_from(header), header[START.size :]
    if order != BYTE_ORDER:
        raise ValueError(f"{name}: written by a machine of another byte order: count again on this one")
    actual = hashlib.sha256(header[: START.size])
    actual.update(mapped[HEADER_SIZE:])
    if actual.digest() != digest:
        raise ValueError(f"{name}: damaged or cut short: its SHA-256 is not the one that was written with it")
    records = mapped[HEADER_SIZE + size :]
    try:
        check_records(records)
        return json.loads(bytes(mapped[HEADER_SIZE : HEADER_SIZE + size])), records
    except ValueError as error:
        raise ValueError(f"{name}: not counts as this package writes them: {error}") from None
