"""Speculative decoding by n-gram lookup: guesses of the next tokens from what the text holds already."""

from __future__ import annotations

NGRAM = 3  # tokens by which an earlier place of a text is found
LONGEST_PAUSE = 31  # chances


class Drafts:
    """Guesses what follows a text: what followed the last earlier place that ends in the same NGRAM tokens.

    (Saxena 2023, github.com/apoorvumang/prompt-lookup-decoding) A model computes the logits after several guesses
    at little more than the price of one token, where that price is reading its weights. Guesses that agree with the
    tokens chosen by these logits are tokens gained, and the first that does not ends them; so the text is the same.
    After a guess that was wrong some chances are left out, twice as many each time until one is right.

    Args:
        most: How many tokens are guessed at most.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.pause, self.waits = 0, 0  # chances that are left out after a wrong guess; those still to leave out
        self.tokens = list[int]()
        self.places = dict[tuple[int, ...], int]()  # n-grams, and where what followed them begins

    def append(self, token: int) -> None:
        """Takes the next token of the text."""
        if len(self.tokens) >= NGRAM:  # what ends the text now has something after it
            self.places[tuple(self.tokens[-NGRAM:])] = len(self.tokens)
        self.tokens.append(token)

    def guess(self, most: int) -> list[int]:
        """What may follow, at most so many tokens; none where nothing is known."""
        place = self.places.get(tuple(self.tokens[-NGRAM:]))
        if place is None:
            return []
        if self.waits:
            self.waits -= 1
            return []
        wanted = min(self.most, most)
        known = self.tokens[place : place + wanted]
        return (known * wanted)[:wanted]  # where the text ends before: what goes round goes round again

    def learn(self, guessed: int, right: int) -> None:
        """Takes in how many of the tokens that were guessed were right."""
        if guessed:
            self.pause = 0 if right else min(2 * self.pause + 1, LONGEST_PAUSE)
            self.waits = self.pause
