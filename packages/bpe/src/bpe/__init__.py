"""Byte-level BPE: train, encode and decode, exactly and fast."""

from bpe.encodings import encoding_for_model, get_encoding
from bpe.published import encoding_name_for_model, list_encoding_names
from bpe.sources import JsonLines, Parquet, PlainText
from bpe.streaming import DecodeStream
from bpe.tokenizer import Tokenizer
from bpe.training import extend, train

__version__ = "0.1.0"
__all__ = [
    "DecodeStream",
    "JsonLines",
    "Parquet",
    "PlainText",
    "Tokenizer",
    "encoding_for_model",
    "encoding_name_for_model",
    "extend",
    "get_encoding",
    "list_encoding_names",
    "train",
]
