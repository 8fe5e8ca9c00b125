"""Text that grows and stays distinct: sentences of a real text in new orders, with new words as real text would have
them.
"""

from __future__ import annotations

import random
from pathlib import Path

COINED = 0.001  # of the words: more than simple stories have, about what novels have


def grow(path: Path, out: Path, size: int, seed: int = 0) -> None:
    """Write about `size` bytes: sentences drawn at random from a text, here and there a word joined of two of its
    words.
    """
    rng = random.Random(seed)
    sentences = [one.split(" ") for one in path.read_text(encoding="utf-8", errors="replace").split(". ")]
    words = sorted({word for sentence in sentences for word in sentence if word.isalpha()})
    with open(out, "w", encoding="utf-8", newline="") as file:
        total = 0
        while total < size:
            lines = []
            for sentence in rng.choices(sentences, k=2000):
                coined = [
                    word if rng.random() >= COINED else rng.choice(words) + rng.choice(words) for word in sentence
                ]
                lines.append(" ".join(coined))
            text = ". ".join(lines) + ".\n"
            file.write(text)
            total += len(text.encode())


def coin(path: Path, distinct: int, seed: int = 0) -> None:
    """Write so many distinct words of two to four syllables, the nth commonest distinct / 8n times (Zipf), or once."""
    import numpy as np  # here, because what measures memory imports this file

    rng = np.random.default_rng(seed)
    syllables = [a + b + c for a in "bdfghklmnprstvz" for b in "aeiou" for c in ("", "", "n", "r", "s")]
    words: dict[str, None] = {}  # in the order in which they were coined, so that a seed is a text
    while len(words) < distinct:
        for parts in rng.integers(0, len(syllables), (distinct - len(words), 4)).tolist():
            words["".join([syllables[part] for part in parts[: 2 + parts[0] % 3]])] = None
    coined = list(words)
    times = np.maximum(1, distinct // (8 * np.arange(1, distinct + 1)))
    order = np.repeat(np.arange(distinct, dtype=np.int32), times)
    rng.shuffle(order)
    with open(path, "w", encoding="utf-8", newline="") as file:
        for begin in range(0, len(order), 1 << 16):
            file.write(" ".join([coined[i] for i in order[begin : begin + (1 << 16)].tolist()]) + "\n")
