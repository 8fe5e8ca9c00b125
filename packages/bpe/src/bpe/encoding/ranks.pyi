from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

MOST_SYMBOLS: int
MOST_MERGES: int
MOST_BYTES: int

class Ranks:
    symbols: int
    def __init__(
        self, *, symbols: Sequence[bytes], merges: NDArray[Any] | None, ignore_merges: bool, level: str | None = None
    ) -> None: ...
