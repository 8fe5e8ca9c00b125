"""Pre-tokenizers: text to the pretokens within which pairs are merged."""

from __future__ import annotations

from bpe.native.printable import PRINTABLE
from bpe.trainers._component import REQUIRED, Component, component, sequence


class ByteLevel(Component):
    """tokenizers' ByteLevel: GPT-2's pattern, and a printable character for each byte."""

    kind = "ByteLevel"

    def __init__(self, add_prefix_space: bool = True, use_regex: bool = True, trim_offsets: bool = True) -> None:
        self.options = {"add_prefix_space": add_prefix_space, "trim_offsets": trim_offsets, "use_regex": use_regex}

    @staticmethod
    def alphabet() -> list[str]:
        """Return the 256 characters that stand for bytes."""
        return list(PRINTABLE)


Split = component("Split", pattern=REQUIRED, behavior=REQUIRED, invert=False)
Digits = component("Digits", individual_digits=False)
Punctuation = component("Punctuation", behavior="isolated")
Whitespace = component("Whitespace")
WhitespaceSplit = component("WhitespaceSplit")
CharDelimiterSplit = component("CharDelimiterSplit", delimiter=REQUIRED)
BertPreTokenizer = component("BertPreTokenizer")
UnicodeScripts = component("UnicodeScripts")
Metaspace = component("Metaspace", replacement="▁", prepend_scheme="always", split=True)
Sequence = sequence("pretokenizers")
