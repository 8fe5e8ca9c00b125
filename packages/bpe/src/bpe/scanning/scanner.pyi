from collections.abc import Collection, Sequence
from mmap import mmap

import numpy as np
from numpy.typing import NDArray

_Buffer = bytes | bytearray | memoryview | mmap

SCANNED: dict[str | None, int]
MOST_IN_SEQUENCE: int

Stage = tuple[int, bool, bytes, bytes, bytes, bytes, bytes]

class OwnScanner(int):
    def __del__(self) -> None: ...

def register_splitter(stages: Sequence[Stage]) -> OwnScanner: ...
def register_joins(tokens: Collection[bytes], every_space: bool) -> OwnScanner: ...
def categories() -> bytes: ...
def boundaries(
    text: _Buffer, pattern: str | int | None = "gpt2", *, level: str | None = None
) -> NDArray[np.uint64]: ...
def split(text: _Buffer, pattern: str | int | None = "gpt2", *, level: str | None = None) -> list[bytes]: ...
def cut(text: _Buffer, at: int, pattern: str | int | None = "gpt2") -> int: ...
