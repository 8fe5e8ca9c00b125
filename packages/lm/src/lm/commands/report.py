"""`lm report`: draw one run, or several over each other, as a page."""

from __future__ import annotations

import argparse

from lm.commands import Commands, add


def register(commands: Commands) -> None:
    made = add(commands, "report", report, "draw one run, or several over each other, as a page")
    made.add_argument("runs", metavar="RUN", nargs="+", help="folders of runs")
    made.add_argument("--out", help="the page (default: report.html in the first run)")


def report(options: argparse.Namespace) -> None:
    from lm.report import write

    print(write(options.runs, options.out))
