"""Instructions that bpe runs on 64-bit ARM for each byte of a text, at the levels portable and neon.

    tools/aarch64_wheel.sh FOLDER
    python tools/aarch64_instructions.py FOLDER QEMU HEADERS --tokenizer FILE TEXT …

FOLDER is what the first command left: a Debian for aarch64 with the wheel in it. QEMU is a qemu-aarch64 of QEMU 7 or 8
that was configured with --enable-plugins, HEADERS the folder of its qemu-plugin.h. The first 256 KiB of each text are
scanned, converted from a str where it is not ASCII, and encoded for the first time and again; what a process runs
besides is subtracted.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
from pathlib import Path

SIZE = 1 << 18
MORE = 4  # times that work is done in the process from which the other is subtracted
PATTERNS = ("gpt2", "o200k")
LEVELS = ("portable", "neon")

PROGRAM = """
import sys
import bpe
from bpe.native.text import utf8
from bpe.scanning.scanner import scan_only
what, text, times, which = sys.argv[1], sys.argv[2], int(sys.argv[3]), sys.argv[4]
data = open(text, "rb").read(SIZE).decode("utf-8", "ignore")
raw = data.encode()
if what == "scan":
    work = lambda: scan_only(raw, which)
elif what == "utf8":
    work = lambda: utf8(data)
else:
    tokenizer = bpe.load(which)
    tokenizer.encode_to_numpy("a")
    work = lambda: tokenizer.encode_to_numpy(raw, disallowed_special=())
if what != "first":
    work()
for _ in range(times):
    work()
""".replace("SIZE", str(SIZE))


def instructions(options: argparse.Namespace, level: str, *arguments: str) -> int:
    debian = options.folder / "debian"
    environment = {"PYTHONHOME": f"{debian}/usr", "PYTHONPATH": f"{debian}/opt/site", "BPE_SIMD": level}
    plugin = ["-L", str(debian), "-plugin", str(options.folder / "instructions.so")]
    (python,) = sorted((debian / "usr/bin").glob("python3.[0-9]*"))[:1]
    command = [options.qemu, *plugin, str(python), "-c", PROGRAM, *arguments]
    run = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | environment)
    return int(re.findall(r"(\d+) instructions", run.stderr)[-1])


def row(options: argparse.Namespace, what: str, text: Path, which: str) -> str:
    """A line of the table: instructions a byte at each level, and their ratio."""
    size = len(text.read_bytes()[:SIZE].decode("utf-8", "ignore").encode())
    times = 1 if what == "first" else MORE
    each = []
    for level in LEVELS:
        without = instructions(options, level, what, str(text), "0", which)
        each.append((instructions(options, level, what, str(text), str(times), which) - without) / times / size)
    shown = " | ".join(f"{found:.1f}" for found in each)
    name = {"scan": f"scanning, {which}", "utf8": "str to UTF-8"}.get(what, f"encoding, {Path(which).stem}, {what}")
    return f"| {name} | {text.name} | {shown} | {each[1] / each[0]:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("qemu")
    parser.add_argument("headers", type=Path)
    parser.add_argument("texts", type=Path, nargs="+")
    parser.add_argument("--tokenizer", required=True)
    options = parser.parse_args()
    source = Path(__file__).with_name("instructions.c")
    library = options.folder / "instructions.so"
    flags = ["-shared", "-fPIC", "-O2", "-I", str(options.headers)]
    subprocess.run(["cc", *flags, "-o", str(library), str(source)], check=True)
    print("| | text | portable | neon | neon / portable |\n|---|---|---|---|---|")
    work = [("scan", pattern) for pattern in PATTERNS] + [("utf8", ""), ("first", options.tokenizer)]
    for what, which in [*work, ("warm", options.tokenizer)]:
        for text in options.texts:
            if what != "utf8" or not text.read_bytes()[:SIZE].isascii():
                print(row(options, what, text, which), flush=True)


if __name__ == "__main__":
    main()
