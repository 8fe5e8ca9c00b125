from collections.abc import Collection
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bpe.encoding.text_encoder import TextEncoder

_Text = str | bytes | bytearray | memoryview
_Special = Literal["all"] | Collection[str]

NONE: frozenset[str]

class EncodeMethods:
    @property
    def _text_encoder(self) -> TextEncoder: ...
    def _use(self, text_encoder: TextEncoder) -> None: ...
    def _count(self, text: _Text, allowed: _Special, disallowed: _Special) -> int: ...
    def encode(
        self, text: _Text, *, allowed_special: _Special = ..., disallowed_special: _Special = "all"
    ) -> list[int]: ...
    def encode_ordinary(self, text: _Text) -> list[int]: ...
    def encode_to_numpy(
        self, text: _Text, *, allowed_special: _Special = ..., disallowed_special: _Special = "all"
    ) -> NDArray[np.uint32]: ...
