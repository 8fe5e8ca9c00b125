"""The speedrun's rules: time, seeds, a board that shows the rows, a score over the bytes of the documents."""

import copy
import math
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

import bpe
import lm

sys.path.append(str(Path(__file__).parents[1] / "demo"))
import speedrun
from corpus import Document

ROW: dict[str, Any] = {
    "command": "python train.py {text} {seed} {out}",
    "date": "2026-01-01",
    "commit": "0123456789",
    "machine": "a machine",
    "runs": [{"seed": seed, "seconds": 590.0, "bits_per_byte": 1.5 + seed / 100} for seed in (0, 1, 2)],
}


def page(rows: dict[str, dict[str, Any]]) -> str:
    return f"# Board\n\n{speedrun.BEGIN}{speedrun.board(rows)}{speedrun.END}\n"


def test_the_best_mean_comes_first() -> None:
    better = copy.deepcopy(ROW)
    better["runs"][2]["bits_per_byte"] = 1.4
    rows = {"first": ROW, "second": better}
    speedrun.check(rows, page(rows))
    table = speedrun.board(rows)
    assert table.index("second") < table.index("first")
    assert "**1.5100**" in table


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [("seconds", 600.1, "600 seconds"), ("bits_per_byte", 0.0, "bits per byte"), ("seed", 1, "each once")],
)
def test_a_row_that_breaks_a_rule_is_refused(key: str, value: float, message: str) -> None:
    row = copy.deepcopy(ROW)
    row["runs"][0][key] = value
    with pytest.raises(ValueError, match=message):
        speedrun.check({"mine": row}, page({"mine": row}))


def test_an_entry_without_runs_and_a_page_of_other_rows_are_refused() -> None:
    with pytest.raises(ValueError, match="mine lacks commit"):
        speedrun.check({"mine": {"command": "", "date": "", "machine": "", "runs": []}}, "")
    with pytest.raises(ValueError, match="another board"):
        speedrun.check({"mine": ROW}, page({"yours": ROW}))


def test_an_entry_ends_with_its_time_and_what_it_started_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speedrun, "SECONDS", 0.5)
    alive = tmp_path / "alive"
    loop = f"while :; do date +%N > {alive}; sleep 0.05; done"
    with pytest.raises(ValueError, match="not done"):
        speedrun.run_entry(f"sh -c '({loop}) & wait'")
    before = alive.read_text()
    time.sleep(0.2)
    assert alive.read_text() == before
    with pytest.raises(ValueError, match="status 3"):
        speedrun.run_entry("sh -c 'exit 3'")


def test_the_score_of_a_uniform_model_is_its_tokens_over_the_bytes(tmp_path: Path) -> None:
    documents = [Document("a.txt", "a café, a café\n".encode() * 20), Document("b.py", b"print(1)\n" * 10)]
    tokenizer = bpe.train([document.text.decode() for document in documents], 262)
    model = lm.Transformer(lm.ModelConfig(tokenizer.n_vocab, 16, num_layers=1, d_model=8, num_heads=1, d_ff=8))
    with torch.no_grad():
        model.head.weight.zero_()
    out = tmp_path / "out"
    lm.to_huggingface(model, out)
    tokenizer.save(out / "tokenizer.json")
    tokens = sum(len(tokenizer.encode(document.text.decode())) for document in documents)
    expected = tokens * math.log2(tokenizer.n_vocab) / sum(len(document.text) for document in documents)
    assert speedrun.bits_per_byte(out, documents) == pytest.approx(expected, rel=1e-5)
