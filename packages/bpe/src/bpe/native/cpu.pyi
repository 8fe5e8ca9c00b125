from typing import Literal

Level = Literal["portable", "avx2", "avx512"]

LEVELS: tuple[Level, ...]
AVAILABLE: tuple[Level, ...]

def level() -> Level: ...
def available() -> tuple[Level, ...]: ...
