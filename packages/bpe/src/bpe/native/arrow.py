"""pyarrow, for what takes or gives tables and columns of Arrow."""

from __future__ import annotations

from typing import Any


def pyarrow() -> Any:
    """The package. ImportError that says how to install it."""
    try:
        import pyarrow
    except ImportError:
        raise ImportError("arrays and tables of Arrow need pyarrow: pip install groundup-bpe[parquet]") from None
    return pyarrow


def as_text(array: Any) -> Any:
    """Return an array as one of string or binary, large or not: a view or a dictionary is copied into one.

    Raises:
        TypeError: The array holds no text.
    """
    arrow = pyarrow()
    types, kind = arrow.types, array.type
    if isinstance(array, arrow.ExtensionArray):
        return as_text(array.storage)
    if types.is_dictionary(kind):
        return as_text(array.dictionary_decode())
    if types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind) or types.is_large_binary(kind):
        return array
    if types.is_string_view(kind) or types.is_binary_view(kind) or types.is_null(kind):
        return array.cast(arrow.large_string() if types.is_string_view(kind) else arrow.large_binary())
    raise TypeError(f"the array holds {kind}, not text: string or binary, large, view or dictionary of either")
