from collections.abc import Iterable, Sequence
from mmap import mmap
from typing import Self

import numpy as np
from numpy.typing import NDArray

from bpe.encoding.ranks import Ranks
from bpe.scanning.special_tokens import Rules

_Buffer = bytes | bytearray | memoryview | mmap

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
    def encode_array(self, text: str | _Buffer, rules: Rules, begins: bool = True) -> NDArray[np.uint32]: ...
    def encode_pieces(self, pieces: Iterable[_Buffer]) -> NDArray[np.uint32]: ...
