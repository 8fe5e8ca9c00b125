"""Text that grows and stays distinct: sentences of a real text in new orders, with new words as real text would have them."""

from __future__ import annotations

import random
from pathlib import Path

COINED = 0.001  # of the words: more than simple stories have, about what novels have


def grow(path: Path, out: Path, size: int, seed: int = 0) -> None:
    """Write about `size` bytes: sentences drawn at random from a text, here and there a word joined of two of its words."""
    rng = random.Random(seed)
    sentences = [one.split(" ") for one in path.read_text(encoding="utf-8", errors="replace").split(". ")]
    words = sorted({word for sentence in sentences for word in sentence if word.isalpha()})
    with open(out, "w", encoding="utf-8", newline="") as file:
        written = 0
        while written < size:
            lines = []
            for sentence in rng.choices(sentences, k=2000):
                coined = [
                    word if rng.random() >= COINED else rng.choice(words) + rng.choice(words) for word in sentence
                ]
                lines.append(" ".join(coined))
            text = ". ".join(lines) + ".\n"
            file.write(text)
            written += len(text.encode())
