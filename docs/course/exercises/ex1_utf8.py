"""Exercises of chapter 1: text and Unicode. Fill in the bodies, then run `python grade.py 1`."""


def encode_utf8(text: str) -> bytes:
    """The UTF-8 bytes of a text, without str.encode.

    A code point below 0x80 is one byte, below 0x800 two, below 0x10000 three, and four beyond. `ord` gives the code
    point of a character.
    """


def decode_utf8(data: bytes) -> str:
    """The text of well-formed UTF-8 bytes, without bytes.decode. `chr` gives the character of a code point."""


def is_whole(data: bytes) -> bool:
    """True if these bytes, a piece of some well-formed UTF-8, begin and end between two characters."""
