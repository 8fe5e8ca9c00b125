"""What a wheel of bpe must not hold: sources, headers, and extensions that were not stripped.

python tools/check_wheel.py FILE.whl
"""

from __future__ import annotations

import sys
import zipfile

SOURCES = (".pyx", ".pxi", ".c", ".cpp", ".h")
SECTIONS = (b".symtab", b".debug_info")  # what `strip` removes, by their names in an ELF file


def faults(wheel: str) -> list[str]:
    """One sentence for each thing in a wheel that should not be there."""
    found = []
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith(SOURCES):
                found.append(f"{name} is a source, and nothing at run time reads it")
            if name.endswith(".so"):
                content = archive.read(name)
                found += [
                    f"{name} is not stripped: it has {one.decode()}" for one in SECTIONS if one + b"\0" in content
                ]
        if not any(name.endswith((".so", ".pyd")) for name in archive.namelist()):
            found.append("there is no compiled module in it")
    return found


if __name__ == "__main__":
    wheel = sys.argv[1]
    problems = faults(wheel)
    if problems:
        sys.exit("\n".join([f"{wheel}:", *problems]))
    with zipfile.ZipFile(wheel) as archive:
        size = sum(entry.compress_size for entry in archive.infolist()) / 1e6
        print(f"{wheel}: {len(archive.namelist())} files, {size:.1f} MB, no sources, stripped")
