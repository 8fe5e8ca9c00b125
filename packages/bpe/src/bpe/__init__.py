"""Byte-level BPE: train, encode and decode, exactly and fast."""

from bpe.streaming import DecodeStream
from bpe.tokenizer import Tokenizer, get_encoding
from bpe.training import train

__version__ = "0.1.0"
__all__ = ["DecodeStream", "Tokenizer", "get_encoding", "train"]
