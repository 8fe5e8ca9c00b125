from collections.abc import Iterable, Iterator
from mmap import mmap
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from bpe._intern import PretokenCounts

Records = NDArray[np.uint8] | bytes | memoryview | mmap

def pack(counts: PretokenCounts, *, in_order: bool = False) -> NDArray[np.uint8]: ...
def items(records: Records) -> Iterator[tuple[bytes, int]]: ...
def counts_of(records: Records) -> NDArray[np.uint64]: ...
def merged(files: Iterable[BinaryIO]) -> Iterator[bytes]: ...
