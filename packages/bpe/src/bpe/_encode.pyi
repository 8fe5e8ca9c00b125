from collections.abc import Iterable, Sequence
from mmap import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bpe._special import SpecialTokens

_Buffer = bytes | bytearray | memoryview | mmap

class Encoder:
    def __init__(
        self,
        *,
        symbols: Sequence[bytes],
        ids: Sequence[int] | NDArray[Any],
        merges: NDArray[Any],
        ranks: NDArray[Any],
        whole_first: bool,
        scanner: int,
        cache_bytes: int,
    ) -> None: ...
    def encode(self, text: _Buffer, special: SpecialTokens) -> list[int]: ...
    def encode_array(self, text: _Buffer, special: SpecialTokens) -> NDArray[np.uint32]: ...
    def encode_pieces(self, pieces: Iterable[_Buffer]) -> NDArray[np.uint32]: ...
    @property
    def cache_bytes(self) -> int: ...
