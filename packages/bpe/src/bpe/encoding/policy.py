"""The special tokens that a call recognises in a text, and those it refuses: tiktoken's rules.

A special token of neither set is ordinary text. Added tokens of a tokenizer.json are always recognised.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal, TypeVar

from bpe.scanning.special_tokens import Rules, SpecialTokens

Special = Literal["all"] | Collection[str]
Key = TypeVar("Key")
Value = TypeVar("Value")

KEPT = 256  # sets of special tokens that are kept for the next call


class Policy:
    """The special tokens, {name: id}, that a call may allow or refuse, and added ones that are always recognised."""

    def __init__(self, special: Mapping[str, int], added: Mapping[str, int]) -> None:
        self._special, self._added = special, added
        self._names = frozenset(special)
        self._recognised: dict[frozenset[str], SpecialTokens] = {}
        self._rules: dict[tuple[SpecialTokens, frozenset[str]], Rules] = {}

    def recognised(self, allowed: Special) -> SpecialTokens:
        """The special tokens to recognise: all of them, or the named ones; names of no token are ignored."""
        if isinstance(allowed, str) and allowed != "all":
            raise TypeError(f"special tokens are 'all' or a set of names, not the str {allowed!r}")
        names = self._names if isinstance(allowed, str) else frozenset(allowed)
        tokens = self._recognised.get(names)
        if tokens is None:
            _check(names)
            ids = {**self._added} | {name: number for name, number in self._special.items() if name in names}
            tokens = SpecialTokens(ids, ids.values())
            keep(self._recognised, names, tokens)
        return tokens

    def rules(self, allowed: Special, disallowed: Special) -> Rules:
        """Return the rules of a call with these arguments; "all" of `disallowed` are all that are not allowed."""
        recognised = self.recognised(allowed)
        if isinstance(disallowed, str) and disallowed == "all":
            refused = frozenset() if isinstance(allowed, str) else self._names.difference(allowed)
        else:
            refused = frozenset(disallowed or ())  # of a str its characters, as in tiktoken
        rules = self._rules.get((recognised, refused))
        if rules is None:
            _check(refused)
            rules = Rules(recognised, SpecialTokens(sorted(refused)))
            keep(self._rules, (recognised, refused), rules)
        return rules


def _check(names: frozenset[str]) -> None:
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"the name of a special token is a str, not {name!r}")


def keep(cache: dict[Key, Value], key: Key, value: Value) -> None:
    """Put a value into a cache of bounded size, which is cleared when it is full."""
    if len(cache) >= KEPT:
        cache.clear()  # a caller that makes up names for every call would fill it for ever
    cache[key] = value
