"""The program that holds the budget against a GPU, without one: its whole path on the CPU, and the allocator it
replays."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="the model needs torch, which is not installed")
pytest.importorskip("lm", reason="the model is in lm, which is not installed")
pytest.importorskip("accounting", reason="the budget is in accounting, which is not installed")

import gpu_memory  # noqa: E402
from caching_allocator import MIB, CachingAllocator  # noqa: E402

from accounting.memory.allocator import block  # noqa: E402


def test_sizes_and_segments() -> None:
    """What the source of PyTorch's allocator says of sizes, one by one."""
    for asked, allocated, reserved in (
        (1, 512, 2 * MIB),
        (513, 1024, 2 * MIB),
        (MIB, MIB, 2 * MIB),
        (MIB + 1, MIB + 512, 20 * MIB),
        (10 * MIB, 10 * MIB, 10 * MIB),
        (11 * MIB, 12 * MIB, 12 * MIB),  # what is left is no more than a MiB, and stays with the block
        (11 * MIB - 1024, 11 * MIB - 1024, 12 * MIB),
        (20 * MIB - MIB - 512, 20 * MIB - MIB - 512, 20 * MIB),
    ):
        alone = CachingAllocator()
        alone.allocate(asked)
        assert (alone.allocated, alone.reserved) == (allocated, reserved)
        assert block(asked) == allocated


def test_blocks_are_used_again_and_grow_together() -> None:
    found = CachingAllocator()
    blocks = [found.allocate(4 * MIB) for _ in range(5)]
    assert found.reserved == 20 * MIB
    for at in (1, 3, 2):
        found.free(blocks[at])
    found.allocate(12 * MIB)  # into the three that were freed, which are one again
    assert (found.reserved, found.allocated) == (20 * MIB, 20 * MIB)


def test_everything_comes_back() -> None:
    rng, found = random.Random(0), CachingAllocator()
    alive = []
    for _ in range(3000):
        if alive and rng.random() < 0.5:
            found.free(alive.pop(rng.randrange(len(alive))))
        else:
            alive.append(found.allocate(rng.choice([100, 5000, 3 * MIB, 11 * MIB]) * rng.randint(1, 3)))
        taken = sorted((one.address, one.address + one.size) for one in alive)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(taken))
        assert found.allocated == sum(one.size for one in alive) <= found.reserved
    for one in alive:
        found.free(one)
    assert found.allocated == 0
    assert sum(size for pool in found.pools.values() for size, _ in pool.keys) == found.reserved


def test_the_whole_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n\n{gpu_memory.BEGIN}\nold\n{gpu_memory.END}\nafter\n", encoding="utf-8")
    monkeypatch.setattr(gpu_memory, "PAGE", readme)
    assert gpu_memory.main(["--stand-in", "--page", "--shape", "few tokens", "--shape", "wide vocabulary"]) == 0
    words = readme.read_text(encoding="utf-8")
    assert words.startswith("before\n\n" + gpu_memory.BEGIN)
    assert words.endswith(gpu_memory.END + "\nafter\n")
    assert "old" not in words
    assert words.count("| few tokens | 1 × 16 | fp32 | plain |") == 1
    assert "few tokens" in capsys.readouterr().out


def test_what_cannot_be_measured_is_said(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert gpu_memory.main([]) == 2
    assert "there is no CUDA device here" in capsys.readouterr().err
    assert gpu_memory.main(["--stand-in", "--shape", "nothing"]) == 2


def test_rows_can_be_predicted() -> None:
    for row in (*gpu_memory.ON_GPU, *gpu_memory.STAND_INS):
        found = gpu_memory.predict(row)
        assert max(gpu_memory.phases(found)) == found.total
