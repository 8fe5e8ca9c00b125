"""The formats of token files: what other trainers read, one class for each.

format     files                                for
npy        X.npy                                NumPy, lm
bin        X.bin, X.bin.index                   nanoGPT, OLMo-core, CS336: bare ids, and where each document ends
megatron   X.bin, X.idx                         Megatron-LM, GPT-NeoX, NeMo
datatrove  X.ds, X.ds.index, X.ds.metadata      datatrove, nanotron
llmc       X.bin                                llm.c, modded-nanogpt
parquet    X.parquet                            a row for each document, its ids in the column input_ids
arrow      X.arrow                              the same as an Arrow stream: Dataset.from_file() of `datasets`

Numbers are little-endian. Beside X goes X.json, which says what the ids are, and which lm reads too.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from bpe.native.atomic_file import Staged
from bpe.native.lazy_imports import numpy as np
from bpe.outputs import FORMATS, arrow_files
from bpe.outputs.writer import Writer

if TYPE_CHECKING:
    from numpy.typing import NDArray

NPY_HEADER = 128  # bytes of a .npy before its data: room for any count
LLMC_MAGIC = {2: (20240520, 1), 4: (20240801, 7)}  # and version, by the bytes of an id: of GPT-2's and of Llama 3's
MEGATRON_TYPES = {"uint16": 8, "int32": 4}


class _Ids(Writer):
    """A file of the ids, one after another, behind `header` bytes."""

    header = 0

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        super().__init__(path, dtype)
        self.file = self.staged.open(path)
        self.file.write(bytes(self.header))

    def add(self, ids: NDArray[Any]) -> None:
        self.file.write(ids.data)


class NpyWriter(_Ids):
    """One array of NumPy's format, version 1.0."""

    ending, header = ".npy", NPY_HEADER

    def complete(self) -> None:
        about = f"{{'descr': '{self.dtype.newbyteorder('<').str}', 'fortran_order': False, 'shape': ({self.count},), }}"
        self.file.seek(0)
        self.file.write(
            b"\x93NUMPY\x01\x00"
            + (NPY_HEADER - 10).to_bytes(2, "little")
            + about.ljust(NPY_HEADER - 11).encode()
            + b"\n"
        )


class BinWriter(_Ids):
    """The ids and nothing else; in a second file where each document ends, as uint64."""

    ending = ".bin"

    def complete(self) -> None:
        beside(self.staged, self.path, ".index").write(self.document_ends().astype("<u8").data)


class MegatronWriter(_Ids):
    """Megatron-LM's IndexedDataset: ids in .bin; lengths, offsets and documents in .idx. A sequence is a document.

    .idx   9 bytes  "MMIDIDX", two zeros    8  version 1    1  the type of the ids    8  sequences    8  documents + 1
           4 a sequence   its length          8 a sequence   its offset in .bin, in bytes
           8 a document   the number of its first sequence, and the number of sequences at the end
    """

    ending = ".bin"

    def __init__(self, path: Path, dtype: np.dtype[Any]) -> None:
        super().__init__(path, np.dtype(np.uint16 if dtype == np.dtype(np.uint16) else np.int32))

    def complete(self) -> None:
        ends = self.document_ends().astype(np.int64)
        begins = np.concatenate([[0], ends[:-1]]).astype(np.int64) if len(ends) else ends
        index = self.staged.open(self.path.with_suffix(".idx"))
        index.write(b"MMIDIDX\0\0")
        index.write(struct.pack("<QBQQ", 1, MEGATRON_TYPES[self.dtype.name], len(ends), len(ends) + 1))
        index.write((ends - begins).astype("<i4").data)
        index.write((begins * self.dtype.itemsize).astype("<i8").data)
        index.write(np.arange(len(ends) + 1, dtype="<i8").data)


class DatatroveWriter(BinWriter):
    """datatrove's TokenizedFile: bare ids; where each document ends, as uint64; who made them, and how many."""

    ending = ".ds"

    def finish(self, about: dict[str, Any]) -> list[Path]:
        lines = (f"{about['tokenizer']}|{self.dtype.itemsize}", str(self.count), in_short(self.count))
        beside(self.staged, self.path, ".metadata").write("\n".join(lines).encode())
        return super().finish(about)


class LlmcWriter(_Ids):
    """llm.c's data: a header of 256 int32 (what it is, its version, how many ids), and bare ids."""

    ending, header = ".bin", 1024

    def add(self, ids: NDArray[Any]) -> None:
        if self.count + len(ids) >= 1 << 31:
            raise ValueError(f"{self.path}: llm.c counts ids up to 2**31 - 1: give shard_tokens, 10**8 say")
        super().add(ids)

    def complete(self) -> None:
        magic, version = LLMC_MAGIC[self.dtype.itemsize]
        self.file.seek(0)
        self.file.write(struct.pack("<3i", magic, version, self.count))


def beside(staged: Staged, path: Path, ending: str) -> BinaryIO:
    """X.bin.index for X.bin."""
    return staged.open(path.with_name(path.name + ending))


def in_short(count: int) -> str:
    """A number of tokens as people say it: 1.2GT."""
    for unit, size in (("T", 10**12), ("G", 10**9), ("M", 10**6), ("K", 10**3)):
        if count >= size:
            return f"{count / size:.1f}{unit}T"
    return f"{count}T"


def writer_of(format: str) -> type[Writer]:
    """The class that writes a format. ValueError for one unknown."""
    if format not in WRITERS:
        raise ValueError(f"no format is named {format!r}; there are {', '.join(FORMATS)}")
    return WRITERS[format]


WRITERS: dict[str, type[Writer]] = {
    "npy": NpyWriter,
    "bin": BinWriter,
    "megatron": MegatronWriter,
    "datatrove": DatatroveWriter,
    "llmc": LlmcWriter,
    "parquet": arrow_files.ParquetWriter,
    "arrow": arrow_files.ArrowWriter,
}
