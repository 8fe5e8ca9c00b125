from collections.abc import Sequence
from typing import Any, Self

from numpy.typing import NDArray

class Ranks:
    symbols: int
    def __new__(
        cls, *, symbols: Sequence[bytes], merges: NDArray[Any] | None, ignore_merges: bool, level: str | None = None
    ) -> Self: ...
