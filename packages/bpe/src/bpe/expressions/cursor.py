"""A place in the text of an expression, from which the parser reads on."""

from __future__ import annotations

from typing import Literal, NoReturn

Language = Literal["regex", "oniguruma", "fancy-regex"]


class Refused(ValueError):
    """An expression that is wrong, or uses a construct that is not read here."""


class Cursor:
    """text: of the expression, in the language. at: the number of its characters that have been read."""

    def __init__(self, text: str, language: Language) -> None:
        self.text, self.at = text, 0
        self.oniguruma = language == "oniguruma"

    def refuse(self, what: str) -> NoReturn:
        raise Refused(f"{what}, at character {self.at}")

    def peek(self, size: int = 1) -> str:
        return self.text[self.at : self.at + size]

    def take(self, text: str) -> bool:
        if self.text.startswith(text, self.at):
            self.at += len(text)
            return True
        return False

    def until(self, end: str, what: str) -> str:
        close = self.text.find(end, self.at)
        if close < 0:
            self.refuse(f"{what} without its {end}")
        text, self.at = self.text[self.at : close], close + len(end)
        return text
