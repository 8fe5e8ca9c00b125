"""`lm report`: draw one run, or several over each other, as a page."""

from __future__ import annotations

import argparse
import time

from lm.commands.cli import Commands, add


def register(commands: Commands) -> None:
    parser = add(commands, "report", report, "draw one run, or several over each other, as a page")
    parser.add_argument("runs", metavar="RUN", nargs="+", help="folders of runs")
    parser.add_argument("--out", help="the page (default: report.html in the first run)")
    help = "draw again every SECONDS (10 if left out), until all runs are done"
    parser.add_argument("--watch", type=float, least=0.1, nargs="?", const=10.0, metavar="SECONDS", help=help)


def report(options: argparse.Namespace) -> None:
    from lm.reporting.report import read, write

    while options.watch is not None and not all(read(folder).finished for folder in options.runs):
        write(options.runs, options.out, refresh=options.watch)
        time.sleep(options.watch)
    print(write(options.runs, options.out))
