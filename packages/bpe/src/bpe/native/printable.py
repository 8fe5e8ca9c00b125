"""GPT-2's printable stand-ins for bytes: those that are printable in Latin-1 stand for themselves, the others, in
order, for the characters from U+0100 on.
"""

_THEMSELVES = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
_OTHERS = [byte for byte in range(256) if byte not in _THEMSELVES]

PRINTABLE: list[str] = [chr(byte) if byte in _THEMSELVES else chr(256 + _OTHERS.index(byte)) for byte in range(256)]
"""The stand-in of each byte."""

SPACE_MARK = "▁"
"""SentencePiece's stand-in of a space."""
