"""The command `bpe`."""
