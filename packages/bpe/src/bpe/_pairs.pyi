from typing import Any

import numpy as np
from numpy.typing import NDArray

def pairs_of_ranks(symbols: list[bytes], ranks: NDArray[np.uint32]) -> NDArray[Any]: ...
def pairs_of_merges(symbols: list[bytes], merges: list[tuple[bytes, bytes]]) -> NDArray[Any]: ...
