"""Decoders: tokens to text."""

from bpe.trainers._component import components

ByteLevel, ByteFallback, Fuse, Metaspace, Replace, Strip, BPEDecoder, Sequence = components(
    "decoders", "ByteLevel", "ByteFallback", "Fuse", "Metaspace", "Replace", "Strip", "BPEDecoder"
)
