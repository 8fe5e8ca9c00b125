"""Make the live pages of the site: the page that encodes what is typed, with a small tokenizer trained on Python's help
texts, its picture, and the page of accounting.

    python tools/live_pages.py             writes docs/course/live-tokenizer.html and .png, docs/guides/
                                           accounting-page.html, which git ignores
    python tools/live_pages.py --picture runs/demo/report.html docs/report.png      the README's picture

`nox -s docs` runs it first. Where there is no Chromium, the picture is an empty one.
"""

from __future__ import annotations

import argparse
import struct
import subprocess
import sys
import tempfile
import time
import zlib
from pathlib import Path

import pages

sys.path.append(str(Path(__file__).parent.parent / "packages/bpe/tests"))
import chromium  # the tests of bpe's pages speak to the same browser

DOCS = Path(__file__).parent.parent / "docs"
PAGE = DOCS / "course/live-tokenizer.html"
SCREEN = (900, 1000)
REPORT_SCREEN = (1240, 1000)


def picture(page: Path, out: Path, screen: tuple[int, int]) -> None:
    """A picture of a page's first screen, of so many pixels."""
    if chromium.PATH is None:
        out.write_bytes(empty_png(*screen))
        return
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        chromium.Chromium(Path(folder), screen) as browser,
    ):
        width, height = screen
        browser.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1.5, mobile=False
        )
        browser.call("Emulation.setScrollbarsHidden", hidden=True)
        browser.call("Page.navigate", url=page.resolve().as_uri())
        while browser.run("document.readyState") != "complete":
            time.sleep(0.02)
        browser.picture(out)


def empty_png(width: int, height: int) -> bytes:
    """A light grey PNG of one colour."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    rows = zlib.compress((b"\0" + b"\xee" * width) * height, 9)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--picture", nargs=2, type=Path, metavar=("PAGE", "PNG"), help="only this: a page's picture")
    options = parser.parse_args()
    if options.picture:
        page, out = options.picture
        picture(page, out, REPORT_SCREEN)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pages.furnish(folder)
        tokenizer = folder / "tok.json"
        run = [sys.executable, "-m", "bpe"]
        train = ["train", str(folder / "corpus.txt"), "--vocab-size", "4000", "--out", str(tokenizer)]
        subprocess.run([*run, *train], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([*run, "view", str(tokenizer), "--out", str(PAGE)], check=True)
    picture(PAGE, PAGE.with_suffix(".png"), SCREEN)
    costs = str(DOCS / "guides/accounting-page.html")
    subprocess.run([sys.executable, "-m", "accounting", "page", "--out", costs], check=True)


if __name__ == "__main__":
    main()
