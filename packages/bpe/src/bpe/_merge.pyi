from collections.abc import Iterator

from bpe._intern import PretokenCounts

class Merger:
    def __init__(
        self,
        counts: PretokenCounts,
        *,
        alphabet: bytes,
        by_bytes: bool,
        min_count: int,
        max_token_bytes: int,
        floor: int,
    ) -> None: ...
    def merges(self) -> Iterator[tuple[int, int, int]]: ...
