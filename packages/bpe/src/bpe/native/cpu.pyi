from typing import Literal

Level = Literal["portable", "avx2", "avx512", "neon"]

LEVELS: tuple[Level, ...]
AVAILABLE: tuple[Level, ...]

def level() -> Level: ...
