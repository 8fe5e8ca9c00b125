"""Token files of other programs, each mapped as a flat array of ids, with the ends of its documents.

file        made by                                                 ids             ends of documents
X.bin       nanoGPT, OLMo-core, CS336, `--format bin`               bare ids        X.bin.index, where there is one
X.bin       Megatron-LM, GPT-NeoX: X.idx beside it                  uint16, int32   X.idx
X.bin       llm.c, modded-nanogpt: a header of 256 int32            uint16, uint32
X.ds        datatrove, nanotron                                     bare ids        X.ds.index
X.parquet   a row for each document, its ids in input_ids           lists           rows
X.arrow     the same as an Arrow stream or file, as `datasets` has  lists           rows
"""

from __future__ import annotations

import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from lm.extras import need

DTYPES = ("uint16", "uint32")
ENDINGS = (".npy", ".bin", ".ds", ".parquet", ".arrow")
COLUMN = "input_ids"
LOOKED_AT = 1 << 22  # ids by which it is seen whether documents end in one id of their own
LLMC_DTYPES = {(20240520, 1): "<u2", (20240801, 7): "<u4"}  # by the magic number and the version
MEGATRON_DTYPES = {4: "<i4", 8: "<u2"}


class Mapped(NamedTuple):
    """The ids of a file, and the places among them where its documents end; None if the format has none."""

    ids: NDArray[Any]
    ends: NDArray[Any] | None = None


def map_other(path: Path, dtype: str | None) -> Mapped:
    """Map a file that is not a .npy (see token_file.map_tokens); Parquet and Arrow through a temporary file."""
    ids, ends = {".bin": of_bin, ".ds": of_datatrove}.get(path.suffix, of_rows)(path, dtype)
    if ids.dtype.name == "int32":
        ids = ids.view("<u4")
    if ends is not None and len(ends) and (int(ends[-1]) > len(ids) or bool((ends[1:] < ends[:-1]).any())):
        raise ValueError(f"{path} holds {len(ids)} ids, and its index of documents is of another file")
    return Mapped(ids, ends)


def infer_end_of_text(ids: NDArray[Any], ends: NDArray[Any], described: int | None) -> int | None:
    """Return the id that ends every document and occurs nowhere else; None if there is none.

    described: the description's end_of_text, which it must not contradict.
    """
    room = min(LOOKED_AT, len(ids) - 1)  # without the last id: the last document may go on in another file
    ends = np.unique(ends[(ends > 0) & (ends <= room)].astype(np.int64))
    if not len(ends):
        return described
    last = ids[ends - 1]
    mark = int(last[0])
    if bool((last != mark).any()) or int((ids[:room] == mark).sum()) != len(ends):
        return None
    return mark if described in (None, mark) else None


def of_bin(path: Path, dtype: str | None) -> Mapped:
    """llm.c's by its header, Megatron's by the .idx beside it, and bare ids."""
    with path.open("rb") as file:
        start = file.read(12)
    if len(start) == 12:
        magic, version, count = struct.unpack("<3i", start)
        if (magic, version) in LLMC_DTYPES:
            ids = bare(path, LLMC_DTYPES[magic, version], offset=1024)
            if len(ids) != count:
                raise ValueError(
                    f"{path} holds {len(ids)} ids, and its header says {count}: it is cut short, or changed"
                )
            return Mapped(ids)
    if path.with_suffix(".idx").exists():
        return of_megatron(path)
    return bare_with_ends(path, dtype)


def of_datatrove(path: Path, dtype: str | None) -> Mapped:
    """datatrove's: its .metadata has the number of bytes of an id."""
    about = path.with_name(path.name + ".metadata")
    if about.exists():
        size = about.read_text().partition("\n")[0].rpartition("|")[2]
        if size not in ("2", "4"):
            raise ValueError(f"{about} does not say whether an id has 2 bytes or 4 (NAME|2 in its first line)")
        dtype = f"<u{size}"
    return bare_with_ends(path, dtype)


def bare_with_ends(path: Path, dtype: str | None) -> Mapped:
    """Bare ids, with the index beside them."""
    ids = bare(path, dtype or "uint16")
    if dtype is None:
        refuse_wide(path, ids)
    return Mapped(ids, ends_beside(path))


def of_megatron(path: Path) -> Mapped:
    """Megatron-LM's IndexedDataset; its documents may be several sequences each."""
    index = path.with_suffix(".idx").read_bytes()
    if index[:9] != b"MMIDIDX\0\0" or len(index) < 34:
        raise ValueError(f"{path.with_suffix('.idx')} is not an index of Megatron-LM (version 1)")
    version, code, sequences, documents = struct.unpack("<QBQQ", index[9:34])
    if version != 1 or code not in MEGATRON_DTYPES:
        raise ValueError(
            f"{path.with_suffix('.idx')} is of version {version} with ids of the type {code}, and version 1 with int32 "
            f"(4) or uint16 (8) is read"
        )
    if len(index) < 34 + 12 * sequences + 8 * documents:
        raise ValueError(f"{path.with_suffix('.idx')} is cut short")
    lengths = np.frombuffer(index, "<i4", sequences, 34).astype(np.int64)
    places = np.frombuffer(index, "<i8", sequences, 34 + 4 * sequences)
    first = np.frombuffer(index, "<i8", documents, 34 + 12 * sequences)
    ids = bare(path, MEGATRON_DTYPES[code])
    ends = np.concatenate([[0], np.cumsum(lengths)])
    if ends[-1] != len(ids) or bool((places != ends[:-1] * ids.itemsize).any()):
        raise ValueError(f"{path} and its .idx are not of one another, or its sequences are not in their order")
    return Mapped(ids, ends[first[1:]] if documents else None)


def of_rows(path: Path, dtype: str | None) -> Mapped:
    """The lists of a Parquet or an Arrow file, one after another in a temporary file that nobody else sees."""
    with tempfile.TemporaryFile(prefix="lm-") as file:  # the map keeps it when it is closed
        return written_to(file, path)


def written_to(file: BinaryIO, path: Path) -> Mapped:
    ends, count = [], 0
    for lists in columns_of(path):
        rows = lists.drop_null()
        values = rows.flatten()
        if values.null_count:
            raise ValueError(f"{path}: an id of {COLUMN} is null")
        ids = values.to_numpy(zero_copy_only=False)
        if ids.dtype.kind not in "iu" or (len(ids) and (int(ids.min()) < 0 or int(ids.max()) >= 1 << 32)):
            raise ValueError(f"{path}: the lists of {COLUMN} hold {ids.dtype}, not ids of at most 32 bits")
        file.write(np.ascontiguousarray(ids, dtype="<u4").data)
        ends.append(np.cumsum(rows.value_lengths().to_numpy(zero_copy_only=False), dtype=np.int64) + count)
        count += len(ids)
    file.flush()
    if not count:
        return Mapped(np.empty(0, np.uint32))
    return Mapped(np.memmap(file, "<u4", "r"), np.concatenate(ends))


def columns_of(path: Path) -> Iterator[Any]:
    """The column of ids, batch by batch."""
    arrow = need("pyarrow", f"reading {path.name}", "pyarrow")
    try:
        if path.suffix == ".parquet":
            with need("pyarrow.parquet", path.name, "pyarrow").ParquetFile(path) as parquet:
                check_column(path, parquet.schema_arrow)
                for batch in parquet.iter_batches(batch_size=1 << 12, columns=[COLUMN]):
                    yield batch.column(0)
            return
        with arrow.memory_map(str(path)) as source:
            ipc = need("pyarrow.ipc", path.name, "pyarrow")
            is_file = source.read(6) == b"ARROW1"
            source.seek(0)
            reader = ipc.open_file(source) if is_file else ipc.open_stream(source)
            check_column(path, reader.schema)
            batches = (reader.get_batch(i) for i in range(reader.num_record_batches)) if is_file else reader
            for batch in batches:
                yield batch.column(COLUMN)
    except arrow.ArrowException as error:
        raise ValueError(f"{path} is no whole file of its format: {str(error).splitlines()[0]}") from None


def check_column(path: Path, schema: Any) -> None:
    arrow = need("pyarrow", path.name, "pyarrow")
    if COLUMN not in schema.names:
        raise ValueError(f"{path} has no column {COLUMN}, where token ids are; it has {', '.join(schema.names)}")
    kind = schema.field(COLUMN).type
    if not (arrow.types.is_list(kind) or arrow.types.is_large_list(kind)) or not arrow.types.is_integer(
        kind.value_type
    ):
        raise ValueError(f"{path}: the column {COLUMN} holds {kind}, not lists of ids")


def bare(path: Path, dtype: str, offset: int = 0) -> NDArray[Any]:
    """The numbers of a file from a byte on, mapped. ValueError: the last one is cut."""
    kind = np.dtype(dtype).newbyteorder("<")
    size = path.stat().st_size - offset
    if size % kind.itemsize:
        raise ValueError(f"{path} has {size} bytes of ids, which are no whole {kind.name}: it is cut short")
    return np.memmap(path, kind, "r", offset) if size > 0 else np.empty(0, kind)


def refuse_wide(path: Path, ids: NDArray[Any]) -> None:
    """ValueError: what was taken for uint16 looks like uint32, of which the upper halves are next to nothing."""
    looked_at = ids[: LOOKED_AT & ~1]
    if len(looked_at) >= 64 and int(looked_at[1::2].max()) < 8:
        raise ValueError(
            f"{path} looks like ids of 4 bytes, and nothing says so: write its description with "
            f'lm.data.describe("{path}", dtype="uint32")'
        )


def ends_beside(path: Path) -> NDArray[Any] | None:
    """X.bin.index or X.ds.index: where each document ends, uint64."""
    beside = path.with_name(path.name + ".index")
    return bare(beside, "<u8").astype(np.int64) if beside.exists() else None
