"""A tree as a deterministic automaton that finds the match which backtracking finds first.

The states of an automaton are lists of positions in the expression, the position that backtracking tries first in front
(Cox 2010, "Regular Expression Matching in the Wild": leftmost-first). A step over a character follows the positions in
that order; where a position is the end of the expression, a match ends before the character, and those behind it are
dropped. What the expression wants to know of the character that follows, `(?!\\S)` or the end of a possessive run, is
known in the step over that character, so looking one character ahead costs nothing.

    \\s+(?!\\S)|\\s+ on "  a"      state after " "        {loop, (?!\\S), loop', end'}
                                  over " "               a match ends before it (the second branch); go on
                                  over "a"               (?!\\S) fails; a match ends here by the second branch

Not supported: looking behind, looking ahead further than a character, and groups that give nothing back unless they are
runs of one set. compile_tree() says which of these it is.
"""

from __future__ import annotations

import hashlib
from array import array
from typing import Any, NamedTuple

from bpe.expressions.sets import EVERYTHING, LAST, NOTHING, CharSet, complement, union
from bpe.expressions.tree import Atomic, Chars, Choice, Edge, Look, Node, Repeat, Sequence
from bpe.native.printable import PRINTABLE

MOST_POSITIONS, MOST_STATES, MOST_CLASSES = 4000, 1500, 250
MOST_ENTRIES = 0x7FFF  # of a table, whose entries are 15 bits and a flag
TOO_LARGE = "it needs too many states"
MATCH = 0x8000
CLEAN, ENDS = 1, 2


class Automaton(NamedTuple):
    """Attributes:
    begins: the first code points of the ranges that have one class; the first is 0.
    classes: the class of each range.
    class_count: how many there are.
    table: rows of class_count + 1 entries, for each class and for the end of the text: MATCH where a match ends
        before the character, and the position of the next state's row. The first row is no state's, the second
        the state's at the beginning.
    cuts: for each pair of classes CLEAN where no match goes on from one to the other, whatever came before, and what
        is matched before is matched there at the end of a text too; ENDS where also a piece ends there.
    """

    begins: tuple[int, ...]
    classes: tuple[int, ...]
    class_count: int
    table: tuple[int, ...]
    cuts: bytes


class _Beyond(Exception):
    """An expression that no automaton of this kind says, and why."""


def compile_tree(node: Node) -> Automaton | str:
    """Return the automaton of a tree, or the reason why it has none."""
    try:
        return _compile(node)
    except _Beyond as reason:
        return str(reason)


def _compile(node: Node) -> Automaton:
    program = _Program(node)
    split_at, split_class, members = _partition(program.sets)
    rows = _minimize(_determinize(program, members, len(members)))
    if any(MATCH & entry for entry in rows[1]):
        raise _Beyond("it can match the empty string")
    begins, class_of, rows = _join_classes(split_at, split_class, rows)
    width = len(rows[0])
    if width - 1 > MOST_CLASSES or len(rows) * width > MOST_ENTRIES:
        raise _Beyond(TOO_LARGE)
    table = tuple((entry & ~MATCH) * width | entry & MATCH for row in rows for entry in row)
    return Automaton(begins, class_of, width - 1, table, _cuts(rows))


class _Program:
    """Positions of an expression: ("chars", set, next), ("branches", nexts), ("look", set, end, next), ("match",)."""

    def __init__(self, node: Node) -> None:
        self.sets: list[CharSet] = []
        self.positions: list[tuple[Any, ...]] = [("match",)]
        self._numbers: dict[CharSet, int] = {}
        self.start = self.add(node, 0)

    def number_of(self, chars: CharSet) -> int:
        if chars not in self._numbers:
            self._numbers[chars] = len(self.sets)
            self.sets.append(chars)
        return self._numbers[chars]

    def put(self, *position: object) -> int:
        if len(self.positions) >= MOST_POSITIONS:
            raise _Beyond(TOO_LARGE)
        self.positions.append(position)
        return len(self.positions) - 1

    def add(self, node: Node, after: int) -> int:
        """The position at which the node begins, when what follows it begins at `after`."""
        if isinstance(node, Chars):
            return self.put("chars", self.number_of(node.chars), after)
        if isinstance(node, Sequence):
            for part in reversed(node.parts):
                after = self.add(part, after)
            return after
        if isinstance(node, Choice):
            return self.put("branches", [self.add(branch, after) for branch in node.branches])
        if isinstance(node, Repeat):
            return self.repeat(node, after)
        if isinstance(node, Atomic):
            part = node.part
            if after == 0 or isinstance(part, Chars):
                return self.add(part, after)
            if isinstance(part, Repeat) and part.greed != "lazy":
                return self.repeat(Repeat(part.part, part.least, part.most, "possessive"), after)
            raise _Beyond("an atomic group holds more than a run of one set of characters")
        chars, at_end = _next_character(node)
        return self.put("look", self.number_of(chars), at_end, after)

    def repeat(self, node: Repeat, after: int) -> int:
        part, most = node.part, node.most
        if most != 0 and _least_size(part) == 0:
            raise _Beyond("it repeats a part that can match the empty string")
        leave = after
        if node.greed == "possessive" and after != 0:  # at the end of the expression nothing could be given back
            if not isinstance(part, Chars):
                raise _Beyond("it repeats possessively more than one set of characters")
            leave = self.put("look", self.number_of(complement(part.chars)), True, after)
        lazy = node.greed == "lazy"
        if most is None:
            entry = self.put("branches", [])
            ways = [self.add(part, entry), leave]
            self.positions[entry] = ("branches", ways[::-1] if lazy else ways)
        else:
            entry = after
            for copy in range(most - node.least):
                ways = [self.add(part, entry if copy else after), leave]
                entry = self.put("branches", ways[::-1] if lazy else ways)
        for _ in range(node.least):
            entry = self.add(part, entry)
        return entry


def _next_character(node: Node) -> tuple[CharSet, bool]:
    """Return the characters that may follow where the node looks, and True if the text may end there."""
    if isinstance(node, Edge) and node.end:
        return NOTHING, True
    if isinstance(node, Look) and node.ahead:
        chars, at_end = _first_character(node.part)
        return (chars, at_end) if node.positive else (complement(chars), not at_end)
    if isinstance(node, Look):
        raise _Beyond("it looks behind")
    if isinstance(node, Edge):
        raise _Beyond("it asks for the beginning of the text or of a line")
    raise _Beyond("it looks ahead further than one character")


def _first_character(node: Node) -> tuple[CharSet, bool]:
    """The same for what matches a text exactly if its first character is in a set, or if the text has ended."""
    if isinstance(node, Chars):
        return node.chars, False
    if isinstance(node, Repeat) and node.least <= 1 and node.most != 0:
        return _first_character(node.part) if node.least else (EVERYTHING, True)
    if isinstance(node, Choice):
        parts = [_first_character(branch) for branch in node.branches]
        return union(*(chars for chars, _ in parts)), any(at_end for _, at_end in parts)
    if isinstance(node, Sequence) and not node.parts:
        return EVERYTHING, True
    if isinstance(node, Sequence) and len(node.parts) == 1:
        return _first_character(node.parts[0])
    return _next_character(node)


def _least_size(node: Node) -> int:
    if isinstance(node, Chars):
        return 1
    if isinstance(node, Sequence):
        return sum(map(_least_size, node.parts))
    if isinstance(node, Choice):
        return min(map(_least_size, node.branches))
    if isinstance(node, Repeat):
        return node.least * _least_size(node.part)
    return _least_size(node.part) if isinstance(node, Atomic) else 0


def _partition(sets: list[CharSet]) -> tuple[list[int], list[int], list[int]]:
    """Return the begins of ranges of one class, the class of each, and for each class a bit for every set with it."""
    changes: dict[int, int] = {0: 0}
    for number, chars in enumerate(sets):
        for first, last in chars:
            changes[first] = changes.get(first, 0) ^ 1 << number
            if last < LAST:
                changes[last + 1] = changes.get(last + 1, 0) ^ 1 << number
    begins: list[int] = []
    class_of: list[int] = []
    numbers: dict[int, int] = {}
    members = 0
    for code, change in sorted(changes.items()):
        members ^= change
        number = numbers.setdefault(members, len(numbers))
        if not class_of or class_of[-1] != number:
            begins.append(code)
            class_of.append(number)
    return begins, class_of, list(numbers)


def _determinize(program: _Program, members: list[int], class_count: int) -> list[list[int]]:
    """The rows of the states: 0 is no state, 1 the first; the last entry of a row is for the end of the text."""
    positions = program.positions
    rows: list[list[int]] = [[0] * (class_count + 1)]
    first: tuple[int, ...] = (program.start,)
    numbers = {first: 1}
    waiting = [first]
    for state in waiting:
        row = []
        for atom in [*members, None]:
            positions_after, matched = _step(positions, state, atom)
            if positions_after and positions_after not in numbers:
                if len(numbers) >= MOST_STATES:
                    raise _Beyond(TOO_LARGE)
                numbers[positions_after] = len(numbers) + 1
                waiting.append(positions_after)
            row.append((numbers[positions_after] if positions_after else 0) | (MATCH if matched else 0))
        rows.append(row)
    return rows


def _step(positions: list[tuple[Any, ...]], state: tuple[int, ...], atom: int | None) -> tuple[tuple[int, ...], bool]:
    """Positions after a character of the sets in `atom`, a bit each (None: the end); True if a match ends before."""
    seen: set[int] = set()
    next_positions: dict[int, None] = {}
    stack = list(reversed(state))
    while stack:
        number = stack.pop()
        if number in seen:
            continue
        seen.add(number)
        position = positions[number]
        kind = position[0]
        if kind == "chars":
            if atom is not None and atom >> position[1] & 1:
                next_positions.setdefault(position[2])
        elif kind == "branches":
            stack += reversed(position[1])
        elif kind == "look":
            if position[2] if atom is None else atom >> position[1] & 1:
                stack.append(position[3])
        else:
            return tuple(next_positions), True
    return tuple(next_positions), False


def _minimize(rows: list[list[int]]) -> list[list[int]]:
    """The rows of the smallest equal automaton, its states numbered in the order of a walk from the first."""
    block = [0] + [1] * (len(rows) - 1)
    count = 2
    while True:
        signatures: dict[tuple[int, ...], int] = {}
        new = [0] * len(rows)
        for number, row in enumerate(rows):
            key = (number == 0, *((entry & MATCH) | block[entry & ~MATCH] for entry in row))
            new[number] = signatures.setdefault(key, len(signatures))
        block = new
        if len(signatures) == count:
            break
        count = len(signatures)
    one_of = {number: state for state, number in reversed(list(enumerate(block)))}
    order = {block[0]: 0, block[1]: 1}
    waiting = [block[1]]
    rows_left = [[0] * len(rows[0])]
    for number in waiting:
        row = []
        for entry in rows[one_of[number]]:
            target = block[entry & ~MATCH]
            if target not in order:
                order[target] = len(order)
                waiting.append(target)
            row.append(order[target] | entry & MATCH)
        rows_left.append(row)
    return rows_left


def _join_classes(
    begins: list[int], class_of: list[int], rows: list[list[int]]
) -> tuple[tuple[int, ...], tuple[int, ...], list[list[int]]]:
    """Classes that no state tells apart are one; they are numbered in the order of their first code points."""
    columns = list(zip(*rows, strict=True))
    numbers: dict[tuple[int, ...], int] = {}
    new_begins: list[int] = []
    new_classes: list[int] = []
    for begin, number in zip(begins, class_of, strict=True):
        joined_class = numbers.setdefault(columns[number], len(numbers))
        if not new_classes or new_classes[-1] != joined_class:
            new_begins.append(begin)
            new_classes.append(joined_class)
    # States were numbered by the order of the old classes: number them again by the order of the new.
    old = list(map(list, zip(*numbers, columns[-1], strict=True)))
    return tuple(new_begins), tuple(new_classes), _minimize(old)


def _cuts(rows: list[list[int]]) -> bytes:
    """See Automaton.cuts."""
    width = len(rows[0])
    count = width - 1
    every = (1 << count) - 1
    stops = []  # for each state: the classes at which nothing goes on, and a match ends as at the end of the text
    for row in rows:
        at_end = row[-1] & MATCH
        stops.append(sum(1 << number for number in range(count) if row[number] == at_end))
    alone = []  # the classes whose single character is a match, whatever follows
    for number in range(count):
        then = rows[rows[1][number] & ~MATCH]
        alone.append(rows[1][number] != 0 and all(entry & MATCH for entry in then))
    alone_mask = sum(1 << number for number in range(count) if alone[number])
    cuts = bytearray(count * count)
    for before in range(count):
        clean = every
        for state in {row[before] & ~MATCH for row in rows[1:]} - {0}:
            clean &= stops[state]
        ends = clean if alone[before] else clean & alone_mask
        for after in range(count):
            cuts[before * count + after] = (clean >> after & 1) * CLEAN | (ends >> after & 1) * ENDS
    return bytes(cuts)


def leaves_gaps(automaton: Automaton) -> bool:
    """True if some text may lie between two matches: no character of it alone is surely a match."""
    width = automaton.class_count + 1
    for entry in automaton.table[width : 2 * width - 1]:
        row = entry & ~MATCH
        if not row or not all(then & MATCH for then in automaton.table[row : row + width]):
            return True
    return False


def digest(stages: list[tuple[Automaton, bool]]) -> str:
    """Return 24 digits of the SHA-256 of automata; expressions of one meaning nearly always have the same digest."""
    return hashlib.sha256(repr([(*one[:4], in_bytes) for one, in_bytes in stages]).encode()).hexdigest()[:24]


def scanner_level(automaton: Automaton, in_bytes: bool) -> tuple[int, bool, bytes, bytes, bytes, bytes, bytes]:
    """An automaton as register_splitter() takes it. in_bytes: its characters are the printable stand-ins of bytes."""
    ends = [*automaton.begins[1:], LAST + 1]
    of_code = b"".join(
        bytes([number]) * (end - begin)
        for begin, end, number in zip(automaton.begins, ends, automaton.classes, strict=True)
    )
    blocks: dict[bytes, int] = {}
    page = array("H", (blocks.setdefault(of_code[at : at + 128], len(blocks)) for at in range(0, LAST + 1, 128)))
    if in_bytes:
        of_byte = bytes(of_code[ord(character)] for character in PRINTABLE)
    else:
        of_byte = of_code[:128] + b"\xff" * 128
    table = array("H", automaton.table).tobytes()
    return automaton.class_count, in_bytes, of_byte, page.tobytes(), b"".join(blocks), table, automaton.cuts
