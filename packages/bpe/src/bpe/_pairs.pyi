from collections.abc import Iterable
from typing import Any

from numpy.typing import NDArray

def all_within(numbers: Iterable[Any], most: int) -> bool: ...
def pairs_of_merges(symbols: list[bytes], merges: list[tuple[bytes, bytes]]) -> NDArray[Any]: ...
