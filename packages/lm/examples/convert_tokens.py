"""Token files of other programs as X.npy with X.json beside it, which `lm train --data` reads.

    python packages/lm/examples/convert_tokens.py FILE OUT.npy

X.bin       Megatron-LM, GPT-NeoX: X.idx beside it                       uint16, int32
X.ds        datatrove, nanotron: X.ds.index and X.ds.metadata            bare ids
X.parquet   a row for each document, its ids in input_ids                lists
X.arrow     the same as an Arrow stream or file, as `datasets` has it    lists
"""

from __future__ import annotations

import argparse
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lm.data import Tokens, describe, open_tokens
from lm.data.token_file import TokenWriter
from lm.data.token_formats import bare
from lm.extras import need

COLUMN = "input_ids"
MEGATRON_DTYPES = {4: "<i4", 8: "<u2"}

Document = tuple[NDArray[Any], NDArray[Any]]  # ids, and the places among them where documents end


def infer_end_of_text(ids: NDArray[Any], ends: NDArray[Any]) -> int | None:
    """Return the id that ends every document and occurs nowhere else; None if there is none."""
    room = min(1 << 22, len(ids) - 1)  # without the last id: the last document may go on in another file
    ends = np.unique(ends[(ends > 0) & (ends <= room)].astype(np.int64))
    if not len(ends):
        return None
    last = ids[ends - 1]
    mark = int(last[0])
    if bool((last != mark).any()) or int((ids[:room] == mark).sum()) != len(ends):
        return None
    return mark


def convert(source: Path, out: Path) -> Tokens:
    """Write the ids of another program's file to OUT.npy; an id that ends every document is its end-of-text."""
    parts = {".bin": megatron, ".ds": datatrove}.get(source.suffix, rows)(source)
    ends, count = [np.empty(0, np.int64)], 0
    with TokenWriter(out, dtype="uint32") as writer:
        for ids, ends_here in parts:
            if len(ids) and (int(ids.min()) < 0 or int(ids.max()) >= 1 << 32):
                raise ValueError(f"{source}: expected ids of at most 32 bits, got {ids.min()} to {ids.max()}")
            writer.write(ids.astype(np.uint32))
            ends.append(ends_here + count)
            count += len(ids)
        writer.finish()
    mark = infer_end_of_text(np.asarray(open_tokens(out).ids), np.concatenate(ends))
    return describe(out, end_of_text=mark)


def datatrove(path: Path) -> Iterator[Document]:
    """datatrove's ids, whose size its .metadata has."""
    about = path.with_name(path.name + ".metadata")
    size = about.read_text().partition("\n")[0].rpartition("|")[2] if about.exists() else "2"
    if size not in ("2", "4"):
        raise ValueError(f"{about} does not say whether an id has 2 bytes or 4 (NAME|2 in its first line)")
    yield bare(path, f"<u{size}"), bare(path.with_name(path.name + ".index"), "<u8").astype(np.int64)


def megatron(path: Path) -> Iterator[Document]:
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
    yield ids, ends[first[1:]] if documents else ends[:0]


def rows(path: Path) -> Iterator[Document]:
    """The lists of a Parquet or an Arrow file."""
    for column in columns_of(path):
        lists = column.drop_null()
        values = lists.flatten()
        if values.null_count:
            raise ValueError(f"{path}: an id of {COLUMN} is null")
        yield (
            values.to_numpy(zero_copy_only=False),
            np.cumsum(lists.value_lengths().to_numpy(zero_copy_only=False), dtype=np.int64),
        )


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


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("out", type=Path, metavar="OUT.npy")
    options = parser.parse_args(arguments)
    try:
        tokens = convert(options.file, options.out)
    except (ValueError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    print(f"{options.out}: {len(tokens):,} ids, end of text {tokens.end_of_text}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
