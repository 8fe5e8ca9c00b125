from bpe.scanning.special_tokens import SpecialTokens

class Blocks:
    def __init__(self, text: object, special: SpecialTokens, scanner: int, block: int) -> None: ...
