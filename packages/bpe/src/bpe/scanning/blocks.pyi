from typing import Self

from bpe.scanning.special_tokens import SpecialTokens

class Blocks:
    def __new__(cls, text: object, special: SpecialTokens, scanner: int, block: int) -> Self: ...
