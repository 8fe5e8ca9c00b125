from typing import Any

from numpy.typing import NDArray

def pairs_of_merges(symbols: list[bytes], merges: list[tuple[bytes, bytes]]) -> NDArray[Any]: ...
