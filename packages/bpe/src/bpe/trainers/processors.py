"""Post-processors: special tokens around an encoded text."""

from __future__ import annotations

from typing import Any

from bpe.trainers._component import Component, components

ByteLevel, BertProcessing, RobertaProcessing, Sequence = components(
    "processors", "ByteLevel", "BertProcessing", "RobertaProcessing"
)


class TemplateProcessing(Component):
    """tokenizers' TemplateProcessing: "[CLS] $A [SEP]" for one text and for two, and the ids of the special tokens."""

    kind = "TemplateProcessing"

    def __init__(
        self,
        single: str | list[str] | None = None,
        pair: str | list[str] | None = None,
        special_tokens: list[tuple[str, int]] | None = None,
    ) -> None:
        tokens = {name: {"id": name, "ids": [number], "tokens": [name]} for name, number in special_tokens or ()}
        self.options = {
            "single": _pieces(single if single is not None else "$0"),
            "pair": _pieces(pair if pair is not None else "$A:0 $B:1"),
            "special_tokens": tokens,
        }


def _pieces(template: str | list[str]) -> list[dict[str, Any]]:
    pieces: list[dict[str, Any]] = []
    for piece in template.split() if isinstance(template, str) else template:
        name, _, number = piece.rpartition(":") if piece.rpartition(":")[2].isdecimal() else (piece, "", "")
        kind, text = "SpecialToken", name[1:].upper()
        if name.startswith("$"):  # "$1" is the first text with this type
            kind, name = "Sequence", text if text in ("A", "B") else "A"
            number = number if text in ("", "A", "B") else text
        pieces.append({kind: {"id": name, "type_id": int(number or 0)}})
    return pieces
