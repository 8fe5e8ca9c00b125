"""Counting, training and encoding on a Ray cluster, with the results that one machine would give, byte for byte.

The functions have the names and arguments of `bpe.count`, `bpe.train` and `Tokenizer.encode_file`. They need Ray:
`pip install groundup-bpe[ray]` on every node.

    ranges.py       files to the parts that tasks read
    tasks.py        connecting, running a bounded number of tasks, errors in one sentence, the summary
    counting.py     parts to counts, added up by a tree of tasks
    encoding.py     files to token files, each by one task, or a large one by many
    manifest.py     the list of inputs and outputs, so that a second run skips what is done
"""

from bpe.cluster.counting import count, train
from bpe.cluster.encoding import encode
from bpe.cluster.manifest import EncodedFile, Manifest
from bpe.cluster.tasks import Share, Summary

__all__ = ["EncodedFile", "Manifest", "Share", "Summary", "count", "encode", "train"]
