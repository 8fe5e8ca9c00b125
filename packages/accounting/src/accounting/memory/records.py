"""The records that memory is counted in: which tensors, of which part of the model, and what they are there for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from accounting.breakdown import Breakdown
from accounting.formula import Term, added
from accounting.units import Bytes

# How many, and the bytes of one: an allocator rounds each tensor up by itself.
Tensors = list[tuple[int, Term]]


class Component(Enum):
    """Tensors that the forward pass saves for the backward."""

    TOKEN_IDS = "token ids"
    TABLES = "tables"
    MASK = "mask"
    EMBEDDING_NORM = "embedding norm"
    NORMS = "norms"
    ATTENTION_INPUT = "attention input"
    LATENTS = "latents"
    QK_NORMS = "query and key norms"
    QK_SCALES = "query scales"
    QKV = "queries, keys, values"
    QKV_COPIES = "queries, keys, values again"
    ATTENTION_WEIGHTS = "attention weights"
    ATTENTION_OUTPUT = "attention output"
    FFN_INPUT = "ffn input"
    FFN_HIDDEN = "ffn hidden"
    SHARED_FFN_HIDDEN = "shared ffn hidden"
    ROUTER = "router"
    ADAPTERS_OF_ATTENTION = "adapters of attention"
    ADAPTERS_OF_FFN = "adapters of ffn"
    WEIGHTS_IN_BF16 = "weights in bf16"
    BLOCK_INPUTS = "block inputs"
    MATMUL_OUTPUTS = "outputs of matmuls"
    FINAL_NORM = "final norm"
    HEAD_INPUT = "head input"
    HEAD_IN_BF16 = "head in bf16"
    LOSS = "loss"


OF_FFN = frozenset(
    {
        Component.FFN_INPUT,
        Component.FFN_HIDDEN,
        Component.SHARED_FFN_HIDDEN,
        Component.ROUTER,
        Component.ADAPTERS_OF_FFN,
    }
)
MADE_ONCE = frozenset({Component.TABLES, Component.MASK})  # whatever the number of micro-batches


class Group(Enum):
    """The purpose of bytes; the value is the prefix of a component's name, if it needs one."""

    PARAMETERS = "parameters"
    GRADIENTS = "gradients"
    OPTIMIZER_STATE = "optimizer state"
    SAVED = "saved"  # for the backward
    THIS_BLOCK = "this block"  # what the block in its backward has saved or computed again
    IN_FLIGHT = "in flight"  # saved by other micro-batches
    TEMPORARY = "temporary"
    ALLOCATOR = "allocator"
    OVERHEAD = "fixed overhead"


class PhaseKind(Enum):
    """The part of a step that a phase belongs to."""

    FORWARD = "forward"
    BACKWARD = "backward"
    OPTIMIZER_STEP = "optimizer step"


@dataclass(frozen=True)
class Item:
    """Tensors that are alive together, under one name."""

    name: str
    group: Group
    tensors: Tensors

    @property
    def bytes(self) -> Term:
        return total_bytes(self.tensors)


def items(group: Group, components: Mapping[Component, Tensors]) -> list[Item]:
    """The components as Items of a group, whose name each carries before its own."""
    return [Item(f"{group.value}: {component.value}", group, tensors) for component, tensors in components.items()]


def temporary(name: str, *tensors: tuple[int, Term]) -> Item:
    """Tensors that no later phase needs."""
    return Item(name, Group.TEMPORARY, list(tensors))


def total_bytes(tensors: Iterable[tuple[int, Term]]) -> Term:
    """Bytes of all these tensors."""
    return added(count * size for count, size in tensors)


def plain_bytes(tensors: Iterable[tuple[int, Term]]) -> int:
    """total_bytes as a number without a formula."""
    return sum(int(count) * int(size) for count, size in tensors)


@dataclass(frozen=True)
class Phase(Breakdown):
    """Tensors alive where a phase of a step needs most; `groups` says of each component what it is there for.

    The title is the moment of the step, such as "backward of the loss", after the place of the device if it is one of
    several.
    """

    kind: PhaseKind
    moment: str
    groups: tuple[Group, ...]

    def by_group(self) -> dict[Group, Bytes]:
        """Bytes by what they are there for, every group named; they add up to the total."""
        sums = dict.fromkeys(Group, 0)
        for group, (_, term) in zip(self.groups, self.terms, strict=True):
            sums[group] += int(term)
        return {group: Bytes(value) for group, value in sums.items()}


def phase(moment: str, kind: PhaseKind, alive: list[Item], convention: str, *, place: str = "") -> Phase:
    """A Phase of these Items, on a device at this place; those of one name are added up."""
    terms: dict[str, Term] = {}
    groups: dict[str, Group] = {}
    for item in alive:
        terms[item.name] = terms[item.name] + item.bytes if item.name in terms else item.bytes
        groups[item.name] = item.group
    title = f"memory of {place}: {moment}" if place else moment
    return Phase(title, Bytes, tuple(terms.items()), convention, kind, moment, tuple(groups.values()))
