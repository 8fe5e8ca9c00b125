"""Counting, training and encoding on a Ray cluster, with the results that one machine would give, byte for byte.

The functions have the names and arguments of `bpe.count`, `bpe.train` and `Tokenizer.encode_file`. They need Ray:
`pip install groundup-bpe[ray]` on every node.
"""

from bpe.cluster.counting import count, train
from bpe.cluster.encoding import EncodedFile, Manifest, encode
from bpe.cluster.tasks import Summary

__all__ = ["EncodedFile", "Manifest", "Summary", "count", "encode", "train"]
