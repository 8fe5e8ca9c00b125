"""Pre-tokenizers: text to pretokens, whose pairs are merged."""

from bpe.native.printable import PRINTABLE
from bpe.trainers._component import components

_ByteLevel, Split, Digits, Punctuation, Whitespace, WhitespaceSplit, CharDelimiterSplit, _ = components(
    *("pretokenizers", "ByteLevel", "Split", "Digits", "Punctuation", "Whitespace", "WhitespaceSplit"),
    "CharDelimiterSplit",
)
BertPreTokenizer, UnicodeScripts, Metaspace, Sequence = components(
    "pretokenizers", "BertPreTokenizer", "UnicodeScripts", "Metaspace"
)


class ByteLevel(_ByteLevel):  # type: ignore[misc, valid-type]
    """tokenizers' ByteLevel: GPT-2's pattern, and a printable character for each byte."""

    @staticmethod
    def alphabet() -> list[str]:
        """Return the 256 characters that stand for bytes."""
        return list(PRINTABLE)
