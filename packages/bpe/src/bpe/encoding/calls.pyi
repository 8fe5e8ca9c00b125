from collections.abc import Collection
from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray

from bpe.encoding.text_encoder import TextEncoder

_Text = str | bytes | bytearray | memoryview
_Special = Literal["all"] | Collection[str]

NONE: frozenset[str]

class Calls:
    def __new__(cls, texts: TextEncoder) -> Self: ...
    def encode(
        self, text: _Text, *, allowed_special: _Special = ..., disallowed_special: _Special = "all"
    ) -> list[int]: ...
    def encode_ordinary(self, text: _Text) -> list[int]: ...
    def encode_to_numpy(
        self, text: _Text, *, allowed_special: _Special = ..., disallowed_special: _Special = "all"
    ) -> NDArray[np.uint32]: ...
    def count_tokens(
        self, text: _Text, *, allowed_special: _Special = ..., disallowed_special: _Special = "all"
    ) -> int: ...
