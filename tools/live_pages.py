"""Make the live pages of the site: the page that encodes what is typed, with a small tokenizer trained on Python's help
texts.

python tools/live_pages.py        writes docs/course/live-tokenizer.html, which git ignores; `nox -s docs` runs it first
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

import pages

PAGE = Path(__file__).parent.parent / "docs/course/live-tokenizer.html"


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pages.furnish(folder)
        tokenizer = folder / "tok.json"
        run = [sys.executable, "-m", "bpe"]
        train = ["train", str(folder / "corpus.txt"), "--vocab-size", "4000", "--out", str(tokenizer)]
        subprocess.run([*run, *train], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([*run, "view", str(tokenizer), "--out", str(PAGE)], check=True)


if __name__ == "__main__":
    main()
