from typing import Self

from bpe.counting.records import Records

class Merger:
    def __new__(
        cls,
        records: Records,
        *,
        tokens: list[bytes],
        spelled: bool = False,
        by_bytes: bool,
        most: int,
        min_count: int,
        max_token_bytes: int,
        floor: int,
        consume: bool = False,
        max_words: int = 0,
        memory_limit: int = 0,
    ) -> Self: ...
    def advance(self, merges: int) -> int: ...
    def result(self) -> tuple[list[bytes], bytearray]: ...
    @property
    def visited(self) -> int: ...
