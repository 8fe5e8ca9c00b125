"""Dataset.map of the library `datasets` over a tokenizer: its cache between processes, and processes of every kind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from strategies import corpus

import bpe

pytest.importorskip("datasets")
pytest.importorskip("transformers")

# python -c MAP FOLDER METHOD PROCESSES: maps over the dataset twice, by bpe's tokenizer and by one of transformers
MAP = """
import os, sys
folder, method, processes = sys.argv[1], sys.argv[2], int(sys.argv[3])

class Map:
    def __init__(self, encode, tokenizer):
        self.encode, self.tokenizer = encode, tokenizer

    def __call__(self, batch):
        open(os.path.join(folder, "called"), "a").write("x")
        return {"input_ids": self.encode(self.tokenizer, batch["text"])}


def by_bpe(tokenizer, texts):
    return tokenizer.encode_batch(texts, allowed_special="all")


def by_transformers(tokenizer, texts):
    return tokenizer(texts)["input_ids"]


if __name__ == "__main__":
    import multiprocess
    multiprocess.set_start_method(method)
    import datasets, transformers
    import bpe
    from bpe.integrations.transformers import accelerate
    datasets.disable_progress_bars()
    data = datasets.load_from_disk(os.path.join(folder, "data"))
    tokenizer = bpe.load(os.path.join(folder, "tokenizer.json"))
    fast = accelerate(transformers.PreTrainedTokenizerFast(tokenizer_file=os.path.join(folder, "tokenizer.json")))
    tokenizer.encode("used before"), fast("used before")
    for function in (Map(by_bpe, tokenizer), Map(by_transformers, fast)):
        made = data.map(function, batched=True, batch_size=10, num_proc=processes or None)
        assert list(made["input_ids"]) == by_bpe(tokenizer, list(data["text"])), function
        print(made._fingerprint)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer, a dataset of 40 rows, and the program that maps over it."""
    import datasets

    place = tmp_path_factory.mktemp("datasets")
    bpe.train([corpus(7)], 400).to_huggingface(place / "tokenizer.json")
    datasets.Dataset.from_dict({"text": [corpus(seed, words=20) for seed in range(40)]}).save_to_disk(place / "data")
    (place / "program.py").write_text(MAP)
    return place


def run(folder: Path, method: str, processes: int, seed: str = "0") -> tuple[list[str], int]:
    """(the fingerprints of what was mapped, how many batches were encoded for it)."""
    called = folder / "called"
    called.unlink(missing_ok=True)
    environment = {
        **os.environ,
        "PYTHONHASHSEED": seed,
        "HF_DATASETS_CACHE": str(folder / "cache"),
        "HF_HUB_OFFLINE": "1",
    }
    command = [sys.executable, "-W", "ignore", str(folder / "program.py"), str(folder), method, str(processes)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), len(called.read_text()) if called.exists() else 0


def test_what_was_mapped_is_found_again_by_another_process(folder: Path) -> None:
    first, called = run(folder, "spawn", 0, seed="1")
    assert called == 8
    again, called = run(folder, "spawn", 0, seed="2")
    assert again == first
    assert called == 0, "the cache was not found"


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes_of_every_kind(folder: Path, method: str) -> None:
    fingerprints, _ = run(folder, method, 2)
    assert len(fingerprints) == 2
