from collections.abc import Iterable
from mmap import mmap

_Buffer = bytes | bytearray | memoryview | mmap

class SpecialTokens:
    names: tuple[bytes, ...]
    ids: tuple[int, ...]
    longest: int
    def __init__(self, names: Iterable[str | bytes] = (), ids: Iterable[int] | None = None) -> None: ...
    def __len__(self) -> int: ...
    def search(self, text: _Buffer) -> bytes | None: ...
    def split(self, text: _Buffer) -> list[tuple[bytes, int]]: ...

class Rules:
    recognised: SpecialTokens
    refused: SpecialTokens
    all: SpecialTokens
    def __init__(self, recognised: SpecialTokens, refused: SpecialTokens) -> None: ...
