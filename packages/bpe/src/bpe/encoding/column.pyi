from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bpe.encoding.encoder import Encoder
from bpe.scanning.special_tokens import Rules

class Column:
    size: int
    long: list[int]
    refused: int
    def __new__(
        cls,
        encoder: Encoder,
        data: Any,
        begins: NDArray[np.int64],
        sizes: NDArray[np.int64],
        rules: Rules,
        *,
        threads: int = 1,
        longest: int = ...,
    ) -> Self: ...
    def work(self) -> None: ...
    def set_count(self, row: int, count: int) -> None: ...
    def ends(self, ends: NDArray[np.int64]) -> None: ...
    def join(self, ends: NDArray[np.int64], ids: NDArray[np.uint32]) -> None: ...
