"""What `lm profile` says of a step: its arithmetic and its memory are those that are counted beforehand."""

import json
from dataclasses import replace

import pytest
import torch

from accounting import measured_device, training_flops
from lm.commands.cli import main
from lm.config import ModelConfig, TrainConfig
from lm.ops.cpu import products
from lm.training.profile import PHASES, Operator, PhasedTrainer, Recorder, moved, profile

MODEL = ModelConfig(400, 64, 3, 64, 4, 176)
PRODUCT = "mkldnn::_linear_pointwise" if products.chosen() else "aten::mm"
TRAIN = TrainConfig(steps=10, warmup_steps=1, batch_size=4, device="cpu", precision="fp32", compile="off", threads=1)


@pytest.fixture(scope="module")
def found():
    return profile(MODEL, TRAIN, steps=2)


def test_the_passes_make_up_the_step(found):
    assert list(found.passes) == [*PHASES, "step"]
    assert all(timing.mean > 0 for timing in found.passes.values())
    assert sum(found.passes[name].mean for name in PHASES) == pytest.approx(found.passes["step"].mean)
    assert found.tokens == 4 * 64
    assert found.micro_batches == (1, 1)


def test_flops_of_the_operators_are_those_that_are_counted(found):
    """A block of 64 queries computes every pair of 64 positions, so nothing is left out and nothing is added."""
    assert sum(one.flops for one in found.operators) == training_flops(MODEL.shape(), batch_size=4, pairs="full").total
    assert found.flops == training_flops(MODEL.shape(), batch_size=4, pairs="causal").total
    seconds = [one.seconds for one in found.operators]
    assert seconds == sorted(seconds, reverse=True)
    assert {PRODUCT, "aten::bmm"} <= {one.name for one in found.operators}


def test_memory_is_what_accounting_predicts(found):
    for phase in PHASES:
        assert found.most(phase) == pytest.approx(found.predicted_most(phase), rel=0.03), phase
    moments = [one.seconds for one in found.timeline]
    assert moments == sorted(moments)
    phases = list(dict.fromkeys(one.phase for one in found.timeline))
    assert phases[-3:] == ["forward", "backward", "optimizer step"] or phases == [
        "optimizer step",
        "forward",
        "backward",
    ]


def test_a_step_of_many_micro_batches_runs_two(tmp_path):
    config = replace(TRAIN, batch_size=6, micro_batch_size=1)
    found = profile(MODEL, config, steps=2, trace=tmp_path / "trace.json")
    assert found.micro_batches == (2, 6)
    assert found.tokens == 2 * 64
    assert found.most("backward") == pytest.approx(found.predicted_most("backward"), rel=0.03)
    names = [event.get("name") for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]]
    assert names.count("forward") == names.count("backward") == 2
    assert PRODUCT in names


def test_bytes_by_hand():
    a, b = torch.ones(3, 4), torch.ones(4, 5)
    recorder = Recorder(lambda: "forward", [a, b])
    assert recorder.now == 4 * (12 + 20)
    with recorder:
        product = a @ b
        product.t().view(-1) if product.t().is_contiguous() else product.view(-1)
        product.add_(1)
        torch.empty(100)
    assert recorder.flops == {"aten::mm": 2 * 3 * 4 * 5}
    assert recorder.bytes["aten::mm"] == 4 * (12 + 20 + 15)
    assert recorder.bytes["aten::view"] == recorder.bytes["aten::empty"] == 0
    assert recorder.bytes["aten::add_"] == 2 * 4 * 15
    assert recorder.now == 4 * (12 + 20 + 15)
    assert max(one.bytes for one in recorder.timeline) == 4 * (12 + 20 + 15 + 100)
    lists = ([a], [b])
    assert moved(torch.ops.aten._foreach_add_.List, lists, [a, b], []) == 4 * (12 + 20 + 12)


def test_the_share_of_the_roofline():
    device = measured_device("a desk", 1e9, bandwidth=1e9)
    assert Operator("bound by arithmetic", 1, 4.0, 2 * 10**9, 10**9).roofline(device, "fp32") == 0.5
    assert Operator("bound by bandwidth", 1, 4.0, 0, 10**9).roofline(device, "fp32") == 0.25
    assert Operator("not seen", 1, 4.0, 0, None).roofline(device, "fp32") is None
    assert Operator("a view", 1, 4.0, 0, 0).roofline(device, "fp32") is None


def test_a_profiled_step_trains_as_any_other():
    """What watches a step changes nothing in it."""
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
                with Recorder(lambda trainer=trainer: trainer.phase, list(trainer.model.parameters())):
                    trainer.timed_step(iter([one]))
            else:
                trainer.train_step(iter([one]))
        weights.append(trainer.model.state_dict())
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])


@pytest.mark.parametrize(
    ("changed", "steps", "message"),
    [({}, 1, "steps 1 must be at least 2"), ({"compile": "on"}, 2, "hides the operators of the blocks")],
)
def test_refusals(changed, steps, message):
    with pytest.raises(ValueError, match=message):
        profile(MODEL, replace(TRAIN, **changed), steps=steps)


def test_the_command(tmp_path, capsys):
    config = tmp_path / "small.toml"
    config.write_text(
        "[model]\nvocab_size = 400\ncontext_length = 64\nnum_layers = 2\nd_model = 32\nnum_heads = 2\nd_ff = 88\n"
        "[train]\nsteps = 10\nwarmup_steps = 1\nbatch_size = 2\nthreads = 1\ndevice = 'cpu'\n"
    )
    kept = tmp_path / "profile.json"
    assert main(["profile", str(config), "--steps", "2", "--most", "3", "--json", str(kept)]) == 0
    words = capsys.readouterr().out
    assert "128 tokens a step on CPU, fp32" in words
    for line in ("forward  ", "backward  ", "optimizer step  ", "others  ", "memory over a step", "accounting"):
        assert line in words
    data = json.loads(kept.read_text())
    assert data["tokens"] == 128
    assert {"passes", "operators", "timeline", "predicted bytes", "flops"} <= set(data)
    assert main(["profile", str(config), "--most", "0"]) == 2
    assert main(["profile", str(config), "--trace", str(tmp_path / "nowhere" / "t.json")]) == 2
    assert "there is no folder" in capsys.readouterr().err
