"""Decoders: tokens to text."""

from __future__ import annotations

from bpe.trainers._component import REQUIRED, component, sequence

ByteLevel = component("ByteLevel", add_prefix_space=True, trim_offsets=True, use_regex=True)
ByteFallback = component("ByteFallback")
Fuse = component("Fuse")
Metaspace = component("Metaspace", replacement="▁", prepend_scheme="always", split=True)
Replace = component("Replace", pattern=REQUIRED, content=REQUIRED)
Strip = component("Strip", content=" ", start=0, stop=0)
BPEDecoder = component("BPEDecoder", suffix="</w>")
Sequence = sequence("decoders")
