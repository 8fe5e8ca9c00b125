"""The model that is trained: BPE."""

from __future__ import annotations

from bpe.trainers._component import component

BPE = component(
    "BPE",
    vocab=None,
    merges=None,
    cache_capacity=None,
    dropout=None,
    unk_token=None,
    continuing_subword_prefix=None,
    end_of_word_suffix=None,
    fuse_unk=False,
    byte_fallback=False,
    ignore_merges=False,
)
