"""Files of ids, and the names of their formats: see bpe.outputs.writers."""

from typing import Literal, get_args

Format = Literal["npy", "bin", "megatron", "datatrove", "llmc", "parquet", "arrow"]
FORMATS: tuple[str, ...] = get_args(Format)
