"""lm verify: parts of a run are trained again and compared with what it kept."""

from __future__ import annotations

import dataclasses
import re

import pytest
import safetensors.torch
from runs import CONFIG, run

from lm.commands.cli import main
from lm.files import sha256


@pytest.mark.parametrize("change", [{}, {"dropout": 0.1, "optimizer": "normuon"}])
def test_a_run_is_what_its_steps_come_to(data, tmp_path, capsys, change):
    config = dataclasses.replace(CONFIG, keep_checkpoints=4, **change)
    run(data, tmp_path / "run", config)
    command = ["verify", str(tmp_path / "run"), "--data", str(data)]
    assert main([*command, "--segments", "2"]) == 0
    equal = "weights, optimizer and losses are equal to the bit"
    assert capsys.readouterr().out.splitlines() == [f"steps 17 to 20: {equal}", f"steps 13 to 16: {equal}"]


def test_what_was_changed_is_named(data, tmp_path, capsys):
    """A weight of the checkpoint between, with its hash; so that no hash shows it."""
    run(data, tmp_path / "run", CONFIG)
    command = ["verify", str(tmp_path / "run"), "--data", str(data)]
    path = next((tmp_path / "run" / "checkpoints").glob("*16/model.safetensors"))
    weights = safetensors.torch.load_file(path)
    weights["final_norm.weight"][3] += 1e-3
    before = sha256(path)
    safetensors.torch.save_file(weights, path)
    for about in path.parent.glob("*.json"):
        about.write_text(about.read_text().replace(before, sha256(path)))
    assert main(command) == 1
    captured = capsys.readouterr()
    assert "steps 17 to 20: the loss of step 17 was" in captured.out
    assert re.search(r"[1-9]\d* of \d+ elements of \S+ differ, by at most", captured.out)
    assert "the optimizer's state differs" in captured.out
    assert "is not what its steps come to here" in captured.err
    assert main([*command, "--segments", "0"]) == 2
