from collections.abc import Collection
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from bpe.encoding.encoder import Encoder
from bpe.scanning.special_tokens import Rules

_Text = str | bytes | bytearray | memoryview
_Special = Literal["all"] | Collection[str]

NONE: frozenset[str]

class Calls:
    def _set_rules(self, strict: Rules, ordinary: Rules) -> None: ...
    def _set_encoder(self, encoder: Encoder) -> None: ...
    def encode(
        self, text: _Text, *, allowed_special: _Special = ..., disallowed_special: _Special = "all"
    ) -> list[int]: ...
    def encode_ordinary(self, text: _Text) -> list[int]: ...
    def encode_to_numpy(
        self, text: _Text, *, allowed_special: _Special = ..., disallowed_special: _Special = "all"
    ) -> NDArray[np.uint32]: ...
