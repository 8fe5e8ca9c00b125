"""Several arrays of ids as one, memory-mapped as they lie, however many and however large."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Protocol, overload

import numpy as np
from numpy.typing import NDArray


class Ids(Protocol):
    """Token ids in a row: a flat array, or Shards."""

    def __len__(self) -> int: ...

    @overload
    def __getitem__(self, index: int) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> NDArray[Any]: ...


class Shards:
    """Flat arrays of one dtype, one after the other. A slice is a view where it lies in one of them, else a copy."""

    def __init__(self, parts: Sequence[NDArray[Any]]) -> None:
        self.parts = list(parts)
        if not self.parts:
            raise ValueError("there are no shards: give at least one array of ids")
        self.starts = list(accumulate((len(part) for part in self.parts), initial=0))
        self.dtype = np.result_type(*self.parts)

    def __len__(self) -> int:
        return self.starts[-1]

    def __getitem__(self, index: int | slice) -> Any:
        if not isinstance(index, slice):
            place = index + len(self) if index < 0 else index
            if not 0 <= place < len(self):
                raise IndexError(f"position {index} is outside the {len(self)} ids")
            shard = bisect_right(self.starts, place) - 1
            return self.parts[shard][place - self.starts[shard]]
        begin, end, stride = index.indices(len(self))
        if stride != 1:
            raise ValueError(f"ids are cut in one piece, and a stride of {stride} is not: slice without one")
        if end <= begin:
            return np.empty(0, self.dtype)
        shard = bisect_right(self.starts, begin) - 1
        pieces = []
        while begin < end:
            stop = min(end, self.starts[shard + 1])
            pieces.append(self.parts[shard][begin - self.starts[shard] : stop - self.starts[shard]])
            begin, shard = stop, shard + 1
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
