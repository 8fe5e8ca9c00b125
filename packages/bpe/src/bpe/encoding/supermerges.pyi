from collections.abc import Sequence
from typing import Self

class Supermerges:
    def __new__(cls, rows: Sequence[tuple[int, int, int]], scanner: int) -> Self: ...
    @property
    def scanner(self) -> int: ...
