"""GPT-2's pattern by a search: in a browser the scanners of bpe.patterns are not compiled."""

import regex

SplitPattern = str
PATTERNS = {"gpt2": r"""'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"""}


def resolve(pattern: str) -> str:
    """Return the regular expression of a name."""
    return PATTERNS[pattern]


def split(text: bytes, pattern: str) -> list[bytes]:
    """Return the pretokens of a text."""
    return [piece.encode() for piece in regex.findall(pattern, text.decode())]
