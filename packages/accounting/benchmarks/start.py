"""How long a bare Python takes, one that imports `accounting` and asks it a question, and commands: the fastest of
several processes, by the clock and by the processor, whose time others on the machine disturb less.

nox -s bench -- start
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time

COMMAND = "import sys; from accounting.commands.parser import main; sys.exit(main({!r}))"
PROGRAMS = {
    "bare Python": "pass",
    "import and one answer": "from accounting import SHAPES, training_memory; training_memory(SHAPES['gpt2'], 4).total",
    "report gpt2-xl --only parameters,flops": COMMAND.format(["report", "gpt2-xl", "--only", "parameters,flops"]),
    "report gpt2-xl": COMMAND.format(["report", "gpt2-xl"]),
}
# with compiled modules beside the sources, as an installed package has them
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def once(program: str) -> tuple[float, float]:
    """Milliseconds of a whole process, and of the processor in it."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True, stdout=subprocess.DEVNULL, env=ENVIRONMENT)
    ended, after = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return 1000 * (ended - begun), 1000 * used


rounds = [{name: once(program) for name, program in PROGRAMS.items()} for _ in range(15)]
print(f"{'':40}{'clock':>10}{'processor':>12}")
for name in PROGRAMS:
    clock, processor = (min(one[name][at] for one in rounds) for at in range(2))
    print(f"{name:40}{clock:>7.0f} ms{processor:>9.0f} ms")
