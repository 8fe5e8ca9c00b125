from collections.abc import Iterable, Sequence
from mmap import mmap
from typing import Self

import numpy as np
from numpy.typing import NDArray

from bpe.encoding.ranks import Ranks
from bpe.scanning.special_tokens import Rules

_Buffer = bytes | bytearray | memoryview | mmap
_Text = str | _Buffer

class Encoder:
    cache_bytes: int
    def __new__(
        cls,
        *,
        ranks: Ranks,
        ids: NDArray[np.uint32] | memoryview,
        scanner: int,
        cache_bytes: int,
        cuts: bool = True,
        space: str = "never",
        stands_for: dict[int, tuple[int, ...]] | None = None,
        added_ids: Sequence[int] = (),
    ) -> Self: ...
    def encode_array(self, text: _Text, rules: Rules, begins: bool = True) -> NDArray[np.uint32]: ...
    def encode_pieces(self, pieces: Iterable[_Buffer]) -> NDArray[np.uint32]: ...

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
        continued: Iterable[bool] = (),
    ) -> Self: ...
    def work(self) -> None: ...
    def arrays(self) -> list[NDArray[np.uint32] | None]: ...
    def lists(self) -> list[list[int] | None]: ...
    def joined(self) -> tuple[NDArray[np.uint32], NDArray[np.int64]]: ...
