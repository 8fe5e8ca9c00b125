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
