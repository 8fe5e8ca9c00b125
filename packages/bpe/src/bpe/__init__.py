"""Byte-level BPE: train, encode and decode, exactly and fast."""

from typing import TYPE_CHECKING

from bpe.formats import TokenizerData
from bpe.native.lazy_imports import import_lock
from bpe.tokenizer import Encoding, Tokenizer

if TYPE_CHECKING:
    from bpe.corpus.sources import JsonLines, Parquet, PlainText, Source
    from bpe.counts import Counts, count
    from bpe.encoding.budgets import Piece
    from bpe.encoding.streaming import DecodeStream, EncodeSession
    from bpe.loading import load
    from bpe.merging.superbpe import SuperBPE
    from bpe.native.progress import Progress
    from bpe.published import encoding_for_model, encoding_name_for_model, get_encoding, list_encoding_names
    from bpe.training import extend, train, train_from_counts, train_sentencepiece

__version__ = "0.1.0"
__all__ = [
    "Counts",
    "DecodeStream",
    "EncodeSession",
    "Encoding",
    "JsonLines",
    "Parquet",
    "Piece",
    "PlainText",
    "Progress",
    "Source",
    "SuperBPE",
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
    "train_sentencepiece",
]
_MODULES = {  # imported at their first use: a process that only encodes does not load what trains
    "counts": "Counts count",
    "encoding.streaming": "DecodeStream EncodeSession",
    "encoding.budgets": "Piece",
    "corpus.sources": "JsonLines Parquet PlainText Source",
    "native.progress": "Progress",
    "merging.superbpe": "SuperBPE",
    "published": "encoding_for_model encoding_name_for_model get_encoding list_encoding_names",
    "loading": "load",
    "training": "extend train train_from_counts train_sentencepiece",
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names.split()}


def __getattr__(name: str) -> object:
    """Import a public name, or a module of the package, at its first use (PEP 562)."""
    from importlib import import_module

    if name in _MODULE_OF:
        with import_lock:
            value: object = getattr(import_module(f"bpe.{_MODULE_OF[name]}"), name)
        globals()[name] = value
        return value
    if not name.startswith("__"):
        try:
            with import_lock:
                return import_module(f"bpe.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"bpe.{name}":
                raise
    raise AttributeError(f"module 'bpe' has no attribute {name!r}")


def __dir__() -> list[str]:
    hidden = {"TYPE_CHECKING", "_MODULES", "_MODULE_OF"}
    return sorted({*globals(), *__all__} - hidden)
