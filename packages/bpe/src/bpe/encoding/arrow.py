"""Columns of Arrow to columns of ids and back, without a Python object for a text or an id. Needs pyarrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from bpe.encoding.text_encoder import TextEncoder
from bpe.native.arrow import as_text, pyarrow
from bpe.native.lazy_imports import import_lock
from bpe.native.lazy_imports import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from bpe.encoding.decoder import Decoder
    from bpe.scanning.special_tokens import Rules


MOST_TEXT = 1 << 30  # bytes of a chunk that are encoded at a time: their ids have offsets of 31 bits, and more
MOST_IDS = (1 << 31) - 1  # that a list<uint32> can hold in all


def encode_column(encoder: TextEncoder, array: Any, rules: Rules, threads: int) -> Any:
    """The ids of each text of an array, as list<uint32>; see Tokenizer.encode_arrow()."""
    arrow = pyarrow()
    array = _imported(array, "texts")
    if isinstance(array, arrow.ChunkedArray):
        parts = [part for chunk in array.chunks for part in _in_parts(as_text(chunk))]
        encoded = [_encode_array(encoder, part, rules, threads) for part in parts]
        return arrow.chunked_array(encoded, type=arrow.list_(arrow.uint32()))
    return _encode_array(encoder, as_text(array), rules, threads)


def decode_column(decoder: Decoder, array: Any, errors: str) -> Any:
    """The text of each list of ids, as large_string; see Tokenizer.decode_arrow()."""
    arrow = pyarrow()
    array = _imported(array, "lists of ids")
    if isinstance(array, arrow.ChunkedArray):
        decoded = [_decode_array(decoder, chunk, errors) for chunk in array.chunks]
        return arrow.chunked_array(decoded, type=arrow.large_string())
    return _decode_array(decoder, array, errors)


def _imported(array: Any, what: str) -> Any:
    """An Array or ChunkedArray of pyarrow, made of whatever exports one by Arrow's C interface."""
    arrow = pyarrow()
    if isinstance(array, (arrow.Array, arrow.ChunkedArray)):
        return array
    if hasattr(array, "__arrow_c_stream__"):
        return arrow.chunked_array(array)
    if hasattr(array, "__arrow_c_array__"):
        return arrow.array(array)
    raise TypeError(f"an array of Arrow is expected that holds {what}, not {type(array).__name__}")


def _in_parts(array: Any) -> Iterator[Any]:
    """The rows of an array, not more than MOST_TEXT bytes at a time unless one row alone has more."""
    if len(array) > 1 and array.nbytes > MOST_TEXT:
        middle = len(array) // 2
        yield from _in_parts(array.slice(0, middle))
        yield from _in_parts(array.slice(middle))
    else:
        yield array


def _offsets(array: Any) -> tuple[memoryview, NDArray[np.int64], NDArray[np.int64]]:
    """(the bytes of all texts, where each begins, its size): no size for a null. ValueError for offsets astray."""
    types = pyarrow().types
    is_large = types.is_large_string(array.type) or types.is_large_binary(array.type)
    _, offsets, data = array.buffers()
    text = memoryview(b"" if data is None else data).cast("B")
    if len(array) == 0 or offsets is None:
        return text, np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
    numbers = np.frombuffer(offsets, dtype=np.int64 if is_large else np.int32)
    numbers = numbers[array.offset : array.offset + len(array) + 1].astype(np.int64)
    begins, sizes = numbers[:-1], np.diff(numbers)
    if array.null_count:
        sizes[array.is_null().to_numpy(zero_copy_only=False)] = 0
    if numbers[0] < 0 or sizes.min() < 0 or numbers.max() > len(text):
        raise ValueError("the array's offsets point outside its data: it is not a valid array of Arrow")
    return text, np.ascontiguousarray(begins), sizes


def _encode_array(encoder: TextEncoder, array: Any, rules: Rules, threads: int) -> Any:
    text, begins, sizes = _offsets(array)
    if encoder.direct or _ready(encoder, text, begins, sizes, rules):
        batch = encoder.run_batch(text, rules, threads, begins=begins, sizes=sizes)
        for row in sorted(batch.failures):
            raise batch.failures.pop(row)  # it would keep this frame, and the frame the batch
        return _list_array(array, *batch.joined())
    rows = [text[begin : begin + size] for begin, size in zip(begins.tolist(), sizes.tolist(), strict=True)]
    parts = encoder.batch(rows, rules, threads, lists=False)
    ids = np.concatenate([np.empty(0, dtype=np.uint32), *parts])
    return _list_array(array, ids, np.cumsum(list(map(len, parts)), dtype=np.int64))


def _ready(
    encoder: TextEncoder, text: memoryview, begins: NDArray[np.int64], sizes: NDArray[np.int64], rules: Rules
) -> bool:
    """True if the encoder takes all of these texts: any part of a normalized text is normalized."""
    if not len(begins):
        return False
    begin, end = int(begins.min()), int((begins + sizes).max())
    if end - begin > 2 * int(sizes.sum()):  # texts far apart, between which there may be anything
        return False
    span = text[begin:end]
    return encoder.ready(span, rules) is span


def _list_array(array: Any, ids: NDArray[np.uint32], ends: NDArray[np.int64]) -> Any:
    """list<uint32> of ids, null where the array is."""
    arrow = pyarrow()
    if len(ids) > MOST_IDS:
        raise ValueError(
            f"the array has {len(ids):,} ids, and one of list<uint32> holds {MOST_IDS:,}: give it in chunks"
        )
    offsets = np.zeros(len(ends) + 1, dtype=np.int32)
    offsets[1:] = ends
    values = arrow.Array.from_buffers(arrow.uint32(), len(ids), [None, arrow.py_buffer(ids)])
    mask = array.is_null() if array.null_count else None
    return arrow.ListArray.from_arrays(arrow.array(offsets), values, mask=mask)


def _decode_array(decoder: Decoder, array: Any, errors: str) -> Any:
    arrow = pyarrow()
    types, kind = arrow.types, array.type
    if types.is_null(kind):
        return array.cast(arrow.large_string())
    lists: tuple[Callable[[Any], bool], ...] = (types.is_list, types.is_large_list, types.is_fixed_size_list)
    if not any(is_list(kind) for is_list in lists) or not types.is_integer(kind.value_type):
        raise TypeError(f"the array holds {kind}, not lists of ids")
    with import_lock:
        from pyarrow import compute

    values = array.flatten()  # null rows have none
    if values.null_count:
        raise ValueError(f"{values.null_count} of the ids are null")
    sizes = compute.list_value_length(array).fill_null(0).to_numpy(zero_copy_only=False)
    ends = np.cumsum(sizes, dtype=np.int64)
    offsets = np.zeros(len(ends) + 1, dtype=np.int64)
    data = decoder.decode_rows(values.to_numpy(zero_copy_only=False), ends, offsets[1:])
    valid = array.is_valid().to_numpy(zero_copy_only=False) if array.null_count else None
    validity = None if valid is None else arrow.py_buffer(np.packbits(valid, bitorder="little"))
    decoded = arrow.Array.from_buffers(
        arrow.large_binary(), len(array), [validity, arrow.py_buffer(offsets), arrow.py_buffer(data)]
    )
    try:
        return decoded.cast(arrow.large_string())
    except arrow.ArrowInvalid:  # bytes that are not UTF-8
        texts = [None if text is None else text.decode("utf-8", errors) for text in decoded.to_pylist()]
        return arrow.array(texts, arrow.large_string())
