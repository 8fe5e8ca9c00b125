"""Token data: files of ids, mixtures of them, the batch of each step, and how text becomes ids."""

from lm.data.batches import Ids, Shards, batch, get_batch, shuffled, windows_of
from lm.data.mixture import DataSet, Mixture, Tokens, check_range, open_data, open_heldout, open_tokens, token_files
from lm.data.token_file import TokenWriter, describe, write_tokens

__all__ = [
    "DataSet", "Ids", "Mixture", "Shards", "TokenWriter", "Tokens", "batch", "check_range", "describe", "get_batch",
    "open_data", "open_heldout", "open_tokens", "shuffled", "token_files", "windows_of", "write_tokens",
]  # fmt: skip
