"""One step: documents apart, what is computed again, number formats, the device that is chosen, and the profile."""

from __future__ import annotations

import dataclasses
import itertools
import math
import subprocess
import sys

import pytest
import torch
from models import SHAPES
from runs import CONFIG, MODEL, assert_same_run, metrics, new_model, run, some_tokens, stop_at, write_settings

import accounting
from lm import device as machine
from lm.commands.cli import main
from lm.commands.configuration import configuration
from lm.data import open_tokens
from lm.loss import CHUNK_BYTES
from lm.training import budget, checkpoint, train, trainer
from lm.training import measure as measuring
from lm.training.measure import measure, profile
from lm.training.objectives.next_token import NextToken
from lm.training.train import OutOfMemory, Stopped
from lm.training.trainer import Trainer
from lm.training.validation import evaluate

END = 3


def gradients(model):
    gradient_list = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    return gradient_list


def alone(ids):
    """The documents of a row, each from its end-of-text token on, as rows of their own."""
    begins = [0, *(i for i in range(1, len(ids)) if ids[i] == END), len(ids)]
    return [ids[a:b][None] for a, b in itertools.pairwise(begins)]


@pytest.mark.parametrize("shape", SHAPES)
def test_packed_documents_give_the_gradients_of_documents_one_by_one(shape):
    model = new_model(shape)
    both = torch.tensor([[7, 9, END, 4, 5, 6, END, END, 8, 8, 2, 9, 1, 1, END, 30, 2]])
    inputs, targets = both[:, :-1], both[:, 1:]
    packed = NextToken(model, CONFIG, END)(inputs, targets)
    packed.backward()
    want = gradients(model)
    total, at = 0.0, 0
    for document in alone(inputs[0]):
        loss = NextToken(model, CONFIG, None)(document, targets[:, at : at + document.shape[1]])
        loss.backward()
        total, at = total + loss.detach(), at + document.shape[1]
    torch.testing.assert_close(packed.detach(), total, rtol=1e-12, atol=1e-12)
    for actual, expected in zip(gradients(model), want, strict=True):
        torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)
    assert not torch.isclose(NextToken(model, CONFIG, None)(inputs, targets).detach(), total)


def test_a_run_with_documents_apart(with_ends, tmp_path):
    config = dataclasses.replace(CONFIG, document_masking=True)
    whole = run(with_ends, tmp_path / "apart", config)
    assert whole.loss != run(with_ends, tmp_path / "joined").loss
    heldout = open_tokens(with_ends / "heldout.npy")
    again = evaluate(whole.model, heldout, max_tokens=CONFIG.eval_tokens, document_masking=True)
    assert again == whole.heldout
    assert evaluate(whole.model, heldout, max_tokens=CONFIG.eval_tokens) != whole.heldout


def test_documents_need_the_end_of_text(data, tmp_path):
    with pytest.raises(ValueError, match="does not say which that is"):
        run(data, tmp_path / "run", dataclasses.replace(CONFIG, document_masking=True))
    assert not (tmp_path / "run").exists()
    with pytest.raises(ValueError, match="do not say which that is"):
        evaluate(new_model("llama"), some_tokens(50), document_masking=True)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("end_of_text", [None, END])
def test_checkpointing_changes_no_bit_of_the_gradients(shape, end_of_text):
    model, ids = new_model(shape, torch.float32), torch.from_numpy(some_tokens(34).reshape(2, 17))
    by_setting = {}
    for what in ("none", "selective", "full"):
        model.set_activation_checkpointing(what)
        sizes = []
        hooks = torch.autograd.graph.saved_tensors_hooks(
            lambda t, sizes=sizes: sizes.append(t.nbytes) or t, lambda t: t
        )
        with hooks:
            loss = NextToken(model, CONFIG, end_of_text)(ids[:, :-1], ids[:, 1:])
        loss.backward()
        by_setting[what] = (sum(sizes), loss.detach(), gradients(model))
    for what in ("selective", "full"):
        assert torch.equal(by_setting[what][1], by_setting["none"][1])
        assert all(torch.equal(a, b) for a, b in zip(by_setting[what][2], by_setting["none"][2], strict=True))
    assert by_setting["full"][0] < by_setting["selective"][0] < by_setting["none"][0]


def test_checkpointing_refuses_what_it_does_not_know():
    with pytest.raises(ValueError, match="'some' is unknown"):
        new_model("llama").set_activation_checkpointing("some")


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_a_stopped_run_in_a_narrow_format_continues_to_the_bit(with_ends, tmp_path, precision):
    config = dataclasses.replace(CONFIG, precision=precision)
    result = run(with_ends, tmp_path / "whole", config)
    for stop in (5, 12):
        with pytest.raises(Stopped):
            run(with_ends, tmp_path / "stopped", config, on_step=stop_at(stop))
    run(with_ends, tmp_path / "stopped", config)
    assert_same_run(tmp_path / "stopped", tmp_path / "whole", but=("seconds", "best"))
    assert ("scaler" in checkpoint.load(tmp_path / "whole" / "checkpoints").state) == (precision == "fp16")
    wide = run(with_ends, tmp_path / "wide")
    assert result.loss == pytest.approx(wide.loss, rel=0.02)
    assert result.loss != wide.loss


def test_an_overflow_of_fp16_lowers_the_scale_and_is_no_trouble(with_ends, tmp_path, monkeypatch):
    real = torch.amp.GradScaler

    monkeypatch.setattr(
        torch.amp, "GradScaler", lambda device, enabled: real(device, init_scale=2.0**40, enabled=enabled)
    )
    config = dataclasses.replace(CONFIG, precision="fp16", steps=40, warmup_steps=30)
    run(with_ends, tmp_path, config)
    lines = [line for line in metrics(tmp_path) if "learning_rate" in line]
    skipped = [line for line in lines if "skipped" in line]
    assert len(skipped) > 10  # more in a row than would end the run if it were the data's fault
    assert all("scale of the loss is lowered" in line["skipped"] for line in skipped)
    assert "skipped" not in lines[-1]
    state = checkpoint.load(tmp_path / "checkpoints").state
    assert state["scaler"]["scale"] == 2.0 ** (40 - len(skipped))


def test_memory_is_the_machines_or_what_its_group_may_have(tmp_path, monkeypatch):
    cpu, limits = torch.device("cpu"), [tmp_path / "memory.max", tmp_path / "limit_in_bytes"]
    monkeypatch.setattr(machine, "GROUP_LIMITS", limits)
    whole = machine.memory_of(cpu)
    assert whole > 1 << 20, "where nothing limits it, as on most machines"
    limits[0].write_text("max\n")
    assert machine.memory_of(cpu) == whole
    limits[1].write_text("1000000\n")
    assert machine.memory_of(cpu) == 1_000_000


def test_what_is_not_on_this_machine_is_refused():
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="device 'cuda' is not on this machine"):
            machine.choose_device("cuda")
    with pytest.raises(ValueError, match="device 'gpu' is unknown: use 'auto'"):
        machine.choose_device("gpu")
    with pytest.raises(ValueError, match=r"precision 'tf32' is CUDA's, and the device is cpu"):
        machine.choose_precision("tf32", torch.device("cpu"))


@pytest.mark.parametrize(("flags", "precision"), [("avx2 avx512f", "fp32"), ("avx512_bf16", "bf16")])
def test_auto_is_bf16_on_a_processor_that_multiplies_it(flags, precision, monkeypatch):
    monkeypatch.setattr(machine, "cpuinfo", lambda: {"flags": flags})
    assert machine.choose_precision("auto", torch.device("cpu")) == precision


def test_tf32_is_put_back():
    before = torch.get_float32_matmul_precision()
    with machine.threads(0, "tf32"):
        assert torch.get_float32_matmul_precision() == "high"
    assert torch.get_float32_matmul_precision() == before


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 PCIe", "h100-pcie"),
        ("NVIDIA H100 NVL 2X", None),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA GeForce RTX 4090", "rtx-4090"),
        ("NVIDIA GeForce RTX 4090 Laptop GPU", None),
        ("NVIDIA GeForce RTX 3080 Ti", None),
        ("NVIDIA GeForce RTX 4080 SUPER", None),
        ("NVIDIA GeForce RTX 2070 with Max-Q Design", None),
        ("NVIDIA GeForce RTX 4090 D", None),
        ("NVIDIA RTX A6000", "rtx-a6000"),
        ("NVIDIA RTX 6000 Ada Generation", "rtx-6000-ada"),
        ("Quadro RTX 6000", None),
        ("NVIDIA A10", "a10"),
        ("NVIDIA A10G", "a10g"),
        ("Tesla V100-SXM2-16GB", "v100-16gb"),
        ("Tesla V100-SXM3-32GB", None),
        ("Tesla V100-PCIE-16GB", "v100-pcie-16gb"),
        ("Tesla V100S-PCIE-32GB", None),
        ("NVIDIA A100-SXM4-80GB MIG 1g.10gb", None),
        ("AMD Instinct MI250X", "mi250x"),
        ("NVIDIA GeForce RTX 2080 Ti", "rtx-2080-ti"),
        ("Quadro P2000", None),
    ],
)
def test_cards_are_known_by_the_drivers_name(name, expected):
    card = machine.known_device(name)
    assert (card.name if card else None) == expected


def test_a_step_of_many_passes_is_not_run_whole_to_be_measured(monkeypatch):
    clock, ran = [0.0], []

    def forward_backward(self, micro_batches, num_targets):
        ran.append(len(micro_batches))
        clock[0] += 30.0 if len(ran) == 1 else 3.0 * len(micro_batches)
        assert num_targets == sum(x.numel() for x, _ in micro_batches)
        return 1.0

    def clip(parameters, limit):
        clock[0] += 1.0
        return torch.ones(())

    monkeypatch.setattr(measuring.time, "perf_counter", lambda: clock[0])
    monkeypatch.setattr(Trainer, "forward_backward", forward_backward)
    monkeypatch.setattr(trainer, "clip_grad_norm_", clip)
    assert measure(MODEL, dataclasses.replace(CONFIG, batch_size=512, micro_batch_size=4)) == 128 * 3 + 1
    assert ran == [2, 2, 2, 2]
    ran[:] = [1]
    assert measure(MODEL, dataclasses.replace(CONFIG, batch_size=1)) == 4
    assert len(ran) == 1 + 7  # 24 seconds after the first


def test_a_model_beyond_memory_is_refused_with_what_fits(data, tmp_path, monkeypatch):
    def full(*_):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")

    policy = accounting.Policy(
        loss="chunked",
        norm_kernel="composite",
        attention_kernel="blocks",
        gradient_accumulation=True,
        logits_chunk_bytes=CHUNK_BYTES["cpu"],
    )
    config = dataclasses.replace(CONFIG, batch_size=16)

    def needs(micro):
        return int(accounting.training_memory(MODEL.shape(), micro, policy=policy).total)

    for room, says in (
        (needs(4), r"with 16 sequences at a time: by accounting's count 4 fit: write --train\.micro_batch_size 4"),
        (needs(1) - 1, r"write --train\.activation_checkpointing full --train\.micro_batch_size [1-9]"),
    ):
        with monkeypatch.context() as patch:
            for module in (budget, train):
                patch.setattr(module, "memory_of", lambda device, room=room: room)
            with pytest.raises(OutOfMemory, match=f"^not enough memory on CPU .*{says}"):  # before anything is written
                run(data, tmp_path, config)
            assert not (tmp_path / "config.toml").exists()
            patch.setattr(train, "beyond", lambda *_: None)
            patch.setattr(Trainer, "forward_backward", full)
            with pytest.raises(OutOfMemory, match=f"^out of memory on CPU .*{says}"):
                run(data, tmp_path / "full", config)
    result = run(data, tmp_path, dataclasses.replace(config, micro_batch_size=4, activation_checkpointing="full"))
    assert math.isfinite(result.loss)
    run(data, tmp_path / "whole", config)
    one, other = (metrics(folder)[-1]["val_loss"] for folder in (tmp_path, tmp_path / "whole"))
    assert one == pytest.approx(other, rel=1e-4)


def test_a_speedrun_that_a_cpu_has_no_memory_for_is_refused(monkeypatch):
    model, config = configuration("speedrun", [])
    assert model.value_embeddings
    assert config.optimizer == "normuon"
    monkeypatch.setattr(budget, "memory_of", lambda device: 16e9)
    message = budget.beyond(model, dataclasses.replace(config, precision="fp32"), torch.device("cpu"), 512)
    assert message == (
        f"not enough memory on {machine.device_name(torch.device('cpu'))} (16.0 GB) with 32 sequences at a time: "
        f"lower --train.micro_batch_size"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_freed_memory_is_kept():
    program = """
import resource, torch
from lm.device import keep_freed_memory
keep_freed_memory()
def step():
    return torch.ones(64 << 20).sum()
for _ in range(5):
    step()
faults = []  # the least of some steps: a system short of memory takes pages back now and then
for _ in range(5):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    step()
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(min(faults))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert int(done.stdout) < 100  # of 65,536 pages


def test_a_profile_has_the_operators_of_the_steps():
    """Of a step of many micro-batches two are run."""
    config = dataclasses.replace(CONFIG, batch_size=6, micro_batch_size=1)
    rows = {row.key: row for row in profile(MODEL, config, steps=3).key_averages()}
    assert rows["Optimizer.step#AdamW.step"].count == 3
    assert sum(rows[name].cpu_time_total for name in rows) > 0
    assert len(rows) > 20


@pytest.mark.parametrize(
    ("changed", "steps", "message"),
    [({}, 0, "at least 1 step"), ({"compile": "on"}, 2, "hides the operators of the blocks")],
)
def test_profiles_that_cannot_be_are_refused(changed, steps, message):
    with pytest.raises(ValueError, match=message):
        profile(MODEL, dataclasses.replace(CONFIG, **changed), steps=steps)


def test_the_command_profiles_a_step(tmp_path, capsys):
    config, trace = tmp_path / "small.toml", tmp_path / "trace.json"
    write_settings(config, steps=10, batch_size=8, threads=1, device="cpu", precision="fp32")
    assert main(["profile", str(config), "--steps", "2", "--most", "99", "--trace", str(trace)]) == 0
    assert "traceEvents" in trace.read_text()
    words = capsys.readouterr().out
    assert "128 tokens a step on CPU, fp32: " in words
    for line in ("tokens/s", "CPU Mem", "Self CPU time total"):
        assert line in words
    assert main(["profile", str(config), "--most", "0"]) == 2
    assert main(["profile", str(config), "--trace", str(tmp_path / "nowhere" / "t.json")]) == 2
    assert "there is no folder" in capsys.readouterr().err
