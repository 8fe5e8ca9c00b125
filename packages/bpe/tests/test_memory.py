"""Blocks of memory that grow, on Linux and elsewhere: native/memory.h, compiled by itself."""

import shlex
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from bpe.counting.pretoken_counts import PretokenCounts

SOURCE = Path(__file__).parents[1] / "src" / "bpe"
COMPILER = shlex.split(sysconfig.get_config_var("CC") or "cc")

GROWS = r"""
#define _GNU_SOURCE
#if defined(MREMAP_FAILS)
#include <sys/mman.h>
#define mremap(...) MAP_FAILED
#endif
#include "native/memory.h"
#include <stdio.h>

/* A block that grows step by step keeps what was written, and can be written to its end. */
int main(void) {
    size_t sizes[] = {1, 100, 70000, 3 << 20, (4 << 20) - 1, 4 << 20, (4 << 20) + 1, 5 << 20, 6 << 20, 29 << 20};
    size_t size = 0;
    uint8_t *block = NULL;
    for (size_t step = 0; step < sizeof(sizes) / sizeof(*sizes); step++) {
        block = grow_block(block, size, sizes[step]);
        if (block == NULL) return 1;
        for (; size < sizes[step]; size++) block[size] = (uint8_t)(size * 2654435761u >> 24);
        for (size_t i = 0; i < size; i++)
            if (block[i] != (uint8_t)(i * 2654435761u >> 24)) {
                printf("byte %zu is lost in step %zu\n", i, step);
                return 1;
            }
    }
    if (grow_block(block, size, SIZE_MAX / 2) != NULL) return 1;
    if (block[size - 1] != (uint8_t)((size - 1) * 2654435761u >> 24)) return 1;
    free_block(block, size);
    return 0;
}
"""


@pytest.mark.skipif(shutil.which(COMPILER[0]) is None, reason="there is no C compiler")
@pytest.mark.parametrize("system", ["", "-U__linux__", "-DMREMAP_FAILS"], ids=["this", "not Linux", "no mremap"])
def test_a_block_that_grows_keeps_its_bytes(tmp_path: Path, system: str) -> None:
    program = tmp_path / "grows.c"
    program.write_text(GROWS)
    flags = ["-O1", "-Wno-unused-function", "-I", str(SOURCE), *system.split()]
    subprocess.run([*COMPILER, *flags, "-o", str(tmp_path / "grows"), str(program)], check=True)
    done = subprocess.run([tmp_path / "grows"], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_many_long_pretokens_are_counted() -> None:
    words = [b"%020d" % i for i in range(400_000)]  # more than the arena holds before it is in huge pages
    table = PretokenCounts()
    table.count_pieces(words)
    table.count_pieces(words)
    assert dict(table.items()) == dict.fromkeys(words, 2)
