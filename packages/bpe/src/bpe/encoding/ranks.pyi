from collections.abc import Mapping, Sequence
from typing import Any, Self

from numpy.typing import NDArray

class Ranks:
    symbols: int
    all_bytes: bool
    def __new__(
        cls,
        *,
        symbols: Sequence[bytes] = (),
        merges: NDArray[Any] | None = None,
        ignore_merges: bool = False,
        aliases: Mapping[int, int] | None = None,
        parts: Mapping[str, bytes | memoryview] | None = None,
        drops_bytes: bool = False,
    ) -> Self: ...
    def parts(self) -> dict[str, bytes]: ...
