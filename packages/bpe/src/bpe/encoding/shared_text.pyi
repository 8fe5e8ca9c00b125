from mmap import mmap
from typing import Self

import numpy as np
from numpy.typing import NDArray

from bpe.encoding.encoder import Encoder
from bpe.scanning.special_tokens import Rules

_Text = str | bytes | bytearray | memoryview | mmap

class SharedText:
    def __new__(cls, encoder: Encoder, text: _Text, rules: Rules, *, threads: int = 1, block: int = ...) -> Self: ...
    def work(self) -> None: ...
    def array(self) -> NDArray[np.uint32]: ...
    def list(self) -> list[int]: ...
