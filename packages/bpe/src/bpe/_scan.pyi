from mmap import mmap

import numpy as np
from numpy.typing import NDArray

from bpe.patterns import Pattern

_Buffer = bytes | bytearray | memoryview | mmap

SCANNED: dict[str | None, int]
VECTORS: str

def scanner_of(pattern: Pattern) -> int: ...
def boundaries(text: _Buffer, pattern: str | None = "gpt2", *, portable: bool = False) -> NDArray[np.uint64]: ...
def split(text: _Buffer, pattern: str | None = "gpt2", *, portable: bool = False) -> list[bytes]: ...
def cut(text: _Buffer, at: int, pattern: str | None = "gpt2") -> int: ...
def scan_only(text: _Buffer, pattern: str | None = "gpt2", *, portable: bool = False) -> int: ...
