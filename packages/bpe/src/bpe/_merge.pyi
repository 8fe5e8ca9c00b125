from collections.abc import Iterator

from bpe._records import Records

class Merger:
    def __init__(
        self,
        records: Records,
        *,
        tokens: list[bytes],
        spelled: bool = False,
        by_bytes: bool,
        most: int,
        min_count: int,
        max_token_bytes: int,
        floor: int,
    ) -> None: ...
    def apply(self, left: int, right: int) -> int: ...
    def merges(self) -> Iterator[tuple[int, int, int]]: ...
