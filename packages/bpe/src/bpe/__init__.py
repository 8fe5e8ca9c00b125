"""Byte-level BPE: train, encode and decode, exactly and fast."""

from typing import TYPE_CHECKING

from bpe.counts import Counts, count
from bpe.encodings import Encoding
from bpe.formats import TokenizerData
from bpe.progress import Progress
from bpe.sources import JsonLines, Parquet, PlainText, Source
from bpe.tokenizer import Tokenizer
from bpe.training import extend, train, train_from_counts

if TYPE_CHECKING:
    from bpe.encoding.streaming import DecodeStream
    from bpe.loading import load
    from bpe.published import encoding_for_model, encoding_name_for_model, get_encoding, list_encoding_names

__version__ = "0.1.0"
__all__ = [
    "Counts",
    "DecodeStream",
    "Encoding",
    "JsonLines",
    "Parquet",
    "PlainText",
    "Progress",
    "Source",
    "Tokenizer",
    "TokenizerData",
    "count",
    "encoding_for_model",
    "encoding_name_for_model",
    "extend",
    "get_encoding",
    "list_encoding_names",
    "load",
    "train",
    "train_from_counts",
]
_HOMES = {  # of what many a process never asks for
    "DecodeStream": "encoding.streaming",
    "encoding_for_model": "published",
    "encoding_name_for_model": "published",
    "get_encoding": "published",
    "list_encoding_names": "published",
    "load": "loading",
}


def __getattr__(name: str) -> object:
    """A public name, or a module of the package, imported when it is first asked for (PEP 562)."""
    from importlib import import_module

    if name in _HOMES:
        found: object = getattr(import_module(f"bpe.{_HOMES[name]}"), name)
        globals()[name] = found
        return found
    if not name.startswith("__"):
        try:
            return import_module(f"bpe.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"bpe.{name}":
                raise
    raise AttributeError(f"module 'bpe' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
