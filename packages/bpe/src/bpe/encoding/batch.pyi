from collections.abc import Iterable
from mmap import mmap
from typing import Self

import numpy as np
from numpy.typing import NDArray

from bpe.encoding.encoder import Encoder
from bpe.scanning.special_tokens import Rules

_Text = str | bytes | bytearray | memoryview | mmap

class Batch:
    size: int
    threads: int
    failures: dict[int, ValueError]
    def __new__(
        cls,
        encoder: Encoder,
        texts: Iterable[_Text] | memoryview,
        rules: Rules,
        *,
        threads: int = 1,
        thread_text: int = 1,
        longest: int = ...,
        block: int = ...,
        begins: NDArray[np.int64] | None = None,
        sizes: NDArray[np.int64] | None = None,
    ) -> Self: ...
    def work(self) -> None: ...
    def arrays(self) -> list[NDArray[np.uint32] | None]: ...
    def lists(self) -> list[list[int] | None]: ...
    def joined(self) -> tuple[NDArray[np.uint32], NDArray[np.int64]]: ...
