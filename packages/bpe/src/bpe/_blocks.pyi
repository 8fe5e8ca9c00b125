from bpe._special import SpecialTokens

class Blocks:
    def __init__(self, text: object, special: SpecialTokens, scanner: int, block: int) -> None: ...
