"""pyarrow, for what takes or gives tables and columns of Arrow."""

from __future__ import annotations

from typing import Any

from bpe.native.lazy_imports import import_lock


def pyarrow() -> Any:
    """The package. ImportError that says how to install it."""
    try:
        with import_lock:
            import pyarrow
    except ImportError:
        raise ImportError("arrays and tables of Arrow need pyarrow: pip install groundup-bpe[parquet]") from None
    return pyarrow


def is_one_of(kind: Any, names: str) -> bool:
    """True if a type is one of several, by their names."""
    return any(getattr(pyarrow().types, f"is_{name}")(kind) for name in names.split())


def as_text(array: Any) -> Any:
    """Return an array as one of string or binary, large or not: a view or a dictionary is copied into one.

    TypeError where the array holds no text.
    """
    arrow, kind = pyarrow(), array.type
    if isinstance(array, arrow.ExtensionArray):
        return as_text(array.storage)
    if arrow.types.is_dictionary(kind):
        return as_text(array.dictionary_decode())
    if is_one_of(kind, "string large_string binary large_binary"):
        return array
    if is_one_of(kind, "string_view binary_view null"):
        return array.cast(arrow.large_string() if arrow.types.is_string_view(kind) else arrow.large_binary())
    raise TypeError(f"the array holds {kind}, not text: string or binary, large, view or dictionary of either")
