"""Read what LeakSanitizer found at the ends of processes, and fail if any of it was allocated by bpe's extension.

    python tools/leaks.py FOLDER      # of report.PID files, as ASAN_OPTIONS=detect_leaks=1:log_path=FOLDER/report
    leaves them

Interpreters and their libraries leak on purpose when they end; a suppression by name would also hide what they call, us
among it. So everything is reported, and what counts is whether a frame of ours allocated it.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

OURS = re.compile(r"bpe/(\w+/)*\w+\.(c|h|pyx|pxi|so|cpython)")


def leaks(report: str) -> list[str]:
    """The leaks of one report in whose allocation a frame of bpe's extension took part."""
    found = re.split(r"\n(?=(?:Direct|Indirect) leak of )", report)[1:]
    return [leak.split("\n\n")[0] for leak in found if OURS.search(leak.split("\n\n")[0])]


def main() -> int:
    reports = {path.name: path.read_text(errors="replace") for path in sorted(Path(sys.argv[1]).glob("report.*"))}
    broken = [name for name, report in reports.items() if "fatal error" in report]
    ours = [leak for report in reports.values() for leak in leaks(report)]
    for leak in ours:
        print(leak, end="\n\n")
    if broken:
        print(f"LeakSanitizer could not look in {len(broken)} processes (it needs ptrace, which containers may forbid)")
    print(f"{len(reports)} processes left reports; leaks of the extension's own: {len(ours)}")
    return 1 if ours else 0


if __name__ == "__main__":
    sys.exit(main())
