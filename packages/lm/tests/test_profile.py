"""`lm profile`: the operators of a step."""

from dataclasses import replace

import pytest

from lm.commands.cli import main
from lm.config import ModelConfig, TrainConfig
from lm.training.measure import profile

MODEL = ModelConfig(400, 64, 3, 64, 4, 176)
TRAIN = TrainConfig(steps=10, warmup_steps=1, batch_size=4, device="cpu", precision="fp32", compile="off", threads=1)


def test_the_operators_of_the_steps():
    config = replace(TRAIN, batch_size=6, micro_batch_size=1)  # of a step of many micro-batches two are run
    rows = {row.key: row for row in profile(MODEL, config, steps=3).key_averages()}
    assert rows["Optimizer.step#AdamW.step"].count == 3
    assert sum(rows[name].cpu_time_total for name in rows) > 0
    assert len(rows) > 20


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
    trace = tmp_path / "trace.json"
    assert main(["profile", str(config), "--steps", "2", "--most", "99", "--trace", str(trace)]) == 0
    assert "traceEvents" in trace.read_text()
    words = capsys.readouterr().out
    assert "128 tokens a step on CPU, fp32: " in words
    for line in ("tokens/s", "CPU Mem", "Self CPU time total"):
        assert line in words
    assert main(["profile", str(config), "--most", "0"]) == 2
    assert main(["profile", str(config), "--trace", str(tmp_path / "nowhere" / "t.json")]) == 2
    assert "there is no folder" in capsys.readouterr().err
