"""Answers of a given form: tokens that a JSON schema or a grammar does not allow are masked, by llguidance."""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from lm.extras import need
from lm.generation.sampling import NoToken

MOST = 1 << 16  # characters of a schema
READERS = {"schema": "grammar_from_json_schema", "grammar": "grammar_from_lark", "expression": "grammar_from_regex"}
# Read by llguidance beside a schema: JSON is written as json.dumps and templates write it.
SPACES = {"x-guidance": {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}}


class Grammars:
    """Makes constraints for a tokenizer's tokens. stop_tokens end an answer: they are allowed where it is complete."""

    def __init__(self, tokenizer: Any, vocab_size: int, stop_tokens: Sequence[int]) -> None:
        self.tokenizer, self.vocab_size, self.stops = tokenizer, vocab_size, list(stop_tokens)
        self.lock = threading.Lock()

    @functools.cached_property
    def tokens(self) -> Any:
        """The tokens, as llguidance knows them."""
        import llguidance

        return llguidance.LLTokenizer(llguidance.TokenizerWrapper(Tokens(self)))

    def grammar(self, kind: str, text: str, param: str) -> Grammar:
        """Allow what a text describes. ValueError: it is not supported, by name.

        Args:
            kind: "schema": JSON is written with the spaces of json.dumps, since a model that may write any number of
                line ends between two values may write nothing else; "expression"; or "grammar", llguidance's Lark.
            text: The schema, expression or grammar.
            param: The parameter of the request that asks for it.
        """
        matcher = need("llguidance", param, "groundup-lm[serve]").LLMatcher
        if len(text) > MOST:
            raise ValueError(f"the {kind} has {len(text):,} characters, and at most {MOST:,} may be: make it smaller")
        if not self.stops:
            raise ValueError("the model has no token that ends an answer, which an answer of a given form needs")
        if kind == "schema":
            schema = parse_json(text)
            if not isinstance(schema, dict):
                raise ValueError("the schema is not a JSON object")
            text = json.dumps({**SPACES, **schema})
        try:
            grammar = getattr(matcher, READERS[kind])(text)
        except ValueError as error:
            raise ValueError(f"the {kind} is not understood: {first_line(error)}") from None
        with self.lock:
            tokens = self.tokens
        if wrong := matcher.validate_grammar(grammar, tokens):
            raise ValueError(f"the {kind} is not supported: {first_line(wrong)}")
        constraint = Grammar(matcher(tokens, grammar), self.stops)
        try:
            constraint.allowed(self.vocab_size)  # a schema that refers to nothing but itself allows no token
        except NoToken as error:
            raise ValueError(f"the {kind} allows no answer: {error}") from None
        return constraint


class Minimum:
    """A Constraint by which no token of `stops` comes before `tokens` others."""

    def __init__(self, tokens: int, stops: Sequence[int]) -> None:
        self.remaining, self.stops = tokens, list(stops)

    def allow(self, logits: Tensor) -> Tensor:
        if self.remaining <= 0:
            return logits
        if len(set(self.stops)) >= len(logits):
            raise NoToken("no token can be chosen: every token ends the text, which min_tokens forbids")
        return logits.index_fill(0, torch.tensor(self.stops, dtype=torch.int64, device=logits.device), -torch.inf)

    def take(self, token: int) -> bool:
        self.remaining -= 1
        return False


class Tokens:
    """A tokenizer for llguidance."""

    bos_token_id = None

    def __init__(self, grammars: Grammars) -> None:
        tokenizer = grammars.tokenizer
        self.tokens = [token_bytes(tokenizer, number) for number in range(grammars.vocab_size)]
        for name, number in tokenizer.special_tokens.items():
            self.tokens[number] = b"\xff" + name.encode()
        self.special_token_ids = list(map(int, tokenizer.special_tokens.values()))
        self.eos_token_id, self.encode = grammars.stops[0], tokenizer.encode

    def __call__(self, text: str) -> list[int]:
        return [int(number) for number in self.encode(text)]


class Grammar:
    """A Constraint by a grammar."""

    def __init__(self, matcher: Any, stops: Sequence[int]) -> None:
        self.matcher, self.stops = matcher, list(stops)

    def copy(self) -> Grammar:
        """A constraint for another text, from where this one stands."""
        return Grammar(self.matcher.deep_copy(), self.stops)

    def allowed(self, vocab_size: int) -> np.ndarray:
        """True for each token that may follow, (vocab_size,). NoToken: none may."""
        bits = np.unpackbits(np.frombuffer(self.matcher.compute_bitmask(), dtype=np.uint8), bitorder="little")
        allowed = np.zeros(vocab_size, dtype=bool)
        if not self.matcher.is_error():
            allowed[: len(bits)] = bits[:vocab_size]
            allowed[self.stops] = self.matcher.is_accepting()
        if not allowed.any():
            raise self.error()
        return allowed

    def allow(self, logits: Tensor) -> Tensor:
        mask = torch.from_numpy(~self.allowed(len(logits)))
        return logits.masked_fill(mask.to(logits.device), -torch.inf)

    def take(self, token: int) -> bool:
        self.matcher.consume_token(token)
        if self.matcher.is_error():
            raise self.error()
        return bool(self.matcher.is_stopped())

    def error(self) -> NoToken:
        reason = f": {first_line(self.matcher.get_error())}" if self.matcher.is_error() else ""
        return NoToken(f"no token of the requested form can follow{reason}")


def token_bytes(tokenizer: Any, token: int) -> bytes:
    """The bytes of a token; none for an id that the tokenizer does not have."""
    try:
        return bytes(tokenizer.decode_single_token_bytes(token))
    except KeyError:
        return b""


def parse_json(text: str) -> Any:
    """The value of a text that is JSON, else None."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def first_line(error: object) -> str:
    return (str(error).strip().splitlines() or ["no reason given"])[0][:300]
