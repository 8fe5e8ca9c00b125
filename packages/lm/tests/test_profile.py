"""The report of `lm profile`: arithmetic and memory of a step are those that are counted beforehand."""

import json
from dataclasses import replace

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from accounting import training_flops
from lm.commands.cli import main
from lm.config import ModelConfig, TrainConfig
from lm.ops.cpu import products
from lm.ops.cpu.passes import means
from lm.training.profile import PHASES, PhasedTrainer, profile

MODEL = ModelConfig(400, 64, 3, 64, 4, 176)
PRODUCT = "mkldnn::_linear_pointwise" if products.has_fast_onednn() else "aten::mm"
TRAIN = TrainConfig(steps=10, warmup_steps=1, batch_size=4, device="cpu", precision="fp32", compile="off", threads=1)


@pytest.fixture(scope="module")
def profiled():
    return profile(MODEL, TRAIN, steps=2)


def test_the_passes_make_up_the_step(profiled):
    assert len(profiled.seconds) == 2
    assert all(list(step) == list(PHASES) and min(step.values()) > 0 for step in profiled.seconds)
    assert profiled.tokens == 4 * 64
    assert profiled.micro_batches == (1, 1)


def test_flops_of_the_operators_are_those_that_are_counted(profiled):
    """Score matrices have every pair of positions; in C a query computes those that it sees."""
    in_c = means(torch.device("cpu")) == "C"
    expected = training_flops(MODEL.shape(), batch_size=4, pairs="causal" if in_c else "full").total
    assert sum(one.flops for one in profiled.operators) == expected
    assert profiled.flops == training_flops(MODEL.shape(), batch_size=4, pairs="causal").total
    seconds = [one.seconds for one in profiled.operators]
    assert seconds == sorted(seconds, reverse=True)
    assert {PRODUCT, "_AttendBackward" if in_c else "aten::bmm"} <= {one.name for one in profiled.operators}


def test_memory_is_what_accounting_predicts(profiled):
    for phase in PHASES:
        assert profiled.highest[phase] == pytest.approx(profiled.predicted_highest(phase), rel=0.03), phase


def test_a_step_of_many_micro_batches_runs_two(tmp_path):
    config = replace(TRAIN, batch_size=6, micro_batch_size=1)
    profiled = profile(MODEL, config, steps=2, trace=tmp_path / "trace.json")
    assert profiled.micro_batches == (2, 6)
    assert profiled.tokens == 2 * 64
    assert profiled.highest["backward"] == pytest.approx(profiled.predicted_highest("backward"), rel=0.03)
    names = [event.get("name") for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]]
    assert names.count("forward") == names.count("backward") == 2
    assert PRODUCT in names


def test_a_profiled_step_trains_as_any_other():
    """Watching a step changes nothing in it."""
    from lm.model import Transformer
    from lm.training.trainer import Trainer

    ids = torch.randint(0, 400, (4, 65), generator=torch.Generator().manual_seed(1))
    batches = [(ids[:, :-1], ids[:, 1:])] * 2
    weights = []
    for kind in (Trainer, PhasedTrainer):
        torch.manual_seed(0)
        trainer = kind(Transformer(MODEL), TRAIN)
        for one in batches:
            if isinstance(trainer, PhasedTrainer):
                with FlopCounterMode(display=False):
                    trainer.timed_step(iter([one]))
            else:
                trainer.train_step(iter([one]))
        weights.append(trainer.model.state_dict())
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.parametrize(
    ("changed", "steps", "message"),
    [({}, 1, "at least 2 steps"), ({"compile": "on"}, 2, "hides the operators of the blocks")],
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
    assert main(["profile", str(config), "--steps", "2", "--most", "3"]) == 0
    words = capsys.readouterr().out
    assert "128 tokens a step on CPU, fp32" in words
    for line in ("forward  ", "backward  ", "optimizer step  ", "others  ", "most memory", "accounting"):
        assert line in words
    assert main(["profile", str(config), "--most", "0"]) == 2
    assert main(["profile", str(config), "--trace", str(tmp_path / "nowhere" / "t.json")]) == 2
    assert "there is no folder" in capsys.readouterr().err
