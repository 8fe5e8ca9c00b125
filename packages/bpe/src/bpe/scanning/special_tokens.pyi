from collections.abc import Iterable
from mmap import mmap
from typing import Self

_Buffer = bytes | bytearray | memoryview | mmap

class SpecialTokens:
    names: tuple[bytes, ...]
    ids: tuple[int, ...]
    longest: int
    def __new__(cls, names: Iterable[str | bytes] = (), ids: Iterable[int] | None = None) -> Self: ...
    def __len__(self) -> int: ...
    def search(self, text: _Buffer) -> bytes | None: ...
    def partition(self, text: _Buffer) -> list[tuple[bytes, int]]: ...

class Rules:
    recognised: SpecialTokens
    refused: SpecialTokens
    all: SpecialTokens
    def __new__(cls, recognised: SpecialTokens, refused: SpecialTokens) -> Self: ...
    def check_text(self, text: _Buffer) -> None: ...
