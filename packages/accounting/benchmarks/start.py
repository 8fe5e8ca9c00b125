"""How long a bare Python takes, and how long one that imports `accounting` and asks it a question: the fastest of
several.

nox -s bench -- start
"""

from __future__ import annotations

import subprocess
import sys
import time

ANSWER = "from accounting import SHAPES, training_memory; training_memory(SHAPES['gpt2'], 4).total"


def fastest(program: str, runs: int = 15) -> float:
    """Milliseconds of a whole process."""
    times = []
    for _ in range(runs):
        begun = time.perf_counter()
        subprocess.run([sys.executable, "-c", program], check=True)
        times.append(time.perf_counter() - begun)
    return 1000 * min(times)


bare, answered = fastest("pass"), fastest(ANSWER)
print(f"bare Python {bare:.0f} ms, import and answer {answered:.0f} ms: {answered - bare:.0f} ms more")
