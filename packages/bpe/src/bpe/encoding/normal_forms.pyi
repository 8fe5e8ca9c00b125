from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from bpe.scanning.special_tokens import SpecialTokens

_Text = bytes | bytearray | memoryview
_AnyText = TypeVar("_AnyText", bound=str | _Text)

def normalized(text: _Text, form: str) -> bytes | None: ...
def in_form(text: _AnyText, form: str, special: SpecialTokens, alone: bool = False) -> _AnyText | bytes | None: ...
def normalized_with_origins(text: _Text, form: str) -> tuple[bytes, NDArray[np.int64]] | None: ...
