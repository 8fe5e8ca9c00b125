"""The model that is trained: BPE."""

from bpe.trainers._component import components

BPE, _ = components("models", "BPE")
