"""The step UnicodeScripts of tokenizer.json: runs of one script, by the table of tokenizers' own.

Hiragana, Katakana and Han are one script there. A space, and what the table has no script for, goes with what stands
before it; at the beginning of a text it is dropped.
"""

from __future__ import annotations

import functools
import re

from bpe.expressions.properties import parse_ranges

_NONE = 0
_RUN = re.compile(rf"([^\x{_NONE:02x}])(?:\1|\x{_NONE:02x})*")


def runs(text: str) -> list[str]:
    """The runs of a text, in order."""
    return [text[match.start() : match.end()] for match in _RUN.finditer(text.translate(_script_of()))]


@functools.cache
def _script_of() -> bytes:
    """The number of the script of every character."""
    from bpe.expressions import unicode_sets

    numbers = bytearray([_NONE]) * 0x110000
    for number, ranges in enumerate(unicode_sets.STEP_SCRIPTS.split("/"), _NONE + 1):
        for first, last in parse_ranges(ranges):
            numbers[first : last + 1] = bytes([number]) * (last + 1 - first)
    return bytes(numbers)
