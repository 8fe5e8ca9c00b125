"""The SIMD level that this process uses: the best that the processor has, or the one that BPE_SIMD names.

It is decided once, when this module is first imported. native/cpu.h says what each level consists of.
"""

import os

cdef extern from "native/cpu.h" nogil:
    int best_level()
    const char **level_names

# Names of all levels, and of those that this processor has, the lowest first.
LEVELS = ("portable", "avx2", "avx512", "neon")
AVAILABLE = tuple(level_names[_level].decode() for _level in range(best_level() + 1))


def level():
    """The name of the level that this process uses."""
    return AVAILABLE[chosen]


cdef int level_of(name) except -1:
    """The number of a level, by default of the one that this process uses. ValueError for one that is not there."""
    if name is None:
        return chosen
    if name not in AVAILABLE:
        here = f"this machine has {', '.join(AVAILABLE)}"
        if name in LEVELS:
            raise ValueError(f"the SIMD level {name!r} is not available: {here}")
        raise ValueError(f"{name!r} is not a SIMD level: {here}")
    return AVAILABLE.index(name)


cdef int decide() except -1:
    name = os.environ.get("BPE_SIMD")
    if not name:
        return len(AVAILABLE) - 1
    try:
        return level_of(name)
    except ValueError as error:
        raise ValueError(f"BPE_SIMD={name}: {error}") from None


cdef int chosen = decide()
