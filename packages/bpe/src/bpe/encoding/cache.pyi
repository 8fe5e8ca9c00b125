from typing import Self

class Cache:
    def __new__(cls, slots: int) -> Self: ...
