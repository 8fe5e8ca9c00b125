"""`lm profile`: the phases and operators of a step, which trains as any other."""

import json
from dataclasses import replace

import pytest
import torch

from lm.commands.cli import main
from lm.config import ModelConfig, TrainConfig
from lm.model import Transformer
from lm.training.profile import PHASES, PhasedTrainer, profile
from lm.training.trainer import Trainer

MODEL = ModelConfig(400, 64, 3, 64, 4, 176)
TRAIN = TrainConfig(steps=10, warmup_steps=1, batch_size=4, device="cpu", precision="fp32", compile="off", threads=1)


def test_phases_and_operators_of_the_steps(tmp_path):
    config = replace(TRAIN, batch_size=6, micro_batch_size=1)  # of a step of many micro-batches two are run
    profiler = profile(MODEL, config, steps=3, trace=tmp_path / "trace.json")
    rows = {row.key: row for row in profiler.key_averages()}
    assert [rows[name].count for name in PHASES] == [6, 6, 3]
    assert all(rows[name].cpu_time_total > 0 for name in PHASES)
    assert rows["forward"].cpu_memory_usage > 0
    assert len(rows) > 20
    names = [event.get("name") for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]]
    assert names.count("forward") == names.count("backward") == 6


def test_a_profiled_step_trains_as_any_other():
    """Watching a step changes nothing in it."""
    ids = torch.randint(0, 400, (4, 65), generator=torch.Generator().manual_seed(1))
    weights = []
    for kind in (Trainer, PhasedTrainer):
        torch.manual_seed(0)
        trainer = kind(Transformer(MODEL), TRAIN)
        for _ in range(2):
            trainer.train_step(iter([(ids[:, :-1], ids[:, 1:])]))
        weights.append(trainer.model.state_dict())
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.parametrize(
    ("changed", "steps", "message"),
    [({}, 0, "at least 1 step"), ({"compile": "on"}, 2, "hides the operators of the blocks")],
)
def test_refusals(changed, steps, message):
    with pytest.raises(ValueError, match=message):
        profile(MODEL, replace(TRAIN, **changed), steps=steps)


def test_the_command(tmp_path, capsys):
    config = tmp_path / "small.toml"
    config.write_text(
        "[model]\nvocab_size = 400\ncontext_length = 64\nnum_layers = 2\nd_model = 32\nnum_heads = 2\nd_ff = 88\n"
        "[train]\nsteps = 10\nwarmup_steps = 1\nbatch_size = 2\nthreads = 1\ndevice = 'cpu'\nprecision = 'fp32'\n"
    )
    assert main(["profile", str(config), "--steps", "2", "--most", "99"]) == 0
    words = capsys.readouterr().out
    assert "128 tokens a step on CPU, fp32: " in words
    for line in ("tokens/s", "forward", "backward", "CPU Mem", "Self CPU time total"):
        assert line in words
    assert main(["profile", str(config), "--most", "0"]) == 2
    assert main(["profile", str(config), "--trace", str(tmp_path / "nowhere" / "t.json")]) == 2
    assert "there is no folder" in capsys.readouterr().err
