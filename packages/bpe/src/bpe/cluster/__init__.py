"""Counting, training and encoding on a Ray cluster, with the results that one machine would give, byte for byte.

The functions have the names and arguments of `bpe.count`, `bpe.train` and `Tokenizer.encode_file`. They need Ray:
`pip install groundup-bpe[ray]` on every node.

    ranges.py       files to the parts that tasks read
    session.py      connecting, running tasks, what failed in one sentence, the summary
    counting.py     parts to counts, merged in a tree by shares of the hashes
    encoding.py     files to token files: what is left to do, and the manifest as it is done
    jobs.py         the tasks of encoding: whole files, parts of large ones, and the writing of these in order
    datasets.py     a Ray Dataset to token files, by a pool of actors
    manifest.py     what was encoded from what, so that a second run skips it
"""

from bpe.cluster.counting import count, train
from bpe.cluster.encoding import encode, merge
from bpe.cluster.manifest import EncodedFile, Manifest
from bpe.cluster.session import NodeShare, Summary

__all__ = ["EncodedFile", "Manifest", "NodeShare", "Summary", "count", "encode", "merge", "train"]
