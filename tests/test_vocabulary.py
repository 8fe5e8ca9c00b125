"""The experiment on vocabulary sizes: a row for each size, by the same budget of FLOPs; a second call only reads."""

import random
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[1] / "demo"))
import vocabulary


def test_a_row_for_each_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    random.seed(0)
    words = ["".join(random.choices("aeinrst", k=length)) for length in range(2, 8) for _ in range(40)]
    text, out = tmp_path / "text.txt", tmp_path / "out"
    text.write_text("\n".join(" ".join(random.choices(words, k=10)) for _ in range(6000)))
    options = "--sizes 300 400 --superwords 400 --flops 1e9 --seeds 2 --layers 1 --width 32 --context 16"
    monkeypatch.setattr(sys, "argv", ["vocabulary.py", str(text), *options.split(), "--out", str(out)])
    vocabulary.main()
    table = (out / "table.md").read_text()
    rows = [line.strip("| ").split(" | ") for line in table.splitlines()[2:]]
    assert [row[0] for row in rows] == ["300", "400", "400, superwords"]
    densities, steps = ([float(row[column].replace(",", "")) for row in rows] for column in (1, 2))
    assert densities[0] < densities[1] < densities[2]
    assert steps[0] > steps[1] == steps[2] > 1  # a larger head costs more
    for row in rows:
        scores = [float(score) for score in row[4].split(", ")]
        assert len(set(scores)) == 2
        assert float(row[5]) == pytest.approx(sum(scores) / 2, abs=1e-4)
    assert all(f"bits per byte, {name}, at last" in (out / "chart.svg").read_text() for name in ("words", "superwords"))
    times = [path.stat().st_mtime_ns for path in sorted(out.glob("*/seed-*/checkpoints/*"))]
    vocabulary.main()
    assert (out / "table.md").read_text() == table
    assert [path.stat().st_mtime_ns for path in sorted(out.glob("*/seed-*/checkpoints/*"))] == times
    assert len(times) >= 6
