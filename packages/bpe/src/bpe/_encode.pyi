from collections.abc import Iterable, Sequence
from mmap import mmap
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bpe._rank import Ranks
from bpe._special import SpecialTokens

_Buffer = bytes | bytearray | memoryview | mmap

class Encoder:
    cache_bytes: int
    def __init__(self, *, ranks: Ranks, ids: Sequence[int] | NDArray[Any], scanner: int, cache_bytes: int) -> None: ...
    def encode(self, text: _Buffer, special: SpecialTokens) -> list[int]: ...
    def encode_array(self, text: _Buffer, special: SpecialTokens) -> NDArray[np.uint32]: ...
    def encode_pieces(self, pieces: Iterable[_Buffer]) -> NDArray[np.uint32]: ...
