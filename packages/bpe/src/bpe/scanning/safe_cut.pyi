from mmap import mmap

from bpe.scanning.special_tokens import SpecialTokens

_Buffer = bytes | bytearray | memoryview | mmap

def safe_cut(text: _Buffer, at: int, scanner: int, special: SpecialTokens) -> int: ...
