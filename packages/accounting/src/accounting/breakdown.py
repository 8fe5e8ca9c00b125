"""What every question is answered with: named components, exact, with their sum, convention and formulas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from accounting.formula import Term, constant
from accounting.units import Count

SYMBOLS = {
    "B": "sequences in a batch",
    "T": "positions of a sequence",
    "S": "positions already in the cache, the new one included",
    "V": "rows of the vocabulary, padding included",
    "U": "rows of the vocabulary without padding",
    "C": "longest sequence the learned positions reach",
    "L": "layers",
    "Lw": "layers with a window",
    "d": "width of the model",
    "h": "query heads",
    "k": "key and value heads",
    "e": "width of a head",
    "f": "width of the feed-forward layer, of one expert where there are several",
    "E": "experts in a layer",
    "A": "experts a token passes through",
    "W": "positions a window shows, the query's own included",
    "N": "parameters, of Muon's AdamW those that are not M",
    "O": "parameters of the embedding, the learned positions and the head",
    "P": "parameters of one block, its norms not among them",
    "X": "numbers in the matrices of one block",
    "Y": "tensors that the parameters are",
    "F": "parameters of one block's feed-forward layer",
    "Q": "parameters of one block's attention",
    "J": "scores that one head keeps of a block of queries",
    "K": "rows of logits alive at once in the chunked loss",
    "a": "bytes of a number that the products read and give",
    "r": "bytes of a number in the residual stream",
    "p": "bytes of a number in the weights and their gradients",
    "w": "devices that share the work by data",
    "t": "devices that share a layer",
    "s": "parameters that every device of a layer holds",
    "i": "other micro-batches in flight",
    "u": "micro-batches of a step",
    "left": "what is left for the last shard",
    "new": "bytes of the newest gradient",
    "m": "rows of the largest matrix, its smaller side",
    "n": "columns of the largest matrix",
    "Z": "numbers of the largest tensor",
    "G": "numbers in tensors large enough for 8 bits",
    "H": "their blocks of 256",
    "M": "numbers in the matrices of the blocks",
    "R": "numbers anywhere else",
}


@dataclass(frozen=True)
class Breakdown(Mapping[str, Count]):
    """A sum by parts: `breakdown["head"]`, `breakdown.total`, `for name, value in breakdown.items()`, `int(breakdown)`.

    Every component is a quantity of `unit` and equals a plain int. `convention` says in words what was counted and what
    was not; `formula` gives each component in the letters of SYMBOLS, `explain()` the same with the numbers put in.
    """

    title: str
    unit: type[Count]
    terms: tuple[tuple[str, Term], ...]
    convention: str

    @property
    def total(self) -> Count:
        return self.unit(sum(int(term) for _, term in self.terms))

    @property
    def formula(self) -> dict[str, str]:
        return {name: term.text() for name, term in self.terms}

    def explain(self) -> dict[str, str]:
        return {name: term.text(values=True) for name, term in self.terms}

    def share(self, name: str) -> float:
        """The part of the total that a component is, between 0 and 1."""
        return int(self[name]) / int(self.total) if self.total else 0.0

    def __getitem__(self, name: str) -> Count:
        for candidate, term in self.terms:
            if candidate == name:
                return self.unit(int(term))
        raise KeyError(f"{name!r} is not a component of {self.title}; it has {', '.join(self)}")

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self.terms)

    def __len__(self) -> int:
        return len(self.terms)

    def __int__(self) -> int:
        return int(self.total)


def breakdown(title: str, unit: type[Count], terms: Mapping[str, int], convention: str) -> Breakdown:
    """A Breakdown of these terms, in this order."""
    return Breakdown(title, unit, tuple((name, constant(term)) for name, term in terms.items()), convention)
